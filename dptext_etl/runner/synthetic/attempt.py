"""Set up an attempt at a synthetic table, draw its noise and rows, and stage both durably."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from dptext_etl import _kernel, keys
from dptext_etl.errors import DPTextError, seam
from dptext_etl.families.aggregate import Noisy, Partial, Statistic, noisy, table
from dptext_etl.families.aggregate.summing import packed, unpacked
from dptext_etl.guarantee import refuse_more_records
from dptext_etl.ledger import Ledger, ReleaseRef, Scope
from dptext_etl.policy import Policy
from dptext_etl.policy.synthetic import CLAIM, Synthetic, no_rows
from dptext_etl.runner.anchoring import remember, require_same_ledger
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.versions import require_sink
from dptext_etl.runner.seals import opened, sealed
from dptext_etl.runner.shard.attempt import UNDER_WAY, Attempt, usable_secret
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.examine import with_persons
from dptext_etl.runner.source.selection import at_most

TABLE, RECORD = "synthetic.parquet", "synthetic.json"
_KIND = "synthetic"


@dataclass(frozen=True)
class SyntheticAttempt(Attempt):
    """One attempt at a synthetic table."""

    @classmethod
    def of(cls, policy: Policy, partition: str | None, *, accept_lower_cap: bool = False) -> SyntheticAttempt:
        """Find the places and the key of a run."""
        if policy.synthetic is None:
            raise no_rows(policy.dataset)
        secret = usable_secret(policy, keys.resolve(policy.key))
        return cls(policy, None, Layout.of(policy, partition), [], secret, accept_lower_cap)

    @property
    def synthetic(self) -> Synthetic:
        if self.policy.synthetic is None:
            raise no_rows(self.policy.dataset)
        return self.policy.synthetic

    @property
    def statistic(self) -> Statistic:
        return self.policy.statistic

    @cached_property
    def key(self) -> _kernel.ReleaseKey:
        return release_key(self.policy, self.secret)

    @contextmanager
    def alone(self) -> Iterator[Staging]:
        staging = Staging(self.layout.staging, self.staging_key)
        staging.storage.prepare()
        require_sink(self.layout)
        with staging.storage.lock(UNDER_WAY):
            yield staging

    def configurations(self) -> list[str]:
        return [self.statistic.cfg()]

    def register(self, ledger: Ledger, id_type: str) -> dict[str, ReleaseRef]:
        policy = self.policy
        require_same_ledger(ledger, self.layout, policy)
        if policy.cap is not None:
            ledger.agree_on_cap(Scope.of(policy), policy.cap, lowering=self.accept_lower_cap)
        ref = self.pin(ledger, id_type)
        self.remember(ledger)
        return {self.synthetic.column: ref}

    def pin(self, ledger: Ledger, id_type: str, *, pin: bool = True) -> ReleaseRef:
        """Pin the release, as `claims.register` does; without `pin`, only refuse what the ledger would not pin."""
        policy, statistic = self.policy, self.statistic
        return ledger.pin_release(
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
            key=self.secret,
            proven=pin,
            pin=pin,
        )

    def remember(self, ledger: Ledger) -> None:
        remember(ledger, self.layout.memory, self.policy)

    def who_counts(self, rows: pl.LazyFrame, total: int, nameless: int) -> tuple[pl.LazyFrame, int]:
        """Leave out records without a person, and those of a person beyond the first; refuse more than delta is for."""
        wanted = total - nameless
        rows = with_persons(rows, self.policy) if nameless else rows
        if self.policy.unit == "subject":
            most, folder = self.synthetic.per_subject, self.layout.scratch
            rows, wanted, _ = at_most(rows, self.policy, most, folder, partial(order, self.key))
        self.refuse_too_many(wanted)
        return rows, wanted

    def refuse_too_many(self, wanted: int) -> None:
        refuse_more_records(wanted, self.synthetic.n_rec, f"column {self.synthetic.column!r}")


def release_key(policy: Policy, secret: _kernel.Secret) -> _kernel.ReleaseKey:
    names = (policy.dataset, policy.text_columns[0], policy.release, policy.statistic.cfg())
    return _kernel.ReleaseKey(secret, *names)


def order(key: _kernel.ReleaseKey, ids: pa.Array) -> pl.Series:
    """Return the place of every canonical id among the records of a person, as bytes in ascending order."""
    return pl.Series(pa.array(_kernel.order_keys(key, ids)).cast(pa.binary()))


@dataclass(frozen=True)
class Drawn:
    """A noisy statistic, as it may be published, and its table with the names of the policy's columns, staged."""

    noisy: Noisy
    rows: pl.DataFrame = field(repr=False)
    path: Path

    @property
    def digest(self) -> str:
        """The hash of the statistic and of all rows, 64 hex digits."""
        digest = hashlib.sha256(b"dptext/synthetic/v1\0" + self.noisy.digest)
        for name in self.rows.columns:
            for cell in self.rows[name].to_list():
                data = cell.encode()
                digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()


