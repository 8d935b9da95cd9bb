"""Make Dagster definitions of a policy: assets, blocking checks and a job; `check_lineage` guards the asset graph."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptext_etl.orchestration.component import PolicyComponent as PolicyComponent
    from dptext_etl.orchestration.definitions import MaterializationSummary as MaterializationSummary
    from dptext_etl.orchestration.definitions import build_definitions as build_definitions
    from dptext_etl.orchestration.definitions import materialize as materialize
    from dptext_etl.orchestration.lineage import check_lineage as check_lineage
    from dptext_etl.orchestration.names import PolicyTranslator as PolicyTranslator
    from dptext_etl.orchestration.resources import KeyResource as KeyResource
    from dptext_etl.orchestration.resources import LedgerResource as LedgerResource
    from dptext_etl.orchestration.resources import Maintenance as Maintenance
    from dptext_etl.orchestration.resources import PublishedTable as PublishedTable
    from dptext_etl.orchestration.resources import after_gates as after_gates

_HOMES = {
    "KeyResource": "resources",
    "LedgerResource": "resources",
    "Maintenance": "resources",
    "MaterializationSummary": "definitions",
    "PolicyComponent": "component",
    "PolicyTranslator": "names",
    "PublishedTable": "resources",
    "after_gates": "resources",
    "build_definitions": "definitions",
    "check_lineage": "lineage",
    "materialize": "definitions",
}
_NEEDS = ("dagster", "dagster_shared")
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


def __getattr__(name: str) -> Any:
    """Import a public name at its first use; if Dagster is missing, the error names the extra."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in _NEEDS:
            raise
    from dptext_etl.errors import PolicyError
    from dptext_etl.extensions import pip_install

    raise PolicyError(f"{name} needs Dagster, which is not installed", pip_install("dagster"))


def __dir__() -> list[str]:
    return sorted(__all__)
