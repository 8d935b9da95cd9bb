"""Data sets, corpora, releases and learners of `make -C studies surrogate-utility`, and a cache of its figures.

Public data alone. Releases are made by the library's own column path under one throw-away key each; hit rates are those
that `dptext corpus build` calibrates on public texts that no data set holds.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl import load
from dptext_etl.column import draw
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.building import Options, build
from dptext_etl.corpora.cleaning import Cleaning
from dptext_etl.corpora.named import names
from dptext_etl.corpora.recalibrating import encoded
from dptext_etl.corpora.sources import Source
from dptext_etl.keys import throwaway
from dptext_etl_eval.pairs import words_of
from dptext_etl_eval.statistics import macro_f1, unseen

EVERYDAY = "everyday-30k"
VECTORS = {"sgns": "sgns_300d_30k", "counter-fitted": "counterfit_300d_30k"}
FEWER = "Snips, encoders side by side"
SNIPS_BY_DOMAIN = {
    "Restaurants": "BookRestaurant",
    "Weather": "GetWeather",
    "Music": "PlayMusic",
    "Movies": "SearchScreeningEvent",
    "Media": "SearchCreativeWork",
}
"""What a classifier that knows public dialogues alone can tell of Snips: five of its seven intents."""

_UNIT = 254.0  # vectors have half the length of the words' features
Rows = tuple[list[str], list[str]]


@dataclass(frozen=True)
class DataSet:
    """Private texts for the measurement, and texts that a classifier is tested on.

    Attributes:
        name: As the page calls it.
        train: Texts that are released, and their labels.
        test: Raw texts and labels of the test.
        public: Public labeled texts for the baseline without private data; empty where there are none.
    """

    name: str
    train: Rows
    test: Rows
    public: Rows = field(default=([], []))


def data_sets(data: Path) -> dict[str, DataSet]:
    """Read all data sets and cut them to the sizes that the page states."""
    snips, atis, bank, sst = (_table(data, name) for name in ("snips", "atis", "banking77", "sst2"))
    uci, imdb, drugs, blogs = (_table(data, name) for name in ("uci_sentences", "imdb", "druglib", "blog_gender"))
    sst = sst.filter(pl.col("text").str.count_matches(r"\w+") >= 5).unique("text", maintain_order=True)
    uci = uci.sample(fraction=1, seed=0, shuffle=True)
    common = drugs["condition"].value_counts(sort=True)["condition"][:10].to_list()
    drugs = drugs.filter(pl.col("condition").is_in(common)).with_columns(label=pl.col("condition"))
    blogs = blogs.with_columns(label=pl.col("gender")).sample(fraction=1, seed=0, shuffle=True)
    turns = pl.read_parquet(data / "public_corpus" / "sgd_utterances.parquet").filter(pl.col("speaker") == "user")
    turns = turns.with_columns(label=pl.col("domain").replace_strict(SNIPS_BY_DOMAIN, default=None)).drop_nulls("label")
    films = _rows(_train(imdb, 4_000))
    sentences, phrases = _rows(uci), _rows(_train(sst, 4_000))
    found = [
        DataSet("Snips", _rows(_train(snips, 10_000)), _rows(_test(snips)), _rows(_some(turns, 10_000))),
        DataSet(FEWER, _rows(_train(snips, 3_000)), _rows(_test(snips))),
        DataSet("ATIS", _rows(_train(atis)), _rows(_test(atis))),
        DataSet("Banking77", _rows(_train(bank, 4_000)), _rows(_test(bank))),
        DataSet("SST-2", phrases, _rows(_test(sst)), _joined(films, sentences)),
        DataSet("UCI sentences", _rows(uci[:2_300]), _rows(uci[2_300:]), _joined(films, phrases)),
        DataSet("IMDb", _rows(_train(imdb, 2_000)), _rows(_some(_test(imdb), 1_000)), _joined(sentences, phrases)),
        DataSet("DrugLib, condition", _rows(_train(drugs)), _rows(_test(drugs))),
        DataSet("Blogs, gender", _rows(blogs[:4_500]), _rows(blogs[4_500:])),
    ]
    return {one.name: one for one in found}


def _table(data: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(data / name / f"{name}.parquet").with_columns(pl.col("label").cast(pl.String))


def _train(table: pl.DataFrame, most: int | None = None) -> pl.DataFrame:
    rows = table.filter(pl.col("split") == "train")
    return rows if most is None else _some(rows, most)


def _test(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.col("split") != "train")


def _some(table: pl.DataFrame, most: int) -> pl.DataFrame:
    return table.sample(min(most, table.height), seed=0, shuffle=True)


def _rows(table: pl.DataFrame) -> Rows:
    return table["text"].to_list(), table["label"].to_list()


def _joined(one: Rows, other: Rows) -> Rows:
    return one[0] + other[0], one[1] + other[1]


@dataclass(frozen=True)
class Made:
    """How a corpus of the page is made.

    Attributes:
        source: File of public texts.
        sentences: Whether they are cut.
        task: Name of the data set whose public labeled texts teach the task's directions; None for `words`.
        vectors: Word vectors.
        half_whitening: Whether strong directions are weakened.
    """

    source: str
    sentences: bool = False
    task: str | None = None
    vectors: str = "english-20k"
    half_whitening: bool = True


TURNS, REVIEWS, ARTICLES = "sgd_utterances", "imdb_unsup", "wiki_en"
CORPORA: dict[str, Made] = {
    "dialogue turns": Made(TURNS),
    "dialogue turns, not whitened": Made(TURNS, half_whitening=False),
    "dialogue turns, sgns vectors": Made(TURNS, vectors="sgns"),
    "dialogue turns, counter-fitted vectors": Made(TURNS, vectors="counter-fitted"),
    "dialogue turns, contrastive vectors": Made(TURNS, vectors="english-encoder"),
    "dialogue turns, task": Made(TURNS, task="Snips"),
    "film reviews": Made(REVIEWS, sentences=True),
    "film reviews, task of SST-2": Made(REVIEWS, sentences=True, task="SST-2"),
    "film reviews, task of UCI": Made(REVIEWS, sentences=True, task="UCI sentences"),
    "film reviews, task of IMDb": Made(REVIEWS, sentences=True, task="IMDb"),
    "encyclopedia": Made(ARTICLES, sentences=True),
}
SOURCE_ROWS = {TURNS: 120_000, REVIEWS: 6_000, ARTICLES: 20_000}
"""Rows of each source that are read, drawn at random: more than a corpus of 20,000 texts needs."""


def corpus(name: str, data: Path, room: Path, sets: Mapping[str, DataSet], *, builds: bool = True) -> Corpus | None:
    """Return a corpus of the page, built once per room; None where it is not there and is not built."""
    if name == EVERYDAY:
        return Corpus.open(name) if name in names() else None
    made, folder = CORPORA[name], room / name.replace(" ", "-").replace(",", "")
    if not folder.exists() and not builds:
        return None
    if not folder.exists():
        room.mkdir(parents=True, exist_ok=True)
        source = room / f"{made.source}.parquet"
        pl.read_parquet(data / "public_corpus" / source.name).sample(
            SOURCE_ROWS[made.source], seed=1, shuffle=True
        ).write_parquet(source)
        task = []
        if made.task is not None:
            labelled = room / "labelled.parquet"
            pl.DataFrame(sets[made.task].public, schema=["text", "label"]).write_parquet(labelled)
            task = [Source(labelled, label="label")]
        vectors = VECTORS.get(made.vectors)
        options = Options(
            name=name,
            licence="that of the source: for measuring",
            provenance=f"{made.source}, see DATA.md next to it",
            cleaning=Cleaning(5, 25, made.sentences),
            encoder="task" if task else "words",
            vectors=str(data / "word_vectors" / f"{vectors}.npz") if vectors else made.vectors,
            task=task,
            half_whitening=made.half_whitening,
        )
        build([Source(source)], folder, options)
    return Corpus.open(folder)


def released(mechanism: Any, texts: Sequence[str]) -> list[str]:
    """Release a column under a new key."""
    ids = pa.array([str(row) for row in range(len(texts))])
    drawn = draw(mechanism, pa.array(list(texts), pa.large_string()), ids, throwaway(mechanism.cfg()))
    out: list[str] = drawn.text.to_pylist()
    return out


def surrogate(place: Corpus, epsilon: float, parts: int = 1) -> Any:
    """Return the mechanism over a corpus, at the corpus's calibrated hit rate."""
    return load("surrogate")(epsilon=epsilon, corpus=str(place.path), parts=parts)  # type: ignore[call-arg]


