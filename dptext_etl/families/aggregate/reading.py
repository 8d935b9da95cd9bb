"""Read a published statistic: counts with intervals, a classifier, and more rows follow from it at no cost."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dptext_etl.corpora import Corpus
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.families.aggregate.noise import Noisy
from dptext_etl.families.aggregate.statistic import Statistic, describe

_HINT = "give the manifest of a synthetic table, as `dptext run` published it: FOLDER.manifest.json"


def packed(noisy: Noisy) -> bytes:
    """Return noisy sums as bytes: int64, little-endian, block after block, the count of a block last."""
    return noisy.sums.astype("<i8").tobytes()


def unpacked(statistic: Statistic, data: bytes) -> Noisy:
    """Return what `packed` wrote."""
    return Noisy(statistic, np.frombuffer(data, "<i8").astype(np.int64).reshape(statistic.shape))


def said_of(noisy: Noisy) -> dict[str, Any]:
    """Return the public facts from which `read_statistic` makes a statistic again, as JSON holds them."""
    statistic, sums = noisy.statistic, packed(noisy)
    return {
        "labels": list(statistic.labels),
        "per_subject": statistic.per_subject,
        "epsilon": statistic.epsilon,
        "delta": statistic.delta,
        "width": statistic.projection.width,
        "n_max": statistic.n_max,
        "variance": statistic.variance,
        "sensitivity": statistic.sensitivity,
        "corpus_sha256": statistic.corpus.sha256,
        "sha256": hashlib.sha256(sums).hexdigest(),
        "sums": base64.b64encode(sums).decode(),
    }


@bare
def read_statistic(manifest: str | Path | Mapping[str, Any], corpus: Corpus | str) -> Noisy:
    """Return the statistic of a published synthetic table.

    Args:
        manifest: The manifest's file (`FOLDER.manifest.json`), or what it holds.
        corpus: The corpus of the table, or its name.

    Raises:
        InputError: It is not the manifest of a synthetic table, its sums were changed, or the corpus is another one.
    """
    with seam("reading the statistic of a manifest", InputError, _HINT):
        facts = manifest if isinstance(manifest, Mapping) else json.loads(Path(manifest).read_text(encoding="ascii"))
        (column,) = facts["columns"]
        said, cfg = column["statistic"], column["cfg"]
        sums = base64.b64decode(said["sums"], validate=True)
    if hashlib.sha256(sums).hexdigest() != said["sha256"]:
        raise InputError(
            "the sums of the manifest are not those of its hash: it was changed", "`dptext check` says more"
        )
    opened = Corpus.open(corpus) if isinstance(corpus, str) else corpus
    if opened.sha256 != said["corpus_sha256"]:
        raise InputError("the table was drawn from another corpus", f"its SHA-256 is {said['corpus_sha256']}")
    names = ("epsilon", "delta", "labels", "per_subject", "width", "n_max")
    statistic = describe(opened, **{name: said[name] for name in names})
    if statistic.cfg() != cfg:
        raise InputError("the statistic has another configuration here", "was it made by another version?")
    return unpacked(statistic, sums)
