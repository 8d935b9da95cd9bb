"""A model of sentence-transformers that the test builds and saves goes the real way: load, encode, corpus, release."""

import shutil

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import load
from dptext_etl.column import draw
from dptext_etl.corpora.building import Options, Source, build
from dptext_etl.device import DTYPE_SETTING
from dptext_etl.errors import ArtifactError
from dptext_etl.keys import throwaway
from dptext_etl_models.inference.torch_threads import single_threads
from dptext_etl_models.sentence_transformers import SentenceModel
from tests.corpus_texts import texts

pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed (extra: semantic)")

from models.tests.model_makers import make

TEXTS = texts()[::60]
DTYPES = ("float32", "bfloat16")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from sentence_transformers import SentenceTransformer

    room = tmp_path_factory.mktemp("sentences")
    SentenceTransformer(make("bert", room / "bert"), device="cpu").save(str(room / "model"))
    return room / "model"


@pytest.fixture(scope="module", params=DTYPES)
def model(folder, request):
    return SentenceModel(str(folder), request.param)


@pytest.fixture(scope="module", params=DTYPES)
def corpus(folder, request, tmp_path_factory):
    room = tmp_path_factory.mktemp("corpus")
    pl.DataFrame({"text": texts()[::6]}).write_parquet(room / "public.parquet")
    options = Options(
        name="sentences", license="CC0", provenance="tests", encoder="sentence-transformers", model=str(folder)
    )
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DTYPE_SETTING, request.param)
        built = build([Source(room / "public.parquet")], room / "corpus", options, said.append)
    assert said.count(f"{len(built):,} of {len(built):,} texts are encoded") == 1
    assert built.description["encoder"]["dtype"] == built.computing.dtype == request.param
    return built


def floats(model, some, width=2):
    with single_threads(width) as pool:
        return model.floats(some, pool)


def test_vectors_are_the_means_of_hidden_states_scaled_to_127(folder):
    import torch
    from transformers import AutoModel, AutoTokenizer

    bare, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        states = [bare(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in TEXTS]
    expected = torch.stack(states).double().numpy()
    expected *= 127 / np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.abs(SentenceModel(str(folder), "float32").encode(TEXTS) - expected).max() < 0.51


def test_a_vector_is_equal_to_the_last_bit_whatever_the_other_texts_are(model):
    """Contents, lengths, number, and order of the others: floats, before they are rounded to int8."""
    long, rng = " ".join(TEXTS), np.random.default_rng(5)
    several = [*TEXTS, "", "a", long, long[:300]]
    assert model._length(model._tokens(long)) == model._model.max_seq_length, "a window without padding"
    expected = floats(model, several)
    for _ in range(6):
        rows = rng.integers(len(several), size=rng.integers(1, 60))
        assert np.array_equal(floats(model, [several[row] for row in rows], int(rng.integers(1, 4))), expected[rows])
    assert not expected[several.index("")].any()
    assert expected.any(axis=1).sum() == len(several) - 1


def test_a_text_on_which_the_model_fails_has_no_vector_and_changes_no_other(model, monkeypatch):
    forward, expected = model._forward, floats(model, TEXTS)
    marked = model._tokens(TEXTS[3])["input_ids"]

    def failing(rows, length):
        if any(row["input_ids"].shape == marked.shape and bool((row["input_ids"] == marked).all()) for row in rows):
            raise IndexError(TEXTS[3])
        return forward(rows, length)

    monkeypatch.setattr(model, "_forward", failing)
    found = floats(model, TEXTS)
    assert not found[3].any()
    assert np.array_equal(np.delete(found, 3, 0), np.delete(expected, 3, 0))
    monkeypatch.setattr(model, "_forward", None)
    with pytest.raises(TypeError):
        floats(model, TEXTS)


def test_a_corpus_of_the_model_is_released_through_it(corpus):
    mechanism = load("surrogate")(epsilon=16.0, corpus=str(corpus.path.parent), hit=0.99)
    assert (mechanism.has_model, mechanism.reproducible) == (True, False)
    mechanism.probe()
    some = [*corpus.texts[::60], ""]
    ids = pa.array([str(row) for row in range(len(some))])
    released = draw(mechanism, pa.array(some, pa.large_string()), ids, throwaway(mechanism.cfg())).text.to_pylist()
    assert set(released) <= set(corpus.texts)
    vectors = mechanism.sentence_model.encode(some[:9]).astype(int)
    assert abs(vectors - corpus.vectors[:540:60]).max() == 0, "alone or among all texts"
    assert mechanism.near_to(some[0])[0] == (vectors[0] @ corpus.vectors.astype(int).T).argmax()
    assert len(set(released)) > len(some) // 2


def test_another_model_in_the_place_of_the_first_is_refused(corpus, folder, tmp_path):
    facts = corpus.description["encoder"]
    copy = shutil.copytree(folder, tmp_path / "model")
    assert SentenceModel(str(copy), facts["dtype"], facts["files"]).sha256 == facts["files"]
    (copy / "config.json").write_text((copy / "config.json").read_text() + "\n")
    with pytest.raises(ArtifactError, match="are not those that encoded the corpus"):
        SentenceModel(str(copy), facts["dtype"], facts["files"])


def test_a_folder_without_a_model_is_refused(tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ArtifactError, match="loading a model of sentence-transformers"):
        SentenceModel(str(tmp_path / "nothing"), "float32")
