"""Draw the noise and the table, stage both durably, and commit their digest for every record.

Under equal input the noise is the same everywhere. The rows may differ a little by machine, so an attempt takes up what
an earlier one staged: the first commit is the release.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl.column import keyed_digests
from dptext_etl.errors import DPTextError, LedgerError, seam
from dptext_etl.families.aggregate import Noisy, Partial, noisy, table
from dptext_etl.families.aggregate.reading import packed, unpacked
from dptext_etl.ledger import CommitOutcome, Ledger, ReleaseRef
from dptext_etl.runner.checkpoint import Checkpoint
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.synthetic.charging import Attempt, Counted

TABLE, RECORD = "synthetic.parquet", "synthetic.json"
_DEFECT = "this is a defect; nothing was published"


@dataclass(frozen=True)
class Drawn:
    """A noisy statistic and its table, staged.

    Attributes:
        noisy: The statistic, as it may be published.
        rows: The table, with the names of the policy's columns.
        path: Its file.
    """

    noisy: Noisy
    rows: pl.DataFrame = field(repr=False)
    path: Path

    @property
    def digest(self) -> str:
        """The hash of the statistic and of all rows, 64 hex digits."""
        whole = hashlib.sha256(b"dptext/synthetic/v1\0" + self.noisy.digest)
        for name in self.rows.columns:
            for cell in self.rows[name].to_list():
                data = cell.encode()
                whole.update(len(data).to_bytes(8, "little") + data)
        return whole.hexdigest()


def draw(attempt: Attempt, staging: Staging, partial: Partial) -> Drawn:
    """Draw and stage, or take up what was staged for these very records."""
    path, record = staging.folder / TABLE, staging.folder / RECORD
    made_of = _made_of(attempt, partial)
    found = _taken_up(attempt, staging, made_of)
    if found is not None:
        return found
    staging.shelf.remove(record)
    with seam("drawing the table", DPTextError, _DEFECT):
        statistic = noisy(attempt.statistic, attempt.key, partial)
        made = table(statistic, attempt.synthetic.rows, attempt.synthetic.names)
        rows = pl.DataFrame(made.rename_columns(list(attempt.synthetic.columns)))
        buffer = io.BytesIO()
        rows.write_parquet(buffer)
    content = buffer.getvalue()
    staging.shelf.write(path, lambda file: file.write(content), action="staging the table")
    sums = base64.b64encode(packed(statistic)).decode()
    said = json.dumps({**made_of, "sums": sums, "sha256": hashlib.sha256(content).hexdigest()}).encode()
    staging.shelf.write(record, lambda file: file.write(said), action="staging the statistic")
    return Drawn(statistic, rows, path)


def _made_of(attempt: Attempt, partial: Partial) -> dict[str, Any]:
    """Return what a staged table depends on; the digest of the records is keyed."""
    synthetic = attempt.synthetic
    said = {"rows": synthetic.rows, "columns": list(synthetic.columns), "names": dict(sorted(synthetic.names.items()))}
    return {"table": partial.digest.hex(), "cfg": attempt.statistic.cfg(), **said}


def _taken_up(attempt: Attempt, staging: Staging, made_of: Mapping[str, Any]) -> Drawn | None:
    path = staging.folder / TABLE
    try:
        facts = json.loads(staging.shelf.here(staging.folder / RECORD, fresh=True).read_text(encoding="ascii"))
        content = staging.shelf.here(path, fresh=True).read_bytes()
        if {name: facts[name] for name in made_of} != made_of:
            return None
        if hashlib.sha256(content).hexdigest() != facts["sha256"]:
            return None
        return Drawn(unpacked(attempt.statistic, base64.b64decode(facts["sums"])), pl.read_parquet(content), path)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def agrees(attempt: Attempt, ledger: Ledger, ref: ReleaseRef, counted: Counted, digest: str) -> bool:
    """Return whether all that is committed of the release was committed with this table."""
    for ids, _ in counted.each():
        held = ledger.committed(ref, ids).digests
        if pc.any(pc.not_equal(_digests(attempt, ids, digest), held)).as_py():
            return False
    return True


def commit(  # noqa: PLR0917
    attempt: Attempt, ledger: Ledger, ref: ReleaseRef, counted: Counted, digest: str, checkpoint: Checkpoint
) -> None:
    """Commit every record with the digest of the table, keyed per record."""
    for ids, identities in counted.each():
        digests = _digests(attempt, ids, digest)
        outcome = ledger.commit(attempt.job, ref, ids, identities, digests, positions=1)
        if (outcome == CommitOutcome.DIVERGED).any():
            raise LedgerError("another run committed another table meanwhile; nothing was published", "run again")
        checkpoint("committed")
    attempt.remember(ledger)


def _digests(attempt: Attempt, ids: pa.Array, digest: str) -> pa.Array:
    return keyed_digests(attempt.key, ids, pa.repeat(pa.scalar(digest, pa.large_string()), len(ids)))
