"""A model of sentence-transformers that the test builds and saves goes the real way: load, encode, corpus, release."""

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import load
from dptext_etl.column import draw
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import SentenceModel
from dptext_etl.errors import ArtifactError
from dptext_etl.keys import throwaway
from tests.corpus_texts import texts

pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed (extra: semantic)")

from models.tests.model_makers import make

TEXTS = texts()[::60]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from sentence_transformers import SentenceTransformer

    room = tmp_path_factory.mktemp("sentences")
    SentenceTransformer(make("bert", room / "bert"), device="cpu").save(str(room / "model"))
    return room / "model"


@pytest.fixture(scope="module")
def model(folder):
    return SentenceModel(str(folder))


def test_vectors_are_the_means_of_hidden_states_scaled_to_127(folder, model):
    import torch
    from transformers import AutoModel, AutoTokenizer

    bare, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        states = [bare(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in TEXTS]
    expected = torch.stack(states).double().numpy()
    expected *= 127 / np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.abs(model.encode(TEXTS) - expected).max() < 0.51


def test_a_vector_depends_on_its_text_alone_and_an_empty_text_has_none(model):
    together = model.encode([TEXTS[0], "", *TEXTS[1:4], " ".join(TEXTS[:8])])
    assert not together[1].any()
    assert np.array_equal(together[2], model.encode([TEXTS[1]])[0])


def test_a_corpus_of_the_model_is_released_through_it(folder, model, tmp_path):
    facts = {"licence": "CC0", "provenance": "made for tests"}
    facts["encoder"] = {"kind": "sentence-transformers", "name": str(folder)}
    corpus = Corpus.save(tmp_path / "corpus", TEXTS, facts, vectors=model.encode(TEXTS))
    mechanism = load("surrogate")(epsilon=16.0, corpus=str(tmp_path / "corpus"), hit=0.99)
    assert (mechanism.has_model, mechanism.reproducible) == (True, False)
    mechanism.probe()
    column = pa.array([*TEXTS, ""], pa.large_string())
    drawn = draw(mechanism, column, pa.array([str(row) for row in range(len(column))]), throwaway(mechanism.cfg()))
    released = drawn.text.to_pylist()
    assert set(released) <= set(corpus.texts)
    near = [corpus.texts[number] for number in mechanism.near_to(TEXTS[0])]
    assert TEXTS[0] in near
    assert sum(one == other for one, other in zip(released, TEXTS, strict=False)) > len(TEXTS) // 2


def test_a_folder_without_a_model_is_refused(tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ArtifactError, match="loading a model of sentence-transformers"):
        SentenceModel(str(tmp_path / "nothing"))
