"""Sum a table whose records are charged; once it is pinned, draw its noise and rows, and commit every record.

Specification: docs/spec/synthetic.md#runs. Partial sums add up in any order; they are private, and stay inside the
boundary.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl import _kernel
from dptext_etl.artifacts import canon
from dptext_etl.column import keyed_digests
from dptext_etl.errors import DPTextError, LedgerError, seam
from dptext_etl.families.aggregate import Noisy, Partial, added, noisy, partial_sum, table
from dptext_etl.families.aggregate.summing import packed, unpacked
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import CommitOutcome
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import Policy
from dptext_etl.policy.synthetic import Synthetic, no_rows
from dptext_etl.runner.amounts import equal_spends
from dptext_etl.runner.shard.charging import Column, Reserved, digest_of, texts_of
from dptext_etl.runner.shard.records import Facts, StagedShard, WholeTable
from dptext_etl.runner.shard.results import Phase, ShardResult, pairs_of
from dptext_etl.runner.shard.shard import Shards
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.selection import PAIRS

_DEFECT = "this is a defect; its message is left out, because it may quote a text. Nothing was published"


@dataclass
class Summing:
    """Takes the shards of a table through a phase, one after the other, and returns one result for all of them."""

    shards: Shards
    phase: Phase
    digest: str  # of the drawn table, 64 hex digits; empty before it is drawn
    _read: int = 0
    _answers: Counter[str] = field(default_factory=Counter)
    _records: int = 0  # that count
    _digest: bytes = bytes(32)  # the keyed digest of the records that count
    _sums: Partial | None = None
    _pairs: int | None = None
    _agrees: bool = True

    @property
    def _column(self) -> Column:
        (column,) = self.shards.columns
        return column

    def take(self, raw: pl.DataFrame, index: int) -> None:
        self._read += raw.height
        if self.phase == "compare":
            ids = canonical_ids(raw[self.shards.policy.id].to_arrow())
            held = self.shards.ledger.committed(self._column.ref, ids).digests
            self._agrees &= not pc.any(pc.not_equal(self._digests(ids), held)).as_py()
            return
        if self.phase == "reserve":
            reserved = self.shards.reserve(raw, index)
            if (pairs := pairs_of(reserved)) is not None:
                self._pairs = ((self._pairs or 0) + pairs) % PAIRS
            counted = self.shards.leave_out(reserved, index)
            self._add(counted)
        else:
            reserved = self.shards.reserved_before(raw, index)
            counted = reserved.without(self.shards.left_out)
            self._commit(counted)
        self._answers.update(reserved.answers)
        self._records += len(counted.charged.ids)

    def finish(self) -> ShardResult:
        # the kernel writes digests with their lowest byte first
        number = f"{int.from_bytes(self._digest, 'little'):064x}"
        admitted = WholeTable(self._records, self._records, number)._asdict()
        pairs = None if self._pairs is None else f"{self._pairs:032x}"
        sums = None if self._sums is None else base64.b64encode(self._sums.packed()).decode()
        return ShardResult(self._read, dict(self._answers), None, admitted, pairs, sums, self._agrees)

    def _add(self, counted: Reserved) -> None:
        """Sum records that are charged and within the cap."""
        policy, column, ids = self.shards.policy, self._column, counted.charged.ids
        with seam("summing the records", DPTextError, _DEFECT):
            found = partial_sum(policy.statistic, column.key, ids, *_contents(counted.frame, policy))
            self._sums = found if self._sums is None else self._sums + found
        self._digest = self._sums.digest

    def _commit(self, counted: Reserved) -> None:
        """Commit the records that count, and digest them again."""
        shards, column, ids = self.shards, self._column, counted.charged.ids
        (charge,) = counted.charged.charges
        outcome = shards.ledger.commit(
            shards.job, column.ref, ids, charge.idem_keys, self._digests(ids), positions=1, canary=counted.canary
        )
        if (outcome == CommitOutcome.DIVERGED).any():
            raise LedgerError("another run committed another table meanwhile; nothing was published", "run again")
        shards.checkpoint("committed")
        with seam("summing the records", DPTextError, _DEFECT):
            texts, labels = _contents(counted.frame, shards.policy)
            given = pa.nulls(len(ids), pa.string()) if labels is None else labels
            self._digest = added(self._digest, _kernel.table_digest(column.key, ids, texts, given))

    def _digests(self, ids: pa.Array) -> pa.Array:
        return keyed_digests(self._column.key, ids, pa.repeat(pa.scalar(self.digest, pa.large_string()), len(ids)))


def _contents(frame: pl.DataFrame, policy: Policy) -> tuple[pa.Array, pa.Array | None]:
    synthetic = described(policy)
    labels = None if synthetic.labels is None else texts_of(frame, synthetic.labels.column)
    return texts_of(frame, synthetic.column), labels


def described(policy: Policy) -> Synthetic:
    if policy.synthetic is None:
        raise no_rows(policy.dataset)
    return policy.synthetic


def whole_sum(policy: Policy, results: Iterable[ShardResult]) -> Partial:
    """Add up the sums of a table, whatever shards they are from."""
    total = Partial.zero(policy.statistic)
    for item in results:
        if item.sums is not None:
            total += Partial.unpacked(policy.statistic, base64.b64decode(item.sums))
    return total


def draw(policy: Policy, staging: Staging, sums: Partial, records: int) -> StagedShard:
    """Draw the noise and the rows of a table and stage them, or take what was staged for these very records.

    Under equal input the noise is the same everywhere. The rows may differ a little by machine, so an attempt goes on
    with what an earlier one staged: the first commit is the release.
    """
    synthetic, (column,) = described(policy), policy.charged_columns()
    shown = {"rows": synthetic.rows, "columns": list(synthetic.columns), "names": dict(sorted(synthetic.names.items()))}
    inputs = digest_of(sums.digest, canon({**shown, "cfg": column.mechanism.cfg()}))
    for found in staging.find(0, inputs):
        return found
    with seam("drawing the table", DPTextError, "this is a defect; nothing was published"):
        statistic = noisy(policy.statistic, column.release_key(), sums)
        made = table(statistic, synthetic.rows, synthetic.names).rename_columns(list(synthetic.columns))
        frame = pl.DataFrame(made)
        charged = equal_spends(worst_spend(column.mechanism).as_dict(), records)
        counts = {"rows": frame.height, "words": 0, "null": 0}
        facts = Facts(counts, charged, {}, {}, {}, {}, base64.b64encode(packed(statistic)).decode())
    return staging.save(0, frame, pl.DataFrame(), inputs, facts)


def statistic_of(policy: Policy, shard: StagedShard) -> Noisy:
    """Return the noisy statistic that a staged table was drawn from."""
    return unpacked(policy.statistic, base64.b64decode(shard.statistic))


def digest_of_table(policy: Policy, staging: Staging, shard: StagedShard) -> str:
    """Return the hash of a statistic and of all rows of its table, 64 hex digits (docs/spec/synthetic.md#commit)."""
    digest, frame = hashlib.sha256(b"dptext/synthetic/v1\0" + statistic_of(policy, shard).digest), staging.read(shard)
    for name in frame.columns:
        for cell in frame[name].to_list():
            data = cell.encode()
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
