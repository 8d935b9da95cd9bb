# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""What DP-BART releases through a real model: kept columns, texts again, vectors that leave."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import ColumnPolicy, _kernel, privatize
from dptext_etl.checks.text_counts import count_reading
from dptext_etl.device import Computing
from dptext_etl.errors import ArtifactError, PolicyError
from dptext_etl.keys import RecordKeys
from dptext_etl_models.inference.sequence_model import SequenceModel
from dptext_etl_models.mechanisms.adept import Adept
from dptext_etl_models.mechanisms.dpbart import FILE, DPBart, read_kept, write_kept
from models.tests.inference.barts import LENGTH, TEXTS, WIDTH, blind_encoder, precisely
from models.tests.latent_toys import released
from tests.computing import settle
from tests.examples import examples

pytestmark = pytest.mark.usefixtures("one_thread")


def policy(mechanism, secret_file):
    allow = mechanism.guarantee.disclosures
    return ColumnPolicy(dataset="d", column="t", release="r", mechanism=mechanism, key=secret_file, allow=allow)


@pytest.fixture
def secret_file(tmp_path):
    _kernel.Secret().write(str(tmp_path / "noise.key"))
    return f"file:{tmp_path / 'noise.key'}"


@pytest.mark.parametrize("variant", ["pr", "pr_plus"])
def test_a_variant_without_its_columns_is_refused(folder, variant):
    with pytest.raises(PolicyError, match=FILE):
        DPBart(epsilon=500.0, n_rec=10, model=str(folder), variant=variant).artifacts()


def test_kept_columns_are_an_artifact_that_belongs_to_its_weights(folder, secret_file):
    write_kept(folder, [0, 2, 9], WIDTH, 5, corpus="public")
    mechanism = DPBart(epsilon=500.0, n_rec=10, model=str(folder), variant="pr", length=LENGTH, num_beams=2)
    assert mechanism.artifacts()[f"model/{FILE}"].path == folder / FILE
    assert mechanism.latent_model.size == 3 * LENGTH
    released = privatize(pa.array(TEXTS), pa.array([str(i) for i in range(8)]), policy(mechanism, secret_file))
    assert released.null_count == 0
    whole = DPBart(epsilon=500.0, n_rec=10, model=str(folder), length=LENGTH, num_beams=2)
    assert whole.cfg() != mechanism.cfg()
    assert whole.scale(7 * 16).sigma > mechanism.scale(7 * 3).sigma
    with pytest.raises(PolicyError, match="trained under noise"):
        mechanism.model_copy(update={"variant": "pr_plus"}).latent_model  # noqa: B018
    write_kept(folder, [0, 2, 9], WIDTH, 5, noise={"epsilon": "500.0"})
    assert DPBart(epsilon=500.0, n_rec=10, model=str(folder), variant="pr_plus", length=LENGTH).latent_model.size == 21
    config = json.loads((folder / FILE).read_bytes())
    (folder / FILE).write_text(json.dumps({**config, "model": "0" * 64}))
    with pytest.raises(ArtifactError, match="other weights"):
        DPBart(epsilon=500.0, n_rec=10, model=str(folder), variant="pr").kept  # noqa: B018


@pytest.mark.parametrize("columns", [[], [2, 1], [1, 1], [-1, 2], [0, WIDTH], [0.5], ["1"]])
def test_lists_of_columns_that_are_none_are_refused(folder, columns):
    written = {"format": "dptext-kept/1", "kept": columns, "width": WIDTH, "model": "0" * 64, "stage": 1}
    (folder / FILE).write_text(json.dumps(written))
    with pytest.raises(ArtifactError, match="not a list of kept columns"):
        read_kept(folder / FILE)


@examples(12)
@given(one=st.one_of(st.text(max_size=200), st.sampled_from(TEXTS)), other=st.sampled_from(TEXTS))
def test_ni_through_the_whole_model(bart, tokenizer, one, other):
    """Tokenizer, masks and decoder see the text; with an encoder that does not, nothing of it comes out."""
    model = SequenceModel(blind_encoder(bart), tokenizer, length=LENGTH, beams=2)
    model.rows = 2
    mechanism = DPBart(epsilon=500.0, n_rec=10, model="example-bart", length=LENGTH)
    key = pa.array([b"k" * 32], pa.binary(32))
    first, second = (released(mechanism, model, [text], key).text[0] for text in (one, other))
    assert first == second


