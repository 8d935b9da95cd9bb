"""Calibrate the hit rates of a corpus again on other public texts, for `dptext corpus calibrate`.

A corpus with other hit rates is another corpus, with another hash: policies and plans that name the old one do not take
it silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dptext_etl.corpora import cards
from dptext_etl.corpora.calibrating import EPSILONS, MOST_TEXTS, Hit, calibrate
from dptext_etl.corpora.cleaning import normalized
from dptext_etl.corpora.corpus import CARD, Corpus
from dptext_etl.corpora.encoder import Int8s
from dptext_etl.corpora.learning import vectors_of
from dptext_etl.corpora.remote import CONTENT
from dptext_etl.corpora.sentence_model import SentenceModel
from dptext_etl.corpora.sources import Source
from dptext_etl.errors import InputError, PolicyError

FEWEST = 50


def recalibrate(corpus: Corpus, public: Sequence[Source], epsilons: Sequence[float] = EPSILONS) -> tuple[Hit, ...]:
    """Find the best hit rate of every epsilon on public texts; texts that the corpus holds are left out."""
    own = frozenset(corpus.texts)
    rows = [(normalized(text), label) for source in public for text, label in source.rows()]
    rows = sorted({row for row in rows if row[0] and row[0] not in own}, key=lambda row: (row[0], row[1] or ""))
    if len(rows) < FEWEST:
        raise InputError(
            f"{len(rows)} public texts are left that are not in the corpus; allowed: {FEWEST} and more",
            "name public texts like those that you will privatize; never those themselves",
        )
    rows = [rows[place] for place in np.linspace(0, len(rows) - 1, min(len(rows), MOST_TEXTS)).astype(int)]
    labels = [label for _, label in rows if label is not None]
    if labels and len(labels) != len(rows):
        raise InputError("some public texts have a label and others have none", "leave those without one out")
    queries = encoded(corpus, [text for text, _ in rows])
    return calibrate(corpus.vectors, queries, epsilons, labels=labels or None)


def encoded(corpus: Corpus, texts: Sequence[str]) -> Int8s:
    """Return the vectors of texts by the corpus's own encoder, shape (n, k)."""
    if corpus.encoder_kind == "sentence-transformers":
        return SentenceModel(str(corpus.description["encoder"]["name"])).encode(texts)
    return vectors_of(corpus.encoder, texts)


def write(corpus: Corpus, hits: Sequence[Hit], public: Sequence[Source], out: Path | None = None) -> Corpus:
    """Write the corpus with new hit rates and return it; its hash is another one."""
    place = corpus.path.parent if out is None else out
    if out is None and not (corpus.path.name == CONTENT and (place / CARD).is_file()):
        raise PolicyError(
            "this corpus comes with the library or from an object store and stays as it is",
            "name a new folder with --out",
        )
    if out is not None and out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty", "name a new folder with --out")
    labelled = any(source.label is not None for source in public)
    description = dict(corpus.description)
    description["hits"] = {repr(hit.epsilon): f"{hit.hit:.4f}" for hit in hits}
    names = ", ".join(source.path.name for source in public)
    description["hits_from"] = f"public texts {'with' if labelled else 'without'} labels: {names}"
    words = corpus.encoder if corpus.encoder_kind != "sentence-transformers" else None
    aside = place.with_name(f".{place.name}.new")
    Corpus.save(aside, corpus.texts, description, encoder=words, vectors=corpus.vectors)
    place.mkdir(parents=True, exist_ok=True)
    for name in (CONTENT, CARD):
        (aside / name).replace(place / name)
    aside.rmdir()
    written = Corpus.open(place)
    cards.write(written, place)
    return written
