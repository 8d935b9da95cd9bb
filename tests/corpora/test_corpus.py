"""A corpus is one file, named by its hash; other files are refused, and no refusal quotes a text."""

import json

import numpy as np
import pytest

from dptext_etl.artifacts import save_tensors
from dptext_etl.corpora import Corpus, WordEncoder
from dptext_etl.corpora.corpus import CARD, CONTENT
from dptext_etl.errors import ArtifactError

FACTS = {"name": "toy", "licence": "CC0", "provenance": "written here", "hits": {"4.0": 0.7, "8.0": 0.9}}
ENCODER = WordEncoder(["good", "bad", "food"], np.array([[9, 0], [-9, 0], [1, 7]], np.int16))
TEXTS = ["Good food", "bad food", "food"]


def test_a_corpus_comes_back_as_it_was_saved(tmp_path):
    corpus = Corpus.save(tmp_path / "toy", TEXTS, FACTS, encoder=ENCODER)
    again = Corpus.open(tmp_path / "toy", corpus.sha256)
    assert again.texts == tuple(TEXTS)
    assert np.array_equal(again.vectors, ENCODER.encode(TEXTS))
    assert np.array_equal(again.encoder.encode(TEXTS), again.vectors)
    assert again.hits == {4.0: 0.7, 8.0: 0.9}
    assert (len(again), again.encoder_kind, again.artifact.license) == (3, "words", "CC0")
    card = json.loads((tmp_path / "toy" / CARD).read_text())
    assert (card["sha256"], card["texts"], card["provenance"]) == (again.sha256, 3, "written here")


def test_equal_content_has_equal_bytes(tmp_path):
    one, other = (Corpus.save(tmp_path / name, TEXTS, FACTS, encoder=ENCODER) for name in "ab")
    assert one.sha256 == other.sha256


def test_the_hash_is_the_identity(tmp_path):
    corpus = Corpus.save(tmp_path / "toy", TEXTS, FACTS, encoder=ENCODER)
    with pytest.raises(ArtifactError, match="not the one that was named"):
        Corpus.open(corpus.path, "0" * 64)
    with pytest.raises(ArtifactError, match="no corpus"):
        Corpus.open(str(tmp_path / "nothing"))
    save_tensors(tmp_path / CONTENT, {"texts": np.zeros(1, np.uint8)}, {"format": "another"})
    with pytest.raises(ArtifactError, match="not a corpus"):
        Corpus.open(tmp_path)


@pytest.mark.parametrize("text", ["", "two  blanks", " edge", "a\nline", "e\u0301te\u0301", "good food"])
def test_other_forms_of_texts_are_refused_and_never_quoted(tmp_path, text):
    with pytest.raises(ArtifactError) as refused:
        Corpus.save(tmp_path / "toy", ["good food", text, "bad"], FACTS, encoder=ENCODER)
    assert not text or text not in str(refused.value)


def test_license_and_provenance_are_stated(tmp_path):
    for missing in ("licence", "provenance"):
        with pytest.raises(ArtifactError, match=missing):
            Corpus.save(tmp_path / "toy", TEXTS, {**FACTS, missing: ""}, encoder=ENCODER)


def test_vectors_of_a_model_are_kept_as_they_are(tmp_path):
    vectors = np.array([[127, -127], [3, 0], [0, 1]], np.int8)
    corpus = Corpus.save(tmp_path / "toy", TEXTS, FACTS | {"encoder": {"kind": "m"}}, vectors=vectors)
    assert np.array_equal(corpus.vectors, vectors)
    with pytest.raises(ArtifactError, match="model"):
        _ = corpus.encoder
    for wrong in (vectors[:2], vectors.astype(np.int16), np.full((3, 2), -128, np.int8)):
        with pytest.raises(ArtifactError):
            Corpus.save(tmp_path / "toy", TEXTS, FACTS, vectors=wrong)


def test_the_example_comes_with_the_library():
    corpus = Corpus.open("example")
    assert len(corpus) == 64
    assert np.array_equal(corpus.encoder.encode(corpus.texts), corpus.vectors)
    assert (np.abs(corpus.vectors).max(axis=1) > 0).all(), "every text has words that are known"
