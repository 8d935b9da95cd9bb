"""Charge, sum, and commit the records of a synthetic table in this process, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl.errors import InputError, seam
from dptext_etl.families.aggregate import Partial
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.source.cutting import pieces
from dptext_etl.runner.source.examine import check_ids
from dptext_etl.runner.source.roles import Table
from dptext_etl.runner.synthetic.attempt import SyntheticAttempt
from dptext_etl.runner.synthetic.charging import Charged, Frames, refuse_crowded

_SCHEMA = pa.schema([("id", pa.large_string()), ("identity", pa.binary(32))])


class LocalRecords:
    """Records of the files of a source (`runner.synthetic.charging.Records`)."""

    def __init__(self, attempt: SyntheticAttempt, table: Table[pl.LazyFrame], progress: Listener | None) -> None:
        self._attempt = attempt
        self.total, self.nameless = check_ids(table, attempt.policy, progress)
        self._rows, self.wanted = attempt.who_counts(table.frame, self.total, self.nameless)
        self._counted = Counted(attempt.layout.staging.folder)

    def charge(self, frames: Frames, meter: Meter) -> Charged:
        """Charge and sum the records, piece by piece."""
        policy = frames.policy
        answers, partial, persons = Counter[str](), Partial.zero(frames.statistic), [np.zeros(0, np.uint64)]
        for index, frame in enumerate(pieces(self._rows, policy.shard_rows, policy.shard_bytes)):
            summed = frames.charge(frame, index)
            answers.update(summed.answers)
            partial += summed.partial
            persons.append(summed.persons)
            self._counted.add(summed.ids, summed.identities)
            meter.add(frame.height)
        refuse_crowded(np.concatenate(persons), self._attempt.synthetic.per_subject)
        return Charged(partial, self._counted.rows, answers)

    def agree(self, frames: Frames, digest: str) -> bool:
        """Compare the records that were summed with the ledger."""
        return all(frames.agree(ids, digest) for ids, _ in self._counted.each())

    def commit(self, frames: Frames, digest: str, charged: Charged) -> None:  # noqa: ARG002  (these are the same records)
        """Commit the records that were summed."""
        for ids, identities in self._counted.each():
            frames.commit(ids, identities, digest)


class Counted:
    """The ids and identities of the records that were summed, in a file without a name: it ends with the process."""

    def __init__(self, folder: Path) -> None:
        with seam("keeping the ids of a run", InputError, "is there room in the staging folder?"):
            self._file = TemporaryFile(dir=folder)  # noqa: SIM115  (it lives as long as this object)
            self._writer = pa.ipc.new_stream(self._file, _SCHEMA)
        self.rows = 0

    def add(self, ids: pa.Array, identities: pa.Array) -> None:
        """Take the records of a batch."""
        columns = [ids.cast(pa.large_string()), identities.cast(pa.binary(32))]
        with seam("keeping the ids of a run", InputError, "is there room in the staging folder?"):
            self._writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self.rows += len(ids)

    def each(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield ids and identities in batches, as often as this is asked; nothing is added afterwards."""
        self._writer.close()
        self._file.seek(0)
        for batch in pa.ipc.open_stream(self._file):
            yield batch.column("id"), batch.column("identity")
