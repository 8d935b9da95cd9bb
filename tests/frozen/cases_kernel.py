"""Every function of the kernel under a fixed key: exact bytes and types, whatever reads and writes its columns."""

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel

from . import facts, rows
from .cases_texts import record_keys, release_key

KEY = rows.SECRET
SECRET = _kernel.Secret.from_bytes(rows.SECRET)
RECORDS = pa.array([0, 1, 1, 5, 39], pa.uint32())
PLACES = pa.array([0, 0, 1, 2**20, 7], pa.uint64())
DRAWS = (RECORDS, PLACES)
SCORES = np.array([((7 * i * i + 3 * i) % 23) / 4 - 2 for i in range(5 * 6)])
LATENTS = np.array([((5 * i * i + i) % 17) / 8 - 1 for i in range(3 * 4)])
BOUNDS = pa.array([5, 2**62, 3, 1000, 2**63], pa.uint64())
KEYS_OF_THREE = slice(0, 3)
PRODUCTS = np.array([[2, 0, 1, 4], [0, 3, 1, 0]], np.float32)
NORMS = pa.array([2.0, 3.0, 1.0, 4.0])
ROW_NORMS = pa.array([2.0, 3.0])
BYTES = pa.array([bytes([i]) * 32 for i in range(5)], pa.binary(32))


def merkle_root(rows):
    return _kernel.merkle_root([(rows, 1 if pa.types.is_string(rows.type) else rows.type.byte_width)], len(rows))


def _scores(dtype):
    return pa.array(SCORES.astype(dtype))


def _chosen(scores, draws=DRAWS, keys=None, purpose=1):
    keys = record_keys() if keys is None else keys
    return facts.of_column(_kernel.choose_scores(scores, 6, 1.5, -2.0, 4.0, 1, keys, *draws, purpose))


def _latents(dtype):
    return pa.array(LATENTS.astype(dtype))


def _near():
    return _kernel.NearLaw(NORMS, 0.5, 2.0, 3.0, 1)


