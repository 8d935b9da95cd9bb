"""Run the experiments of the papers: tasks, given or included weights, classifiers, and figures.

`make -C studies paper-000` to `paper-004` run `python -m frontier.reproduce`. Data are public and play private ones.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from papers import settings
from surrogate_measures import released

from dptext_etl.mechanism import Mechanism
from dptext_etl_eval.attacks.masked_tokens import Predictor
from dptext_etl_eval.classifier import counted, fit
from dptext_etl_eval.evaluators import loaded, positions, sentence_vectors
from dptext_etl_eval.fine_tuning import Recipe, Side, fine_tuned
from dptext_etl_eval.ngrams import Ngrams
from dptext_etl_eval.pairs import words_of
from dptext_etl_eval.statistics import accuracy, macro_f1, pearson, spearman
from dptext_etl_models.likeness import words_encoder
from frontier import generated
from frontier.data import DATA

Reals = npt.NDArray[np.float64]
Rows = Sequence[tuple[str, ...]]
STAND_INS = {
    "yelp": ("movie_snippets4", "author"),
    "trustpilot": ("druglib", "condition"),
    "blog": ("blog_gender", "gender"),
    "drugs": ("druglib", "condition"),
    "medsts": ("stsb", None),
}
"""What plays the papers' sets where `--tables` has no file of that name: an included set, and its secret."""
PAIRS = frozenset({"mrpc", "rte", "stsb", "qnli_dev", "qqp", "mnli", "wnli", "docnli", "medsts"})
SLOW = ("000", "002", "003")
"""Papers whose mechanisms need a language model: the smallest run has one budget of each of their tables."""
INCLUDED_LENGTH = 24
"""Places of the included autoencoder."""
NUMBERS = frozenset({"stsb", "medsts"})
"""Sets whose labels are numbers."""


@dataclass(frozen=True, eq=False)
class Task:
    """Rows to learn from and to test on.

    Attributes:
        name: The data set.
        texts: Training and test texts; each row is a text, or a pair of texts.
        labels: Their labels.
        secrets: The values that an attacker guesses; None where the set has no such column.
    """

    name: str
    texts: tuple[Rows, Rows]
    labels: tuple[Sequence[Any], Sequence[Any]]
    secrets: tuple[Sequence[Any], Sequence[Any]] | None = None

    @property
    def numbers(self) -> bool:
        """Return True if labels are numbers: the figure is Pearson's correlation."""
        return self.name in NUMBERS

    @cached_property
    def words(self) -> float:
        """Return the mean number of words of a training text."""
        return statistics.fmean(len(words_of(text)) for row in self.texts[0] for text in row)

    def first(self, rows: int | None, tests: int | None) -> Task:
        """Return the same task with fewer rows."""

        def cut(both: Any) -> Any:
            return both[0][:rows], both[1][:tests]

        secrets = None if self.secrets is None else cut(self.secrets)
        return Task(self.name, cut(self.texts), cut(self.labels), secrets)


