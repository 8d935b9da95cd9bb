"""`make -C studies synthetic-utility`: what synthetic tables keep of public data sets, as the tables of their page.

A stopped run continues where it was: figures are kept in `target/synthetic-utility/`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import polars as pl
import pyarrow as pa
import surrogate_measures as measures
from surrogate_measures import EVERYDAY, FigureCache, Rows

from dptext_etl import _kernel
from dptext_etl.corpora import Corpus
from dptext_etl.families.aggregate import Noisy, Statistic, describe, linear_discriminant, noisy, partial_sum, table
from dptext_etl.families.aggregate.classifier import floored, name_vectors
from dptext_etl.families.aggregate.contributions import Partial, encoded
from dptext_etl.families.aggregate.max_entropy import NAME_WEIGHT, corpus_points, fitted
from dptext_etl_eval.classifier import counted, fit

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
WORK_FOLDER = ROOT / "target" / "synthetic-utility"
PAGE = ROOT / "studies" / "reports" / "synthetic-tables.md"
EPSILONS = (0.5, 1.0, 2.0, 4.0)
SEEDS = (0, 1, 2)
DELTA = 1e-6
ROWS = 30_000
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Set:
    """A public data set in the place of a private one.

    Attributes:
        name: As the page calls it.
        train: Texts and labels that are summed.
        test: Raw texts and labels that learners are tested on.
        public: Public labeled texts for the baseline; empty where there are none.
    """

    name: str
    train: Rows
    test: Rows
    public: Rows

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Return the public list of labels."""
        return tuple(sorted(set(self.train[1])))


def data_sets() -> list[Set]:
    """Read the data sets and cut them to the sizes that the page states."""
    others = measures.data_sets(DATA)

    def read(name: str) -> pl.DataFrame:
        content = pl.read_parquet(DATA / name / f"{name}.parquet")
        return content.select("text", "split", label=pl.col("label").cast(pl.String))

    def rows(some: pl.DataFrame) -> Rows:
        return some["text"].to_list(), some["label"].to_list()

    def cut(some: pl.DataFrame, most: int) -> tuple[Rows, Rows]:
        train = some.filter(pl.col("split") == "train").sample(most, seed=0, shuffle=True)
        return rows(train), rows(some.filter(pl.col("split") != "train"))

    uci = read("uci_sentences").sample(fraction=1, seed=0, shuffle=True)
    sst = read("sst2").filter(pl.col("text").str.count_matches(r"\w+") >= 5).unique("text", maintain_order=True)
    return [
        Set("Snips", *cut(read("snips"), 10_000), others["Snips"].public),
        Set("UCI sentences", rows(uci[:1_419]), rows(uci[1_419:]), others["UCI sentences"].public),
        Set("SST-2", *cut(sst, 10_000), others["SST-2"].public),
        Set("Banking77", *cut(read("banking77"), 9_000), ([], [])),
    ]


def summed(data: Set, statistic: Statistic, seed: int) -> Noisy:
    """Release the statistic of the training texts under the key of a seed."""
    secret = _kernel.Secret.from_bytes(hashlib.sha256(f"synthetic-utility {seed}".encode()).digest())
    key = _kernel.ReleaseKey(secret, data.name, "text", "study", statistic.cfg())
    ids = pa.array([str(row) for row in range(len(data.train[0]))])
    columns = (pa.array(column, pa.large_string()) for column in data.train)
    return noisy(statistic, key, partial_sum(statistic, key, ids, *columns))


def vectors(place: Statistic, texts: Sequence[str]) -> Floats:
    """Return the vectors of texts, of length 1."""
    points: Floats = encoded(place, pa.array(texts, pa.large_string())) / 127.0
    return points


def f1(truth: Sequence[str], guessed: Sequence[str]) -> float:
    """Return macro-F1."""
    from sklearn.metrics import f1_score

    return float(f1_score(truth, guessed, average="macro", zero_division=0))


def labels_of(released_sums: Noisy, texts: Sequence[str]) -> list[str]:
    """Return the labels that the classifier of a statistic gives texts."""
    learned = linear_discriminant(released_sums)
    return learned.predict(learned.encode(texts, released_sums.statistic.corpus))