CALLS = {
    "fingerprint": lambda: [_kernel.fingerprint(SECRET, text).hex() for text in rows.TEXTS],
    "derive": lambda: [SECRET.derive(label, b"frozen").hex() for label in ("canary", "seal")],
    "published": lambda: [SECRET.published, _kernel.Secret.from_bytes(bytes(range(32))).published],
    "hash_ids": lambda: {k: facts.of_column(_kernel.hash_ids(SECRET, k, rows.ids())) for k in ("rec", "sub", "canary")},
    "hash_ids of another kind": lambda: facts.of_column(_kernel.hash_ids(SECRET, "zxqvyuu", rows.ids())),
    "record_keys of a nonce": lambda: facts.of_column(
        _kernel.record_keys(release_key(), rows.ids(), rows.texts(), 2**63 + 5)
    ),
    "record_keys of another column": lambda: facts.of_column(
        _kernel.record_keys(release_key(column="näme 😀"), rows.ids(), rows.texts())
    ),
    "record_keys of integers": lambda: facts.of_column(
        _kernel.record_keys(release_key(), pa.array(range(40)), rows.texts())
    ),
    "record_keys of other lengths": lambda: _kernel.record_keys(release_key(), pa.array(["a"]), rows.texts()),
    "merkle_root": lambda: [merkle_root(BYTES[:n]).hex() for n in range(6)],
    "merkle_root of chunks": lambda: merkle_root(pa.chunked_array([BYTES[:2], BYTES[2:]])).hex(),
    "merkle_root of a slice": lambda: merkle_root(BYTES.slice(1, 3)).hex(),
    "merkle_root with a null": lambda: merkle_root(pa.array([b"x", None], pa.binary(1))),
    "merkle_root of strings": lambda: merkle_root(pa.array(["x"])),
    "split": lambda: [_kernel.split(text) for text in rows.TEXTS if text is not None and len(text) < 200],
    "stream_words": lambda: [_kernel.stream_words(KEY, p, 3, 5, 6) for p in (1, 4, 2**31 + 1)],
    "below": lambda: [_kernel.below(KEY, 1, p, 20_000, 1) for p in range(8)],
    "draw_positions": lambda: _kernel.draw_positions(KEY, 1, 0, 40, [5, 1, 3], 1),
    "draw_positions of two levels": lambda: _kernel.draw_positions(KEY, 1, 3, 20, list(range(1, 5001)), 2),
    "draw": lambda: [_kernel.draw(KEY, 2, p, [1, 2, 3, 4], 1) for p in range(10)],
    "draw from nothing": lambda: _kernel.draw(KEY, 1, 0, [], 1),
    "draw by a short key": lambda: _kernel.draw(b"x", 1, 0, [1], 1),
    "discrete_laplaces": lambda: _kernel.discrete_laplaces(KEY, 6, 0, 30, 1, 5),
    "uniforms": lambda: facts.of_column(_kernel.uniforms(record_keys(), *DRAWS, 5, 12, 0, 6)),
    "uniforms of slices": lambda: facts.of_column(
        _kernel.uniforms(record_keys().slice(1), RECORDS.slice(0, 3), PLACES.slice(1, 3), 5, 12, 2, 5)
    ),
    "radial_noise": lambda: facts.of_column(_kernel.radial_noise(record_keys(), *DRAWS, 5, 3)),
    "uniform_choices": lambda: facts.of_column(_kernel.uniform_choices(record_keys(), *DRAWS, 1, 1, 1000)),
    "uniform_choices of width 0": lambda: facts.of_column(_kernel.uniform_choices(record_keys(), *DRAWS, 3, 0, 7)),
    "bounded": lambda: facts.of_column(_kernel.bounded(record_keys(), *DRAWS, 1, 2, BOUNDS)),
    "bounded, second level": lambda: facts.of_column(
        _kernel.bounded(record_keys(), *DRAWS, 1, 2, pa.array([5, 6, 7, 8, 9], pa.uint64()), BOUNDS)
    ),
    "choose_scores float64": lambda: _chosen(_scores(np.float64)),
    "choose_scores float32": lambda: _chosen(_scores(np.float32), purpose=257),
    "choose_scores float16": lambda: _chosen(_scores(np.float16)),
    "choose_scores of chunks": lambda: _chosen(pa.chunked_array([_scores(np.float64)[:6], _scores(np.float64)[6:]])),
    "choose_scores of a slice": lambda: _chosen(_scores(np.float64).slice(6), (RECORDS.slice(1), PLACES.slice(1))),
    "choose_scores, positions int64": lambda: _chosen(_scores(np.float64), (RECORDS, PLACES.cast(pa.int64()))),
    "choose_scores, keys of 16 bytes": lambda: _chosen(_scores(np.float64), keys=pa.array([b"x" * 16], pa.binary(16))),
    "choose_scores, keys with a null": lambda: _chosen(_scores(np.float64), keys=pa.array([None], pa.binary(32))),
    "score_weights float64": lambda: facts.of_column(_kernel.score_weights(_scores(np.float64), 6, 1.5, -2.0, 4.0, 1)),
    "score_weights float32": lambda: facts.of_column(_kernel.score_weights(_scores(np.float32), 6, 1.5, -2.0, 4.0, 1)),
    "near width": lambda: [len(_near()), _near().width],
    "near weights": lambda: facts.of_column(_near().weights(pa.array(PRODUCTS.ravel()), ROW_NORMS)),
    "near weights float64": lambda: facts.of_column(
        _near().weights(pa.array(PRODUCTS.ravel().astype(np.float64)), ROW_NORMS)
    ),
    "near draw": lambda: facts.of_column(
        _near().draw(
            pa.array(PRODUCTS.ravel()), ROW_NORMS, pa.array([0, 1, 1, 0, 1], pa.uint32()), record_keys(), *DRAWS
        )
    ),
    **{
        f"noisy_latents {dtype} {name}": lambda dtype=dtype, options=options: facts.of_column(
            _kernel.noisy_latents(_latents(dtype), 4, record_keys()[KEYS_OF_THREE], **options)
        )
        for dtype in ("float32", "float64")
        for name, options in {
            "gaussian": {"sigma": 1.25},
            "gaussian l2": {"clip": 0.5, "norm": "l2", "sigma": 0.75},
            "laplace l1": {"clip": 0.5, "norm": "l1", "rate": (1, 65_536)},
            "laplace value": {"clip": 0.25, "rate": (3, 2**20)},
        }.items()
    },
    "noisy_latents without noise": lambda: _kernel.noisy_latents(_latents("float32"), 4, record_keys()[KEYS_OF_THREE]),
    "noisy_latents of integers": lambda: _kernel.noisy_latents(pa.array([1, 2, 3, 4]), 4, record_keys()[:1], sigma=1.0),
    "versions": lambda: [_kernel.UNICODE_VERSION],
}


def observed():
    """Every call, as JSON can hold it."""
    return {name: facts.attempted(lambda call=call: _written(call())) for name, call in CALLS.items()}


def _written(value):
    if isinstance(value, list) and value and isinstance(value[0], int):
        return facts.values(value)
    return value
