"""Compute a charged shard: the texts are released, counted, and put where the raw ones were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.leaks import count_copies, gate_delta
from dptext_etl.checks.runs import run_words
from dptext_etl.column import release
from dptext_etl.families.words import WordMechanism
from dptext_etl.mechanism import Released
from dptext_etl.policy import Policy
from dptext_etl.runner.amounts import settles, spent
from dptext_etl.runner.charging import Column, texts_of
from dptext_etl.runner.roles import output_columns
from dptext_etl.runner.staging import Facts

Counts = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Computed:
    """A computed shard.

    Attributes:
        frame: What is staged: id, kept columns, released texts, and the canary marks.
        draws: Draws made, one column per text column: those that were charged, or a struct of these (`positions`) and
            of those really made (`steps`) where the mechanism settles ex post.
        facts: What was counted.
    """

    frame: pl.DataFrame
    draws: pl.DataFrame
    facts: Facts


def compute(planted: pl.DataFrame, ids: pa.Array, columns: list[Column], policy: Policy) -> Computed:
    """Release the texts of a shard that is charged.

    Args:
        planted: The raw shard with its canary rows.
        ids: Canonical record ids, shape (rows,).
        columns: The text columns.
        policy: The run's policy.
    """
    released = {column.name: release(texts_of(planted, column.name), ids, column.policy) for column in columns}
    texts = [pl.Series(name, item.text, dtype=pl.String) for name, item in released.items()]
    frame = planted.select(*output_columns(policy), CANARY).with_columns(texts)
    counts, spends = spent(columns, released, canary_marks(planted), gate_delta(policy), settled=settles(policy))
    copies = {column.name: _copies(planted, frame, column, released[column.name].positions) for column in columns}
    draws = pl.DataFrame({name: _draws(item) for name, item in released.items()})
    return Computed(frame, draws, Facts(counts, spends, copies))


def _draws(released: Released) -> pl.Series:
    positions = pl.Series("positions", released.positions)
    if released.steps is None:
        return positions
    return pl.DataFrame([positions, pl.Series("steps", released.steps)]).to_struct()


def draws_of(made: pl.Series) -> tuple[Counts, Counts | None]:
    """Read a column of `Computed.draws`: draws that were charged, and those really made or None, shape (rows,)."""
    if not isinstance(made.dtype, pl.Struct):
        return made.to_numpy(), None
    return made.struct.field("positions").to_numpy(), made.struct.field("steps").to_numpy()


def canary_marks(frame: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which rows are canaries, shape (rows,)."""
    marks: npt.NDArray[np.bool_] = frame[CANARY].to_numpy()
    return marks


def _copies(planted: pl.DataFrame, out: pl.DataFrame, column: Column, positions: pa.Array) -> dict[str, Any]:
    """Count texts that came back as they were, without canary rows; the counts stay inside the boundary."""
    columns = {"raw": planted[column.name], "released": out[column.name], "draws": pl.Series(positions)}
    rows = pl.DataFrame(columns).filter(~planted[CANARY])
    mechanism = column.policy.mechanism
    run = run_words(mechanism) if isinstance(mechanism, WordMechanism) else None
    return count_copies(rows["raw"], rows["released"], rows["draws"], run).as_dict()
