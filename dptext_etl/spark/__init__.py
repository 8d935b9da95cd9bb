"""Release text columns with Spark by views (`register_view`), SQL functions (`register`), or runs (`run_frame`).

`guard` refuses a plan in which raw text avoids them; `published` reads a published table.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptext_etl.policy import LedgerSpec as LedgerSpec
    from dptext_etl.spark.functions import function as function
    from dptext_etl.spark.functions import register as register
    from dptext_etl.spark.functions import register_view as register_view
    from dptext_etl.spark.label_texts import label_function as label_function
    from dptext_etl.spark.spark_frame import published as published
    from dptext_etl.spark.spark_frame import run_frame as run_frame
    from dptext_etl.spark.spark_guard import guard as guard

_WHERE = {
    "LedgerSpec": "policy",
    "function": "spark.functions",
    "guard": "spark.spark_guard",
    "label_function": "spark.label_texts",
    "run_frame": "spark.spark_frame",
    "published": "spark.spark_frame",
    "register": "spark.functions",
    "register_view": "spark.functions",
}

__all__ = ["LedgerSpec", "function", "guard", "label_function", "published", "register", "register_view", "run_frame"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"dptext_etl.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
