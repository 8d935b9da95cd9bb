"""Re-exports `dptext_etl.spark`: views and SQL functions that release text columns, and whole runs over a frame."""

from dptext_etl.spark import guard, privatize_frame, published, register, register_view

__all__ = ["guard", "privatize_frame", "published", "register", "register_view"]
