"""With equal noise and an encoder that sees nothing, nothing of a text comes out.

Specification: docs/spec/privacy.md#ni, docs/spec/privacy.md#ni-err, docs/spec/privacy.md#db-noise.
"""

import hmac
import traceback

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.exceptions import PanicException

from dptext_etl.errors import PolicyError
from dptext_etl_models.families.latent import latent_keys
from models.tests.latent_toys import MECHANISMS, Toy, constant, dpbart, keys, released
from tests.examples import examples

SENTINEL = "qzxvjkwp"
TEXTS = [
    "", " \t\n", "good", "GOOD Good gOOd", "x" * 10_000, "word " * 2_000, "😀👩\u200d👩\u200d👧\u200d👦 🇩🇪",
    "<s> </s> <pad> <mask> <SOS>", "\x00 \x1b[31m \u202e", f"{SENTINEL}@example.org", "1 22 3.14", "我们 喜欢 电影",
]  # fmt: skip
texts = st.one_of(st.text(max_size=300), st.sampled_from(TEXTS))


@pytest.fixture(params=MECHANISMS.values(), ids=MECHANISMS)
def mechanism(request):
    return request.param


@examples(200)
@given(one=texts, other=texts, name=st.sampled_from(list(MECHANISMS)))
def test_ni_any_two_texts_give_equal_bytes(one, other, name):
    mechanism, model = MECHANISMS[name], constant(24)
    first, second = (released(mechanism, model, [text], keys(1)) for text in (one, other))
    assert (first, first.positions.to_pylist()) == (second, [1])


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
        mechanism.with_model(RealLength(24, None)).probe()


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
    assert (out.positions, out.failed.to_pylist()) == (fine.positions, [0, 1, 0, 0, 0])
    assert not any(fine.failed.to_pylist())
    mechanism.with_model(Toy(24, encoder)).probe()
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
    assert (outs[0], set(map(len, outs[0]))) == (outs[1], {0, 64})


@pytest.mark.parametrize("half", ["encoder", "decoder", "nan"])
def test_a_model_that_always_fails_is_refused_by_its_probe_without_a_word_of_a_text(mechanism, half):
    def broken(text):
        raise RuntimeError(f"cannot read {SENTINEL}{text}")

    model = Toy(24, broken if half == "encoder" else lambda text: np.full(24, np.nan if half == "nan" else 0.05))
    if half == "decoder":
        model.decode = broken
    with pytest.raises(PolicyError, match="fails on public texts") as caught:
        mechanism.with_model(model).probe()
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
    assert (out, set(model.rows_seen)) == (released(mechanism, constant(24), given, keys(9)), {2})


def test_copies_of_one_record_are_released_once(mechanism):
    twice = pa.concat_arrays([keys(2), keys(1)])
    model = Toy(24, lambda text: np.full(24, len(text) / 100))
    out = released(mechanism, model, ["good", "film", "good"], twice).text.to_pylist()
    assert out[0] == out[2] != out[1]


# DB-noise: vectors of the decoder, less latents of the encoder


def padded(text):
    """A latent of 20 positions of 64 numbers whose padding is exactly 0."""
    latent = np.zeros((20, 64))
    latent[: len(text.split()) + 1] = 0.05
    return latent.ravel()


def noise_of(mechanism, count=40):
    model = Toy(20 * 64, padded, rows=8)
    given = ["a " * (i % 19) for i in range(count)]
    clean = np.stack([padded(text) for text in given])
    released(mechanism, model, given, keys(count))
    return (np.stack(model.decoded[:count]) - mechanism_clip(mechanism, clean)).reshape(count, 20, 64)


def mechanism_clip(mechanism, latents):
    if mechanism.norm == "value":
        return np.clip(latents, -mechanism.clip, mechanism.clip)
    norms = np.linalg.norm(latents, axis=1, keepdims=True)
    return latents * np.minimum(1, mechanism.clip / np.maximum(norms, 1e-300))


def independent(noise):
    """No two positions of a record and no two records share noise: correlations as small as chance has them."""
    for rows in (noise[0], noise[:, 0], noise.reshape(len(noise), -1)):
        size = rows.shape[1]
        around = np.corrcoef(rows)
        np.fill_diagonal(around, 0)
        if np.abs(around).max() >= 5 / np.sqrt(size) or len(np.unique(rows, axis=0)) < len(rows):
            return False
    return True


def full_sized(mechanism, noise):
    """Noise of the declared size everywhere, the same on padding as on words."""
    scale = mechanism.scale(noise[0].size)
    wanted = scale.sigma or np.sqrt(2) / (float(scale.rate) * 2**16)
    lengths = np.arange(len(noise)) % 19 + 1
    places = np.arange(20)[None] >= lengths[:, None]
    return all(np.std(noise[where]) == pytest.approx(wanted, rel=0.03) for where in (places, ~places))


def test_db_noise_is_independent_everywhere_and_falls_on_padding(mechanism):
    noise = noise_of(mechanism)
    assert noise.shape == (40, 20, 64)
    assert independent(noise)
    assert full_sized(mechanism, noise)


class OnWordsAlone(type(dpbart())):
    """Planted: noise on real positions only."""

    def add_noise(self, latents, record_keys):
        return np.where(latents == 0, 0, super().add_noise(latents, record_keys)).astype(np.float32)


def test_planted_noise_on_words_alone_is_caught():
    planted = OnWordsAlone(**dpbart().model_dump())
    assert not full_sized(planted, noise_of(planted))


def vectors(mechanism, moved, count=20):
    """Noisy vectors of texts whose latents a machine computes a little off."""
    model = Toy(24, lambda text: np.full(24, 0.05) + moved * np.arange(24) / 24)
    released(mechanism, model, ["good"] * count, keys(count))
    return np.stack(model.decoded[:count])


def test_equal_latents_have_equal_noise_and_others_have_noise_of_their_own(mechanism):
    leaving = type(mechanism)(**mechanism.model_dump(exclude_unset=True), releases="latents")
    assert leaving.cfg() != mechanism.cfg()
    assert leaving.model_copy(update={"releases": "texts"}).cfg() == mechanism.cfg()
    assert np.array_equal(vectors(leaving, 0.0), vectors(leaving, 0.0))
    step = 2.0**-30
    kept, bound = (vectors(made, step) - vectors(made, 0.0) for made in (mechanism, leaving))
    assert np.abs(kept).max() <= 2.0**-15, "within the boundary noise is the record's, and steps of the grid are left"
    scale = mechanism.scale(24)
    wanted = scale.sigma or np.sqrt(2) / (float(scale.rate) * 2**16)
    assert np.std(bound) == pytest.approx(np.sqrt(2) * wanted, rel=0.25)
    assert len(np.unique(bound[:, 0])) == len(bound)


def test_latent_keys_follow_from_every_bit():
    record = keys(2)
    one = latent_keys(record, np.array([[0.5, np.nan], [0.5, np.nan]]))
    assert one[0] != one[1], "of two records"
    assert one == latent_keys(record, np.array([[0.5, -0.0], [0.5, np.inf]], np.float32))
    assert one != latent_keys(record, np.array([[0.5, 2.0**-60], [0.5, 0.0]]))
    latent = np.array([0.5, 0.0]).tobytes()
    assert one[0].as_py() == hmac.digest(record[0].as_py(), b"dptext/latent/v1\0" + latent, "sha256")
