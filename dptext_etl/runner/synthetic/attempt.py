"""Set up one attempt at a synthetic table: its places, its key, its name in the ledger, and who counts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import polars as pl
import pyarrow as pa

from dptext_etl import _kernel, keys
from dptext_etl.delta_policy import refuse_more_records
from dptext_etl.errors import KeyReferenceError
from dptext_etl.families.aggregate import Statistic
from dptext_etl.ledger import Ledger, ReleaseRef, Scope
from dptext_etl.policy import Policy
from dptext_etl.runner.anchoring import remember, require_same_ledger
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.showing import require_sink
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.examine import with_persons
from dptext_etl.runner.source.selection import at_most
from dptext_etl.synthetic import CLAIM, Synthetic, no_rows


@dataclass(frozen=True)
class Attempt:
    """One attempt at a synthetic table.

    Attributes:
        policy: The policy of the run.
        synthetic: What it says of the table.
        layout: The places of the run.
        secret: The noise secret, checked for what the policy asks.
        key: The release key.
        accept_lower_cap: Whether the pinned cap may be lowered to that of the policy.
        job: The name of this attempt in the ledger.
        began: When it began, on the monotonic clock.
    """

    policy: Policy
    synthetic: Synthetic
    layout: Layout
    secret: _kernel.Secret = field(repr=False)
    key: _kernel.ReleaseKey = field(repr=False)
    accept_lower_cap: bool = False
    job: str = field(default_factory=lambda: uuid.uuid4().hex)
    began: float = field(default_factory=time.monotonic)
    partition: ClassVar[None] = None

    @classmethod
    def of(cls, policy: Policy, partition: str | None, *, accept_lower_cap: bool = False) -> Attempt:
        """Find the places and the key of a run."""
        if policy.synthetic is None:
            raise no_rows(policy.dataset)
        secret = keys.resolve(policy.key)
        if policy.publish and secret.published:
            msg = "the key is printed in documents, so anyone can undo what is released under it"
            raise KeyReferenceError(msg, 'run `dptext key new PATH` and write key = "file:PATH"')
        layout = Layout.of(policy, partition)
        return cls(policy, policy.synthetic, layout, secret, release_key(policy, secret), accept_lower_cap)

    @property
    def statistic(self) -> Statistic:
        """The statistic of the column."""
        return self.policy.statistic

    @contextmanager
    def alone(self) -> Iterator[Staging]:
        """Make the folders of the run and lock them for this process."""
        staging = Staging(self.layout.staging)
        staging.storage.prepare()
        require_sink(self.layout)
        with staging.storage.lock("of this release is under way"):
            yield staging

    def pinned(self, ledger: Ledger, id_type: str) -> list[ReleaseRef]:
        """Pin the cap and the release."""
        return [self.register(ledger, id_type)]

    def configurations(self) -> list[str]:
        """Return the configuration hash of the statistic."""
        return [self.statistic.cfg()]

    def register(self, ledger: Ledger, id_type: str) -> ReleaseRef:
        """Pin the cap and the release."""
        policy, statistic = self.policy, self.statistic
        require_same_ledger(ledger, self.layout, policy)
        if policy.cap is not None:
            ledger.agree_on_cap(Scope.of(policy), policy.cap, lowering=self.accept_lower_cap)
        ref = ledger.pin_release(
            dataset=policy.dataset,
            column=self.synthetic.column,
            release=policy.release,
            cfg=statistic.cfg(),
            id_type=id_type,
            mechanism=self.synthetic.mechanism.name,
            guarantee=CLAIM,
            worst_case=statistic.charge(CLAIM),
            publishable=True,
            configuration=self.synthetic.configuration(statistic),
            artifact_hashes={"corpus": statistic.corpus.sha256},
        )
        self.remember(ledger)
        return ref

    def remember(self, ledger: Ledger) -> None:
        """Store the head of the ledger, durably."""
        remember(ledger, self.layout.memory, self.policy)

    def who_counts(self, rows: pl.LazyFrame, total: int, nameless: int) -> tuple[pl.LazyFrame, int]:
        """Leave out records without a person, and those of a person beyond the first; refuse more than delta is for."""
        wanted = total - nameless
        rows = with_persons(rows, self.policy) if nameless else rows
        if self.policy.unit == "subject":
            most, scratch = self.synthetic.per_subject, self.layout.staging.folder
            rows, wanted, _ = at_most(rows, self.policy, most, scratch, partial(order, self.key))
        self.refuse_too_many(wanted)
        return rows, wanted

    def refuse_too_many(self, wanted: int) -> None:
        """Refuse more records than delta was stated for."""
        refuse_more_records(wanted, self.synthetic.n_rec, f"column {self.synthetic.column!r}")


def release_key(policy: Policy, secret: _kernel.Secret) -> _kernel.ReleaseKey:
    """Make the key of the release of a synthetic table."""
    names = (policy.dataset, policy.text_columns[0], policy.release, policy.statistic.cfg())
    return _kernel.ReleaseKey(secret, *names)


def order(key: _kernel.ReleaseKey, ids: pa.Array) -> pl.Series:
    """Return the place of every canonical id among the records of a person, as bytes in ascending order."""
    return pl.Series(pa.array(_kernel.order_keys(key, ids)).cast(pa.binary()))
