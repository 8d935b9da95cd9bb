"""Read the public data sets of `make -C studies frontier` and cut them to its sizes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from dptext_etl_eval.personal_data import Span

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
CONDITIONS = 10
"""DrugLib keeps the texts about its ten most frequent conditions."""


@dataclass(frozen=True)
class Cut:
    """How a data set is made of its table.

    Attributes:
        folder: Its folder in `shared/data`.
        rows: Texts that mechanisms without a language model release.
        domain: The corpus of `make -C studies surrogate-utility` that is of the same domain.
        label: Column of labels; None where there is none.
        attribute: Column of the attribute that an attacker infers; None where there is none.
        says: What texts, labels and attributes are, in words.
    """

    folder: str
    rows: int
    domain: str
    label: str | None
    attribute: str | None
    says: str


SHORT = 1_200
NEURAL = 500
"""Texts of a data set that mechanisms with a language model release."""
CUTS: dict[str, Cut] = {
    "SST-2": Cut("sst2", SHORT, "film reviews", "label", None, "film sentences; label: good or bad"),
    "Snips": Cut("snips", SHORT, "dialogue turns", "label", None, "spoken commands; label: one of 7 intents"),
    "UCI": Cut("uci_sentences", SHORT, "film reviews", "label", None, "sentences of reviews; label: good or bad"),
    "IMDb": Cut("imdb", 600, "film reviews", "label", None, "film reviews; label: good or bad"),
    "blog_gender": Cut(
        "blog_gender", 1_200, "film reviews", None, "gender", "blog posts; the attacker wants the gender"
    ),
    "DrugLib": Cut(
        "druglib",
        731,
        "encyclopedia",
        "label",
        "condition",
        "reviews of drugs; label: good or bad; the attacker wants the illness, one of 10",
    ),
    "movie_snippets4": Cut(
        "movie_snippets4",
        2_000,
        "film reviews",
        "label",
        "author",
        "parts of film reviews; label: bad, middling, good; the attacker wants the author, one of 4",
    ),
    "pii_synth": Cut(
        "pii_synth", SHORT, "dialogue turns", None, None, "texts about invented persons, with typed names and numbers"
    ),
}


@dataclass(frozen=True, eq=False)
class DataSet:
    """Public texts that play private ones.

    Attributes:
        name: Its name.
        cut: How it was made.
        texts: Texts in a fixed random order; a line measures the first ones.
        label: Labels, shape (n,), or None.
        attribute: The attribute that an attacker infers, shape (n,), or None.
        spans: Typed personal data of each text; empty where none is known.
    """

    name: str
    cut: Cut
    texts: tuple[str, ...] = field(repr=False)
    label: npt.NDArray[np.str_] | None = field(repr=False)
    attribute: npt.NDArray[np.str_] | None = field(repr=False)
    spans: tuple[tuple[Span, ...], ...] = field(default=(), repr=False)

    def sha256(self, rows: int) -> str:
        """Return the hash of the first rows, labels included."""
        content = [self.texts[:rows], *(None if a is None else a[:rows].tolist() for a in (self.label, self.attribute))]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@cache
def read(name: str) -> DataSet:
    """Read a data set: texts of five words and more, each once, in a fixed random order."""
    cut = CUTS[name]
    table = pl.read_parquet(DATA / cut.folder / f"{cut.folder}.parquet")
    wanted = [column for column in (cut.label, cut.attribute) if column is not None]
    table = table.drop_nulls(["text", *wanted]).unique("text", maintain_order=True)
    if "train" in table["split"].to_list()[:1] or (table["split"] == "train").any():
        table = table.filter(pl.col("split") == "train")
    table = table.filter(pl.col("text").str.count_matches(r"\w+") >= 5)
    if cut.attribute == "condition":
        counted = table["condition"].value_counts().sort("count", "condition", descending=[True, False])
        table = table.filter(pl.col("condition").is_in(counted["condition"][:CONDITIONS].to_list()))
    table = table.sample(fraction=1, seed=0, shuffle=True)
    label, attribute = (
        None if column is None else table[column].to_numpy().astype(str) for column in (cut.label, cut.attribute)
    )
    return DataSet(name, cut, tuple(table["text"]), label, attribute, _spans(table))


def _spans(table: pl.DataFrame) -> tuple[tuple[Span, ...], ...]:
    if "spans" not in table.columns:
        return ()
    typed = map(json.loads, table["spans"])
    return tuple(tuple(Span(item["entity_type"], item["entity_value"]) for item in row) for row in typed)
