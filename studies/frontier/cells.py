"""Measure one cell: a line at a budget, on a data set, under a key. Figures are kept."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.column import draw, spends
from dptext_etl.guarantee import steps
from dptext_etl.mechanism import Mechanism
from dptext_etl_eval.evidence import Measured
from dptext_etl_eval.measure import Attack, Measure, Score, attacks, metrics
from dptext_etl_eval.pairs import LABEL, RAW, Pairs
from dptext_etl_eval.personal_data import count_spans
from dptext_etl_eval.statistics import wilson
from frontier.data import NEURAL, ROOT, DataSet
from frontier.plan import Line

WORK_FOLDER = ROOT / "target" / "frontier"
SPANS = "typed_spans"
DIGITS = 5
_RAW: dict[tuple[str, int], dict[Any, Any]] = {}


@dataclass(frozen=True)
class Cell:
    """One release of one data set.

    Attributes:
        line: The measured line.
        epsilon: Its budget, as the line reads it.
        data: The data set.
        key: Number of the key, from 0.
    """

    line: Line
    epsilon: float
    data: DataSet
    key: int

    @property
    def rows(self) -> int:
        """The number of texts that are released."""
        most = NEURAL if self.line.model else self.data.cut.rows
        return min(most, self.line.most, len(self.data.texts))

    def mechanism(self) -> Mechanism:
        """Make the mechanism."""
        return self.line.make(self.epsilon, self.data.name)

    def name(self, mechanism: Mechanism) -> str:
        """Return the hash of everything that the figures depend on, except the measures' own code."""
        parts = [mechanism.cfg(), self.data.name, self.data.sha256(self.rows), self.rows, self.key]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def released(mechanism: Mechanism, texts: Sequence[str], key: int) -> tuple[list[str], dict[str, float]]:
    """Release public texts under a known key, so that anybody can repeat it, and return the cost of a text.

    The key is known: such a release protects nothing, and must hold only public texts.
    """
    secret = _kernel.Secret.from_bytes(hashlib.sha256(f"frontier, key {key}".encode()).digest())
    named = _kernel.ReleaseKey(secret, "frontier", "text", "frontier", mechanism.cfg())
    ids = pa.array([str(row) for row in range(len(texts))])
    drawn = draw(mechanism, pa.array(texts, pa.large_string()), ids, named)
    cost = spends(mechanism, drawn.positions)
    amounts = {name: cost[name] / steps(name) for name in ("eps_approx", "delta")}
    infinite = bool((cost["eps_approx"] == cost["eps_approx"].max()).all() and cost["eps_approx"].max() > 2**62)
    epsilon = math.inf if infinite else float(amounts["eps_approx"].mean())
    return [text or "" for text in drawn.text.to_pylist()], {"epsilon": epsilon, "delta": float(amounts["delta"].max())}


