"""Hold one file per post-processing: what becomes of released texts, at no cost. `dptext_etl.catalog` finds them."""
