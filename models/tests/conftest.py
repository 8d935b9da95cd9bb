"""Where the tests of models compute."""

import pytest


@pytest.fixture(scope="module")
def one_thread():
    """Torch computes on one thread, in every test of a file."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def plain(one_thread, monkeypatch):
    """Models compute on the CPU, in float32, on one thread."""
    monkeypatch.setenv("DPTEXT_DEVICE", "cpu")
    monkeypatch.setenv("DPTEXT_DTYPE", "float32")
