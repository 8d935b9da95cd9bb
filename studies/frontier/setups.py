"""Run the experiments of the papers: tasks, given or included weights, classifiers, and figures.

`make -C studies paper-000` to `paper-004` run `python -m frontier.reproduce`. Data are public and play private ones.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from surrogate_measures import released

from dptext_etl.allocation.score import words_encoder
from dptext_etl.mechanism import Mechanism
from dptext_etl_eval.attacks.masked_tokens import Predictor
from dptext_etl_eval.classifier import counted, fit
from dptext_etl_eval.ngrams import Ngrams
from dptext_etl_eval.pairs import words_of
from dptext_etl_eval.statistics import accuracy, macro_f1
from frontier.data import DATA

Reals = npt.NDArray[np.float64]
Rows = Sequence[tuple[str, ...]]
LONGEST = 32
"""Words of a text that are read at small scale."""
STAND_INS = {
    "yelp": ("movie_snippets4", "author"),
    "trustpilot": ("druglib", "condition"),
    "blog": ("blog_gender", "gender"),
    "drugs": ("druglib", "condition"),
}
"""What plays the papers' sets where `--tables` has no file of that name: an included set, and its secret."""
PAIRS = frozenset({"mrpc", "rte", "stsb", "qnli_dev", "qqp", "mnli", "wnli", "docnli", "medsts"})


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
        return self.name in {"stsb", "medsts"}

    @cached_property
    def words(self) -> float:
        """Return the mean number of words of a training text."""
        return statistics.fmean(len(words_of(text)) for row in self.texts[0] for text in row)

    def first(self, rows: int, tests: int) -> Task:
        """Return the same task with fewer rows."""

        def cut(both: Any) -> Any:
            return both[0][:rows], both[1][:tests]

        secrets = None if self.secrets is None else cut(self.secrets)
        return Task(self.name, cut(self.texts), cut(self.labels), secrets)


@dataclass(frozen=True)
class Setup:
    """How large an experiment is, and with which weights.

    Attributes:
        rows: Training texts of a set.
        tests: Test texts of a set.
        models: Folder of given weights, one folder each, named as on the hub without the owner; None uses ours.
        tables: Folder of the papers' tables, as `studies/recipes` writes them; None uses included sets.
        slow: Part of the rows that a generative model rewrites.
    """

    rows: int = 240
    tests: int = 200
    models: Path | None = None
    tables: Path | None = None
    slow: float = 0.25

    def weights(self, name: str, ours: str) -> str:
        """Return the folder of given weights, or the included model that replaces them."""
        given = None if self.models is None else self.models / name
        return str(given) if given is not None and given.is_dir() else ours

    def has(self, name: str) -> bool:
        """Return whether weights of that name are given."""
        return self.weights(name, "") != ""

    def some(self, every: Sequence[float], few: Sequence[float]) -> Sequence[float]:
        """Return the paper's budgets, or a few of them at small scale."""
        return every if self.rows >= 1_000 else few

    def task(self, name: str, *, slow: bool = False) -> Task:
        """Read a data set, cut to the setup's sizes; training and test rows are never the same rows."""
        part = self.slow if slow else 1.0
        task = read(name, self.tables)
        return task.first(max(20, int(self.rows * part)), max(20, int(self.tests * part)))


def is_here(name: str, tables: Path | None) -> bool:
    """Return whether a data set is given or included."""
    folder = STAND_INS.get(name, (name, None))[0]
    return (tables is not None and (tables / f"{name}.parquet").is_file()) or (DATA / folder).is_dir()


def title(name: str, tables: Path | None) -> str:
    """Return the name of a data set, and of the included one that plays it."""
    given = tables is not None and (tables / f"{name}.parquet").is_file()
    return name if given or name not in STAND_INS else "{} (here {}, secret: {})".format(name, *STAND_INS[name])