@dataclass(frozen=True)
class Setup:
    """How large an experiment is, and with which data and weights.

    Attributes:
        paper: Number of the paper, whose settings are in studies/papers.
        size: "smallest", "small", or "full"; see studies/papers/sizes.toml.
        rows: Training texts of a set; None uses the size's.
        tests: Test texts of a set; None uses the size's.
        models: Folder of given weights, one folder each, named as on the hub without the owner; None uses ours.
        tables: Folder of the papers' tables, as `studies/recipes` writes them; None uses included sets.
        data: Folder of public data sets; None uses generated texts.
        seed: Number of the first training; further seeds follow it.
    """

    paper: str
    size: str = "small"
    rows: int | None = None
    tests: int | None = None
    models: Path | None = None
    tables: Path | None = None
    data: Path | None = DATA if DATA.is_dir() else None
    seed: int = 0

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Return the paper's settings."""
        return settings.of_paper(self.paper)

    @cached_property
    def sizes(self) -> dict[str, Any]:
        """Return the size's settings, with given numbers of rows."""
        given = {"rows": self.rows, "tests": self.tests}
        of_size, of_paper = settings.of_size(self.size), settings.of_size(self.size).get(self.paper, {})
        sizes: dict[str, Any] = of_size | of_paper
        return sizes | {name: value for name, value in given.items() if value is not None}

    def budgets(self, table: str) -> Sequence[float]:
        """Return the budgets of a table that this size runs."""
        given, which = self.settings["table"][table], self.sizes["budgets"]
        few = given["few"]
        first = given.get("first", few[:1] if self.paper in SLOW else few)
        budgets: Sequence[float] = first if which == "first" else given[which]
        return budgets

    def recipe(self, part: str | None = None) -> tuple[Recipe, Sequence[int]]:
        """Return how a classifier is trained for a set, or to "attack", and the seeds of its runs."""
        paper = {name: value for name, value in self.settings["training"].items() if not isinstance(value, dict)}
        paper |= self.settings["training"].get(part, {})
        epochs, runs = (self.sizes[name] or paper[name] for name in ("epochs", "seeds"))
        chosen = Recipe(
            epochs, paper["rate"], max(32, self.settings["longest"]), 0.0, paper["batch"], paper["patience"]
        )
        return chosen, range(self.seed, self.seed + runs)

    def weights(self, name: str, ours: str) -> str:
        """Return the folder (or file) of given weights, or the included model that replaces them."""
        given = None if self.models is None else self.models / name
        return str(given) if given is not None and given.exists() else ours

    def has(self, name: str) -> bool:
        """Return whether weights of that name are given."""
        return self.weights(name, "") != ""

    def classifier(self, part: str | None = None) -> str:
        """Return the name of the classifier of a set, or of an "attack": its own if that is given, else the paper's."""
        training = self.settings["training"]
        own = training.get(part, {}).get("classifier", "")
        return own if own and self.has(own) else str(training["classifier"])

    def length(self) -> int:
        """Return the tokens of a text that DP-BART reads: the paper's, its model's, or the size's."""
        asked, places = int(self.settings.get("dpbart", 0)), INCLUDED_LENGTH
        if self.has("bart-base"):
            config = json.loads(Path(self.weights("bart-base", ""), "config.json").read_text(encoding="utf-8"))
            places = int(config["max_position_embeddings"])
        return min(asked, places, self.sizes["tokens"] or places)

    def file(self, *names: str) -> str | None:
        """Return a file or folder of the data folder; None where it is not there."""
        path = None if self.data is None else self.data.joinpath(*names)
        return str(path) if path is not None and path.exists() else None

    def public(self, name: str, count: int) -> list[str]:
        """Return public texts of a corpus, cut to the size's words: a given table, an included corpus, or generated."""
        given = None if self.tables is None else self.tables / f"{name}.parquet"
        path = given if given is not None and given.is_file() else self.file("public_corpus", f"{name}.parquet")
        if path is None:
            return [self.cut(text) for text in generated.texts(count)]
        texts = pl.read_parquet(path)["text"]
        return [self.cut(text) for text in texts.sample(min(count, len(texts)), seed=5)]

    def cut(self, text: str) -> str:
        """Return the first words of a text, or all of it where the size does not cut."""
        words = self.sizes["words"]
        return " ".join(text.split()[:words]) if words else text

    def is_here(self, name: str) -> bool:
        """Return whether a data set is given, included, or generated because there is no data folder."""
        folder = STAND_INS.get(name, (name, None))[0]
        return self.given(name) or self.data is None or (self.data / folder).is_dir()

    def given(self, name: str) -> bool:
        """Return whether the papers' table of a set is given."""
        return self.tables is not None and (self.tables / f"{name}.parquet").is_file()

    def title(self, name: str) -> str:
        """Return the name of a data set, and of the included one that plays it."""
        if self.given(name):
            return name
        if self.data is None:
            return f"{name} (here generated)"
        here, secret = STAND_INS.get(name, ("", None))
        return name if not here else f"{name} (here {here}{f', secret: {secret}' if secret else ''})"

    def task(self, name: str, *, slow: bool = False) -> Task:
        """Read a data set, cut to the setup's sizes; training and test rows are never the same rows."""
        part = self.sizes["slow"] if slow else 1.0
        rows, tests = (self.sizes[which] for which in ("rows", "tests"))
        task = read(name, self)
        share = self.settings.get("sample", {}).get("dpbart", {}).get(name, 1.0) if slow else 1.0
        if share < 1.0:
            task = task.first(*(math.ceil(share * len(texts)) for texts in task.texts))
        return task.first(*(None if count == 0 else max(1, int(count * part)) for count in (rows, tests)))


