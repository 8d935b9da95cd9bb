"""Metrics, attacks, and audits for releases of dptext_etl; nothing here releases records."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptext_etl_eval.attacks.query import QueryAttack as QueryAttack
    from dptext_etl_eval.attacks.query import queries_needed as queries_needed
    from dptext_etl_eval.attacks.query import replays_seen as replays_seen
    from dptext_etl_eval.auditing.audit import audit as audit
    from dptext_etl_eval.auditing.audit import audit_mechanism as audit_mechanism
    from dptext_etl_eval.auditing.results import Audit as Audit
    from dptext_etl_eval.auditing.results import Trial as Trial
    from dptext_etl_eval.evidence import Evidence as Evidence
    from dptext_etl_eval.evidence import evaluate as evaluate
    from dptext_etl_eval.pairs import Pairs as Pairs
    from dptext_etl_eval.pairs import join as join

_MODULES = {
    "Audit": "auditing.results",
    "Evidence": "evidence",
    "Pairs": "pairs",
    "QueryAttack": "attacks.query",
    "Trial": "auditing.results",
    "audit": "auditing.audit",
    "audit_mechanism": "auditing.audit",
    "evaluate": "evidence",
    "join": "pairs",
    "queries_needed": "attacks.query",
    "replays_seen": "attacks.query",
}
__all__ = [
    "Audit",
    "Evidence",
    "Pairs",
    "QueryAttack",
    "Trial",
    "audit",
    "audit_mechanism",
    "evaluate",
    "join",
    "queries_needed",
    "replays_seen",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that commands start quickly."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
