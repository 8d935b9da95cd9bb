"""Rows of a masked model: other rows, memory and failures change no draw."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import sampling
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.masked import scorer as masked_scorer
from dptext_etl_models.inference.masked.model import MaskedModel
from dptext_etl_models.inference.masked.script import Script, Scripts
from models.tests.inference.masked_loops import DECODINGS, LONG, rows_of
from models.tests.toy_scorer import Recorded, keys
from tests.computing import PLACES, place_name
from tests.quick import quick

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    "options",
    quick([{"variant": "plusminus"}, DECODINGS[4], {"stopwords": "english"}, DECODINGS[1], DECODINGS[1000]], first=2),
)
def test_rows_order_partition_and_padding_change_no_draw(whole, options, monkeypatch):
    made, scorer = whole(**options)
    column, every = pa.array(LONG), keys(40)
    expected = made.release_with(scorer, sampling, column, every).text.to_pylist()
    order = np.random.default_rng(3).permutation(40)
    mixed = made.release_with(scorer, sampling, column.take(order), every.take(order)).text.to_pylist()
    assert mixed == [expected[i] for i in order]
    for i in (0, 7, 39):
        assert made.release_with(scorer, sampling, column.slice(i, 1), every.slice(i, 1)).text[0].as_py() == expected[i]
    for bucket, tokens in [(16, (64, 64)), (4, (4096, 4096)), (32, (700, 700))]:
        monkeypatch.setattr(masked_scorer, "BUCKET", bucket)
        monkeypatch.setattr(masked_scorer, "_CPU_TOKENS", tokens)
        scorer.batch_rows.clear()
        assert made.release_with(scorer, sampling, column, every).text.to_pylist() == expected


def test_a_word_longer_than_the_window(whole):
    made, scorer = whole()
    sampler = Recorded()
    out = made.release_with(scorer, sampler, pa.array(["good " + "z" * 5_000 + " film"]), keys(1))
    assert (out.positions.to_pylist(), len(sampler.scores)) == ([3], 3)


def test_masks_stand_where_counting_says(mechanism):
    made = mechanism()
    scripts = [Script.plain(["<mask>", "good", "zxq", "</s>"]), Script.plain(["film"] * 200)]
    blocks = [(0, 2, 4), (1, 150, 153)]
    layout, tokens, totals, columns, real = rows_of(made, scripts, blocks, 64)
    frame = layout.frame
    assert (totals <= 63).all()
    for row in range(2):
        masks = columns[row][real[row]]
        assert len(masks) == blocks[row][2] - blocks[row][1]
        assert (tokens[row][masks] == frame.mask).all()
        assert (tokens[row] == frame.mask).sum() == len(masks), "no text spells a mask"
    last = totals[1] - len(frame.after) - 1 - columns[1].max()
    assert last >= 10, "a long text is cut on both sides of its masks"


def test_parts_of_a_column_know_only_their_own_words():
    single = [Script.plain(["a", "b"], [False, True]), Script.plain([]), Script.plain(["c", "a"], padding=2)]
    every = Scripts.of(single)
    assert Scripts.of(every) is every[:] is every
    assert every.draws.tolist() == [1, 0, 4]
    for some in (every[1:], every[:2], every[2:], every[1:1]):
        assert set(some.distinct) == {word for script in some for word in script.words}
    told = [[(list(script.words), list(script.items)) for script in some] for some in (single, every, every[:])]
    assert told[0] == told[1] == told[2]
    assert [list(script.items) for script in every[1:]] == [list(script.items) for script in single[1:]]


KINDS = ["roberta", "bert", "modernbert", "deberta"]
FIRST = [*((kind, PLACES[0]) for kind in KINDS), (KINDS[0], PLACES[1])]
CASES = sorted(itertools.product(KINDS, PLACES), key=lambda case: case not in FIRST)


@pytest.mark.parametrize(
    ("kind", "computing"),
    quick(CASES, first=len(FIRST)),
    ids=[f"{kind}-{place_name(place)}" for kind, place in CASES],
    indirect=["computing"],
)
def test_mates_change_no_bit_of_a_text_s_scores(of_kind, kind, computing):
    """On this machine: contents, lengths, number and order of all others (docs/spec/privacy.md#batch-independence)."""
    made = of_kind(kind, decoding="block", block=3)
    mine, my_key = ["good film about a doctor and zxq", "music"], keys(2, 50)
    crowds = [
        [],
        ["the music is great"] * 3,
        ["film", "again and again " * 12, "", None, "zxqv <mask> 42"],
        [f"{'word ' * (i % 17)}" for i in range(33)],
    ]
    seen = []
    for crowd in crowds:
        for place in {0, len(crowd) // 2, len(crowd)}:
            column = [*crowd[:place], *mine, *crowd[place:]]
            others = keys(len(crowd)).to_pylist() if crowd else []
            given = pa.array([*others[:place], *my_key.to_pylist(), *others[place:]], pa.binary(32))
            sampler = Recorded()
            made.release_with(made.scorer(), sampler, pa.array(column, pa.large_string()), given)
            seen.append(
                {where: row.tobytes() for where, row in sampler.scores.items() if where[0] in my_key.to_pylist()}
            )
    assert len(seen[0]) == 8
    assert all(other == seen[0] for other in seen)


def test_a_sampler_short_of_memory_draws_the_same(whole):
    made, scorer = whole(decoding="parallel")
    column, every = pa.array(LONG), keys(40)
    expected = made.release_with(scorer, sampling, column, every).text.to_pylist()

    class Narrow(Recorded):
        def choose(self, scores, slots, **law):
            if len(slots) > 3:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().choose(scores, slots, **law)

    assert made.release_with(scorer, Narrow(), column, every).text.to_pylist() == expected


def test_threads_that_share_a_model_do_not_meet(computing):
    """What one thread cuts to its masks is its own: several scorers and threads call one model at a time."""
    files = language_model.model_files("example-masked")
    model = language_model.masked_model(files, computing.device, computing.dtype)
    columns = np.arange(20) + 5
    scorers = [MaskedModel(model, columns, window) for window in (64, 128)]

    def given(seed):
        random = np.random.default_rng(seed)
        tokens = random.integers(5, 300, (4, 24))
        return tokens, np.full(4, 20), np.zeros((4, 24), np.int64), random.integers(0, 19, (4, 2))

    expected = [scorers[0].forward(*given(seed)).clone() for seed in range(12)]
    with ThreadPoolExecutor(4) as pool:
        asked = [(scorers[turn % 2], turn % 12) for turn in range(96)]
        found = list(pool.map(lambda one: one[0].forward(*given(one[1])), asked))
    assert all(bool((scores == expected[seed]).all()) for scores, (_, seed) in zip(found, asked, strict=True))
