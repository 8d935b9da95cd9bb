"""Polars: importing this package registers the `.dptext` namespace; `guard` refuses a plan that goes around it."""

from dptext_etl.polars.namespace import SPEND, DataFrameNamespace, ExprNamespace, LazyFrameNamespace
from dptext_etl.polars.plan_guard import guard

__all__ = ["SPEND", "DataFrameNamespace", "ExprNamespace", "LazyFrameNamespace", "guard"]
