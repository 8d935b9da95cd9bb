"""Make Dagster definitions of a policy: assets, blocking checks and a job; `check_lineage` guards the asset graph."""

from typing import TYPE_CHECKING

from dptext_etl.extensions import exports

if TYPE_CHECKING:
    from dptext_etl.orchestration.component import PolicyComponent as PolicyComponent
    from dptext_etl.orchestration.definitions import MaterializationSummary as MaterializationSummary
    from dptext_etl.orchestration.definitions import build_definitions as build_definitions
    from dptext_etl.orchestration.definitions import materialize as materialize
    from dptext_etl.orchestration.lineage import check_lineage as check_lineage
    from dptext_etl.orchestration.resources import KeyResource as KeyResource
    from dptext_etl.orchestration.resources import LedgerResource as LedgerResource
    from dptext_etl.orchestration.resources import Maintenance as Maintenance
    from dptext_etl.orchestration.resources import PolicyTranslator as PolicyTranslator
    from dptext_etl.orchestration.resources import PublishedTable as PublishedTable
    from dptext_etl.orchestration.resources import after_gates as after_gates

_HOMES = {
    "KeyResource": ".resources",
    "LedgerResource": ".resources",
    "Maintenance": ".resources",
    "MaterializationSummary": ".definitions",
    "PolicyComponent": ".component",
    "PolicyTranslator": ".resources",
    "PublishedTable": ".resources",
    "after_gates": ".resources",
    "build_definitions": ".definitions",
    "check_lineage": ".lineage",
    "materialize": ".definitions",
}
__all__ = [
    "KeyResource",
    "LedgerResource",
    "Maintenance",
    "MaterializationSummary",
    "PolicyComponent",
    "PolicyTranslator",
    "PublishedTable",
    "after_gates",
    "build_definitions",
    "check_lineage",
    "materialize",
]

__getattr__, __dir__ = exports(__name__, _HOMES, ("dagster", "dagster_shared"))
