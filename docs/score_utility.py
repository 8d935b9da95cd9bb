"""`make score-utility`: what DP-MLM leaves of two public data sets, one word after the other, in blocks, at once.

The guarantee and the price are the same for the three; what differs is what a draw knows of the draws before it. Public
data alone; releases are made by the library's own column path under one throw-away key each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.column import draw
from dptext_etl.embeddings import WordVectors
from dptext_etl.evaluation.pairs import words_of
from dptext_etl.keys import throwaway
from dptext_etl.mechanisms.dpmlm import DPMLM

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
PAGE = ROOT / "docs" / "score-utility.md"
MODEL = "english-small"
EPSILONS = (10.0, 25.0, 50.0, 100.0, 250.0)
BLOCK = 4
DECODINGS: dict[str, dict[str, Any]] = {
    "sequential": {"decoding": "sequential"},
    f"block of {BLOCK}": {"decoding": "block", "block": BLOCK},
    "parallel": {"decoding": "parallel"},
}
NOTHING = 0.001
"""An epsilon at which every word is drawn as good as uniformly."""
ROWS = 500
FOLDS = 5
FIGURES = {
    "bleu": "BLEU",
    "cosine": "cosine",
    "clean": "accuracy, trained on raw text",
    "released": "accuracy, trained on released text",
}
LEVEL = 2.0  # standard errors of a mean difference of the same texts

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
    found = []
    for name, path in (("SST-2", "sst2/sst2.parquet"), ("Snips", "snips/snips.parquet")):
        frame = pl.read_parquet(data / path).with_columns(pl.col("label").cast(pl.String))
        frame = frame.with_columns(text=pl.Series([plain(text) for text in frame["text"]]))
        learned = frame.filter((pl.col("split") == "train") & (pl.col("text").str.len_bytes() > 0))
        some = frame.filter((pl.col("split") != "train") & (pl.col("text").str.count_matches(r"\S+") >= 5))
        some = some.unique("text", maintain_order=True).sample(rows, seed=0, shuffle=True)
        parts = [some["text"], some["label"], learned["text"], learned["label"]]
        found.append(Corpus(name, *(part.to_list() for part in parts)))
    return found


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
    """Logistic regressions over one- and two-word features.

    Args:
        corpus: What one of them learns from, once: raw text that is not released.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._clean = self._fresh().fit(list(corpus.learned), list(corpus.learned_labels))

    def _fresh(self) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
        return make_pipeline(features, LogisticRegression(C=4.0, max_iter=1_000))

    def clean(self, texts: Sequence[str]) -> Numbers:
        """Return per text 1 where what learned from raw text finds its label, else 0."""
        return np.asarray(self._clean.predict(list(texts)) == np.array(self._corpus.labels), np.float64)

    def released(self, texts: Sequence[str]) -> Numbers:
        """Return the same for what learned from the other released texts, in folds."""
        from sklearn.model_selection import StratifiedKFold, cross_val_predict

        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        told = cross_val_predict(self._fresh(), list(texts), list(self._corpus.labels), cv=folds)
        return np.asarray(told == np.array(self._corpus.labels), np.float64)


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
        found = {"name": name, "epsilon": shown_epsilon, "tight": tight, "whole": bleu, "each": each}
        rows.append({**found, "rate": words / took if epsilon != NOTHING else None})
        print(corpus.name, *shown(rows[-1]), sep=" | ", flush=True)
    return rows


def verdicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Say, figure by figure, where blocks and parallel draws keep up with sequential ones and where they do not."""
    at = {(row["epsilon"], row["name"]): row for row in rows}
    others = [name for name in DECODINGS if name != "sequential"]
    said = []
    for figure, title in FIGURES.items():
        for other in others:
            level, better, worse = [], [], []
            for epsilon in EPSILONS:
                gap, noise = difference(at[epsilon, other]["each"][figure], at[epsilon, "sequential"]["each"][figure])
                where = f"ε = {epsilon:g} ({gap:+.3g} ± {noise:.2g})"
                (level if abs(gap) <= LEVEL * noise else better if gap > 0 else worse).append(where)
            line = f"*{title}*, {other} against sequential: level at {len(level)} of {len(EPSILONS)} budgets"
            line += f"; better at {', '.join(better)}" if better else ""
            line += f"; **worse** at {', '.join(worse)}" if worse else ""
            said.append(line + ".")
    return said


def difference(one: Numbers, other: Numbers) -> tuple[float, float]:
    """Return the mean difference of the same texts' figures, and its standard error."""
    gaps = one - other
    return float(gaps.mean()), float(gaps.std(ddof=1) / len(gaps) ** 0.5)


def speed(rows: Sequence[dict[str, Any]]) -> str:
    """Say how much faster the others are than sequential draws."""
    rates = {name: statistics.median(row["rate"] for row in rows if row["name"] == name) for name in DECODINGS}
    told = (f"{name} {rate:,.0f} words/CPU-s ({rate / rates['sequential']:.1f} x)" for name, rate in rates.items())
    return f"Speed in this run: {', '.join(told)}."


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows])


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


INTRODUCTION = """<!-- written by `make score-utility` (docs/score_utility.py): do not edit -->
# What DP-MLM leaves of a text

DP-MLM draws words one after the other, in blocks, or all at once. A word costs the same in all three, and the guarantee
is the same; what a draw knows of the other draws is not. Measured by `make score-utility`. {when}

* Model: `{model}`, a small one: it knows little, and a larger one leaves more of a text at the same ε. The comparison
  between the three is the point here, not their level. Clip range: {low:.2f} to {high:.2f}, from public text.
* **ε is per word**, declared; *tight* is what a draw can really tell (the ledger keeps both). A text of n words costs n
  times as much.
* *BLEU*: released against raw text in lower-case words, all texts together. *Cosine*: mean over texts of the cosine
  between mean word vectors (`english-20k`; no sentence model). *Accuracy*: logistic regression over one- and two-word
  features, trained on raw training texts of the data set, or on the other released texts ({folds} folds).
* {rows} texts of five words and more each: SST-2's test and validation sentences (two labels) and Snips' (seven
  intents). *Uniform words* is what any text becomes as ε goes to 0.
* Level means: the mean difference over the same texts lies within {level:g} standard errors (behind ±, in points of
  BLEU per text, cosine or share). One comparison in twenty exceeds that by chance alone.
"""


def page(results: dict[str, list[dict[str, Any]]], facts: dict[str, Any], took: float) -> str:
    """Write the page."""
    header = ["ε per word", "tight", "draws", "BLEU", "cosine", "accuracy (raw)", "accuracy (released)"]
    when = f"Last run {datetime.now(UTC).date().isoformat()}, {took / 60:.0f} CPU-minutes."
    parts = [INTRODUCTION.format(when=when, folds=FOLDS, level=LEVEL, **facts)]
    for name, rows in results.items():
        parts += [f"## {name}", table(header, map(shown, rows)), speed([row for row in rows if row.get("rate")])]
        parts += ["\n".join(f"* {line}" for line in verdicts(rows))]
    return "\n\n".join(parts) + "\n"


def main(asked: Sequence[str] | None = None) -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default=MODEL, help="name or folder of a masked language model")
    parser.add_argument("--rows", type=int, default=ROWS, help="texts of each data set")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page is written")
    given = parser.parse_args(asked)
    if not DATA.exists():
        sys.exit("left out: shared/data does not lie beside this checkout")
    began = time.process_time()
    low, high = DPMLM(epsilon=1.0, model=given.model).clip_range
    facts = {"model": Path(given.model).name, "low": low, "high": high, "rows": given.rows}
    vectors = WordVectors.load()
    results = {corpus.name: measured(corpus, vectors, given.model) for corpus in corpora(DATA, given.rows)}
    given.page.write_text(page(results, facts, time.process_time() - began), encoding="utf-8")
    print(f"written to {given.page}")


if __name__ == "__main__":
    main()
