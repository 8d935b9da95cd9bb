"""The vectors for corpora that ship: their words, and that they put dialogues together as the card says."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dptext_etl import extensions
from dptext_etl.corpora.corpus import learn, products
from dptext_etl.embeddings import WordVectors
from dptext_etl.errors import ArtifactError

FOLDER = Path(__file__).resolve().parents[3] / "models" / "dptext_etl_models" / "english-encoder"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the small encoder does not lie next to the tests")


@pytest.fixture(scope="module")
def card():
    return (FOLDER / "README.md").read_text(encoding="utf-8")


def test_it_is_found_by_its_name_and_has_the_words_of_its_base(monkeypatch):
    assert json.loads((FOLDER / "training.json").read_text())["training_provenance"] == "public"
    named, base = WordVectors.load(FOLDER.name), WordVectors.load()
    assert named.artifact.path == FOLDER / "model.safetensors"
    assert (named.words, named.vectors.shape) == (base.words, base.vectors.shape)
    assert named.artifact.description["base"] == base.artifact.sha256
    monkeypatch.setattr(extensions, "installed", lambda _: {})
    with pytest.raises(ArtifactError, match="cannot be read"):
        WordVectors.load(FOLDER.name)


def test_it_puts_dialogues_together_that_it_never_saw(card, shared_data):
    """Of the 20 turns nearest to one, in other dialogues, how many have its domain."""
    floor, most = map(int, re.search(r"more than (\d+) %, and with `english-20k` less than (\d+) %", card).groups())
    turns = pl.read_parquet(shared_data / "public_corpus" / "sgd_utterances.parquet").filter(
        pl.col("speaker") == "user", pl.col("text").str.count_matches(r"\w+") >= 8
    )
    turns = turns.with_columns(dialogue=pl.col("id").str.replace(r"-\d+$", ""))
    names = turns["dialogue"].unique().sort()
    unseen = [name for name in names if hashlib.sha256(name.encode()).digest()[1] % 2][:300]
    turns = turns.filter(pl.col("dialogue").is_in(unseen))
    texts, (dialogues, domains) = turns["text"].to_list(), (turns[name].to_numpy() for name in ("dialogue", "domain"))
    agreed = []
    for source in (FOLDER / "model.safetensors", "english-20k"):
        points = learn(texts, WordVectors.load(source)).encode(texts)
        scores = products(points, points)
        scores[dialogues[:, None] == dialogues[None, :]] = -np.inf
        near = np.argpartition(-scores, 20, axis=1)[:, :20]
        agreed.append(float((domains[near] == domains[:, None]).mean()))
    assert agreed[0] > floor / 100
    assert agreed[1] < most / 100
