"""What tests of latent mechanisms share: models without torch, record keys, small mechanisms."""

import hashlib

import numpy as np
import pyarrow as pa

from dptext_etl_models.mechanisms.adept import Adept
from dptext_etl_models.mechanisms.dpbart import DPBart


class Toy:
    """A model of numpy: an encoder that a test gives, a decoder whose text is a digest of every bit it is given."""

    def __init__(self, size, encoder, rows=4):
        self.size, self.rows, self.encoder = size, rows, encoder
        self.decoded = []

    def encode(self, texts):
        assert len(texts) == self.rows
        return np.stack([self.encoder(text) for text in texts])

    def decode(self, latents):
        assert latents.dtype == np.float32
        assert latents.shape == (self.rows, self.size)
        self.decoded += list(latents)
        return [hashlib.sha256(row.tobytes()).hexdigest() for row in latents]


def constant(size, value=0.05):
    """A model whose encoder says the same of every text."""
    return Toy(size, lambda text: np.full(size, value))


def keys(count, first=0):
    return pa.array([bytes([first + i // 256, i % 256]) * 16 for i in range(count)], pa.binary(32))


def dpbart(**more):
    return DPBart(**{"epsilon": 500.0, "n_rec": 10_000, "model": "example-bart", "length": 6, **more})


def adept(**more):
    return Adept(**{"epsilon": 500.0, "n_rec": 10_000, "model": "example-adept", **more})


def paper(kind, **more):
    """Faithful: delta as the papers have it."""
    return kind(**{"epsilon": 500.0, "mode": "faithful", "delta": 1e-5, "model": "example", **more})


MECHANISMS = {
    "dpbart": dpbart(),
    "dpbart-laplace": dpbart(noise="laplace", n_rec=None),
    "adept": adept(),
    "adept-laplace": adept(noise="laplace", n_rec=None),
}


class Given:
    """Record keys that a test dictates."""

    def __init__(self, record_keys):
        self.record_keys = record_keys

    def of(self, texts):
        return self.record_keys


def released(mechanism, model, given, record_keys):
    return mechanism.with_model(model).release(pa.array(given, pa.large_string()), Given(record_keys))
