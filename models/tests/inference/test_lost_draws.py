"""No draw is lost: whatever is between masks, a window holds every mask that it is for."""

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl_models.inference.masked.layout import Layout
from dptext_etl_models.inference.masked.script import Item, Script
from dptext_etl_models.inference.masked.session import MaskedScorer
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from models.tests.toy_scorer import Recorded, keys
from tests.computing import PRECISE, settle
from tests.quick import quick

pytest.importorskip("torch")

WORDS = (
    "the good film about a doctor and his very old town is what it says on the tin because no one saw it".split()  # noqa: SIM905
)
TEXT = " ".join((WORDS * 20)[:400])
CASES = {
    "plain": {},
    "kept stopwords": {"stopwords": "english"},
    "plusminus": {"variant": "plusminus", "addition": 0.25},
    "plusminus, kept stopwords": {"variant": "plusminus", "addition": 0.25, "stopwords": "english"},
    "faithful": {"mode": "faithful"},
}
DECODINGS = {
    "sequential": {},
    "block": {"decoding": "block", "block": 8},
    "long blocks": {"decoding": "block", "block": 100},
    "parallel": {"decoding": "parallel"},
}


class Counting:
    """A model that says the same of every row."""

    parameters = 1

    def __init__(self, device, outputs, window):
        self.device, self.outputs, self.window = device, outputs, window

    def forward(self, tokens, totals, types, columns):
        import torch

        assert (totals < tokens.shape[1]).all()
        return torch.zeros((*columns.shape, self.outputs))


def lost(made, window, texts):
    """The share of draws that nothing decided, and how many were made."""
    import torch

    real = made.scorer()
    model = Counting(torch.device("cpu"), len(real.lexicon.tokens), window)
    frame = real.frame._replace(window=window)
    scorer = MaskedScorer(model, frame, real.lexicon, made.clip_range)
    sampler = Recorded()
    out = made.release_with(scorer, sampler, pa.array(texts), keys(len(texts)))
    made_draws = len(sampler.scores) + len(sampler.uniform)
    assert int(np.sum(out.failed.to_pylist())) == len(sampler.uniform)
    return len(sampler.uniform) / made_draws, made_draws


@pytest.mark.parametrize("window", quick([64, 128, 512]))
@pytest.mark.parametrize("decoding", DECODINGS)
@pytest.mark.parametrize("case", CASES)
def test_no_draw_of_four_hundred_words_is_lost(case, decoding, window, monkeypatch):
    settle(monkeypatch, PRECISE[0])
    made = DPMLM(epsilon=20.0, model="example-masked", **CASES[case], **DECODINGS[decoding])
    share, draws = lost(made, window, [TEXT])
    assert share == 0
    assert draws > 100


def rows_of(script, window, blocks, most=1000):
    made = DPMLM(epsilon=20.0, model="example-masked")
    layout = Layout([script], made.vocabulary.encode, made.vocabulary.frame(window), 1)
    return layout, layout.asked(blocks, most)


def test_a_row_ends_where_its_room_does():
    """Long kept words between masks: rows hold fewer masks, and one mask always fits."""
    words = ["film"] * 60
    items = [Item(number, drawn=number % 6 == 0, tail=number + 1) for number in range(60)]
    layout, asked = rows_of(Script.of(words, items), 64, [(0, 0, 10)])
    rows = layout.rows(asked)
    columns, real = layout.columns(rows, asked, int((asked.last - asked.first).max()))
    assert real.sum() == 10
    assert len(asked.first) > 1
    tokens, _, _ = layout.fill(rows, len(asked.first), 64)
    for row, (places, held) in enumerate(zip(columns, real, strict=True)):
        assert (tokens[row][places[held]] == layout.frame.mask).all()
    long = Script.of(["film", "x" * 5_000, "film"], [Item(0, True, 1), Item(1, False, 2), Item(2, True, 3)])
    layout, asked = rows_of(long, 64, [(0, 0, 2)])
    assert (asked.last - asked.first).tolist() == [1, 1]


def test_only_what_could_lose_draws_has_another_version():
    """Stores, golden bytes and names of all others stay the same."""
    made = {
        (case, decoding): DPMLM(epsilon=20.0, model="example-masked", **CASES[case], **DECODINGS[decoding])
        for case in CASES
        for decoding in DECODINGS
    }
    raised = {name for name, one in made.items() if one.configuration()["mechanism_version"] == 2}
    kept = {"kept stopwords", "plusminus, kept stopwords", "faithful"}
    assert raised == {name for name in made if name[0] in kept and name[1] != "sequential"}
    assert {one.configuration()["mechanism_version"] for one in made.values()} == {1, 2}