@dataclass(frozen=True)
class StagedTable:
    """A synthetic table that is staged and committed, or that the release holds in another form."""

    attempt: SyntheticAttempt
    ref: ReleaseRef
    drawn: Drawn
    records: str  # the keyed digest of the records that were summed, as the ledger pins it, 64 hex digits
    rows: dict[str, int]  # of the source, by what became of them
    dropped: tuple[str, ...]  # places of the columns that the policy does not name
    origin: dict[str, str] | None  # format and version of a Delta Lake or Iceberg table
    seconds: float
    other: bool = False  # whether another machine's table of the same statistic is committed and published instead

    @property
    def policy(self) -> Policy:
        return self.attempt.policy


def draw(attempt: SyntheticAttempt, staging: Staging, sums: Partial) -> Drawn:
    """Draw and stage, or take what was staged for these very records.

    Under equal input the noise is the same everywhere. The rows may differ a little by machine, so an attempt goes on
    with what an earlier one staged: the first commit is the release.
    """
    found = read_staged(attempt, staging, sums.digest.hex())
    if found is not None:
        return found
    staging.storage.delete(RECORD)
    synthetic = attempt.synthetic
    with seam("drawing the table", DPTextError, "this is a defect; nothing was published"):
        statistic = noisy(attempt.statistic, attempt.key, sums)
        columns = table(statistic, synthetic.rows, synthetic.names).rename_columns(list(synthetic.columns))
        rows = pl.DataFrame(columns)
        buffer = io.BytesIO()
        rows.write_parquet(buffer)
    content = buffer.getvalue()
    staging.storage.write(TABLE, content, action="staging the table")
    facts = _inputs(attempt, sums.digest.hex())
    facts["sums"] = base64.b64encode(packed(statistic)).decode()
    facts["sha256"] = hashlib.sha256(content).hexdigest()
    record = sealed(attempt.staging_key, _KIND, facts)
    staging.storage.write(RECORD, record, action="staging the statistic")
    return Drawn(statistic, rows, staging.folder / TABLE)


def read_staged(attempt: SyntheticAttempt, staging: Staging, records: str) -> Drawn | None:
    """Read what was staged for the records of this digest; None if nothing was, or it changed since."""
    inputs = _inputs(attempt, records)
    try:
        facts = opened(attempt.staging_key, _KIND, staging.storage.read(RECORD)) or {}
        content = staging.storage.local_path(TABLE, fresh=True).read_bytes()
        if {name: facts[name] for name in inputs} != inputs:
            return None
        if hashlib.sha256(content).hexdigest() != facts["sha256"]:
            return None
        statistic = unpacked(attempt.statistic, base64.b64decode(facts["sums"]))
        return Drawn(statistic, pl.read_parquet(content), staging.folder / TABLE)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _inputs(attempt: SyntheticAttempt, records: str) -> dict[str, Any]:
    """Return what a staged table depends on; the digest of the records is keyed."""
    synthetic = attempt.synthetic
    return {
        "table": records,
        "cfg": attempt.statistic.cfg(),
        "rows": synthetic.rows,
        "columns": list(synthetic.columns),
        "names": dict(sorted(synthetic.names.items())),
    }
