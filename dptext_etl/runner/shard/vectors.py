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

_AT_ONCE = 4096  # records of a file
_AGAIN = "run again: it continues after the last staged vectors; nothing was drawn"


class Vectors:
    """The vectors of the records of an attempt, in files of up to 4,096 records."""

    def __init__(self, staging: Staging, mechanism: Aggregate, report: Callable[[int], object]) -> None:
        """Begin; `report` is called with numbers of records whose vectors are staged."""
        self._staging, self._mechanism, self._report = staging, mechanism, report
        self._earlier = staging.storage.glob(f"{VECTORS}-*")

    def of(self, idem_keys: pa.Array, texts: pa.Array) -> Int8s:
        """Return the vectors of records, int8, shape (n, k); zeros for a null text."""
        identities = matrix(idem_keys, "identities")
        vectors = np.zeros((len(texts), self._mechanism.opened.vectors.shape[1]), np.int8)
        # in the order of identities, so that two attempts at a shard meet in the same files
        order = to_numpy(pc.sort_indices(_binary(identities))).astype(np.int64)
        for first in range(0, len(order), _AT_ONCE):
            rows = order[first : first + _AT_ONCE]
            vectors[rows] = self._batch(identities[rows], texts.take(to_arrow(rows)))
            self._report(len(rows))
        return vectors

    def _batch(self, identities: npt.NDArray[np.uint8], texts: pa.Array) -> Int8s:
        name = f"{VECTORS}-{hashlib.sha256(identities.tobytes()).hexdigest()[:32]}"
        staged = self._read(name)
        if staged is None:
            found = self._found(identities)
            missing = [row for row in range(len(texts)) if row not in found]
            vectors = np.zeros((len(texts), self._mechanism.opened.vectors.shape[1]), np.int8)
            vectors[[*found, *missing]] = [*found.values(), *self._encoded(texts.take(pa.array(missing, pa.int64())))]
            facts = {"identities": _written(identities), "vectors": _written(vectors)}
            self._staging.stage_first(name, facts)
            staged = self._read(name) or (identities, vectors)  # another attempt may have been first
        return staged[1]

    def _encoded(self, texts: pa.Array) -> Int8s:
        if not len(texts):
            return np.zeros((0, 0), np.int8)
        with seam("encoding texts", DPTextError, _AGAIN):
            self._mechanism.probe()
            vectors: Int8s = self._mechanism.opened.encoder.encode(texts.fill_null("").to_pylist())
            self._mechanism.probe()
        return vectors

    def _read(self, name: str) -> tuple[npt.NDArray[np.uint8], Int8s] | None:
        facts = self._staging.staged_facts(name)
        if facts is None:
            return None
        identities, vectors = (np.frombuffer(base64.b64decode(facts[key]), np.int8) for key in sorted(facts))
        read = identities.view(np.uint8).reshape(-1, 32)
        return read, vectors.reshape(len(read), -1)

    @cached_property
    def _index(self) -> tuple[pa.Array, list[str]]:
        """Return the identities in the files of earlier attempts, and the name of each one's file."""
        blocks, names = [np.zeros((0, 32), np.uint8)], []
        for name in self._earlier:
            if (staged := self._read(name)) is not None:
                blocks.append(staged[0])
                names += [name] * len(staged[0])
        return _binary(np.concatenate(blocks)), names

    def _found(self, identities: npt.NDArray[np.uint8]) -> dict[int, Int8s]:
        """Return the vectors that earlier attempts staged in other files, by row."""
        (earlier, names), found = self._index, dict[int, Int8s]()
        places = pc.index_in(_binary(identities), value_set=earlier).to_pylist()
        for name in sorted({names[place] for place in places if place is not None}):
            if (staged := self._read(name)) is not None:
                for row, place in enumerate(pc.index_in(_binary(identities), value_set=_binary(staged[0])).to_pylist()):
                    if place is not None:
                        found.setdefault(row, staged[1][place])
        return found


def _binary(identities: npt.NDArray[np.uint8]) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(identities))]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(identities), buffers)


def _written(numbers: npt.NDArray[np.uint8] | Int8s) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers).tobytes()).decode()