def by_vectors(place: Statistic, train: Rows, test: Rows) -> float:
    """Return macro-F1 of a logistic regression on vectors, whose classes weigh the same."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1.0, class_weight="balanced", max_iter=200)
    model.fit(vectors(place, train[0]), train[1])
    return f1(test[1], model.predict(vectors(place, test[0])))


def by_words(_: Statistic, train: Rows, test: Rows) -> float:
    """Return macro-F1 of the learner of `dptext evaluate`: TF-IDF of words."""
    return f1(test[1], fit(counted(train[0]), np.array(train[1]))(counted(test[0])))


def drawn(sums: Noisy, rows: int = ROWS) -> Rows:
    """Return the table of a statistic as texts and labels."""
    made = table(sums, rows)
    return made["text"].to_pylist(), made["label"].to_pylist()


def _weighted(sums: Noisy, logs: Floats) -> Rows:
    """Draw as many texts for each label, in proportion to exp(logs), logs of shape (m, labels)."""
    random = np.random.default_rng(0)
    chances = np.exp(logs - logs.max(axis=0))
    chances /= chances.sum(axis=0)
    labels, texts = sums.statistic.labels, sums.statistic.corpus.texts
    each = ROWS // len(labels)
    picked = [random.choice(len(texts), each, p=chances[:, label]) for label in range(len(labels))]
    return [texts[row] for row in np.concatenate(picked)], [label for label in labels for _ in range(each)]


def _slopes(released_sums: Noisy) -> tuple[Floats, Floats, Floats]:
    """Return points of the corpus, and sums and counts with names, as the table has them."""
    statistic, k = released_sums.statistic, len(released_sums.statistic.labels)
    weight = NAME_WEIGHT * statistic.sigma
    sums, counts = (
        released_sums.vectors[:k] + weight * name_vectors(statistic, {}),
        floored(released_sums.counts[:k]) + weight,
    )
    return corpus_points(statistic), sums, counts


def maxent(released_sums: Noisy, sharp: float = 1.0) -> Rows:
    """Draw from each label's distribution over the whole corpus."""
    points, sums, counts = _slopes(released_sums)
    return _weighted(released_sums, sharp * points @ fitted(points, sums, counts, released_sums.statistic.sigma**2).T)


def pooled(released_sums: Noisy, sharp: float = 1.0) -> Rows:
    """Draw from distributions with a common slope, and deviations from it."""
    points, sums, counts = _slopes(released_sums)
    variance = released_sums.statistic.sigma**2
    common = fitted(points, sums.sum(axis=0)[None], counts.sum()[None], variance * len(sums))
    weights = np.exp(points @ common[0] - (points @ common[0]).max())
    random = np.random.default_rng(0)
    base = random.choice(len(points), len(points), p=weights / weights.sum())
    fitted_weights = fitted(points[base], sums, counts, variance)
    return _weighted(released_sums, points @ (sharp * fitted_weights + common).T)