@cache
def read(name: str, tables: Path | None) -> Task:
    """Read a task from the given tables, or from what plays it here; without a split, a tenth of the rows are tests."""
    path = None if tables is None else tables / f"{name}.parquet"
    folder, secret = STAND_INS.get(name, (name, None))
    if path is not None and path.is_file():
        table, secret = pl.read_parquet(path), "attribute"
    else:
        table = pl.read_parquet(DATA / folder / f"{folder}.parquet")
    columns = ["text", "text2"] if name in PAIRS else ["text"]
    label = "label" if "label" in table.columns and table["label"].count() else None
    secret = secret if secret in table.columns else None
    table = table.drop_nulls([column for column in (*columns, label, secret) if column is not None])
    if secret == "condition":
        common = table[secret].value_counts(sort=True)[secret][:10].to_list()
        table = table.filter(pl.col(secret).is_in(common))
    table = table.sample(fraction=1.0, seed=42, shuffle=True)
    tested = pl.col("split").is_in(["validation", "test"])
    if "split" not in table.columns or not 0 < table.filter(tested).height < table.height:
        tested = pl.int_range(pl.len()) < pl.len() // 10
    else:
        tested = pl.col("split") == ("test" if (table["split"] == "test").any() else "validation")
        table = table.filter(tested | (pl.col("split") == "train"))
    parts = table.filter(~tested), table.filter(tested)
    texts = tuple([tuple(map(cut, row)) for row in part.select(columns).iter_rows()] for part in parts)

    def values(name: str) -> Any:
        return tuple(part[name].to_list() for part in parts)

    labels: Any = ([], []) if label is None else values(label)
    return Task(name, texts, labels, None if secret is None else values(secret))  # type: ignore[arg-type]


def cut(text: str) -> str:
    return " ".join(text.split()[:LONGEST])


def rewrite(mechanism: Mechanism, rows: Rows) -> Rows:
    """Release all texts of some rows under a new key; texts of a pair are separate records."""
    flat = [text for row in rows for text in row]
    made, width = [text or "" for text in released(mechanism, flat)], len(rows[0]) if rows else 1
    return [tuple(made[at : at + width]) for at in range(0, len(made), width)]


def learned(setup: Setup, task: Task, texts: Rows, labels: Sequence[Any]) -> Callable[[Rows], Any]:
    """Learn labels from texts, and return a function that guesses them for others.

    With given weights `deberta-v3-base` (or `bert-base-uncased`) a model is tuned for one epoch, as the papers do.
    Otherwise single texts use the learner of `dptext evaluate`, and pairs a regression on how alike their texts are.
    """
    for name in ("deberta-v3-base", "bert-base-uncased"):
        if setup.has(name):
            return tuned(setup.weights(name, ""), texts, labels, numbers=task.numbers)
    if len(texts[0]) == 1:
        guess = fit(counted([row[0] for row in texts]), np.array(labels).astype(str))
        return lambda rows: guess(counted([row[0] for row in rows]))
    from sklearn.linear_model import LogisticRegression, Ridge

    model = Ridge() if task.numbers else LogisticRegression(class_weight="balanced", max_iter=1000)
    truth = np.array(labels, float) if task.numbers else np.array(labels).astype(str)
    model.fit(alike(texts), truth)
    return lambda rows: model.predict(alike(rows))


def alike(rows: Rows) -> Reals:
    """Return how alike the two texts of each row are: shared words, their order of length, and cosine; shape (n, 5)."""
    likeness = []
    close = cosines([row[0] for row in rows], [row[1] for row in rows])
    for (one, other), near in zip(rows, close, strict=True):
        left, right = set(words_of(one)), set(words_of(other))
        both, either = len(left & right), max(1, len(left | right))
        likeness.append([both / either, both / max(1, len(left)), both / max(1, len(right)), len(left) / either, near])
    return np.array(likeness)


