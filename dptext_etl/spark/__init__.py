"""Release text columns with Spark by views (`register_view`), SQL functions (`register`), or runs (`run_frame`).

`guard` refuses a plan in which raw text avoids them; `published` reads a published table.
"""

from typing import TYPE_CHECKING

from dptext_etl.extensions import exports

if TYPE_CHECKING:
    from dptext_etl.policy import LedgerSpec as LedgerSpec
    from dptext_etl.spark.functions import function as function
    from dptext_etl.spark.functions import label_function as label_function
    from dptext_etl.spark.functions import published as published
    from dptext_etl.spark.functions import register as register
    from dptext_etl.spark.functions import register_view as register_view
    from dptext_etl.spark.functions import run_frame as run_frame
    from dptext_etl.spark.spark_guard import guard as guard

_WHERE = {
    "LedgerSpec": "..policy",
    "function": ".functions",
    "guard": ".spark_guard",
    "label_function": ".functions",
    "run_frame": ".functions",
    "published": ".functions",
    "register": ".functions",
    "register_view": ".functions",
}

__all__ = ["LedgerSpec", "function", "guard", "label_function", "published", "register", "register_view", "run_frame"]

__getattr__, __dir__ = exports(__name__, _WHERE)
