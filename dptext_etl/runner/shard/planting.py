"""Plan the sets of canary rows of a run, with ids that the source does not use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import polars as pl

from dptext_etl._kernel import Secret
from dptext_etl.checks.canaries import rows as canaries
from dptext_etl.checks.canaries.rows import CanaryPlan
from dptext_etl.errors import DPTextError
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy

Present = Callable[[pl.Series], pl.Series]
"""Takes candidate ids, of the type of the source, and returns those that the source uses."""


def plan_canaries(  # noqa: PLR0917
    policy: Policy, dtype: pl.DataType, present: Present, secret: Secret, sets: range, partition: str | None
) -> list[CanaryPlan]:
    """Plan all canary rows with one look at the ids of the source; look again if a candidate is in use.

    Args:
        policy: The policy of the run.
        dtype: Type of the record ids.
        present: Looks up candidates in the source.
        secret: The noise secret.
        sets: Numbers of the sets.
        partition: Name of the partition, or None.

    Returns:
        One plan per set. The same source, policy and key give the same plans.
    """
    in_use: dict[str, bool] = {}
    while True:
        asked: list[pl.Series] = []

        def taken(candidates: pl.Series, asked: list[pl.Series] = asked) -> pl.Series:
            names = _names(candidates)
            unknown = pl.Series([name not in in_use for name in names], dtype=pl.Boolean)
            if unknown.any():
                asked.append(candidates.filter(unknown))
            return pl.Series([in_use.get(name, False) for name in names], dtype=pl.Boolean)

        plans = [canaries.plan(policy, secret, shard, dtype, taken, partition=partition) for shard in sets]
        if not asked:
            return plans
        candidates = pl.concat([item.rename(policy.id) for item in asked])
        found = set(_names(present(candidates)))
        in_use.update({name: name in found for name in _names(candidates)})
        if not found:
            return plans


def prepare(policy: Policy, secret: Secret) -> None:
    """Find the words of canary rows, so that planning them later need not; what is wrong shows itself then.

    Args:
        policy: The policy of the run.
        secret: The noise secret.
    """
    with suppress(DPTextError):
        canaries.words_of(policy, secret)


def _names(ids: pl.Series) -> list[str]:
    names: list[str] = canonical_ids(ids.to_arrow()).to_pylist()
    return names