@cache
def read(name: str, setup: Setup) -> Task:
    """Read a task from the given tables, or from what plays it here; without a split, a tenth of the rows are tests."""
    folder, secret = STAND_INS.get(name, (name, None))
    if setup.given(name):
        assert setup.tables is not None
        table, secret = pl.read_parquet(setup.tables / f"{name}.parquet"), "attribute"
    elif setup.data is None:
        table = generated.table(name, paired=name in PAIRS, numbers=name in NUMBERS)
        secret = "attribute"
    else:
        table = pl.read_parquet(setup.data / folder / f"{folder}.parquet")
    columns = ["text", "text2"] if name in PAIRS else ["text"]
    label = "label" if "label" in table.columns and table["label"].count() else None
    secret = secret if secret in table.columns else None
    table = table.drop_nulls([column for column in (*columns, label, secret) if column is not None])
    if secret == "condition":
        counted_ = table[secret].value_counts().sort("count", secret, descending=[True, False])
        table = table.filter(pl.col(secret).is_in(counted_[secret][:10].to_list()))
    chosen = setup.settings.get("sample", {})
    table = table.sample(fraction=chosen.get("share", {}).get(name, 1.0), seed=42, shuffle=True)
    if setup.given(name) and name in chosen.get("per_author", {}):
        table = table.filter(pl.int_range(pl.len()).over("attribute") < chosen["per_author"][name])
    tested = pl.col("split").is_in(["validation", "test"])
    if "split" not in table.columns or not 0 < table.filter(tested).height < table.height:
        tested = pl.int_range(pl.len()) < pl.len() // 10
    else:
        tested = pl.col("split") == ("test" if (table["split"] == "test").any() else "validation")
        table = table.filter(tested | (pl.col("split") == "train"))
    parts = table.filter(~tested), table.filter(tested)
    texts = tuple([tuple(map(setup.cut, row)) for row in part.select(columns).iter_rows()] for part in parts)

    def values(name: str) -> Any:
        return tuple(part[name].to_list() for part in parts)

    labels: Any = ([], []) if label is None else values(label)
    return Task(name, texts, labels, None if secret is None else values(secret))  # type: ignore[arg-type]


def rewrite(mechanism: Mechanism, rows: Rows) -> Rows:
    """Release all texts of some rows under a new key; texts of a pair are separate records."""
    flat = [text for row in rows for text in row]
    made, width = [text or "" for text in released(mechanism, flat)], len(rows[0]) if rows else 1
    return [tuple(made[at : at + width]) for at in range(0, len(made), width)]


def train(words: Sequence[str]) -> None:
    """Run `dptext train` in this process, whose libraries are loaded already."""
    import typer

    from dptext_etl.cli.app import app

    with redirect_stdout(sys.stderr):
        code = typer.main.get_command(app)(["train", *words], standalone_mode=False)
    if code:
        raise RuntimeError(f"dptext train {words[0]} ended with exit code {code}")


def learned(
    setup: Setup, task: Task, texts: Rows, labels: Sequence[Any], *, part: str | None = None, seed: int = 0
) -> Callable[[Rows], Any]:
    """Learn labels from texts, and return a function that guesses them for others.

    With the paper's classifier among the given weights, it is fine-tuned as the settings say. Otherwise single texts
    use the learner of `dptext evaluate`, and pairs a regression on how alike their texts are.
    """
    truth = np.array(labels, float) if task.numbers and part != "attack" else np.array(labels).astype(str)
    name = setup.classifier(part)
    if setup.has(name):
        guess = fine_tuned(setup.weights(name, ""), _side(texts), truth, seed=seed, recipe=setup.recipe(part)[0])
        return lambda rows: guess(_side(rows))
    if len(texts[0]) == 1:
        guess_ = fit(counted([row[0] for row in texts]), truth.astype(str))
        return lambda rows: guess_(counted([row[0] for row in rows]))
    from sklearn.linear_model import LogisticRegression, Ridge

    model = Ridge() if task.numbers else LogisticRegression(class_weight="balanced", max_iter=1000)
    model.fit(alike(texts), truth)
    return lambda rows: model.predict(alike(rows))


def _side(rows: Rows) -> Side:
    return Side([row[0] for row in rows], [row[1] for row in rows] if len(rows[0]) == 2 else None)


