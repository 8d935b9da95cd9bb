"""Check the table around the released texts: what of it could lead a reader to a record or a person."""
