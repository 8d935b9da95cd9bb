"""Shared by all tests: an artifact cache and word vectors of their own, real data where it lies beside the checkout."""

from pathlib import Path

import numpy as np
import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """Tables that tests build stay out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPTEXT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shared_data():
    """`../shared/data`, or a skip that says so."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the shared data does not lie beside this checkout")
    return SHARED / "data"


@pytest.fixture(scope="session")
def small_vectors(tmp_path_factory):
    """103 words of 8 dimensions, with duplicate vectors and a remainder for every k used in tests."""
    random = np.random.default_rng(7)
    vectors = random.normal(size=(103, 8)).astype(np.float32)
    vectors[50:56] = vectors[50]
    words = np.array([*(f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(100)), "the", "good", "don't"])
    path = tmp_path_factory.mktemp("vectors") / "small.npz"
    np.savez(path, words=words, vectors=vectors)
    return str(path)
