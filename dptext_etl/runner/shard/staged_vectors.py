"""Stage the vectors of records that a model encodes, so that a later attempt adds up the same ones.

Floats differ by machine, and the noise follows from the exact sums: other vectors would buy a second release. So the
first vectors that are staged for a record count, for retries and other engines, too. The identity of a record covers
its text, its label, and the configuration, which names the model (docs/spec/synthetic.md#vectors).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl.arrays import to_arrow, to_numpy
from dptext_etl.corpora.sentences import Int8s
from dptext_etl.errors import DPTextError, seam
from dptext_etl.families.aggregate.statistic import Aggregate
from dptext_etl.ledger.storage.hashed_ids import matrix
from dptext_etl.runner.shard.staging import VECTORS, Staging

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
        vectors, missing = self._found(identities)
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

    def _found(self, identities: Identities) -> tuple[Int8s, npt.NDArray[np.bool_]]:
        """Return the vectors that earlier attempts staged in other files, and which are missing."""
        (earlier, names), vectors = self._index, np.zeros((len(identities), self._width), np.int8)
        wanted, missing = _binary(identities), np.ones(len(identities), np.bool_)
        places = pc.index_in(wanted, value_set=earlier).drop_null().to_pylist()
        for name in sorted({names[place] for place in places}):
            if (staged := self._read(name)) is not None:
                at = pc.index_in(wanted, value_set=_binary(staged[0]))
                there = to_numpy(at.is_valid()) & missing
                vectors[there] = staged[1][to_numpy(at.fill_null(0))[there]]
                missing &= ~there
        return vectors, missing


def _binary(identities: Identities) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(identities))]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(identities), buffers)
