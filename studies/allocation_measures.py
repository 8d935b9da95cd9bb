"""Data sets, releases and figures of `make -C studies allocation-utility`. Only public data."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from surrogate_measures import released

from dptext_etl import _kernel, load
from dptext_etl.allocation import Allocation
from dptext_etl.guarantee import MICRO
from dptext_etl_eval.attacks.nearest_neighbour import ranks_of
from dptext_etl_eval.classifier import counted, fit, guess
from dptext_etl_eval.pairs import words_of
from dptext_etl_eval.statistics import macro_f1

FIVE = ("ic", "pos", "ner", "wi", "sd")
TOTAL = 100.0
LONGEST = 32
"""Words of a text that are read: the rest of a film snippet is skipped, because models are slow."""
UNIFORM, SCORED, TURNED = "evenly", "five scores", "five scores, reversed"


@dataclass(frozen=True)
class DataSet:
    """Public texts that play private ones.

    Attributes:
        name: As the page calls it.
        texts: The released texts.
        labels: Their labels.
        secrets: The values that an attacker guesses, or None.
        secret: What that is, in words.
        others: Raw texts of the same source that are not released, for a classifier that knows such texts.
        other_labels: Theirs.
    """

    name: str
    texts: list[str]
    labels: list[str]
    secrets: list[str] | None
    secret: str
    others: list[str]
    other_labels: list[str]

    def first(self, rows: int) -> DataSet:
        """Return the same with only its first rows."""
        secrets = None if self.secrets is None else self.secrets[:rows]
        return DataSet(
            self.name, self.texts[:rows], self.labels[:rows], secrets, self.secret, self.others, self.other_labels
        )

    @property
    def words(self) -> float:
        """Return the mean number of words of a text."""
        return statistics.fmean(len(words_of(text)) for text in self.texts)


def data_sets(data: Path, rows: int) -> list[DataSet]:
    """Read the data sets: texts of five words and more, one text of each film review."""
    sets = []
    for name, folder, secret, column in (
        ("SST-2", "sst2", "", None),
        ("Film snippets", "movie_snippets4", "author (4)", "author"),
        ("UCI sentences", "uci_sentences", "site (3)", "domain"),
    ):
        table = pl.read_parquet(data / folder / f"{folder}.parquet").with_columns(pl.col("label").cast(pl.String))
        table = table.filter(pl.col("text").str.count_matches(r"\w+") >= 5).unique("text", maintain_order=True)
        if "review_id" in table.columns:
            table = table.unique("review_id", maintain_order=True)
        table = table.sample(fraction=1, seed=0, shuffle=True)
        here, rest = table[: min(rows, table.height // 2)], table[min(rows, table.height // 2) :][:8_000]
        secrets = None if column is None else here[column].to_list()
        sets.append(
            DataSet(
                name,
                [cut(text) for text in here["text"]],
                here["label"].to_list(),
                secrets,
                secret,
                [cut(text) for text in rest["text"]],
                rest["label"].to_list(),
            )
        )
    return sets


def cut(text: str) -> str:
    """Return the first words of a text, and the characters between them."""
    pieces = _kernel.split(text)
    ends = [place for place, (_, is_word) in enumerate(pieces, 1) if is_word]
    return "".join(piece for piece, _ in pieces[: ends[LONGEST - 1]]) if len(ends) > LONGEST else text


_RATED: dict[tuple[str, ...], list[float]] = {}


class Remembered(Allocation):
    """A division that scores a public text once, however often it is released here."""

    def rated(self, tokens: Sequence[str]) -> list[float]:
        """Return the scores."""
        key = (*self.scores, "", *tokens)
        if key not in _RATED:
            _RATED[key] = super().rated(tokens)
        return _RATED[key]


class Turned(Remembered):
    """The same division with all scores reversed, to see whether their direction matters."""

    def rated(self, tokens: Sequence[str]) -> list[float]:
        """Return 1 less each score."""
        return [1.0 - score for score in super().rated(tokens)]


def release(mechanism: str, way: str, total: float, texts: Sequence[str]) -> list[str]:
    """Release texts through the library with one budget per text, under a new key.

    Args:
        mechanism: "custext", or "dpmlm" with the model `english-small`, all words at once.
        way: `UNIFORM`, `SCORED`, `TURNED`, or the name of a score.
        total: Epsilon of a text.
        texts: Public texts.
    """
    kind: Any = load(mechanism)
    chosen = {UNIFORM: (), SCORED: FIVE, TURNED: FIVE}.get(way, (way,))
    division = (Turned if way == TURNED else Remembered)(
        total=total, scores=chosen, template=None if chosen else (1.0,)
    )
    model = {"model": "english-small", "decoding": "parallel"} if mechanism == "dpmlm" else {}
    return released(kind(allocation=division, **model), texts)


def spent(texts: Sequence[str], way: str) -> float:
    """Return the mean share of E that a division spends: bounds keep some of it back."""
    division = Allocation(total=TOTAL, scores=FIVE if way == SCORED else (way,))
    words = [[piece for piece, is_word in _kernel.split(text) if is_word] for text in texts]
    return statistics.fmean(sum(division.over(each)) / MICRO / TOTAL for each in words)


def figures(data: DataSet, after: Sequence[str]) -> dict[str, float]:
    """Measure a release: its use, and an attacker's success."""
    words = [(words_of(one), words_of(other)) for one, other in zip(data.texts, after, strict=True)]
    kept = [one == other for before, then in words for one, other in zip(before, then, strict=False)]
    figures_by_name = {
        "kept": statistics.fmean(kept),
        "learnt": crossed(after, data.texts, data.labels),
        "read": macro_f1(np.array(data.labels), _fitted(tuple(data.others), tuple(data.other_labels))(counted(after))),
        "found": float((ranks_of(after, data.texts) == 1).mean()),
    }
    if data.secrets is not None:
        figures_by_name["secret"] = crossed(after, after, data.secrets)
    return figures_by_name


def crossed(learnt: Sequence[str], judged: Sequence[str], truth: Sequence[str]) -> float:
    """Return the macro-F1 of a classifier that learns from some rows of one kind and judges others of another."""
    guesses = guess(counted(learnt), counted(judged), np.array(truth))
    return float(macro_f1(guesses.truth, guesses.guessed))


@lru_cache(maxsize=4)
def _fitted(texts: tuple[str, ...], labels: tuple[str, ...]) -> Any:
    return fit(counted(texts), np.array(labels))
