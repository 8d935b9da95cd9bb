"""Noise of latents is independent between records and coordinates, of full size, and bound to vectors that leave."""

import hmac

import numpy as np
import pytest

from dptext_etl_models.families.latent import latent_keys
from models.tests.exact.latent_toys import MECHANISMS, Toy, adept, constant, dpbart, keys, released


@pytest.fixture(params=MECHANISMS.values(), ids=MECHANISMS)
def mechanism(request):
    return request.param


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


def test_db_noise_has_the_declared_size_at_a_million_draws():
    mechanism = dpbart()
    model = constant(15_360)
    released(mechanism, model, ["a"] * 68, keys(68))
    noise = np.stack(model.decoded[:68]) - 0.05
    assert noise.size > 10**6
    assert np.std(noise) == pytest.approx(mechanism.scale(15_360).sigma, rel=0.01)
    assert abs(np.mean(noise)) < 5 * np.std(noise) / np.sqrt(noise.size)


class Broadcast(type(dpbart())):
    """Planted: one vector of noise for all positions (LLMDP's DPBart)."""

    def add_noise(self, latents, record_keys):
        noisy = super().add_noise(latents, record_keys).reshape(len(latents), -1, 64)
        clean = mechanism_clip(self, latents).reshape(noisy.shape)
        return (clean + (noisy - clean)[:, :1]).reshape(latents.shape).astype(np.float32)


class OnWordsAlone(type(dpbart())):
    """Planted: noise on real positions only."""

    def add_noise(self, latents, record_keys):
        return np.where(latents == 0, 0, super().add_noise(latents, record_keys)).astype(np.float32)


class OneForAll(type(dpbart())):
    """Planted: every record of a batch gets the same noise."""

    def add_noise(self, latents, record_keys):
        clean = mechanism_clip(self, latents)
        return (clean + super().add_noise(latents, record_keys)[:1] - clean[:1]).astype(np.float32)


@pytest.mark.parametrize("planted", [Broadcast, OneForAll])
def test_planted_shared_noise_is_caught(planted):
    assert not independent(noise_of(planted(**dpbart().model_dump())))


def test_planted_noise_on_words_alone_is_caught():
    planted = OnWordsAlone(**dpbart().model_dump())
    assert not full_sized(planted, noise_of(planted))


def test_latents_far_outside_the_clip_tell_no_more_than_its_edge():
    """A norm clip keeps the direction, a value clip the signs; sizes beyond vanish."""
    for mechanism in (dpbart(), adept()):
        outs = {
            released(mechanism, Toy(24, lambda text, size=size: np.full(24, size)), ["good"], keys(1)).text[0].as_py()
            for size in (1e3, 1e30, 1e300)
        }
        assert len(outs) == 1


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
