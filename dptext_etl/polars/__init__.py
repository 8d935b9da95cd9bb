"""Release text columns with Polars by expressions (`privatize`, the namespace `.dptext`), or by runs (`run_frame`).

Importing the package registers the namespace. `guard` refuses a plan in which raw text avoids the release; `released`
reads a published table.
"""

from typing import TYPE_CHECKING

from dptext_etl.extensions import exports
from dptext_etl.polars.namespace import SPEND, DataFrameNamespace, ExprNamespace, LazyFrameNamespace, guard, privatize

if TYPE_CHECKING:
    from dptext_etl.polars.frame import label as label
    from dptext_etl.polars.frame import released as released
    from dptext_etl.polars.frame import run_frame as run_frame

_WHERE = {"label": ".frame", "released": ".frame", "run_frame": ".frame"}
"""Names that are imported at their first use: an expression needs nothing of a run."""

__all__ = [
    "SPEND",
    "DataFrameNamespace",
    "ExprNamespace",
    "LazyFrameNamespace",
    "guard",
    "label",
    "privatize",
    "released",
    "run_frame",
]

__getattr__, __dir__ = exports(__name__, _WHERE)
