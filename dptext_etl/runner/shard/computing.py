"""Compute a charged shard: release its texts, count, and put the released texts where the raw ones were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.arrays import to_arrow
from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.checks.reports.copies import SAMPLE_ROWS, count_copies, counts_all, gate_delta, ngram_words, sample
from dptext_etl.column import release
from dptext_etl.families.by_word import by_word
from dptext_etl.mechanism import Released
from dptext_etl.policy import Policy
from dptext_etl.runner.amounts import settles, shard_spends
from dptext_etl.runner.computed import Place, place, together
from dptext_etl.runner.profile import Profile
from dptext_etl.runner.shard import draw_counts
from dptext_etl.runner.shard.charging import Column, texts_of, views_of
from dptext_etl.runner.shard.records import Facts
from dptext_etl.runner.shard.replaying import Kept
from dptext_etl.runner.source.roles import output_columns


@dataclass(frozen=True)
class Computed:
    """A computed shard.

    Attributes:
        frame: The rows to stage: id, kept columns, released texts, canary marks.
        draws: Draw counts, one column per text column, as `draw_counts.draws` writes them.
        facts: What was counted.
    """

    frame: pl.DataFrame
    draws: pl.DataFrame
    facts: Facts


def compute(  # noqa: PLR0917
    planted: pl.DataFrame,
    ids: pa.Array,
    columns: list[Column],
    policy: Policy,
    kept: Mapping[str, Kept | None],
    profile: Profile,
) -> Computed:
    """Release the texts of a charged shard."""
    released = {}
    for column in columns:
        held = kept.get(column.name)
        if held is None:
            released[column.name] = release(views_of(planted, column.name), ids, column.policy)
        else:
            released[column.name] = held.completed(texts_of(planted, column.name), ids, column.policy)
    texts = {name: pl.Series(name, item.text, dtype=pl.String) for name, item in released.items()}
    frame = pl.DataFrame([texts.get(name, planted[name]) for name in (*output_columns(policy), CANARY)])
    counts, spends = shard_spends(columns, released, canary_marks(planted), gate_delta(policy), settled=settles(policy))
    with profile.stage("reports"):
        copies = {
            column.name: copies_of(planted, frame, column, released[column.name].positions, policy)
            for column in columns
        }
        profile.count("reports", rows=frame.height if counts_all(policy) else min(frame.height, SAMPLE_ROWS))
    draws = pl.DataFrame({name: draw_counts.draws(item) for name, item in released.items()})
    new = ~canary_marks(planted)
    again = {item.name: recomputed(planted, frame, ids, item, kept.get(item.name)) for item in columns}
    places = together({item.name: _places(item, kept.get(item.name), new)} for item in columns)
    return Computed(frame, draws, Facts(counts, spends, copies, places, failures_of(released), again))


def failures_of(released: Mapping[str, Released]) -> dict[str, dict[str, int]]:
    """Count what models failed on, by text column; none where none failed. The counts stay inside the boundary."""
    failed = {name: item.failed.to_numpy() for name, item in released.items() if item.failed is not None}
    return {
        name: {"texts": int((counts > 0).sum()), "draws": int(counts.sum())}
        for name, counts in failed.items()
        if counts.any()
    }


def recomputed(
    planted: pl.DataFrame, out: pl.DataFrame, ids: pa.Array, column: Column, held: Kept | None
) -> dict[str, int]:
    """Release the canary rows once more, in reverse order and without other rows, and count those that agree.

    Of the others it counts those that got the release of a canary row of another text.
    """
    canary = canary_marks(planted)
    places = np.flatnonzero(canary if held is None else canary & held.missing(len(canary)))[::-1]
    if not len(places):
        return {"rows": 0, "equal": 0, "moved": 0}
    texts = planted[column.name].gather(places).to_arrow()
    again = pl.Series(release(texts, ids.take(to_arrow(places)), column.policy).text, dtype=pl.String)
    rows = list(zip(texts.to_pylist(), out[column.name].gather(places), again, strict=True))
    moved = sum(new != mine and any(new == its and text != other for other, its, _ in rows) for text, mine, new in rows)
    return {"rows": len(rows), "equal": sum(mine == new for _, mine, new in rows), "moved": moved}


def canary_marks(frame: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which rows are canaries, shape (rows,)."""
    marks: npt.NDArray[np.bool_] = frame[CANARY].to_numpy()
    return marks


def _places(column: Column, held: Kept | None, new: npt.NDArray[np.bool_]) -> list[Place]:
    """Return where texts of a column were computed: where kept ones were, and here, if any of the rows `new` was."""
    computing = column.policy.mechanism.computing
    here = new if held is None else new & held.missing(len(new))
    found = [] if held is None else list(held.computed)
    return [*found, place(computing)] if computing is not None and here.any() else found


def copies_of(
    planted: pl.DataFrame, out: pl.DataFrame, column: Column, draws: pl.Series | pa.Array, policy: Policy
) -> dict[str, Any]:
    """Count the texts that came back unchanged, without canary rows; the counts stay inside the boundary."""
    columns = {"raw": planted[column.name], "released": out[column.name], "draws": pl.Series(draws)}
    places = np.flatnonzero(~canary_marks(planted))
    counted = to_arrow(places if counts_all(policy) else sample(places))
    rows = pl.DataFrame(columns)[pl.Series(counted)]
    mechanism = by_word(column.policy.mechanism)
    run = None if mechanism is None else ngram_words(mechanism)
    return count_copies(rows["raw"], rows["released"], rows["draws"], run).as_dict()
