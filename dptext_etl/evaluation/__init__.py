"""Attacks and metrics, for research on public data only: nothing here may be released per record."""

from dptext_etl.evaluation.query_attack import QueryAttack, queries_needed, replays_seen

__all__ = ["QueryAttack", "queries_needed", "replays_seen"]
