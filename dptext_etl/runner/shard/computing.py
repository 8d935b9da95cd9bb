"""Compute a charged shard: release its texts, count, and put the released texts where the raw ones were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.arrays import to_arrow
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.reports import SAMPLE_ROWS, count_copies, counts_all, gate_delta, ngram_words, sample
from dptext_etl.column import release
from dptext_etl.families.by_word import by_word
from dptext_etl.mechanism import Released
from dptext_etl.policy import Policy
from dptext_etl.runner.amounts import settles, shard_spends
from dptext_etl.runner.progress import Profile
from dptext_etl.runner.shard.charging import Column, canary_marks, texts_of, views_of
from dptext_etl.runner.shard.records import Facts, Hardware, merge_hardware, write_draws
from dptext_etl.runner.shard.replay import Replay
from dptext_etl.runner.source.roles import output_columns


class Computed(NamedTuple):
    frame: pl.DataFrame  # the rows to stage: id, kept columns, released texts, canary marks
    draws: pl.DataFrame  # draw counts, one column per text column, as `write_draws` writes them
    facts: Facts  # counts, spends, and the like


def compute(  # noqa: PLR0917
    raw: pl.DataFrame,
    ids: pa.Array,
    columns: list[Column],
    policy: Policy,
    replays: Mapping[str, Replay | None],
    profile: Profile,
) -> Computed:
    released = {}
    for column in columns:
        replay = replays[column.name]
        if replay is None:
            released[column.name] = release(views_of(raw, column.name), ids, column.policy)
        else:
            released[column.name] = replay.completed(texts_of(raw, column.name), ids, column.policy)
    texts = {name: pl.Series(name, item.text, dtype=pl.String) for name, item in released.items()}
    frame = pl.DataFrame([texts.get(name, raw[name]) for name in (*output_columns(policy), CANARY)])
    canary = canary_marks(raw)
    counts, spends = shard_spends(columns, released, canary, gate_delta(policy), settled=settles(policy))
    with profile.stage("reports"):
        copies = {item.name: copies_of(raw, frame, item, released[item.name].positions, policy) for item in columns}
        profile.count("reports", rows=frame.height if counts_all(policy) else min(frame.height, SAMPLE_ROWS))
    draws = pl.DataFrame({name: write_draws(item) for name, item in released.items()})
    again = {item.name: recomputed(raw, frame, ids, item, replays[item.name]) for item in columns}
    hardware = merge_hardware({item.name: _hardware(item, replays[item.name], ~canary)} for item in columns)
    return Computed(frame, draws, Facts(counts, spends, copies, hardware, failures_of(released), again))


def failures_of(released: Mapping[str, Released]) -> dict[str, dict[str, int]]:
    """Count what models failed on, by text column; none where none failed. The counts stay inside the boundary."""
    failed = {name: item.failed.to_numpy() for name, item in released.items() if item.failed is not None}
    return {
        name: {"texts": int((counts > 0).sum()), "draws": int(counts.sum())}
        for name, counts in failed.items()
        if counts.any()
    }


def recomputed(
    raw: pl.DataFrame, out: pl.DataFrame, ids: pa.Array, column: Column, replay: Replay | None
) -> dict[str, int]:
    """Release the canary rows once more, in reverse order and without other rows, and count those that agree.

    Of the others it counts those that got the release of a canary row of another text.
    """
    canary = canary_marks(raw)
    places = np.flatnonzero(canary if replay is None else canary & replay.missing(len(canary)))[::-1]
    if not len(places):
        return {"rows": 0, "equal": 0, "moved": 0}
    texts = raw[column.name].gather(places).to_arrow()
    again = pl.Series(release(texts, ids.take(to_arrow(places)), column.policy).text, dtype=pl.String)
    rows = list(zip(texts.to_pylist(), out[column.name].gather(places), again, strict=True))
    moved = sum(new != mine and any(new == its and text != other for other, its, _ in rows) for text, mine, new in rows)
    return {"rows": len(rows), "equal": sum(mine == new for _, mine, new in rows), "moved": moved}


def _hardware(column: Column, replay: Replay | None, own: npt.NDArray[np.bool_]) -> list[Hardware]:
    """Return where texts of a column were computed: where replayed ones were, and here, if any row of `own` was."""
    computing = column.policy.mechanism.computing
    here = own if replay is None else own & replay.missing(len(own))
    found = [] if replay is None else list(replay.computed)
    if computing is not None and here.any():
        found.append({"device": computing.device, "dtype": computing.dtype})
    return found


def copies_of(
    raw: pl.DataFrame, out: pl.DataFrame, column: Column, draws: pl.Series | pa.Array, policy: Policy
) -> dict[str, Any]:
    """Count the texts that came back unchanged, without canary rows; the counts stay inside the boundary."""
    columns = {"raw": raw[column.name], "released": out[column.name], "draws": pl.Series(draws)}
    places = np.flatnonzero(~canary_marks(raw))
    counted = to_arrow(places if counts_all(policy) else sample(places))
    rows = pl.DataFrame(columns)[pl.Series(counted)]
    mechanism = by_word(column.policy.mechanism)
    run = None if mechanism is None else ngram_words(mechanism)
    return count_copies(rows["raw"], rows["released"], rows["draws"], run).as_dict()
