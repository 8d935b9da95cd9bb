"""`make utility`: what the word mechanisms leave of two public data sets, as a page (`docs/utility.md`).

Public data alone; the releases are made by the library's own column path under one throw-away key per run.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import load
from dptext_etl.column import draw
from dptext_etl.embeddings import WordVectors
from dptext_etl.evaluation import queries_needed
from dptext_etl.evaluation.pairs import words_of
from dptext_etl.families.words import WordMechanism
from dptext_etl.keys import throwaway

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
VECTORS = str(DATA / "word_vectors" / "counterfit_300d_30k.npz")
PAGE = ROOT / "docs" / "utility.md"
EPSILONS = (1.0, 2.0, 3.0)
SEEDS = (0, 1, 2)
TESTED = 0.2
SST2_ROWS = 6_000
ATTACKED = ("good", "bad", "film", "people", "doctor")

Texts = Sequence[str]


@dataclass(frozen=True)
class Variant:
    """A line of the table: how it is called, how its epsilon is read, and how it is made."""

    name: str
    reading: str
    make: Callable[[float], WordMechanism]


def variants(vectors: str) -> list[Variant]:
    """What is compared, in the papers' expected order."""
    custext, santext, madlib, diffractor = map(load, ("custext", "santext", "madlib", "diffractor"))
    common: dict[str, Any] = {"vectors": vectors}

    def plus(epsilon: float) -> Any:
        return santext.aligned(epsilon, **common).model_copy(update={"variant": "plus"})  # type: ignore[attr-defined]

    return [
        Variant("CusText+", "per word", lambda e: custext(epsilon=e, variant="plus", **common)),
        Variant("CusText", "per word", lambda e: custext(epsilon=e, **common)),
        Variant("SanText+, p = 0.2", "ε/d_max per distance", plus),
        Variant("SanText", "ε/d_max per distance", lambda e: santext.aligned(e, **common)),  # type: ignore[attr-defined]
        Variant("MADLIB", "ε/d_max per distance", lambda e: madlib.aligned(e, **common)),  # type: ignore[attr-defined]
        Variant("1-Diffractor, TEM", "ε/γ per place", lambda e: diffractor(epsilon=e / 5, **common)),
        Variant("1-Diffractor, TEM", "ε per place", lambda e: diffractor(epsilon=e, **common)),
        Variant(
            "1-Diffractor, geometric", "ε per place", lambda e: diffractor(epsilon=e, variant="geometric", **common)
        ),
    ]


@dataclass(frozen=True)
class Corpus:
    """A public data set: its texts, their labels, and how it was taken."""

    name: str
    texts: Texts
    labels: npt.NDArray[np.str_]


def corpora(data: Path) -> list[Corpus]:
    """Read the two data sets; of SST-2's training phrases the sentences of five words and more, some of them."""
    uci = pl.read_parquet(data / "uci_sentences" / "uci_sentences.parquet")
    sst = pl.read_parquet(data / "sst2" / "sst2.parquet").filter(pl.col("split") == "train")
    sst = sst.filter(pl.col("text").str.count_matches(r"\w+") >= 5).unique("text", maintain_order=True)
    sst = sst.sample(SST2_ROWS, seed=0, shuffle=True)
    return [
        Corpus(name, frame["text"].to_list(), frame["label"].to_numpy().astype(str))
        for name, frame in (("SST-2", sst), ("UCI sentences", uci))
    ]


def released(mechanism: WordMechanism, texts: Texts) -> list[str]:
    """Release a column under a new key."""
    ids = pa.array([str(row) for row in range(len(texts))])
    drawn = draw(mechanism, pa.array(texts, pa.large_string()), ids, throwaway(mechanism.cfg()))
    out: list[str] = drawn.text.to_pylist()
    return out


def unchanged(mechanism: WordMechanism, before: Texts, after: Texts) -> float:
    """Share of all words that stand where they stood; words that vanished are changed."""
    known = frozenset(mechanism.input_words()) if mechanism.unknown == "drop" else None
    same = total = 0
    for text, out in zip(before, after, strict=True):
        words = words_of(text)
        total += len(words)
        drawn = words if known is None else [word for word in words if word in known]
        same += sum(a == b for a, b in zip(drawn, out.split(" "), strict=False))
    return same / total


