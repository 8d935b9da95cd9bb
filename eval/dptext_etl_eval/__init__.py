"""Provide attacks and metrics for research on public data; never release results of this package per record."""

from dptext_etl_eval.auditing.audit import audit, audit_mechanism
from dptext_etl_eval.auditing.result import Audit, Trial
from dptext_etl_eval.evidence import Evidence, evaluate
from dptext_etl_eval.pairs import Pairs, join
from dptext_etl_eval.query_attack import QueryAttack, queries_needed, replays_seen

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
