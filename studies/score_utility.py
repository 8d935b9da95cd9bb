"""`make -C studies score-utility`: measure DP-MLM on two public data sets: word by word, in blocks, at once.

Its figures are rows of `docs/frontier.parquet`.

The guarantee and the price are the same for the three; they differ in how much a draw knows of the draws before it.
Public data only; releases are made by the library's own column path under one throw-away key each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.column import draw
from dptext_etl.embeddings import WordVectors
from dptext_etl.keys import throwaway
from dptext_etl_eval.classifier import counted, fit, guess
from dptext_etl_eval.pairs import words_of
from dptext_etl_models.mechanisms.dpmlm import DPMLM

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
MODEL = "english-small"
EPSILONS = (10.0, 25.0, 50.0, 100.0, 250.0)
BLOCK = 4
SEQUENTIAL = "sequential"
DECODINGS: dict[str, dict[str, Any]] = {
    SEQUENTIAL: {"decoding": "sequential"},
    f"block of {BLOCK}": {"decoding": "block", "block": BLOCK},
    "parallel": {"decoding": "parallel"},
}
NOTHING = 0.001
"""An epsilon at which every word is drawn as good as uniformly."""
ROWS = 500
FIGURES = {
    "bleu": "BLEU of a text, 0 to 100",
    "cosine": "mean cosine",
    "clean": "accuracy, trained on raw text",
    "released": "accuracy, trained on released text",
}
LEVEL = 2.0  # standard errors of a mean difference of the same texts
TIGHT, WHOLE, RATE = "ε per word that a draw can tell", "BLEU, 0 to 100", "words per CPU-second"
LESS = ", less that of sequential draws"

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Corpus:
    """A public data set.

    Attributes:
        name: As the page calls it.
        texts: Texts that are released, words in lower case between blanks.
        labels: Theirs.
        learned: Other texts of the data set, which a classifier of raw text learns from.
        learned_labels: Theirs.
    """

    name: str
    texts: Sequence[str]
    labels: Sequence[str]
    learned: Sequence[str]
    learned_labels: Sequence[str]


def corpora(data: Path, rows: int = ROWS) -> list[Corpus]:
    """Read the two data sets: texts of five words and more of the splits that are not for training, some of them."""
    names = []
    for name, path in (("SST-2", "sst2/sst2.parquet"), ("Snips", "snips/snips.parquet")):
        frame = pl.read_parquet(data / path).with_columns(pl.col("label").cast(pl.String))
        frame = frame.with_columns(text=pl.Series([plain(text) for text in frame["text"]]))
        learned = frame.filter((pl.col("split") == "train") & (pl.col("text").str.len_bytes() > 0))
        some = frame.filter((pl.col("split") != "train") & (pl.col("text").str.count_matches(r"\S+") >= 5))
        some = some.unique("text", maintain_order=True).sample(rows, seed=0, shuffle=True)
        parts = [some["text"], some["label"], learned["text"], learned["label"]]
        names.append(Corpus(name, *(part.to_list() for part in parts)))
    return names


def plain(text: str) -> str:
    """The words of a text as mechanisms see them, between blanks."""
    return " ".join(words_of(text))


def released(mechanism: DPMLM, texts: Sequence[str]) -> list[str]:
    """Release a column under a new key."""
    ids = pa.array([str(row) for row in range(len(texts))])
    drawn = draw(mechanism, pa.array(texts, pa.large_string()), ids, throwaway(mechanism.cfg()))
    out: list[str] = drawn.text.to_pylist()
    return out


def overlaps(before: Sequence[str], after: Sequence[str]) -> tuple[float, Numbers]:
    """Return BLEU of all texts together, from 0 to 100, and of each text."""
    import sacrebleu

    whole = sacrebleu.BLEU(tokenize="none")
    single = sacrebleu.BLEU(tokenize="none", effective_order=True)
    each = [single.sentence_score(new, [old]).score for old, new in zip(before, after, strict=True)]
    return float(whole.corpus_score(list(after), [list(before)]).score), np.array(each)


def likeness(vectors: WordVectors, before: Sequence[str], after: Sequence[str]) -> Numbers:
    """Return the cosine of every text's mean word vector before and after; 0 where no word of a text is known."""

    def means(texts: Iterable[str]) -> Numbers:
        rows = [[vectors.index[word] for word in text.split() if word in vectors.index] for text in texts]
        nothing = np.zeros(vectors.vectors.shape[1])
        return np.array([vectors.vectors[row].astype(np.float64).mean(axis=0) if row else nothing for row in rows])

    one, other = means(before), means(after)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray((one * other).sum(axis=1) / np.where(lengths > 0, lengths, 1.0))