def alike(rows: Rows) -> Reals:
    """Return how alike the two texts of each row are: shared words, their order of length, and cosine; shape (n, 5)."""
    likeness = []
    close = cosines([row[0] for row in rows], [row[1] for row in rows])
    for (one, other), near in zip(rows, close, strict=True):
        left, right = set(words_of(one)), set(words_of(other))
        both, either = len(left & right), max(1, len(left | right))
        likeness.append([both / either, both / max(1, len(left)), both / max(1, len(right)), len(left) / either, near])
    return np.array(likeness)


def figure(setup: Setup, task: Task, train: Rows, test: Rows, *, secret: bool = False, macro: bool = False) -> float:
    """Return 100 x the usual measure of a learner of some rows, on others: accuracy, macro-F1, or Pearson's."""
    usual = "Pearson" if task.numbers and not secret else "macro-F1" if macro else "accuracy"
    return figures(setup, task, train, test, measures=(usual,), secret=secret)[0]


def figures(
    setup: Setup, task: Task, train: Rows, test: Rows, *, measures: Sequence[str], secret: bool = False
) -> list[float]:
    """Return 100 x measures of a learner of some rows, on others: means over the runs that the settings ask for.

    The included learner has no seed, and runs once. "F1" is of the most frequent training value against all others.
    """
    part = "attack" if secret else task.name
    train_values, test_values = (task.secrets or task.labels) if secret else task.labels
    numbers = task.numbers and not secret
    truth = np.array(test_values, float) if numbers else np.array(test_values).astype(str)
    runs = setup.recipe(part)[1] if setup.has(setup.classifier(part)) else [setup.seed]
    found = []
    for seed in runs:
        guessed = np.asarray(learned(setup, task, train, train_values, part=part, seed=seed)(test))
        guessed = guessed if numbers else guessed.astype(str)
        found.append([_measured(name, truth, guessed, statistics.mode(map(str, train_values))) for name in measures])
    return [100 * statistics.fmean(values) for values in zip(*found, strict=True)]


def _measured(name: str, truth: Any, guessed: Any, usual: str) -> float:
    if name in {"Pearson", "Spearman"}:
        of = pearson if name == "Pearson" else spearman
        return float(of(truth, guessed)) if np.std(guessed) and np.std(truth) else 0.0
    if name == "F1":
        both = int((truth == usual).sum() + (guessed == usual).sum())
        return 2 * int(((truth == usual) & (guessed == usual)).sum()) / both if both else 0.0
    return (macro_f1 if name == "macro-F1" else accuracy)(truth, guessed)


def guessing(task: Task, *, secret: bool = False, f1: bool = False) -> float:
    """Return 100 x the accuracy (or its F1) of always saying the most frequent training value."""
    train_labels, test_labels = (task.secrets or task.labels) if secret else task.labels
    usual = statistics.mode(map(str, train_labels))
    share = statistics.fmean(str(value) == usual for value in test_labels)
    return 100 * (2 * share / (1 + share) if f1 else share)


def gain(used: float, attacked: float, raw: tuple[float, float], blind: tuple[float, float] = (0.0, 0.0)) -> float:
    """Return the relative gain; above guessing where `blind` is given. It is NaN if raw texts bring nothing."""
    if raw[0] == blind[0] or raw[1] == blind[1]:
        return math.nan
    return (used - blind[0]) / (raw[0] - blind[0]) - (attacked - blind[1]) / (raw[1] - blind[1])


def flat(rows: Rows) -> list[str]:
    return [" ".join(row) for row in rows]


def bleu(raw: Rows, after: Rows) -> float:
    """Return the mean over texts of BLEU (0 to 1), smoothed, case ignored."""
    from sacrebleu.metrics.bleu import BLEU

    made = BLEU(lowercase=True, effective_order=True)
    pairs = zip(flat(raw), flat(after), strict=True)
    return statistics.fmean(made.sentence_score(two, [one]).score / 100 for one, two in pairs)


def vectors(texts: Sequence[str], encoder: str = "") -> Reals:
    """Return vectors of texts: of a given sentence encoder, or sums of the included encoder's word vectors."""
    if encoder:
        return np.asarray(sentence_vectors(encoder, list(texts)), np.float64)
    return np.asarray(words_encoder()[0].sums(list(texts)), np.float64)


