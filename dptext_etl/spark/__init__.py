"""Spark: SQL functions that release a text column (`register`), whole runs over a data frame (`privatize_frame`).

`guard` refuses a plan in which raw text gets around them; `published` reads what a run published.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptext_etl.spark.frame import privatize_frame as privatize_frame
    from dptext_etl.spark.functions import register as register
    from dptext_etl.spark.plan_guard import guard as guard
    from dptext_etl.spark.reading import published as published

_WHERE = {"guard": "plan_guard", "privatize_frame": "frame", "published": "reading", "register": "functions"}

__all__ = ["guard", "privatize_frame", "published", "register"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