def test_what_was_released_may_be_decoded_again_for_free(folder, secret_file):
    options = {"epsilon": 500.0, "n_rec": 10, "model": str(folder), "length": LENGTH, "num_beams": 2, "clip": 1.0}
    mechanism = DPBart(**options, releases="latents")
    given = pa.array(["good film", None, "", "good film"])
    ids = pa.array(["a", "b", "c", "d"])
    keys = RecordKeys(policy(mechanism, secret_file).release_key(), ids, 0)
    noisy = mechanism.noisy(given, keys)
    assert noisy.equals(mechanism.noisy(given, keys))
    assert mechanism.decode(noisy).equals(mechanism.release(given, keys).text)
    assert noisy.is_null().to_pylist() == [False, True, False, False]
    again = mechanism.model_copy(update={"num_beams": 1}).decode(noisy.slice(2))
    assert len(again) == 2
    with pytest.raises(PolicyError, match="numbers"):
        mechanism.model_copy(update={"length": LENGTH + 1}).decode(noisy)
    with pytest.raises(PolicyError, match="leave only where the configuration says so"):
        DPBart(**options).noisy(given, keys)


def differences(folder, monkeypatch, secret_file, releases):
    """How far apart the noisy vectors of one text are in float32 and bfloat16, in standard deviations of the noise."""
    seen = []
    for dtype in ("float32", "bfloat16"):
        settle(monkeypatch, Computing("cpu", dtype))
        made = DPBart(epsilon=500.0, n_rec=10, model=str(folder), length=LENGTH, clip=1.0, releases=releases)
        keys = RecordKeys(policy(made, secret_file).release_key(), pa.array([str(row) for row in range(len(TEXTS))]), 0)
        places = made._noisy(made.latent_model, pa.array(TEXTS), keys.of(pa.array(TEXTS)))
        seen.append(np.concatenate([noisy for _, noisy, _ in places]))
        if releases == "latents":
            assert made.noisy(pa.array(TEXTS), keys).flatten().to_numpy().tobytes() == seen[-1].tobytes()
    return (seen[0] - seen[1]) / made.scale(made.latent_model.size).sigma


@precisely
def test_vectors_that_leave_never_differ_by_a_function_of_the_text_alone(folder, monkeypatch, secret_file):
    """Types of numbers are settings of a machine and no part of a configuration: the noise is another one for each."""
    apart = differences(folder, monkeypatch, secret_file, "latents")
    assert np.std(apart) == pytest.approx(np.sqrt(2), rel=0.2)
    inside = differences(folder, monkeypatch, secret_file, "texts")
    assert 0 < np.std(inside) < 0.1, "as it was: the noise cancels, and what is left is the text's"


def test_a_configuration_names_the_delta_that_is_used(folder):
    mechanism = DPBart(epsilon=500.0, n_rec=20_000, model=str(folder))
    assert mechanism.configuration()["delta"] == "5e-07"
    assert mechanism.cfg() != mechanism.model_copy(update={"n_rec": 40_000}).cfg()


@pytest.mark.parametrize("name", ["dpbart", "adept"])
def test_words_that_a_model_cuts_are_counted(name):
    """A text has as many ids as the model has places, one more for its end; every later word is cut."""
    bart = DPBart(epsilon=500.0, n_rec=10_000, model="example-bart", length=6)
    made = bart if name == "dpbart" else Adept.example()
    texts = pl.Series(["good", None, "", "the good " * 40])
    words, model = count_reading(made, texts), made.latent_model
    assert (words["texts"], words["cut"]) == (2, 1)
    read = model.reads("the good " * 40)
    assert words["cut_words"] == 80 - len(read.split())
    shown = [model.ids([text]) for text in (read, "the good " * 40, read.rpartition(" ")[0])]
    ids = [item[0] if isinstance(item, tuple) else item for item in shown]
    assert torch.equal(ids[0], ids[1])
    assert not torch.equal(ids[2], ids[1])
