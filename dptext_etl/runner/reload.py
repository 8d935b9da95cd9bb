"""Write a staged run as JSON, for another process that judges or publishes it.

The record holds counts, hashes and places, no text and no key. Canary rows are written as ids alone: their words follow
from the secret again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from dptext_etl._kernel import Secret
from dptext_etl.checks.canaries import rows as canaries
from dptext_etl.checks.canaries.rows import CanaryPlan
from dptext_etl.errors import KeyReferenceError
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import ReleaseRef
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.shard.records import StagedShard
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.staged import StagedRun

_VERSION = 1


def to_json(staged: StagedRun) -> str:
    """Write a staged run, without its policy."""
    facts = {
        "version": _VERSION,
        "partition": staged.partition,
        "key": key_mark(_secret(staged.policy)),
        "shards": [shard.as_dict() for shard in staged.shards],
        "canaries": planted(staged.canaries),
        "refs": {name: asdict(ref) for name, ref in staged.refs.items()},
        "rows": staged.rows,
        "dropped": staged.dropped,
        "base": staged.base,
        "seconds": staged.seconds,
        **({} if staged.origin is None else {"origin": staged.origin}),
    }
    return json.dumps(facts, indent=1)


def from_json(text: str, policy: Policy) -> StagedRun:
    """Read what `to_json` wrote."""
    facts = json.loads(text)
    if facts["version"] != _VERSION:
        msg = "another version of the record"
        raise ValueError(msg)
    shards = tuple(StagedShard.from_dict(shard) for shard in facts["shards"])
    if facts["key"] != key_mark(_secret(policy)):
        msg = "the noise key is not the key that the rows were staged under"
        raise KeyReferenceError(msg, "give the key of the staging step, or stage again")
    partition = facts["partition"]
    return StagedRun(
        policy=policy,
        partition=partition,
        shards=shards,
        canaries=_plans(policy, partition, shards, facts["canaries"]),
        refs={name: ReleaseRef(**ref) for name, ref in facts["refs"].items()},
        rows=facts["rows"],
        dropped=tuple(facts["dropped"]),
        base=facts["base"],
        seconds=facts["seconds"],
        origin=facts.get("origin"),
    )


def planted(plans: Sequence[CanaryPlan]) -> list[dict[str, Any]]:
    """Write canary rows as their shards and ids; `plans_of` finds the words again."""
    return [{"shard": plan.shard, "ids": _canonical(plan.ids())} for plan in plans]


def plans_of(
    planted: Sequence[Mapping[str, Any]], policy: Policy, partition: str | None, dtype: pl.DataType
) -> tuple[CanaryPlan, ...]:
    """Plan canary rows again from what `planted` wrote: every other candidate counts as taken."""
    secret = _secret(policy)
    return tuple(
        canaries.plan(policy, secret, plan["shard"], dtype, _all_but(plan["ids"]), partition=partition)
        for plan in planted
    )


def _plans(
    policy: Policy,
    partition: str | None,
    shards: Sequence[StagedShard],
    planted: Sequence[Mapping[str, Any]],
) -> tuple[CanaryPlan, ...]:
    if not planted:
        return ()
    dtype = Staging(Layout.of(policy, partition).staging).schema(shards[0])[policy.id]
    return plans_of(planted, policy, partition, dtype)


def _all_but(planted: Sequence[str]) -> Callable[[pl.Series], pl.Series]:
    ids = set(planted)

    def taken(candidates: pl.Series) -> pl.Series:
        return pl.Series([name not in ids for name in _canonical(candidates)], dtype=pl.Boolean)

    return taken


def _canonical(ids: pl.Series) -> list[str]:
    names: list[str] = canonical_ids(ids.to_arrow()).to_pylist()
    return names


def _secret(policy: Policy) -> Secret:
    return policy.column_policies()[0].secret


def key_mark(secret: Secret) -> str:
    """Hash the noise key, so that two keys can be distinguished and nothing else is known of them."""
    return hashlib.sha256(secret.derive("canary", b"dptext/staged/v1")).hexdigest()
