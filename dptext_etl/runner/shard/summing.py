"""Sum a table whose records are charged; once it is pinned, draw its noise and rows, and commit every record.

Specification: docs/spec/synthetic.md#runs. Partial sums add up in any order; they are private, and stay inside the
boundary.

Vectors that a model encodes are staged, so that a later attempt adds up the same ones. Floats differ by machine, and
the noise follows from the exact sums: other vectors would buy a second release. So the first vectors that are staged
for a record count, for retries and other engines, too. The identity of a record covers its text, its label, and the
configuration, which names the model (docs/spec/synthetic.md#vectors).
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.artifacts import canon
from dptext_etl.column import keyed_digests
from dptext_etl.corpora.corpus import Int8s
from dptext_etl.errors import DPTextError, LedgerError, seam
from dptext_etl.families.aggregate import Noisy, Partial, noisy, partial_sum, scored, table
from dptext_etl.families.aggregate.contributions import packed, unpacked
from dptext_etl.families.aggregate.statistic import Aggregate
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger.storage.hashed_ids import matrix
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import Policy
from dptext_etl.policy.synthetic import SCORES, Synthetic, no_rows
from dptext_etl.runner.shard.charging import DEFECT, PAIRS, Reserved, digest_of, equal_spends
from dptext_etl.runner.shard.shard import Phase, ShardResult, Shards
from dptext_etl.runner.shard.staging import VECTORS, StagedShard, Staging, WholeTable


class Summing:
    """Computes the shards of a table in a phase, one after the other, and returns one result for all of them.

    A call that the ledger refused can be repeated: counts change last.
    """

    def __init__(
        self, shards: Shards, phase: Phase, digest: str, report: Callable[[int], object] = lambda _: None
    ) -> None:
        """Begin a phase; `digest` is the hash of the drawn table, 64 hex digits, and empty before it is drawn."""
        self._shards, self._phase, self._table = shards, phase, digest
        (self._column,) = shards.columns
        self._read = self._records = 0  # rows, and records that count
        self._answers, self._sums = Counter[str](), Partial.zero(shards.policy.statistic)
        self._pairs = 0
        self._agrees = True
        self._report, self._reported = report, 0
        mechanism, self._vectors = self._column.policy.mechanism, None
        if phase == "reserve" and isinstance(mechanism, Aggregate) and mechanism.opened.in_floats:
            self._vectors = Vectors(shards.staging, mechanism, self._done)

    def _done(self, rows: int) -> None:
        self._reported += rows
        self._report(rows)

    def take(self, raw: pl.DataFrame, index: int) -> None:
        shards = self._shards
        if self._phase == "compare":
            ids = canonical_ids(raw[shards.policy.id].to_arrow())
            committed = shards.ledger.committed(self._column.ref, ids).digests
            self._agrees &= not pc.any(pc.not_equal(self._digests(ids), committed)).as_py()
        else:
            again = self._phase == "release"
            reserved = shards.reserved_before(raw, index) if again else shards.reserve(raw, index)
            counted = shards.leave_out(reserved, index)
            if again:
                self._sums += self._committed(counted)
            else:
                ids, (charge,) = counted.charged.ids, counted.charged.charges
                with seam("summing the records", DPTextError, DEFECT):
                    texts, labels = _contents(counted.frame, shards.policy)
                    vectors = None if self._vectors is None else self._vectors.of(charge.idem_keys, texts)
                    statistic = shards.policy.statistic
                    self._sums += partial_sum(statistic, self._column.key, ids, texts, labels, vectors)
            self._pairs = (self._pairs + reserved.charged.pairs) % PAIRS
            self._answers.update(reserved.answers)
            self._records += len(counted.charged.ids)
        self._read += raw.height
        self._done(self._read - self._reported)

    def finish(self) -> ShardResult:
        number = f"{int.from_bytes(self._sums.digest, 'little'):064x}"  # its lowest byte comes first
        admitted = WholeTable(self._records, self._records, number)
        sums = base64.b64encode(self._sums.packed()).decode() if self._phase == "reserve" else None
        return ShardResult(self._read, dict(self._answers), None, admitted, self._pairs, sums, self._agrees)

    def _committed(self, counted: Reserved) -> Partial:
        """Commit the records that count, and return their digest, without sums."""
        shards, ids, (charge,) = self._shards, counted.charged.ids, counted.charged.charges
        ready = shards.steps.compare(self._column.policy, charge, ids, self._digests(ids), 1)
        if shards.steps.commit(ready):
            raise LedgerError("another run committed another table meanwhile; nothing was published", "run again")
        shards.checkpoint("committed")
        with seam("summing the records", DPTextError, DEFECT):
            texts, labels = _contents(counted.frame, shards.policy)
            label_cells = pa.nulls(len(ids), pa.string()) if labels is None else labels
            digest = _kernel.table_digest(self._column.key, ids, texts, label_cells)
        return replace(Partial.zero(shards.policy.statistic), digest=digest)

    def _digests(self, ids: pa.Array) -> pa.Array:
        return keyed_digests(self._column.key, ids, pa.repeat(pa.scalar(self._table, pa.large_string()), len(ids)))


def _contents(frame: pl.DataFrame, policy: Policy) -> tuple[pa.Array, pa.Array | None]:
    synthetic = described(policy)
    labels = None if synthetic.labels is None else frame.select(synthetic.labels.label_of()).to_series().to_arrow()
    return frame[synthetic.column].to_arrow(), labels


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


def digest_of_sums(policy: Policy, total: Partial) -> str:
    """Return a keyed digest of the sums of a table and of its records, 64 hex digits (docs/spec/synthetic.md#pin)."""
    (column,) = policy.charged_columns()
    digest = hashlib.sha256(b"dptext/sums/v1\0" + total.packed()).hexdigest()
    (keyed,) = keyed_digests(column.release_key(), pa.array(["sums"]), pa.array([digest])).to_pylist()
    return bytes(keyed).hex()


def draw(policy: Policy, staging: Staging, sums: Partial, records: int) -> StagedShard:
    """Draw the noise and the rows of a table and stage them, or reuse the table that was staged for the same records.

    Under equal input the noise is the same everywhere. The rows may differ a little by machine, so an attempt continues
    with the staged table of an earlier one: the first commit is the release.
    """
    synthetic, (column,) = described(policy), policy.charged_columns()
    described_rows = {
        "rows": synthetic.rows,
        "columns": list(synthetic.columns),
        "names": dict(sorted(synthetic.names.items())),
        "pool": policy.pool.sha256,
        "cfg": column.mechanism.cfg(),
    }
    inputs = digest_of(sums.digest, canon(described_rows))
    for staged in staging.find(0, inputs):
        return staged
    with seam("drawing the table", DPTextError, "this is a defect; nothing was published"):
        statistic = noisy(policy.statistic, column.release_key(), sums)
        pool = synthetic.opened_pool(policy.storage_options)
        if synthetic.rows is None:
            table_rows = pl.DataFrame(scored(statistic, synthetic.names, pool))
        else:
            table_rows = pl.DataFrame(table(statistic, synthetic.rows, synthetic.names, pool=pool))
        cells = {} if synthetic.labels is None else synthetic.labels.cells
        values = zip(*(cells[label] for label in table_rows["label"]), strict=True) if cells else ()
        texts = table_rows["text"].rename(synthetic.column)
        scores = [table_rows[SCORES]] if synthetic.scores else []
        frame = pl.DataFrame([texts, *(map(pl.Series, synthetic.columns[1:], values)), *scores])
        charged = equal_spends(worst_spend(column.mechanism), records)
        counts = {"rows": frame.height, "words": 0, "null": 0}
        drawn = base64.b64encode(packed(statistic)).decode()
        facts = {"counts": counts, "spends": charged, "copies": {}, "statistic": drawn}
    return staging.save(0, frame, pl.DataFrame(), inputs, facts)


def statistic_of(policy: Policy, shard: StagedShard) -> Noisy:
    """Return the noisy statistic that a staged table was drawn from."""
    return unpacked(policy.statistic, base64.b64decode(shard.statistic))


def digest_of_table(policy: Policy, staging: Staging, shard: StagedShard) -> str:
    """Return the hash of a statistic and of all rows of its table, 64 hex digits (docs/spec/synthetic.md#commit)."""
    digest, frame = hashlib.sha256(b"dptext/synthetic/v1\0" + statistic_of(policy, shard).digest), staging.read(shard)
    for name in frame.columns:
        for cell in frame[name].to_list():
            data = (cell if isinstance(cell, str) else " ".join(f"{score:.1f}" for score in cell)).encode()
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


_AT_ONCE = 2048  # records of a file
_AGAIN = "run again: it continues after the last staged vectors; nothing was drawn"
Identities = npt.NDArray[np.uint8]


class Vectors:
    """The vectors of the records of an attempt, in files of up to 2,048 records."""

    def __init__(self, staging: Staging, mechanism: Aggregate, report: Callable[[int], object]) -> None:
        """Begin; `report` is called with numbers of records whose vectors are staged."""
        self._staging, self._mechanism, self._report = staging, mechanism, report
        self._width = mechanism.opened.vectors.shape[1]
        self._earlier = staging.storage.glob(f"{VECTORS}-*")

    def of(self, idem_keys: pa.Array, texts: pa.Array) -> Int8s:
        """Return the vectors of records, int8, shape (n, k); zeros for a null text."""
        identities, vectors = matrix(idem_keys, "identities"), np.zeros((len(texts), self._width), np.int8)
        # in the order of identities, so that two attempts at a shard meet in the same files
        order = to_numpy(pc.sort_indices(_binary(identities)))
        for first in range(0, len(order), _AT_ONCE):
            rows = order[first : first + _AT_ONCE]
            vectors[rows] = self._batch(identities[rows], texts.take(to_arrow(rows)).fill_null(""))
            self._report(len(rows))
        return vectors

    def _batch(self, identities: Identities, texts: pa.Array) -> Int8s:
        name = f"{VECTORS}-{hashlib.sha256(identities.tobytes()).hexdigest()[:32]}"
        staged = self._read(name)
        if staged is not None:
            return staged[1]
        # vectors that earlier attempts staged in other files
        (earlier, names), vectors = self._index, np.zeros((len(identities), self._width), np.int8)
        wanted, missing = _binary(identities), np.ones(len(identities), np.bool_)
        places = pc.index_in(wanted, value_set=earlier).drop_null().to_pylist()
        for file in sorted({names[place] for place in places}):
            if (of_file := self._read(file)) is not None:
                at = pc.index_in(wanted, value_set=_binary(of_file[0]))
                there = to_numpy(at.is_valid()) & missing
                vectors[there] = of_file[1][to_numpy(at.fill_null(0))[there]]
                missing &= ~there
        if missing.any():
            with seam("encoding texts", DPTextError, _AGAIN):
                self._mechanism.probe()
                vectors[missing] = self._mechanism.opened.encoder.encode(texts.filter(to_arrow(missing)).to_pylist())
                self._mechanism.probe()
        parts = (("identities", identities), ("vectors", vectors))
        self._staging.stage_first(name, {part: base64.b64encode(array.tobytes()).decode() for part, array in parts})
        staged = self._read(name)  # another attempt may have been first
        return vectors if staged is None else staged[1]

    def _read(self, name: str) -> tuple[Identities, Int8s] | None:
        facts = self._staging.staged_facts(name)
        if facts is None:
            return None
        identities = np.frombuffer(base64.b64decode(facts["identities"]), np.uint8).reshape(-1, 32)
        return identities, np.frombuffer(base64.b64decode(facts["vectors"]), np.int8).reshape(-1, self._width)

    @cached_property
    def _index(self) -> tuple[pa.Array, list[str]]:
        """Return the identities in the files of earlier attempts, and the name of each one's file."""
        staged = {name: found[0] for name in self._earlier if (found := self._read(name)) is not None}
        blocks = np.concatenate([np.zeros((0, 32), np.uint8), *staged.values()])
        return _binary(blocks), [name for name, block in staged.items() for _ in range(len(block))]


def _binary(identities: Identities) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(identities))]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(identities), buffers)
