"""Recipes of tasks that keep their published splits and labels: GLUE, and sets of classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from html import unescape
from pathlib import Path
from re import sub

import polars as pl

GLUE: dict[str, tuple[dict[str, str], tuple[str, ...], tuple[str, str]]] = {
    "cola": ({"1": "acceptable", "0": "unacceptable"}, ("column_4", "column_2"), ("train", "dev")),
    "sst2": ({"1": "positive", "0": "negative"}, ("sentence", "label"), ("train", "dev")),
    "qqp": ({"1": "duplicate", "0": "not"}, ("question1", "question2", "is_duplicate"), ("train", "dev")),
    "stsb": ({}, ("sentence1", "sentence2", "score"), ("train", "dev")),
    "mnli": ({}, ("sentence1", "sentence2", "gold_label"), ("train", "dev_matched")),
    "qnli_dev": ({}, ("question", "sentence", "label"), ("train", "dev")),
    "wnli": ({}, ("sentence1", "sentence2", "label"), ("train", "dev")),
    "rte": ({}, ("sentence1", "sentence2", "label"), ("train", "dev")),
}
"""For each task: names of its labels, where they differ from the file's; the columns of texts and label; the files."""
BLOGGERS = 10
"""Authors of paper 001."""
DOCUMENTS = 9_136
"""Pairs of DocNLI in paper 001: one percent."""
NAMES = {"text": "seq.in", "label": "label"}
"""Files of the intents, by column."""
SEED = 42


def glue(name: str, path: Path) -> pl.DataFrame:
    """Read the two files of a task whose labels GLUE publishes; the second is the test."""
    labels, columns, files = GLUE[name]
    parts = []
    for split, stem in zip(("train", "validation"), files, strict=True):
        rows = _tabs(path / f"{stem}.tsv", header=name != "cola")
        texts = dict(zip(("text", "text2"), columns[:-1], strict=False))
        label = pl.col(columns[-1]).replace(labels)
        parts.append(rows.select(**{new: pl.col(old) for new, old in texts.items()}, label=label, split=pl.lit(split)))
    return pl.concat(parts)


def mrpc(path: Path) -> pl.DataFrame:
    """Read the two files of the corpus: quality, two numbers, and two sentences."""
    parts = []
    for split in ("train", "test"):
        rows = _tabs(path / f"msr_paraphrase_{split}.txt", header=False).tail(-1)
        label = pl.col("column_1").replace_strict({"1": "equivalent", "0": "not_equivalent"})
        parts.append(rows.select(text="column_4", text2="column_5", label=label, split=pl.lit(split)))
    return pl.concat(parts)


def medsts(path: Path) -> pl.DataFrame:
    """Read pairs of sentences and their score; a tenth of them is the test, as the paper states no split."""
    rows = _tabs(path, header=False)
    score = pl.col("column_3").cast(pl.Float64, strict=False)
    return rows.select(text="column_1", text2="column_2", label=score).drop_nulls()


def blog(path: Path) -> pl.DataFrame:
    """Read the posts of the ten bloggers with most posts; a file's name begins with the number of its blogger."""
    posts = [(file.name.split(".")[0], text) for file in sorted(path.glob("*.xml")) for text in _posts(file)]
    most = [author for author, _ in Counter(author for author, _ in posts).most_common(BLOGGERS)]
    kept = [(text, f"author {most.index(author)}") for author, text in posts if author in most]
    return pl.DataFrame(kept, schema=["text", "attribute"], orient="row")


def _posts(file: Path) -> list[str]:
    """Return the posts of a file, which is not always XML."""
    parts = file.read_text(encoding="utf-8", errors="ignore").split("<post>")[1:]
    posts = (unescape(part.partition("</post>")[0]).replace("urlLink", " ").split() for part in parts)
    return [" ".join(words) for words in posts if words]


def bbc_news(path: Path) -> pl.DataFrame:
    """Read a file per article, in a folder per category; its first line is the title."""
    rows = [
        (file.read_text(encoding="utf-8", errors="replace").partition("\n")[2].strip(), file.parent.name)
        for file in sorted(path.glob("*/*.txt"))
    ]
    return pl.DataFrame(rows, schema=["text", "label"], orient="row").unique(maintain_order=True)


def docnli(path: Path) -> pl.DataFrame:
    """Read lists of pairs with premise, hypothesis, and label, and keep a random percent of all."""
    parts = []
    for split in ("train", "test"):
        rows = pl.read_json(path / f"{split}.json", infer_schema_length=None)
        parts.append(rows.select(text="premise", text2="hypothesis", label="label", split=pl.lit(split)))
    table = pl.concat(parts)
    return table.sample(min(DOCUMENTS, table.height), seed=SEED, shuffle=True)


def imdb(path: Path) -> pl.DataFrame:
    """Read a file per review, in the folders train/pos, train/neg, test/pos, and test/neg."""
    rows = []
    for split in ("train", "test"):
        for label in ("pos", "neg"):
            for file in sorted((path / split / label).glob("*.txt")):
                text = unescape(sub(r"<br\s*/?>", "\n", file.read_text(encoding="utf-8")))
                rows.append((text, {"pos": "positive", "neg": "negative"}[label], split))
    return pl.DataFrame(rows, schema=["text", "label", "split"], orient="row")


def intents(path: Path) -> pl.DataFrame:
    """Read the files seq.in and label of the folders train, valid, and test."""
    parts = []
    for folder, split in (("train", "train"), ("valid", "validation"), ("test", "test")):
        texts, labels = (
            (path / folder / name).read_text(encoding="utf-8").splitlines() for name in ("seq.in", "label")
        )
        parts.append(pl.DataFrame({"text": texts, "label": labels}).with_columns(split=pl.lit(split)))
    return pl.concat(parts)


def _tabs(path: Path, *, header: bool) -> pl.DataFrame:
    """Read a file of fields between tabs, in which quotes mean nothing."""
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8-sig").splitlines() if line]
    names = lines[0] if header else [f"column_{place + 1}" for place in range(max(map(len, lines)))]
    rows = [row for row in lines[header:] if len(row) == len(names)]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


TASKS: dict[str, Callable[[Path], pl.DataFrame]] = {
    **{name: partial(glue, name) for name in GLUE},
    "mrpc": mrpc,
    "medsts": medsts,
    "blog": blog,
    "bbc_news": bbc_news,
    "docnli": docnli,
    "imdb": imdb,
    "snips": intents,
    "atis": intents,
}
"""Recipes by the name of the set."""
