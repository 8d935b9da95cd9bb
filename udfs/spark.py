"""Re-exports `dptext_etl.spark`: views and SQL functions that release text columns, and whole runs over a frame."""

from dptext_etl.spark import LedgerSpec, guard, published, register, register_view, run_frame

__all__ = ["LedgerSpec", "guard", "published", "register", "register_view", "run_frame"]