def plain(text: str) -> str:
    """Return the words of a text in lower case, between blanks."""
    return " ".join(words_of(text))


@cache
def grams(text: str) -> tuple[str, ...]:
    """Return the words of a text and its pairs of words; released texts come again and again."""
    words = plain(text).split()
    return (*words, *(" ".join(pair) for pair in itertools.pairwise(words)))


def f1(train: Rows, test: Rows, place: Corpus | None = None, *, strength: float = 1.0, words: bool = True) -> float:
    """Return the macro-F1 of a regularized logistic regression.

    Args:
        train: Texts and labels that it learns from.
        test: Raw texts and labels.
        place: A corpus whose public encoder gives further features; None for words alone.
        strength: C, the inverse of the regularization.
        words: Whether TF-IDF of one and two words are features.
    """
    from scipy.sparse import csr_array, hstack
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score

    learned, asked = [], []
    if words:
        features = TfidfVectorizer(analyzer=grams, sublinear_tf=True)
        learned.append(features.fit_transform(train[0]))
        asked.append(features.transform(test[0]))
    if place is not None:
        learned.append(csr_array(encoded(place, train[0]) / _UNIT))
        asked.append(csr_array(encoded(place, test[0]) / _UNIT))
    model = LogisticRegression(C=strength, max_iter=200, tol=1e-3).fit(hstack(learned).tocsr(), train[1])
    told = model.predict(hstack(asked).tocsr())
    return float(f1_score(test[1], told, average="macro", zero_division=0))


def guessing(test: Rows, train: Rows) -> float:
    """Return the macro-F1 of someone who does not look at the texts (`dptext_etl_eval.statistics.unseen`)."""
    names_, counts = np.unique(np.array(train[1]), return_counts=True)
    truth = np.array(test[1])
    return unseen(macro_f1, truth, np.full(len(truth), names_[counts.argmax()]))


@dataclass
class Kept:
    """Keep figures in a file of JSON lines, so that a run that was stopped goes on where it was.

    Attributes:
        path: The file.
        measures: Whether a figure that is not there is measured; otherwise it is no number.
    """

    path: Path
    measures: bool = True
    _figures: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path.exists():
            lines = self.path.read_text("utf-8").splitlines()
            self._figures = {key: value for line in lines for key, value in json.loads(line).items()}

    def figure(self, key: Sequence[Any], measure: Callable[[], float]) -> float:
        """Return the figure of a key; measure it the first time."""
        name = json.dumps(list(key))
        if name not in self._figures and not self.measures:
            return math.nan
        if name not in self._figures:
            self._figures[name] = measure()
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({name: self._figures[name]}) + "\n")
        return self._figures[name]
