"""Probes: a model that fails on public texts is refused, and one that fails on private texts changes nothing else."""

import logging

import numpy as np
import pyarrow as pa
import pytest
from polars.exceptions import PanicException

from dptext_etl import ColumnPolicy, _kernel, privatize, sampling
from dptext_etl.errors import PolicyError
from dptext_etl.mechanisms.custext import CusText
from dptext_etl_models.inference.device_draws import Undrawn
from dptext_etl_models.inference.masked.model import MaskedModel
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from models.tests.toy_scorer import Recorded, keys
from tests.computing import PRECISE, settle

torch = pytest.importorskip("torch")

SENTINEL = "qzxvjkwp"
TEXTS = ["good film about a doctor", f"the {SENTINEL} music", "", None, "the plot was thin but the music is great"] * 3
DECODINGS = [{"decoding": "sequential"}, {"decoding": "block", "block": 3}, {"decoding": "parallel"}]


@pytest.fixture
def mechanism(monkeypatch):
    settle(monkeypatch, PRECISE[0])

    def of(**options):
        made = DPMLM(epsilon=20.0, model="example-masked", **options)
        made.scorer()  # built while the model is whole
        return made

    return of


def raising(*_):
    raise RuntimeError(f"inside: {SENTINEL}")


def panicking(*_):
    raise PanicException(f"inside: {SENTINEL}")


BROKEN = {
    "raises": lambda real, *given: raising(),
    "panics": lambda real, *given: panicking(),
    "says nothing": lambda real, *given: real(*given) * float("nan"),
    "fails on long rows": lambda real, *given: raising() if given[1].shape[1] > 64 else real(*given),
    "another shape": lambda real, *given: real(*given)[..., :3],
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("options", DECODINGS, ids=lambda options: options["decoding"])
def test_a_model_that_fails_on_public_texts_is_refused(mechanism, broken, options, monkeypatch):
    made = mechanism(**options)
    made.probe()
    real = MaskedModel.forward
    monkeypatch.setattr(MaskedModel, "forward", lambda *given: broken(real, *given))
    with pytest.raises(PolicyError, match="fails on public texts") as caught:
        made.probe()
    assert SENTINEL not in str(caught.value)


@pytest.mark.parametrize("fail", [raising, panicking])
@pytest.mark.parametrize("options", DECODINGS, ids=lambda options: options["decoding"])
def test_a_text_that_no_words_can_be_read_of_is_alone_in_its_part(mechanism, options, fail, monkeypatch, caplog):
    """Whatever fails outside of batches fails for the text that it is about: others keep every draw."""
    made, column, every = mechanism(**options), pa.array(TEXTS, pa.large_string()), keys(len(TEXTS))
    calm = made.release_with(made.scorer(), sampling, column, every)
    lexicon = made.scorer().lexicon
    encode = lambda words: fail() if SENTINEL in words else lexicon.encode(words)
    monkeypatch.setattr(made.scorer(), "lexicon", lexicon._replace(encode=encode))
    sampler = Recorded()
    with caplog.at_level(logging.DEBUG):
        out = made.release_with(made.scorer(), sampler, column, every)
    assert SENTINEL not in caplog.text
    bad = [row for row, text in enumerate(TEXTS) if SENTINEL in (text or "")]
    assert {place[0] for place in sampler.uniform} == {every[row].as_py() for row in bad}
    fine = [row for row in range(len(TEXTS)) if row not in bad]
    assert out.text.take(pa.array(fine)) == calm.text.take(pa.array(fine))
    assert out.failed.to_pylist() == [3 if row in bad else 0 for row in range(len(TEXTS))]
    assert out.positions == calm.positions
    assert not any(calm.failed.to_pylist())
    made.probe()


def test_a_probe_draws_nothing_and_tables_have_nothing_to_probe():
    CusText.example().probe()
    slots = sampling.Slots(keys(1), np.zeros(2, np.uint32), np.arange(2, dtype=np.uint64))
    assert Undrawn().choose(np.zeros((2, 3)), slots, epsilon=1.0, low=0.0, high=1.0).tolist() == [0, 0]
    assert Undrawn().choose_uniform(slots, 3).tolist() == [0, 0]


def test_the_doors_probe_before_and_after(mechanism, tmp_path, monkeypatch):
    """`privatize` serves the Polars expression and the SQL function: neither gives random words for a broken model."""
    _kernel.Secret().write(str(tmp_path / "noise.key"))
    made, ids = mechanism(**DECODINGS[2]), pa.array([str(row) for row in range(len(TEXTS))])
    names = {"dataset": "d", "column": "t", "release": "r", "key": f"file:{tmp_path / 'noise.key'}"}
    policy = ColumnPolicy(mechanism=made, allow=made.guarantee.disclosures, **names)
    assert privatize(pa.array(TEXTS), ids, policy).null_count == 3
    seen, forward = [], MaskedModel.forward

    def noted(model, tokens, *rest):
        seen.append(tokens.shape)
        return forward(model, tokens, *rest)

    monkeypatch.setattr(MaskedModel, "forward", noted)
    made.probe()
    probed = list(seen)
    seen.clear()
    privatize(pa.array(TEXTS), ids, policy)
    assert seen[: len(probed)] == seen[-len(probed) :] == probed
    monkeypatch.setattr(MaskedModel, "forward", raising)
    with pytest.raises(PolicyError, match="fails on public texts"):
        privatize(pa.array(TEXTS), ids, policy)
    assert len(privatize(pa.array([], pa.string()), pa.array([], pa.string()), policy)) == 0