def top(released_sums: Noisy) -> Rows:
    """Take the texts of highest score of each label."""
    statistic = released_sums.statistic
    scores = linear_discriminant(released_sums).scores(statistic.corpus.vectors)
    most = max(20, len(scores) // 2 // max(len(statistic.labels), 20))
    best = np.argsort(-scores, axis=0, kind="stable")[:most]
    texts = [statistic.corpus.texts[row] for row in best.T.ravel()]
    return texts, [label for label in statistic.labels for _ in range(most)]


def labeled(released_sums: Noisy) -> Rows:
    """Give every text of the corpus the label of the classifier; each label has its 20 best texts, too."""
    texts, labels = top(released_sums)
    scores, most = (
        linear_discriminant(released_sums).scores(released_sums.statistic.corpus.vectors),
        len(texts) // len(released_sums.statistic.labels),
    )
    kept = [row for row in range(len(texts)) if row % most < 20]
    labels_of_rows = [released_sums.statistic.labels[number] for number in scores.argmax(axis=1)]
    return [*released_sums.statistic.corpus.texts, *(texts[row] for row in kept)], [
        *labels_of_rows,
        *(labels[row] for row in kept),
    ]


CANDIDATES: dict[str, Callable[[Noisy], Rows]] = {
    "maximum entropy among the nearest (default)": drawn,
    "the default, 10,000 rows": lambda found: drawn(found, 10_000),
    "the whole corpus, labeled": labeled,
    "top texts by score": top,
    "maximum entropy": maxent,
    "maximum entropy, sharpened by 2": lambda found: maxent(found, 2.0),
    "pooled": pooled,
    "pooled, sharpened by 2": lambda found: pooled(found, 2.0),
}
DEFAULT, *OTHERS = CANDIDATES
CLASSIFIER, WORDS = "linear discriminant", f"{DEFAULT}, learner on words"


def baselines(kept: FigureCache, data: Set) -> dict[str, float]:
    """Return what needs no release: raw texts, only label names, only public data."""
    place = describe(Corpus.open(EVERYDAY), epsilon=1.0, delta=DELTA, labels=data.labels)

    def blank() -> Noisy:
        zero = Partial.zero(place)
        return Noisy(place, zero.sums, zero.moments)

    def once(name: str, measure: Callable[[], float]) -> float:
        return kept.figure((name, data.name, place.corpus.sha256), measure)

    scores = {
        "raw": once("raw", lambda: by_vectors(place, data.train, data.test)),
        "raw, words": once("raw, words", lambda: by_words(place, data.train, data.test)),
        "names": once("names", lambda: by_vectors(place, drawn(blank()), data.test)),
        "names, discriminant": once("names, discriminant", lambda: f1(data.test[1], labels_of(blank(), data.test[0]))),
    }
    if data.public[0]:
        scores["public"] = once("public", lambda: by_vectors(place, data.public, data.test))
    return scores


def measured(
    kept: FigureCache, data: Set, what: str, epsilon: float, seeds: Sequence[int], corpus: str = EVERYDAY
) -> list[float]:
    """Release, learn, and test on raw texts, once per seed."""
    statistic = describe(Corpus.open(corpus), epsilon=epsilon, delta=DELTA, labels=data.labels)

    def once(seed: int) -> float:
        released_sums = summed(data, statistic, seed)
        if what == CLASSIFIER:
            return f1(data.test[1], labels_of(released_sums, data.test[0]))
        if what == WORDS:
            return by_words(statistic, drawn(released_sums), data.test)
        return by_vectors(statistic, CANDIDATES[what](released_sums), data.test)

    return [kept.figure((what, data.name, statistic.cfg(), seed), partial(once, seed)) for seed in seeds]


def _shown(figure: float) -> str:
    """Write a figure; nothing for one that was not measured."""
    return "" if np.isnan(figure) else f"{figure:.3f}"


def lines(kept: FigureCache, sets: Sequence[Set], seeds: Sequence[int]) -> Iterator[str]:
    """Yield the tables of the page."""

    def cells(data: Set, what: str, keys: Sequence[int] = seeds) -> str:
        return " | ".join(_shown(statistics.mean(measured(kept, data, what, epsilon, keys))) for epsilon in EPSILONS)

    head = " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS)
    yield f"| data set | raw | other labeled texts | label names | release | {head} |"
    yield "|---" * (5 + len(EPSILONS)) + "|"
    for data in sets:
        base = baselines(kept, data)
        public = _shown(base["public"]) if "public" in base else "none"
        title = f"{data.name}, {len(data.train[0]):,} texts, {len(data.labels)} labels"
        names = f"{_shown(base['names'])}, discriminant {_shown(base['names, discriminant'])}"
        yield f"| {title} | {_shown(base['raw'])} | {public} | {names} | table | {cells(data, DEFAULT)} |"
        yield f"| | {_shown(base['raw, words'])} | | | table, learner on words | {cells(data, WORDS)} |"
        yield f"| | | | | linear discriminant | {cells(data, CLASSIFIER)} |"
    yield ""
    yield f"| data set | how rows are drawn | {head} |"
    yield "|---" * (2 + len(EPSILONS)) + "|"
    for data in sets:
        yield f"| {data.name} | {DEFAULT} | {cells(data, DEFAULT, seeds[:1])} |"
        yield from (f"| | {what} | {cells(data, what, seeds[:1])} |" for what in OTHERS)


def brief(kept: FigureCache, sets: Sequence[Set], seeds: Sequence[int], corpus: str) -> Iterator[str]:
    """Yield a short table: the linear discriminant and the learner on words, at epsilon 1 and 4."""
    titles = f"linear discriminant, ε = 1 / 4 | table of {ROWS:,} rows, learner on words, ε = 1 / 4"
    yield f"| data set, {corpus} | {titles} |"
    yield "|---|---|---|"
    for data in sets:
        cells = (
            " / ".join(f"{statistics.mean(measured(kept, data, what, at, seeds, corpus)):.3f}" for at in (1.0, 4.0))
            for what in (CLASSIFIER, WORDS)
        )
        yield f"| {data.name} | {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the tables of the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kept", action="store_true", help="write from figures at hand, measure nothing")
    parser.add_argument("--only", nargs="*", help="data sets to measure; nothing is written unless all are")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="keys to measure")
    parser.add_argument("--brief", metavar="CORPUS", help="print a short table over this corpus, and write nothing")
    given = parser.parse_args(arguments)
    if not DATA.exists():
        sys.exit("skipped: shared/data does not lie next to this checkout")
    WORK_FOLDER.mkdir(parents=True, exist_ok=True)
    measures.remember()
    kept = FigureCache(WORK_FOLDER / "figures.jsonl", measures=not given.kept)
    sets = [one for one in data_sets() if not given.only or one.name in given.only]
    if given.brief:
        print("\n".join(brief(kept, sets, SEEDS[: given.seeds], given.brief)))
        return
    rows = list(lines(kept, sets, SEEDS[: given.seeds]))
    print("\n".join(rows))
    if not given.only and given.seeds == len(SEEDS):
        before, _, rest = PAGE.read_text("utf-8").partition("<!-- figures: start -->\n")
        after = rest.partition("<!-- figures: end -->")[2]
        PAGE.write_text(f"{before}<!-- figures: start -->\n{chr(10).join(rows)}\n<!-- figures: end -->{after}", "utf-8")


if __name__ == "__main__":
    main()
