"""Describe a run that is computed, staged and committed, and not yet judged or published."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dptext_etl import keys
from dptext_etl._kernel import Secret
from dptext_etl.checks.canaries import CanaryPlan
from dptext_etl.errors import KeyReferenceError
from dptext_etl.ledger import ReleaseRef
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Profile
from dptext_etl.runner.seals import staging_key
from dptext_etl.runner.shard.canaries import plans_as_dicts, plans_of
from dptext_etl.runner.shard.records import ColumnHardware, StagedShard, merge_hardware
from dptext_etl.runner.shard.staging import Staging

_VERSION = 1
_PLAIN = ("partition", "rows", "dropped", "base", "seconds", "origin", "input")
"""Fields that JSON holds as they are."""


@dataclass(frozen=True)
class StagedRun:
    """A run whose rows are computed, staged and committed, but not yet judged or published.

    It holds paths, counts and public facts; `to_json` writes it for another process.
    """

    policy: Policy
    partition: str | None
    shards: tuple[StagedShard, ...]  # the staged shards, in order; none if there was nothing new
    canaries: tuple[CanaryPlan, ...] = field(repr=False)  # the sets of canary rows
    refs: dict[str, ReleaseRef]  # the pinned release of each text column
    # row counts: read, already_published, over_contribution (if any), new, resumed, replayed, quarantined, forgotten
    # (if any), released, null (texts)
    rows: dict[str, int]
    dropped: tuple[str, ...]  # columns of the source that the policy does not name, by place: "column 3"
    base: str | None  # digest of the manifest that an incremental run adds to, or None
    seconds: float  # the duration of staging
    # which version of a table of Delta Lake or Iceberg was read; None for anything else
    origin: dict[str, str] | None = None
    # what the stages of the run took so far
    profile: Profile = field(default_factory=Profile, repr=False, compare=False)
    # what publication notes of the input (`runner.unchanged`); or, if it is that of the run before and nothing is
    # staged, by what it was `recognized`
    input: dict[str, Any] | None = None
    exact: bool = False  # whether values of CSV columns keep their spelling under types that no policy named
    table: dict[str, Any] = field(default_factory=dict)  # what `runner.table_check` found of the table around the texts
    other: bool = False  # whether another machine's table of the same statistic is committed and published instead

    @property
    def layout(self) -> Layout:
        return Layout.of(self.policy, self.partition)

    @property
    def staging_key(self) -> bytes:
        return staging_key(keys.resolve(self.policy.key), self.policy.dataset, self.layout.staging)

    @property
    def computed(self) -> ColumnHardware:
        return merge_hardware(shard.computed for shard in self.shards)

    @property
    def parts(self) -> tuple[Path, ...]:
        staging = Staging(self.layout.staging)
        return tuple(staging.path(shard) for shard in self.shards)


def to_json(staged: StagedRun) -> str:
    """Write counts, hashes, and names of a staged run, without its policy, a text, or a key."""
    facts = {
        "version": _VERSION,
        "key": key_mark(keys.resolve(staged.policy.key)),
        "shards": [shard.as_dict() for shard in staged.shards],
        "canaries": plans_as_dicts(staged.canaries),
        "refs": {name: asdict(ref) for name, ref in staged.refs.items()},
        **{name: getattr(staged, name) for name in _PLAIN},
        "exact": staged.exact,
        "other": staged.other,
        "table": staged.table,
    }
    return json.dumps(facts, indent=1)


def from_json(text: str, policy: Policy) -> StagedRun:
    facts = json.loads(text)
    if facts["version"] != _VERSION:
        msg = "another version of the record"
        raise ValueError(msg)
    if facts["key"] != key_mark(keys.resolve(policy.key)):
        msg = "the noise key is not the key that the rows were staged under"
        raise KeyReferenceError(msg, "give the key of the staging step, or stage again")
    partition = facts["partition"]
    shards = tuple(StagedShard.from_dict(shard) for shard in facts["shards"])
    canaries: tuple[CanaryPlan, ...] = ()
    if facts["canaries"]:
        dtype = Staging(Layout.of(policy, partition).staging).schema(shards[0])[policy.id]
        canaries = plans_of(facts["canaries"], policy, partition, dtype)
    refs = {name: ReleaseRef(**ref) for name, ref in facts["refs"].items()}
    plain = {name: facts[name] for name in _PLAIN} | {"dropped": tuple(facts["dropped"])}
    plain |= {name: facts.get(name, False) for name in ("exact", "other")}  # an older version may have staged it
    plain["table"] = facts.get("table", {})
    return StagedRun(policy=policy, shards=shards, canaries=canaries, refs=refs, **plain)


def key_mark(secret: Secret) -> str:
    """Hash the noise key, so that two keys can be distinguished and nothing else is known of them."""
    return hashlib.sha256(secret.derive("canary", b"dptext/staged/v1")).hexdigest()