class Classifiers:
    """The learner of `dptext evaluate`.

    Args:
        corpus: What one of them learns from, once: raw text that is not released.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._labels = np.array(corpus.labels)
        self._clean = fit(counted(corpus.learned), np.array(corpus.learned_labels))

    def clean(self, texts: Sequence[str]) -> Numbers:
        """Return per text 1 where what learned from raw text finds its label, else 0."""
        return np.asarray(self._clean(counted(texts)) == self._labels, np.float64)

    def released(self, texts: Sequence[str]) -> Numbers:
        """Return the same for what learned from the other released texts, in folds."""
        words = counted(texts)
        guesses = guess(words, words, self._labels)
        return np.asarray(guesses.guessed == guesses.truth, np.float64)


def figures(
    corpus: Corpus, vectors: WordVectors, classifiers: Classifiers, texts: Sequence[str]
) -> tuple[float, dict[str, Numbers]]:
    """Return BLEU of all texts, and every figure text by text."""
    bleu, each = overlaps(corpus.texts, texts)
    return bleu, {
        "bleu": each,
        "cosine": likeness(vectors, corpus.texts, texts),
        "clean": classifiers.clean(texts),
        "released": classifiers.released(texts),
    }


def measured(corpus: Corpus, vectors: WordVectors, model: str, clip: Any = None) -> list[dict[str, Any]]:
    """Measure all releases of a data set; the first rows are the raw text and words drawn as good as uniformly."""
    classifiers = Classifiers(corpus)
    words = sum(len(text.split()) for text in corpus.texts)
    bleu, each = figures(corpus, vectors, classifiers, corpus.texts)
    rows: list[dict[str, Any]] = [{"name": "raw text", "epsilon": None, "whole": bleu, "each": each}]
    lines = [(NOTHING, "uniform words", DECODINGS["parallel"])]
    lines += [(epsilon, name, settings) for epsilon in EPSILONS for name, settings in DECODINGS.items()]
    for epsilon, name, settings in lines:
        mechanism = DPMLM(epsilon=epsilon, model=model, clip=clip, **settings)
        released(mechanism, list(corpus.texts[:1]))
        began = time.process_time()
        texts = released(mechanism, corpus.texts)
        took = time.process_time() - began
        bleu, each = figures(corpus, vectors, classifiers, texts)
        shown_epsilon = None if epsilon == NOTHING else epsilon
        tight = None if shown_epsilon is None else mechanism.epsilon_tight
        row = {"name": name, "epsilon": shown_epsilon, "tight": tight, "whole": bleu, "each": each}
        rows.append({**row, "rate": words / took if epsilon != NOTHING else None})
        print(corpus.name, *shown(rows[-1]), sep=" | ", flush=True)
    return rows


def difference(one: Numbers, other: Numbers) -> tuple[float, float]:
    """Return the mean difference of the same texts' figures, and its standard error."""
    gaps = one - other
    return float(gaps.mean()), float(gaps.std(ddof=1) / len(gaps) ** 0.5)


def shown(row: dict[str, Any]) -> list[str]:
    """One row of the page."""
    epsilon, tight = row["epsilon"], row.get("tight")
    each = row["each"]
    return [
        "" if epsilon is None else f"{epsilon:g}",
        "" if tight is None else f"{tight:.1f}",
        row["name"],
        f"{row['whole']:.1f}",
        f"{each['cosine'].mean():.3f}",
        f"{each['clean'].mean():.3f}",
        f"{each['released'].mean():.3f}",
    ]


def tidy_rows(name: str, rows: Sequence[dict[str, Any]], texts: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of the tidy file: figures of every line, and their differences from sequential draws.

    Args:
        name: Of the data set.
        rows: Figures of its lines.
        texts: How many texts were released.
    """
    at = {(row["epsilon"], row["name"]): row for row in rows}
    fixed = {"dataset": f"{name}, how DP-MLM draws", "mechanism": "dpmlm", "reading": "per word", "kind": "kept"}
    for row in rows:
        common = {**fixed, "variant": row["name"], "epsilon": row["epsilon"], "n": texts, "key": 0}
        values = {TIGHT: row.get("tight"), WHOLE: row["whole"], RATE: row.get("rate")}
        values |= {title: row["each"][figure].mean() for figure, title in FIGURES.items() if figure != "bleu"}
        yield from (
            {**common, "figure": figure, "value": round(float(value), 5)}
            for figure, value in values.items()
            if value is not None
        )
        if row["epsilon"] is None or row["name"] == SEQUENTIAL:
            continue
        for figure, title in FIGURES.items():
            gap, noise = difference(row["each"][figure], at[row["epsilon"], SEQUENTIAL]["each"][figure])
            ends = {"low": round(gap - LEVEL * noise, 5), "high": round(gap + LEVEL * noise, 5)}
            yield {**common, "figure": f"{title}{LESS}", "value": round(gap, 5), **ends}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default=MODEL, help="name or folder of a masked language model")
    parser.add_argument("--rows", type=int, default=ROWS, help="texts of each data set")
    given = parser.parse_args(arguments)
    if not DATA.exists():
        sys.exit("skipped: shared/data does not lie next to this checkout")
    began = time.process_time()
    vectors = WordVectors.load()
    rows = [
        row
        for corpus in corpora(DATA, given.rows)
        for row in tidy_rows(corpus.name, measured(corpus, vectors, given.model), given.rows)
    ]
    from frontier import page, tidy

    tidy.put("score_utility", rows)
    page.write()
    print(f"written to {tidy.FILE.relative_to(ROOT)}, {(time.process_time() - began) / 60:.0f} CPU-minutes")


if __name__ == "__main__":
    main()
