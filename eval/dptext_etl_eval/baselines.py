"""Guess labels without any private text, for figures that a release must beat to be worth its cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from dptext_etl.corpora.corpus import Corpus
from dptext_etl.data_types import by_name
from dptext_etl.errors import InputError, PolicyError, meant, seam
from dptext_etl.extensions import pip_install
from dptext_etl.runner.source.roles import why_hidden
from dptext_etl.runner.source.table import READ_HINT, Files, schema_of
from dptext_etl_eval.classifier import counted, fit
from dptext_etl_eval.pairs import Free, Rows, Values

CORPUS = "everyday-30k"
"""Public texts and their encoder, which ship."""
BETTER = 0.02
"""A release is useful if its macro-F1 is above every baseline's by more than this."""
NAMES, PUBLIC, BLIND = "label names", "public data", "random baseline"
WRITTEN, GIVEN, ZERO_SHOT = "written texts", "public labeled texts", "zero-shot labels"
FREE = (NAMES, PUBLIC, WRITTEN, GIVEN, ZERO_SHOT)
"""All guesses that need no private text and look at texts."""
NO_WORDS = "no label's name is a word that has a vector"
_BETWEEN_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|[_\-./]+")
"""What separates the words of a label's name."""


def guesses(free: Free, labels: Values, texts: Sequence[str]) -> dict[str, Values | None]:
    """Return a label for each text, by name of the guess; None if no name of a label has a vector."""
    guesses_of = {NAMES: label_names(labels, texts), PUBLIC: public_data(labels, texts)}
    for title, rows in ((WRITTEN, free.written), (GIVEN, free.public)):
        if rows is not None:
            guesses_of[title] = fit(counted(rows[0]), rows[1])(counted(texts))
    if free.model is not None:
        topics = {str(label): free.names.get(str(label), _in_words(label)) for label in labels}
        key = (free.model, free.about, *topics.items()), tuple(texts)
        if key not in free.memory:  # seeds share it
            free.memory[key] = np.array(_zero_shot()(free.model, free.about, topics, texts, free.progress))
        guesses_of[ZERO_SHOT] = free.memory[key]
    return guesses_of


@dataclass(frozen=True)
class Asked:
    """The files and the model of `Free`, as a command names them."""

    public: str | None = None
    written: str | None = None
    zero_shot: str | None = None
    about: str = "texts"
    progress: Callable[[str], None] = lambda _: None

    @property
    def options(self) -> list[str]:
        """Return the options that were given."""
        given = {"--public": self.public, "--written": self.written, "--zero-shot": self.zero_shot}
        return [option for option, value in given.items() if value is not None]

    def read(self, text: str, label: str | None) -> Free:
        """Read the tables; columns of public texts are named as in the raw table, columns of written ones are fixed."""
        if self.options and label is None:
            raise PolicyError(
                f"{', '.join(self.options)}: guesses of labels, and no label is named", "give --label too"
            )
        if self.zero_shot is not None:
            _zero_shot()
        return Free(
            None if self.public is None or label is None else labeled_texts(self.public, text, label),
            None if self.written is None else labeled_texts(self.written, "text", "label"),
            self.zero_shot,
            self.about,
            progress=self.progress,
        )


def public_rows(frame: pl.LazyFrame, text: str, label: str) -> pl.DataFrame:
    """Read two columns of a public table, without rows that lack a value."""
    columns = schema_of(frame).names()
    if missing := [name for name in (text, label) if name not in columns]:
        hint = meant(missing, columns, why_hidden(frame))
        raise InputError(f"the public table has no column {', '.join(map(repr, missing))}", hint)
    with seam("reading the public table", InputError, READ_HINT):
        return frame.select(by_name(text), by_name(label)).drop_nulls().collect()


def labeled_texts(place: str, text: str, label: str) -> Rows:
    """Read a table of public texts with labels."""
    with seam("reading the public table", InputError, READ_HINT):
        rows = public_rows(Files.at(place).scan(), text, label).cast(pl.String)
    if rows[label].n_unique() < 2:
        raise InputError("the public table has fewer than two labels", "name another table, or another column")
    return tuple(rows[text]), rows[label].to_numpy().astype(str)


def _zero_shot() -> Callable[..., list[str]]:
    try:
        from dptext_etl_models.zero_shot import choose
    except ModuleNotFoundError as missing:
        raise PolicyError(f"{missing.name} is not installed", pip_install("models")) from None
    return choose


def label_names(labels: Values, texts: Sequence[str]) -> Values | None:
    """Guess for each text the label whose name has the largest inner product with it."""
    encoder = Corpus.open(CORPUS).encoder
    return _nearest(labels, encoder.encode(list(texts)))


def public_data(labels: Values, texts: Sequence[str]) -> Values | None:
    """Guess with the classifier of this library, trained on public texts that were labeled by the names of labels.

    No public texts with these labels are assumed: each text of the corpus `everyday-30k` gets the label whose name has
    the largest inner product with it.
    """
    guess = _learned_from_public(tuple(labels.tolist()))
    return None if guess is None else guess(texts)


@cache
def _learned_from_public(names: tuple[str, ...]) -> Callable[[Sequence[str]], Values] | None:
    corpus = Corpus.open(CORPUS)
    given = _nearest(np.array(names), corpus.vectors)
    if given is None:
        return None
    if len(np.unique(given)) < 2:
        return lambda texts: np.repeat(given[:1], len(texts))
    learned = fit(counted(corpus.texts), given)
    return lambda texts: learned(counted(texts))


def _in_words(label: object) -> str:
    return _BETWEEN_WORDS.sub(" ", str(label))


def _nearest(labels: Values, vectors: Any) -> Values | None:
    named = Corpus.open(CORPUS).encoder.encode([_in_words(name) for name in labels]).astype(np.int64)
    if not named.any():
        return None
    nearest: Values = labels[(np.asarray(vectors).astype(np.int64) @ named.T).argmax(axis=1)]
    return nearest