def _released_once(cell: Cell, mechanism: Mechanism, path: Path) -> tuple[list[str], dict[str, float]]:
    """Return a release and its cost; it is kept, so that a new measure needs no new release."""
    if path.exists():
        kept_cost: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        return kept_cost["texts"], kept_cost["cost"]
    texts, cost = released(mechanism, cell.data.texts[: cell.rows], cell.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_bytes(gzip.compress(json.dumps({"texts": texts, "cost": cost}).encode()))
    draft.replace(path)
    return texts, cost


def measures_of(data: DataSet) -> list[Measure]:
    """Return the metrics and attacks that the columns of a data set allow, without separate language models."""
    has = {name for name in ("label", "attribute") if getattr(data, name) is not None}
    return [measure for measure in (*metrics(), *attacks()) if measure.needs <= has]


def named(measure: Measure) -> str:
    """Return the name of the file of a measure."""
    return type(measure).__module__.rpartition(".")[2]


def measured(cell: Cell, only: Sequence[str] | None = None, again: Sequence[str] = ()) -> dict[str, Any]:
    """Return the figures of a cell by measure; missing ones are measured and kept.

    Args:
        cell: The cell.
        only: Measures, by name; None for all that the data set allows.
        again: Measures that are repeated.
    """
    mechanism = cell.mechanism()
    path = WORK_FOLDER / f"{cell.name(mechanism)}.json"
    kept: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for name in again:
        kept.get("scores", {}).pop(name, None)
    wanted = {named(measure): measure for measure in measures_of(cell.data) if only is None or named(measure) in only}
    missing = [name for name in wanted if name not in kept.get("scores", {})]
    if cell.data.spans and SPANS not in kept.get("scores", {}):
        missing.append(SPANS)
    if not missing and kept:
        return kept
    began = time.process_time()
    out, cost = _released_once(cell, mechanism, path.with_suffix(".gz"))
    kept = {"cost": cost, "release_seconds": time.process_time() - began, "scores": {}, "seconds": 0.0, **kept}
    pairs = _pairs(cell, out)
    for name in missing:
        if name == SPANS:
            result, kind = _typed(cell.data, out), "learnt"
        else:
            result = [score.as_dict() for score in wanted[name].of(pairs)]
            kind = "learnt" if isinstance(wanted[name], Attack) else "kept"
        kept["scores"][name] = {"kind": kind, "figures": [rounded(score) for score in result]}
    _remember_raw(cell, pairs)
    kept["seconds"] += time.process_time() - began
    store(cell, kept)
    return kept


def store(cell: Cell, kept: dict[str, Any]) -> None:
    """Keep the figures of a cell."""
    path = WORK_FOLDER / f"{cell.name(cell.mechanism())}.json"
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(kept), encoding="utf-8")
    draft.replace(path)


def kept_figures(cell: Cell) -> dict[str, Any] | None:
    """Return the kept figures of a cell; None where there are none."""
    path = WORK_FOLDER / f"{cell.name(cell.mechanism())}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def _pairs(cell: Cell, out: list[str]) -> Pairs:
    label, attribute = (None if a is None else a[: cell.rows] for a in (cell.data.label, cell.data.attribute))
    scores = dict(_RAW.get((cell.data.name, cell.rows), {}))
    return Pairs(cell.data.texts[: cell.rows], tuple(out), label, attribute, memory=scores)


def _remember_raw(cell: Cell, pairs: Pairs) -> None:
    """Keep figures that rest only on raw texts for the next release of the same texts."""
    alone = {key: value for key, value in pairs.memory.items() if RAW in key and "released" not in key}
    _RAW[cell.data.name, cell.rows] = alone


def _typed(data: DataSet, out: Sequence[str]) -> list[dict[str, Any]]:
    """Count the typed spans whose words are in the release one after the other, in the same places."""
    spans, texts = [list(row) for row in data.spans[: len(out)]], data.texts[: len(out)]
    survivors, raw = (count_spans(spans, pl.Series(some, dtype=pl.String)) for some in (out, texts))
    kinds = {"all": None, **{kind: kind for kind, count in sorted(survivors.found.items()) if count >= 20}}
    scores = []
    for title, kind in kinds.items():
        total, left, was = (
            sum(counts.values()) if kind is None else counts.get(kind, 0)
            for counts in (survivors.found, survivors.survived, raw.survived)
        )
        scores.append(Score(title, left / total, wilson(left, total), blind=0.0, raw=was / total).as_dict())
    return scores


def rounded(score: dict[str, Any]) -> dict[str, Any]:
    """Return a figure with the digits that are kept."""

    def short(value: Any) -> Any:
        return round(value, DIGITS) if isinstance(value, float) else value

    interval = score["interval"]
    return {
        **{name: short(value) for name, value in score.items()},
        "interval": None if interval is None else [short(end) for end in interval],
    }


__all__ = [
    "LABEL",
    "Cell",
    "Measured",
    "kept_figures",
    "measured",
    "measures_of",
    "named",
    "released",
    "rounded",
    "store",
]
