"""Re-exports `dptext_etl.polars`; importing this module registers the `.dptext` namespace of Polars."""

from dptext_etl.polars import (
    SPEND,
    DataFrameNamespace,
    ExprNamespace,
    LazyFrameNamespace,
    guard,
    privatize,
    released,
    run_frame,
)

__all__ = [
    "SPEND",
    "DataFrameNamespace",
    "ExprNamespace",
    "LazyFrameNamespace",
    "guard",
    "privatize",
    "released",
    "run_frame",
]