def cosines(one: Sequence[str], other: Sequence[str], encoder: str = "") -> Reals:
    """Return the cosine of each text and its counterpart, shape (n,)."""
    left, right = vectors(one, encoder), vectors(other, encoder)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.asarray((left * right).sum(axis=1) / np.where(lengths > 0, lengths, 1.0))


def cosine(setup: Setup, raw: Rows, after: Rows) -> float:
    """Return the mean cosine of texts and their releases, by the paper's encoders."""
    found = [cosines(flat(raw), flat(after), encoder).mean() for encoder in encoders(setup)]
    return statistics.fmean(map(float, found))


def encoders(setup: Setup) -> list[str]:
    """Return the paper's encoders that are given; "" stands for the included word vectors."""
    return [setup.weights(name, "") for name in setup.settings["encoders"] if setup.has(name)] or [""]


def rank(setup: Setup, raw: Rows, after: Rows) -> float:
    """Return the mean rank of a text's own release among all releases, asked by the text (paper 001)."""
    encoder = encoders(setup)[0]
    queries, answers = (vectors(flat(rows), encoder) for rows in (raw, after))
    queries, answers = (
        each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12) for each in (queries, answers)
    )
    close = queries @ answers.T
    diagonal = close.diagonal()[:, None]
    return float((1 + (close > diagonal).sum(axis=1) + ((close == diagonal).sum(axis=1) - 1) / 2).mean())


PERPLEXITY = 256
"""Tokens of a text whose perplexity counts (paper 001, section 4.3.2)."""


def perplexity(setup: Setup, after: Rows) -> float:
    """Return the perplexity of texts: of GPT-2 if its weights are given, else of the included trigrams."""
    texts = flat(after)
    if not setup.has("gpt2"):
        surprises = np.concatenate([np.zeros(0), *(Ngrams.load().surprise(words_of(text)) for text in texts)])
        return float(np.exp(surprises.mean()))
    import torch

    tokenizer, model = loaded("AutoModelForCausalLM", setup.weights("gpt2", ""))
    longest = min(PERPLEXITY, positions(model))
    total, count = 0.0, 0
    with torch.inference_mode():
        for text in texts:
            ids = torch.tensor([tokenizer(text)["input_ids"][:longest]], device=model.device)
            if ids.shape[1] > 1:
                total += float(model(ids, labels=ids).loss) * (ids.shape[1] - 1)
                count += ids.shape[1] - 1
    return math.exp(total / max(1, count))


@cache
def predictor(folder: str, longest: int) -> Predictor:
    return Predictor(folder, longest)


def inferred(setup: Setup, raw: Rows, after: Rows) -> dict[str, float]:
    """Return how often a masked model infers raw words: at the same place or anywhere, by 1 or 3 predictions."""
    model = predictor(setup.weights("bert-base-uncased", "english-small"), setup.settings["longest"])
    before, then = ([words_of(text) for text in flat(rows)] for rows in (raw, after))
    masked = [item for row, words in enumerate(then) for item in model.masked(row, words)]
    masked = masked[: setup.sizes["masked"] or None]
    guesses = model.predict(masked)
    figures = {}
    for top in (1, 3):
        placed = [
            item.place < len(before[item.row]) and before[item.row][item.place] in words[:top]
            for item, words in zip(masked, guesses, strict=True)
        ]
        hits = [bool(set(before[item.row]) & set(words[:top])) for item, words in zip(masked, guesses, strict=True)]
        figures[f"seq{top}"], figures[f"bow{top}"] = (
            statistics.fmean(each) if each else 0.0 for each in (placed, hits)
        )
    return figures


@dataclass(frozen=True)
class Shown:
    """A table of the page.

    Attributes:
        title: Its subject, with the number of the paper's table.
        head: Titles of its columns.
        rows: Cells. "printed / here" where both are there.
        number: The paper's number of the table, as in its settings.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    number: str = ""

    def markdown(self) -> str:
        """Return it as Markdown."""
        lines = [list(self.head), ["---"] * len(self.head), *self.rows]
        return f"**{self.title}**\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cell(printed: float | None, here: float | None, digits: int = 2) -> str:
    """Write a figure of the paper next to ours; a dash where one has none."""
    each = (
        "–" if value is None or math.isnan(value) else f"{round(value, digits) + 0.0:,.{digits}f}"
        for value in (printed, here)
    )
    return " / ".join(each)
