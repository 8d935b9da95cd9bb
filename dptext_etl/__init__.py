"""Rewrite text columns under differential privacy, with a ledger and publication gates."""

from typing import TYPE_CHECKING

from dptext_etl.extensions import exports

if TYPE_CHECKING:
    from dptext_etl.catalog import available as available
    from dptext_etl.catalog import load as load
    from dptext_etl.column import privatize as privatize
    from dptext_etl.engines import run as run
    from dptext_etl.ledger import Ledger as Ledger
    from dptext_etl.policy import ColumnPolicy as ColumnPolicy
    from dptext_etl.policy import Policy as Policy
    from dptext_etl.tables import privatize_table as privatize_table

_HOMES = {
    "available": ".catalog",
    "load": ".catalog",
    "privatize": ".column",
    "Ledger": ".ledger",
    "ColumnPolicy": ".policy",
    "Policy": ".policy",
    "privatize_table": ".tables",
    "run": ".engines",
}
__all__ = ["ColumnPolicy", "Ledger", "Policy", "available", "load", "privatize", "privatize_table", "run"]
__version__ = "0.3.0"

__getattr__, __dir__ = exports(__name__, _HOMES)
