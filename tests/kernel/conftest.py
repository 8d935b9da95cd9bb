"""Tables and a folder for lists, once per file of tests."""

import numpy as np
import pytest

from dptext_etl import _kernel

from .tables import write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lists")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "t.safetensors"
    return _kernel.Table.open(str(path), write(path))


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    """The same sets with equal weights: a draw depends on the set and the stream alone."""
    path = tmp_path_factory.mktemp("table") / "flat.safetensors"
    return _kernel.Table.open(str(path), write(path, cumulative=np.tile(np.arange(1, 5, dtype=np.uint64), 8)))
