"""Plan the sets of canary rows of a run, with ids that the source does not use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import polars as pl

from dptext_etl._kernel import Secret
from dptext_etl.checks import canaries
from dptext_etl.checks.canaries import CanaryPlan
from dptext_etl.errors import DPTextError
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy

SETS, SET_ROWS = 10, 500
"""A run has a set of canary rows for so many rows, up to so many sets."""

Present = Callable[[pl.Series], pl.Series]
"""Takes candidate ids, of the type of the source, and returns those that the source uses."""


def canary_sets(first: int, rows: int, least: int) -> range:
    """Number the sets of canary rows of a run, by its rows alone; `least` are the shards that short texts would fill.

    >>> canary_sets(0, 60, 1), canary_sets(0, 2_000, 1), canary_sets(3, 10_000_000, 100)
    (range(0, 1), range(0, 4), range(3, 103))
    """
    return range(first, first + max(min(SETS, -(-rows // SET_ROWS)), least)) if rows else range(first, first)


def by_shard(plans: Sequence[CanaryPlan], shards: range) -> dict[int, list[CanaryPlan]]:
    sets: dict[int, list[CanaryPlan]] = {number: [] for number in shards}
    for at, plan in enumerate(plans):
        sets[shards[at * len(shards) // len(plans)]].append(plan)
    return sets


def plan_canaries(  # noqa: PLR0917
    policy: Policy, dtype: pl.DataType, present: Present, secret: Secret, sets: range, partition: str | None
) -> list[CanaryPlan]:
    """Plan all canary rows with one look at the ids of the source; look again if a candidate is in use."""
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
    """Find the words of canary rows, so that planning them later need not; an error shows itself then."""
    with suppress(DPTextError):
        canaries.words_of(policy, secret)


def plans_as_dicts(plans: Sequence[CanaryPlan]) -> list[dict[str, Any]]:
    """Return plans as JSON holds them: their shards and ids, because the words follow from the secret again."""
    return [{"shard": plan.shard, "ids": _names(plan.ids())} for plan in plans]


def plans_of(
    written: Sequence[Mapping[str, Any]], policy: Policy, partition: str | None, dtype: pl.DataType
) -> tuple[CanaryPlan, ...]:
    """Plan canary rows again from what `plans_as_dicts` wrote: every other candidate counts as taken."""

    def taken_by_others(candidates: pl.Series, ids: frozenset[str]) -> pl.Series:
        return pl.Series([name not in ids for name in _names(candidates)], dtype=pl.Boolean)

    secret = policy.column_policies()[0].secret
    return tuple(
        canaries.plan(
            policy,
            secret,
            plan["shard"],
            dtype,
            partial(taken_by_others, ids=frozenset(plan["ids"])),
            partition=partition,
        )
        for plan in written
    )


def _names(ids: pl.Series) -> list[str]:
    names: list[str] = canonical_ids(ids.to_arrow()).to_pylist()
    return names