def likeness(vectors: WordVectors, before: Texts, after: Texts) -> float:
    """Mean cosine of a text's mean word vector before and after; 0 where no word of a text is known."""

    def means(texts: Iterable[str]) -> npt.NDArray[np.float64]:
        rows = [[vectors.index[word] for word in words_of(text) if word in vectors.index] for text in texts]
        table = [
            vectors.vectors[row].astype(np.float64).mean(axis=0) if row else np.zeros(vectors.vectors.shape[1])
            for row in rows
        ]
        return np.array(table)

    one, other = means(before), means(after)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(np.mean((one * other).sum(axis=1) / np.where(lengths > 0, lengths, 1.0)))


def accuracies(texts: Texts, labels: npt.NDArray[np.str_]) -> list[float]:
    """Accuracy of a logistic regression on one- and two-word features, trained and tested on these texts, per split."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split

    found = []
    for seed in SEEDS:
        train, test, train_labels, test_labels = train_test_split(
            list(texts), labels, test_size=TESTED, random_state=seed, stratify=labels
        )
        features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
        model = LogisticRegression(C=4.0, max_iter=1_000).fit(features.fit_transform(train), train_labels)
        found.append(float(model.score(features.transform(test), test_labels)))
    return found


def measured(corpus: Corpus, vectors: WordVectors, lines: Sequence[Variant]) -> list[dict[str, Any]]:
    """All figures of one data set; the first row is the raw text in the words that mechanisms see."""
    plain = [" ".join(words_of(text)) for text in corpus.texts]
    rows = [
        {
            "name": "raw text",
            "epsilon": math.nan,
            "kept": 1.0,
            "cosine": 1.0,
            "accuracy": accuracies(plain, corpus.labels),
        }
    ]
    for epsilon in EPSILONS:
        for line in lines:
            mechanism = line.make(epsilon)
            out = released(mechanism, corpus.texts)
            rows.append(
                {
                    "name": line.name,
                    "reading": line.reading,
                    "epsilon": epsilon,
                    "parameter": mechanism.epsilon,
                    "pure": float(mechanism.epsilon_per_word),
                    "kept": unchanged(mechanism, corpus.texts, out),
                    "cosine": likeness(vectors, corpus.texts, out),
                    "accuracy": accuracies(out, corpus.labels),
                }
            )
            print(corpus.name, *shown(rows[-1]), sep=" | ", flush=True)
    return rows


ORDER = ("CusText", "SanText", "MADLIB")
PLUS = (("CusText+", "CusText"), ("SanText+, p = 0.2", "SanText"))
CHANCE = 0.55
"""Accuracies below this are taken for those of a coin: both data sets have two classes of about equal size."""
FIGURES = {"kept": "words unchanged", "cosine": "cosine", "accuracy": "accuracy"}


def verdicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Say, figure by figure, where the papers' order holds and where it does not; accuracies within noise are level."""
    said = []
    pairs = [*itertools.pairwise(ORDER), *PLUS]
    for figure, title in FIGURES.items():
        holds, level, chance, fails = [], [], [], []
        for epsilon in EPSILONS:
            at = {row["name"]: row for row in rows if row["epsilon"] == epsilon}
            for better, worse in pairs:
                gap, noise = _gap(at[better][figure], at[worse][figure])
                where = f"{better} over {worse} at ε = {epsilon:g}"
                if figure == "accuracy" and all(statistics.mean(at[name][figure]) < CHANCE for name in (better, worse)):
                    chance.append(where)
                else:
                    (holds if gap > noise else level if gap >= -noise else fails).append(where)
        line = f"*{title}*: holds in {len(holds)} of {len(EPSILONS) * len(pairs)} comparisons"
        line += f"; both no better than a coin, so that nothing can be said: {'; '.join(chance)}" if chance else ""
        line += f"; level (within the spread of the splits, or within 0.001): {'; '.join(level)}" if level else ""
        line += f"; **does not hold**: {'; '.join(fails)}" if fails else ""
        said.append(line + ".")
    return said


def _gap(better: Any, worse: Any) -> tuple[float, float]:
    if isinstance(better, list):
        gaps = [one - other for one, other in zip(better, worse, strict=True)]
        return statistics.mean(gaps), 2 * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return better - worse, 1e-3


def attacks(vectors: str) -> list[list[str]]:
    """The query attack on single words, under CusText: other laws never or hardly ever make a word the likeliest."""
    rows = []
    for word in ATTACKED:
        found = [queries_needed(load("custext")(epsilon=e, vectors=vectors), word) for e in EPSILONS]
        rows.append(
            [
                f"`{word}`",
                *(f"{one.queries:,}" if one.queries else "never" for one in found),
                *(f"{one.stays:.3f}" for one in found),
            ]
        )
    return rows


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows])


