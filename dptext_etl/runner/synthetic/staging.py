"""Draw the noise and the table, and stage both durably.

Under equal input the noise is the same everywhere. The rows may differ a little by machine, so an attempt takes up what
an earlier one staged: the first commit is the release.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from dptext_etl.errors import DPTextError, seam
from dptext_etl.families.aggregate import Noisy, Partial, noisy, table
from dptext_etl.families.aggregate.summing import packed, unpacked
from dptext_etl.ledger import ReleaseRef
from dptext_etl.policy import Policy
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.synthetic.attempt import Attempt

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


@dataclass(frozen=True)
class StagedTable:
    """A synthetic table that is staged and committed, or that the release holds in another form.

    Attributes:
        attempt: The attempt that staged it.
        ref: The pinned release.
        drawn: The table and its statistic.
        records: The keyed digest of the records that were summed, as the ledger pins it, 64 hex digits.
        rows: Rows of the source by what became of them.
        dropped: Places of the columns that the policy does not name.
        origin: Which version of which kind of table was read; None for plain files and frames.
        seconds: What this took.
        other: Whether a table that another machine drew from the same statistic is committed and published instead.
    """

    attempt: Attempt
    ref: ReleaseRef
    drawn: Drawn
    records: str
    rows: dict[str, int]
    dropped: tuple[str, ...]
    origin: dict[str, str] | None
    seconds: float
    other: bool = False

    @property
    def policy(self) -> Policy:
        """The policy of the run."""
        return self.attempt.policy


def draw(attempt: Attempt, staging: Staging, partial: Partial) -> Drawn:
    """Draw and stage, or take up what was staged for these very records."""
    path = staging.folder / TABLE
    found = taken_up(attempt, staging, partial.digest.hex())
    if found is not None:
        return found
    made_of = _made_of(attempt, partial.digest.hex())
    staging.storage.delete(RECORD)
    with seam("drawing the table", DPTextError, _DEFECT):
        statistic = noisy(attempt.statistic, attempt.key, partial)
        made = table(statistic, attempt.synthetic.rows, attempt.synthetic.names)
        rows = pl.DataFrame(made.rename_columns(list(attempt.synthetic.columns)))
        buffer = io.BytesIO()
        rows.write_parquet(buffer)
    content = buffer.getvalue()
    staging.storage.write(TABLE, content, action="staging the table")
    sums = base64.b64encode(packed(statistic)).decode()
    said = json.dumps({**made_of, "sums": sums, "sha256": hashlib.sha256(content).hexdigest()}).encode()
    staging.storage.write(RECORD, said, action="staging the statistic")
    return Drawn(statistic, rows, path)


def _made_of(attempt: Attempt, records: str) -> dict[str, Any]:
    """Return what a staged table depends on; the digest of the records is keyed."""
    synthetic = attempt.synthetic
    said = {"rows": synthetic.rows, "columns": list(synthetic.columns), "names": dict(sorted(synthetic.names.items()))}
    return {"table": records, "cfg": attempt.statistic.cfg(), **said}


def taken_up(attempt: Attempt, staging: Staging, records: str) -> Drawn | None:
    """Read what was staged for the records of this digest; None if nothing was, or it changed since."""
    path, made_of = staging.folder / TABLE, _made_of(attempt, records)
    try:
        facts = json.loads(staging.storage.read(RECORD) or b"null")
        content = staging.storage.local_path(TABLE, fresh=True).read_bytes()
        if {name: facts[name] for name in made_of} != made_of:
            return None
        if hashlib.sha256(content).hexdigest() != facts["sha256"]:
            return None
        return Drawn(unpacked(attempt.statistic, base64.b64decode(facts["sums"])), pl.read_parquet(content), path)
    except (OSError, ValueError, KeyError, TypeError):
        return None
