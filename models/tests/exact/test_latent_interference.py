"""With equal noise and an encoder that sees nothing, nothing of a text comes out.

Specification: docs/spec/privacy.md#ni, docs/spec/privacy.md#ni-err, docs/spec/privacy.md#db-noise.
"""

import traceback

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.exceptions import PanicException

from dptext_etl.errors import PolicyError
from models.tests.exact.latent_toys import MECHANISMS, Toy, constant, dpbart, keys, released
from tests.examples import examples

SENTINEL = "qzxvjkwp"
TEXTS = [
    "",
    " \t\n",
    "good",
    "GOOD Good gOOd",
    "x" * 10_000,
    "word " * 2_000,
    "😀👩\u200d👩\u200d👧\u200d👦 🇩🇪",
    "<s> </s> <pad> <mask> <SOS>",
    "\x00 \x1b[31m \u202e",
    f"{SENTINEL}@example.org",
    "1 22 3.14",
    "我们 喜欢 电影",
]
texts = st.one_of(st.text(max_size=300), st.sampled_from(TEXTS))


@pytest.fixture(params=MECHANISMS.values(), ids=MECHANISMS)
def mechanism(request):
    return request.param


@examples(200)
@given(one=texts, other=texts, name=st.sampled_from(list(MECHANISMS)))
def test_ni_any_two_texts_give_equal_bytes(one, other, name):
    mechanism, model = MECHANISMS[name], constant(24)
    first, second = (released(mechanism, model, [text], keys(1)) for text in (one, other))
    assert first == second
    assert first.positions.to_pylist() == [1]


def test_ni_can_fail():
    """An encoder that sees does reach the output: the test above is not blind."""
    seeing = Toy(24, lambda text: np.full(24, len(text) / 100))
    assert released(dpbart(), seeing, ["good"], keys(1)) != released(dpbart(), seeing, ["good film"], keys(1))


class Leaking(Toy):
    """Planted: the decoder is handed how long each text was, as the encoder's mask would tell it."""

    def encode(self, texts):
        self.lengths = [len(text) for text in texts]
        return super().encode(texts)

    def decode(self, latents):
        return [f"{text} {'x' * length}" for text, length in zip(super().decode(latents), self.lengths, strict=True)]


def test_planted_length_in_the_decoder_is_caught():
    model = Leaking(24, lambda text: np.full(24, 0.05))
    assert released(dpbart(), model, ["a"], keys(1)) != released(dpbart(), model, ["ab"], keys(1))


class RealLength(Toy):
    """Planted: latents as long as the text, so that noise falls only on real positions."""

    def encode(self, texts):
        return np.full((len(texts), max(map(len, texts))), 0.05)


def test_an_encoder_of_the_texts_own_length_is_never_released(mechanism):
    out = released(mechanism, RealLength(24, None), [SENTINEL], keys(1))
    assert out.text == released(mechanism, constant(24, 0.0), [SENTINEL], keys(1)).text
    assert out.failed.to_pylist() == [1]
    with pytest.raises(PolicyError, match="fails on public texts"):
        mechanism.probe_with(RealLength(24, None))


@pytest.mark.parametrize("failure", ["raises", "panics", "nan", "infinite", "shape"])
def test_ni_err_a_failing_record_is_the_zero_vector(mechanism, failure):
    def encoder(text):
        if SENTINEL not in text:
            return np.full(24, 0.05)
        if failure in {"raises", "panics"}:
            raise ValueError(text) if failure == "raises" else PanicException(text)
        return {"nan": np.full(24, np.nan), "infinite": np.full(24, -np.inf), "shape": np.zeros(3)}[failure]

    given = ["good", f"my {SENTINEL}", "film", None, "good"]
    out = released(mechanism, Toy(24, encoder), given, keys(5))
    zero = released(mechanism, constant(24, 0.0), given, keys(5))
    fine = released(mechanism, constant(24, 0.05), given, keys(5))
    assert out.text[1] == zero.text[1]
    assert [out.text[row] for row in (0, 2, 4)] == [fine.text[row] for row in (0, 2, 4)]
    assert out.positions == fine.positions
    assert out.failed.to_pylist() == [0, 1, 0, 0, 0]
    assert not any(fine.failed.to_pylist())
    mechanism.probe_with(Toy(24, encoder))
    assert not any(SENTINEL in (text or "") for text in out.text.to_pylist())


def test_ni_err_a_failing_decoder_depends_on_noise_alone(mechanism):
    class Broken(Toy):
        def decode(self, latents):
            if (latents[:, 0] > 0).any():
                raise ValueError("no")
            return super().decode(latents)

    outs = [
        released(mechanism, Broken(24, lambda text: np.zeros(24)), given * 4, keys(12)).text.to_pylist()
        for given in ([SENTINEL, "good", ""], ["", "x" * 99, SENTINEL])
    ]
    assert outs[0] == outs[1]
    assert set(map(len, outs[0])) == {0, 64}


@pytest.mark.parametrize("half", ["encoder", "decoder", "nan"])
def test_a_model_that_always_fails_is_refused_by_its_probe_without_a_word_of_a_text(mechanism, half):
    def broken(text):
        raise RuntimeError(f"cannot read {SENTINEL}{text}")

    model = Toy(24, broken if half == "encoder" else lambda text: np.full(24, np.nan if half == "nan" else 0.05))
    if half == "decoder":
        model.decode = broken
    with pytest.raises(PolicyError, match="fails on public texts") as caught:
        mechanism.probe_with(model)
    assert SENTINEL not in "".join(traceback.format_exception(caught.value))
    out = released(mechanism, model, [SENTINEL, None], keys(2))
    assert out.failed.to_pylist() == [1, 0], "on private texts it is counted, and decides nothing"


def test_memory_that_runs_out_halves_batches_by_shape_and_goes_on(mechanism):
    class Small(Toy):
        def encode(self, texts):
            if len(texts) > 2:
                raise MemoryError
            self.rows_seen.append(len(texts))
            return np.stack([self.encoder(text) for text in texts])

        rows_seen: list = []  # noqa: RUF012

    model = Small(24, lambda text: np.full(24, 0.05), rows=8)
    given = [f"text {i}" for i in range(9)]
    out = released(mechanism, model, given, keys(9))
    assert out == released(mechanism, constant(24), given, keys(9))
    assert set(model.rows_seen) == {2}


def test_mates_order_and_batches_change_nothing(mechanism):
    def encoder(text):
        return np.random.default_rng(len(text)).normal(size=24)

    given = ["good", "", None, "a film", "x" * 50, "the plot was thin", "good"]
    whole = released(mechanism, Toy(24, encoder), given, keys(7)).text.to_pylist()
    order = [3, 6, 0, 5, 2, 1, 4]
    shuffled = released(mechanism, Toy(24, encoder, rows=3), [given[i] for i in order], keys(7).take(pa.array(order)))
    assert shuffled.text.to_pylist() == [whole[i] for i in order]
    alone = [released(mechanism, Toy(24, encoder, rows=1), [given[i]], keys(7).slice(i, 1)).text[0] for i in range(7)]
    assert [text.as_py() for text in alone] == whole
    assert whole[0] != whole[6]  # equal texts of two records


def test_copies_of_one_record_are_released_once(mechanism):
    twice = pa.concat_arrays([keys(2), keys(1)])
    model = Toy(24, lambda text: np.full(24, len(text) / 100))
    out = released(mechanism, model, ["good", "film", "good"], twice).text.to_pylist()
    assert out[0] == out[2] != out[1]


# DB-noise: what the decoder gets, less what the encoder gave
