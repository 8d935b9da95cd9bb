"""Replay what cannot be computed again: under a model the first commit is the release, and staging keeps its bytes.

The scores of a model differ in their last digits by hardware and library, so a second computation may draw other words.
So a run does not compute committed texts again. It reads them from what was staged, row by row, whatever became of the
shards meanwhile, and checks each against the digest in the ledger (docs/spec/privacy.md#digest,
docs/spec/privacy.md#durable-staging).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow
from dptext_etl.column import release
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Committed
from dptext_etl.mechanism import Released
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner.computed import Place
from dptext_etl.runner.shard import draw_counts
from dptext_etl.runner.shard.staging import Staging


def replays(policy: Policy) -> bool:
    """Return whether a run keeps the bytes that it released, because a model may give others next time."""
    columns = policy.column_policies()
    steps = (step for column in columns for step in column.postprocess)
    return not all(item.mechanism.reproducible for item in columns) or not all(step.reproducible for step in steps)


@dataclass(frozen=True)
class Kept:
    """Rows of a column of a shard that are released already, with their bytes.

    Attributes:
        rows: Columns `row` (place in the shard), `text` and `draws`.
        computed: Where and in what they were computed, as far as that was noted.
    """

    rows: pl.DataFrame = field(repr=False)
    computed: Sequence[Place] = ()

    def missing(self, rows: int) -> npt.NDArray[np.bool_]:
        """Return which of so many rows are not kept."""
        new = np.ones(rows, dtype=bool)
        new[self.rows["row"].to_numpy()] = False
        return new

    def completed(self, texts: pa.Array, ids: pa.Array, policy: ColumnPolicy) -> Released:
        """Release the rows that are not kept, and return all rows in order."""
        new, rows = self.missing(len(texts)), self.rows
        failed: pa.Array | None = None
        if new.any():
            made = release(texts.filter(to_arrow(new)), ids.filter(to_arrow(new)), policy)
            text = pl.Series(made.text, dtype=pl.String)
            others = pl.DataFrame({"row": np.flatnonzero(new), "text": text, "draws": draw_counts.draws(made)})
            rows = pl.concat([rows, others])
            failed = made.failed  # of the rows that were computed here
        rows = rows.sort("row")
        return draw_counts.released(rows["text"], rows["draws"])._replace(failed=failed)


def kept(
    staging: Staging, index: int, id_column: str, column: ColumnPolicy, ids: pa.Array, *, committed: Committed
) -> Kept | None:
    """Find the bytes of committed rows in what was staged; None where nothing is committed or found."""
    if not committed.mask.any():
        return None
    name = column.column or ""
    wanted = pl.DataFrame({"id": ids, "row": np.arange(len(ids)), "digest": _binary(committed.digests)})
    wanted = wanted.filter(committed.mask)
    found: list[pl.DataFrame] = []
    computed: list[Place] = []
    for frame, draws, places, _ in staging.kept(index):
        if not wanted.height:
            break
        written = pl.Series(canonical_ids(frame[id_column].to_arrow()))
        digests = _binary(pa.array(_kernel.digests(frame[name])))
        held = pl.DataFrame({"id": written, "digest": digests, "text": frame[name], "draws": draws[name]})
        both = wanted.join(held, on=["id", "digest"], how="inner")
        found.append(both.select("row", "text", "draws"))
        computed.extend(places.get(name, ()) if both.height else ())
        wanted = wanted.join(both, on="row", how="anti")
    return Kept(pl.concat(found), computed) if found else None


def _binary(digests: pa.Array) -> pl.Series:
    return pl.Series(digests.cast(pa.large_binary()))
