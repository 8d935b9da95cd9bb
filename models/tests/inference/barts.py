"""Texts and sizes for tests of small BART models."""

import copy

import numpy as np
import pytest

from tests.computing import PRECISE, place_name

LENGTH, WIDTH = 7, 16
TEXTS = ["good film about a doctor", "", "   ", "<s> </s> <mask> <pad>", "x" * 10_000, "😀 naïve", "the " * 500, "a"]

precisely = pytest.mark.parametrize("bart", PRECISE, ids=place_name, indirect=True)
"""For outputs that are compared id by id: two of them may score the same except for rounding."""


def noise(seed):
    return np.random.default_rng(seed).normal(size=(len(TEXTS), LENGTH * WIDTH)).astype(np.float32)


def blind_encoder(bart):
    """The same model, whose encoder gives one vector whatever it reads, padding or not."""
    import torch

    made = copy.deepcopy(bart)
    norm = made.get_encoder().layers[-1].final_layer_norm
    norm.weight.zero_()
    norm.bias.copy_(torch.linspace(-0.1, 0.1, WIDTH))
    return made
