"""Recognize rows that the run before has read and published, by keyed hashes of blocks of rows.

A hash of its id says where a block ends, so rows that come, go, or change alter only the blocks in which they stand.
Rows of known blocks need no comparison with what is published (docs/spec/privacy.md#seen).
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl.artifacts import canon
from dptext_etl.ledger.types import Event
from dptext_etl.policy import Policy
from dptext_etl.runner.preview import ledger_of
from dptext_etl.runner.source.table import batches

WIDTH = 16
"""Bytes of the hash of a block."""
BLOCK_ROWS, MOST_ROWS = 1 << 12, 1 << 16
"""Rows of a block: on average, and at most."""
BATCH_ROWS = 1 << 18
HELD_BYTES = 256 << 20
"""The most bytes of batches that are held because they have rows of other blocks; beyond, all rows are compared."""
_NULL = (1 << 32) - 1
"""Stands for the length of a null."""
ADMITTING = (Event.THAW, Event.UNITS, Event.FORGET, Event.READMIT)
"""Events that may change what the ledger answers to rows that are published already.

After an event UNITS, charges of other releases may, too: so all rows are compared.
"""
FREEING = (Event.ABORT, Event.SETTLE, *ADMITTING)
"""Events after which a record that was over the same cap may fit, or one that was forgotten be admitted."""

Bytes = tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], memoryview]
"""The lengths of the values of a column, where each begins in the bytes of all, and these bytes."""


@dataclass
class SeenRows:
    """The blocks of rows that the run before published, and those that this run reads; idle without a key."""

    key: bytes = field(default=b"", repr=False)
    manifest: str = ""  # digest of the manifest that the run before published
    admitted: str = ""  # hash over all events of `ADMITTING` before that run began
    before: frozenset[bytes] = frozenset()  # blocks whose rows it published, all of them
    last: int = 0  # rows of its last block, which more rows may follow now
    blocks: list[bytes] = field(default_factory=list)  # blocks of this source, once it is read
    rows: int = 0  # rows of the last of them

    def rest(self, frame: pl.LazyFrame, policy: Policy, manifest: str | None) -> tuple[int, pl.DataFrame] | None:
        """Hash a source; return the number of its rows, and those of unknown blocks in order; None if these are most.

        `manifest` is the digest of what is published now, if the run adds to it.
        """
        if not self.key:
            return None
        names = [policy.id, *policy.text_columns, *([] if policy.subject is None else [policy.subject])]
        kinds = frame.select(names).collect_schema()
        if any(kind != pl.String and not kind.is_integer() for kind in kinds.values()):
            return None
        keyed = hmac.new(self.key, canon([[name, str(kind)] for name, kind in kinds.items()]), "sha256")
        known = Counter(self.before if manifest == self.manifest and self._is_current(policy) else ())
        few, rows, held, size = bool(known), 0, [frame.collect_schema().to_frame()], 0
        for table, ends in _blocks(frame, policy.id):
            columns = [_bytes_of(table[name]) for name in names]
            others = []
            for start, end in zip([0, *ends], ends, strict=False):
                self.blocks.append(_hash_of(columns, start, end, keyed))
                self.rows = end - start
                known[self.blocks[-1]] -= 1
                if few and known[self.blocks[-1]] < 0:
                    first = _hash_of(columns, start, min(start + self.last, end), keyed)
                    begin = start + self.last if known[first] > 0 else start
                    known[first] -= 1
                    others.append(table.slice(begin, end - begin))
            rows += ends[-1] if ends else 0
            size += int(table.estimated_size()) if others else 0
            few &= size <= HELD_BYTES
            held = [*held, *others] if few else []
        rest = pl.concat(held) if few else None
        return None if rest is None or 2 * rest.height > rows else (rows, rest)

    def _is_current(self, policy: Policy) -> bool:
        with ledger_of(policy) as ledger:
            if ledger is None or ledger.events_hash(Event.UNITS):
                return False
            return ledger.events_hash(*ADMITTING) == self.admitted


def _hash_of(columns: list[Bytes], start: int, end: int, keyed: hmac.HMAC) -> bytes:
    found = keyed.copy()
    found.update((end - start).to_bytes(8, "little"))
    for lengths, offsets, data in columns:
        found.update(lengths[start:end].tobytes())
        found.update(data[offsets[start] : offsets[end]])
    return found.digest()[:WIDTH]


def _blocks(frame: pl.LazyFrame, name: str) -> Iterator[tuple[pl.DataFrame, list[int]]]:
    """Read rows in order, some at a time, with the places where blocks end; rows behind the last end come again."""
    held = frame.collect_schema().to_frame()
    for batch in batches(frame, BATCH_ROWS):
        table = pl.concat([held, batch]).rechunk()
        chosen = np.flatnonzero(table[name].hash().to_numpy() % np.uint64(BLOCK_ROWS) == 0) + 1
        ends = list[int]()
        for end in [*chosen.tolist(), table.height]:
            ends += range((ends[-1] if ends else 0) + MOST_ROWS, end, MOST_ROWS)
            ends += [end] if end < table.height else []
        yield table, ends
        held = table.slice(ends[-1] if ends else 0)
    if held.height:
        yield held.rechunk(), [held.height]


def _bytes_of(column: pl.Series) -> Bytes:
    strings = column.cast(pl.String)
    array = strings.fill_null("").to_arrow(compat_level=pl.CompatLevel.oldest())
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(offsets).astype("<u4")
    if strings.null_count():
        lengths[strings.is_null().to_numpy()] = _NULL
    return lengths, offsets, memoryview(array.buffers()[2] or b"")