def tuned(folder: str, texts: Rows, labels: Sequence[Any], *, numbers: bool) -> Callable[[Rows], Any]:
    """Tune a sequence classifier for one epoch: batches of 32, learning rate 1e-5 (papers 000 and 001)."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    names = [] if numbers else sorted({str(label) for label in labels})
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=max(1, len(names)), local_files_only=True, dtype=torch.float32
    ).train()
    most = min(512, int(model.config.max_position_embeddings) - 2)

    def read_(rows: Rows) -> Any:
        sides = [[row[at] for row in rows] for at in range(len(rows[0]))]
        tokens = tokenizer(*sides, padding=True, truncation=True, max_length=most, return_tensors="pt")
        return model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).logits

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    order = np.random.default_rng(0).permutation(len(texts))
    for start in range(0, len(order), 32):
        some = order[start : start + 32].tolist()
        some_texts, truth = read_([texts[at] for at in some]), [labels[at] for at in some]
        if numbers:
            loss = torch.nn.functional.mse_loss(some_texts[:, 0], torch.tensor([float(value) for value in truth]))
        else:
            loss = torch.nn.functional.cross_entropy(
                some_texts, torch.tensor([names.index(str(value)) for value in truth])
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()

    def guess(rows: Rows) -> Any:
        with torch.inference_mode():
            some_texts = torch.cat([read_(rows[start : start + 32]) for start in range(0, len(rows), 32)])
        return some_texts[:, 0].numpy() if numbers else np.array(names)[some_texts.argmax(1).numpy()]

    return guess


def figure(setup: Setup, task: Task, train: Rows, test: Rows, *, secret: bool = False, macro: bool = False) -> float:
    """Return 100 x accuracy (macro-F1, or Pearson's correlation) of a learner of some rows, on others."""
    train_labels, test_labels = (task.secrets or task.labels) if secret else task.labels
    guessed = learned(setup, task, train, train_labels)(test)
    if task.numbers and not secret:
        truth = np.array(test_labels, float)
        return 100 * float(np.corrcoef(truth, guessed)[0, 1]) if np.std(guessed) and np.std(truth) else 0.0
    truth = np.array(test_labels).astype(str)
    return 100 * (macro_f1 if macro else accuracy)(truth, np.asarray(guessed).astype(str))


def guessing(task: Task, *, secret: bool = False) -> float:
    """Return 100 x the accuracy of always saying the most frequent training value."""
    train_labels, test_labels = (task.secrets or task.labels) if secret else task.labels
    usual = statistics.mode(map(str, train_labels))
    return 100 * statistics.fmean(str(value) == usual for value in test_labels)


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
        from sentence_transformers import SentenceTransformer

        return np.asarray(SentenceTransformer(encoder).encode(list(texts)), np.float64)
    return np.asarray(words_encoder()[0].sums(list(texts)), np.float64)


def cosines(one: Sequence[str], other: Sequence[str], encoder: str = "") -> Reals:
    """Return the cosine of each text and its counterpart, shape (n,)."""
    left, right = vectors(one, encoder), vectors(other, encoder)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.asarray((left * right).sum(axis=1) / np.where(lengths > 0, lengths, 1.0))


def cosine(setup: Setup, raw: Rows, after: Rows) -> float:
    """Return the mean cosine of texts and their releases."""
    return float(cosines(flat(raw), flat(after), setup.weights("all-MiniLM-L6-v2", "")).mean())


def rank(setup: Setup, raw: Rows, after: Rows) -> float:
    """Return the mean rank of a text's own release among all releases, asked by the text (paper 001)."""
    encoder = setup.weights("all-MiniLM-L6-v2", "")
    queries, answers = (vectors(flat(rows), encoder) for rows in (raw, after))
    queries, answers = (
        each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12) for each in (queries, answers)
    )
    close = queries @ answers.T
    diagonal = close.diagonal()[:, None]
    return float((1 + (close > diagonal).sum(axis=1) + ((close == diagonal).sum(axis=1) - 1) / 2).mean())


def perplexity(setup: Setup, after: Rows) -> float:
    """Return the perplexity of texts: of GPT-2 if its weights are given, else of the included trigrams."""
    texts = flat(after)
    if not setup.has("gpt2"):
        surprises = np.concatenate([np.zeros(0), *(Ngrams.load().surprise(words_of(text)) for text in texts)])
        return float(np.exp(surprises.mean()))
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = setup.weights("gpt2", "")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    total, count = 0.0, 0
    with torch.inference_mode():
        for text in texts:
            ids = torch.tensor([tokenizer(text)["input_ids"][:256]])
            if ids.shape[1] > 1:
                total += float(model(ids, labels=ids).loss) * (ids.shape[1] - 1)
                count += ids.shape[1] - 1
    return math.exp(total / max(1, count))


@cache
def predictor(folder: str) -> Predictor:
    return Predictor(folder)


def inferred(setup: Setup, raw: Rows, after: Rows, most: int = 400) -> dict[str, float]:
    """Return how often a masked model infers raw words: at the same place or anywhere, by 1 or 3 predictions."""
    model = predictor(setup.weights("bert-base-uncased", "english-small"))
    before, then = ([words_of(text) for text in flat(rows)] for rows in (raw, after))
    masked = [item for row, words in enumerate(then) for item in model.masked(row, words)][:most]
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
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return it as Markdown."""
        lines = [list(self.head), ["---"] * len(self.head), *self.rows]
        return f"**{self.title}**\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cell(printed: float | None, here: float | None, digits: int = 2) -> str:
    """Write a figure of the paper next to ours; a dash where one has none."""
    each = ("–" if value is None or math.isnan(value) else f"{value:,.{digits}f}" for value in (printed, here))
    return " / ".join(each)