def shown(row: dict[str, Any]) -> list[str]:
    """One row of the page."""
    mean, spread = statistics.mean(row["accuracy"]), (max(row["accuracy"]) - min(row["accuracy"])) / 2
    accuracy = f"{mean:.3f} ± {spread:.3f}"
    if "reading" not in row:
        return ["", row["name"], "", "", "100 %", "1.000", accuracy]
    pure = "∞" if math.isinf(row["pure"]) else f"{row['pure']:,.0f}"
    parameter = f"{row['parameter']:.4g}"
    return [
        f"{row['epsilon']:g}",
        row["name"],
        f"{parameter} ({row['reading']})",
        pure,
        f"{100 * row['kept']:.1f} %",
        f"{row['cosine']:.3f}",
        accuracy,
    ]


INTRODUCTION = """<!-- written by `make utility` (docs/utility.py): do not edit -->
# What is left of a text

Two public data sets, released by every word mechanism at three budgets, by `make utility`. {when}

* **ε is aligned**, explicitly. At each ε a word of CusText costs ε within its output set; a word of SanText and MADLIB
  costs ε between the two farthest words (their parameter is ε/d_max, `aligned(ε)`, as CusText's paper compares them); a
  word of TEM costs ε at parameter ε/γ. *Pure ε per word* is what the ledger charges. 1-Diffractor's papers give their ε
  per place of a list, which compares with nothing else: those rows show what that costs.
* **CusText's ε holds within an output set only**, and which set it is, is disclosed: equal ε are not equal protection.
  SanText+ with p = 0.2 shows most words that are not sensitive; no finite ε describes it.
* *Words unchanged*: share of all words that stand where they stood. Words that vanish count as changed, words that are
  kept or shown as unchanged.
* *Cosine*: mean over texts of the cosine between the mean word vectors before and after (no sentence model).
* *Accuracy*: sentiment by logistic regression over one- and two-word TF-IDF features, trained and tested on released
  text; mean and half the range over three seeds of an 80/20 split.
* Vectors: `counterfit_300d_30k`, all 30,000 words. SST-2: {sst:,} training sentences of five words and more, drawn at
  random from its 67,349 phrases and sentences; UCI sentences: all {uci:,}.
"""


ATTACK = (
    "How many independent draws of one word it takes until the most frequent answer is the word itself with probability"
    " 0.95 (`dptext_etl.evaluation.queries_needed`), under CusText, and the chance that a single draw is the word. A"
    " release is keyed: asking it again gives the same answer, so that N queries for one record are one draw. The"
    " figures are what an attacker gains who can submit one text under N record ids."
)


def page(
    results: dict[str, list[dict[str, Any]]], sizes: dict[str, int], attacked: list[list[str]], took: float
) -> str:
    """Write the page."""
    header = ["ε", "mechanism", "its parameter", "pure ε per word", "words unchanged", "cosine", "accuracy"]
    day = datetime.now(UTC).date().isoformat()
    when = f"Last run {day}, {took / 60:.0f} CPU-minutes."
    parts = [INTRODUCTION.format(when=when, sst=sizes["SST-2"], uci=sizes["UCI sentences"])]
    for name, rows in results.items():
        parts += [f"## {name}", table(header, map(shown, rows))]
        parts += ["Against the papers' order (CusText above SanText above MADLIB; plus above plain):"]
        parts += ["\n".join(f"* {line}" for line in verdicts(rows))]
    parts += [
        "## The query attack",
        ATTACK,
        table(["word", *(f"N at ε = {e:g}" for e in EPSILONS), *(f"stays, ε = {e:g}" for e in EPSILONS)], attacked),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measure and write the page."""
    if not Path(VECTORS).exists():
        sys.exit("left out: shared/data does not lie beside this checkout")
    began = time.process_time()
    vectors, lines, found = WordVectors.load(VECTORS), variants(VECTORS), corpora(DATA)
    results = {corpus.name: measured(corpus, vectors, lines) for corpus in found}
    sizes = {corpus.name: len(corpus.texts) for corpus in found}
    PAGE.write_text(page(results, sizes, attacks(VECTORS), time.process_time() - began), encoding="utf-8")
    print(f"written to {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
