"""Small masked models, once per session."""

import pytest

from dptext_etl.mechanisms.dpmlm import DPMLM

from ..computing import PRECISE, settle
from ..model_makers import CLIP, make


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    made = {}

    def of(kind):
        if kind not in made:
            made[kind] = make(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return of


@pytest.fixture
def of_kind(folder_of):
    """DP-MLM with a model of a kind, which computes wherever the test says."""

    def of(kind="roberta", **options):
        return DPMLM(**{"epsilon": 20.0, "model": folder_of(kind), "clip": CLIP, **options})

    return of


@pytest.fixture
def mechanism(of_kind, monkeypatch):
    """The same on the CPU in float32, for what does not depend on it."""
    settle(monkeypatch, PRECISE[0])
    return of_kind


@pytest.fixture
def whole(mechanism):
    """A scorer of whole numbers in the place of a model's (`masked_loops.Whole`)."""
    from dptext_etl.inference.masked.scorer import MaskedScorer

    from .masked_loops import Whole  # needs torch

    def of(**options):
        made = mechanism(**options)
        real = made.scorer()
        model = Whole(len(real.lexicon.tokens))
        frame = real.frame._replace(window=model.window)
        return made, MaskedScorer(model, frame, real.lexicon, made.clip_range)

    return of
