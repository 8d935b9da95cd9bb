"""Register the namespace `.dptext` of Polars on import; `guard` refuses plans that avoid the release."""

from dptext_etl.polars.namespace import SPEND, DataFrameNamespace, ExprNamespace, LazyFrameNamespace
from dptext_etl.polars.plan_guard import guard

__all__ = ["SPEND", "DataFrameNamespace", "ExprNamespace", "LazyFrameNamespace", "guard"]
