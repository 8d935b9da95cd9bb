"""Guess labels without any private text: what a release must beat to be worth its cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from dptext_etl.corpora.corpus import Corpus
from dptext_etl_eval.classifier import counted, fit
from dptext_etl_eval.pairs import Values

CORPUS = "everyday-30k"
"""Public texts and their encoder, which ship."""
NAMES, PUBLIC, BLIND = "label names alone", "public data alone", "no texts at all"
GIVEN = "public labeled texts alone"
NO_WORDS = "no label's name is a word that has a vector"
_BETWEEN_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|[_\-./]+")
"""What separates the words of a label's name."""


def label_names(labels: Values, texts: Sequence[str]) -> Values | None:
    """Guess for each text the label whose name has the largest inner product with it."""
    encoder = Corpus.open(CORPUS).encoder
    return _nearest(labels, encoder.encode(list(texts)))


def public_data(labels: Values, texts: Sequence[str]) -> Values | None:
    """Guess with the classifier of this library, trained on public texts that were labeled by the names of labels.

    No public texts with these labels are assumed: each text of the corpus `everyday-30k` gets the label whose name has
    the largest inner product with it.
    """
    corpus = Corpus.open(CORPUS)
    given = _nearest(labels, corpus.vectors)
    if given is None or len(np.unique(given)) < 2:
        return None if given is None else np.repeat(given[:1], len(texts))
    guessed: Values = fit(counted(corpus.texts), given)(counted(texts))
    return guessed


def _nearest(labels: Values, vectors: Any) -> Values | None:
    words = [_BETWEEN_WORDS.sub(" ", str(name)) for name in labels]
    named = Corpus.open(CORPUS).encoder.encode(words).astype(np.int64)
    if not named.any():
        return None
    found: Values = labels[(np.asarray(vectors).astype(np.int64) @ named.T).argmax(axis=1)]
    return found
