"""Batches of a masked model side by side, and layers without the library around them."""

import copy
import threading

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import sampling
from dptext_etl_models.inference.masked import scorer as masked_scorer
from dptext_etl_models.inference.masked.model import Encoder
from dptext_etl_models.inference.running import to_device, without_numbers
from models.tests.inference.masked_loops import DECODINGS, LONG
from models.tests.toy_scorer import Recorded, keys

torch = pytest.importorskip("torch")


@pytest.fixture
def lanes(monkeypatch):
    """Say how many threads torch has, and with them how many batches are under way."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("options", DECODINGS.values())
def test_batches_side_by_side_give_the_same_bits(mechanism, options, lanes):
    made, column, every = mechanism(**options), pa.array(LONG[:7]), keys(7)
    seen = []
    for width in (1, 3):
        lanes(width)
        assert made.scorer().batches_at_once == width
        sampler = Recorded()
        made.release_with(made.scorer(), sampler, column, every)
        seen.append({where: row.tobytes() for where, row in sampler.scores.items()})
        assert torch.get_num_threads() == width, "the setting of torch stays"
    assert seen[0] == seen[1]


def test_every_batch_under_way_has_one_thread_of_its_own(whole, lanes):
    made, scorer = whole(decoding="parallel")
    forward, alone, met = scorer.model.forward, [], threading.Barrier(2, timeout=600)

    def noted(*given):
        alone.append((threading.current_thread(), torch.get_num_threads()))
        if len(alone) <= 2:
            met.wait()  # two batches are under way at a time, or this is never passed
        return forward(*given)

    expected = made.release_with(scorer, sampling, pa.array(LONG), keys(40)).text.to_pylist()
    scorer.model.forward = noted
    lanes(2)
    assert made.release_with(scorer, sampling, pa.array(LONG), keys(40)).text.to_pylist() == expected
    assert ({threads for _, threads in alone}, len({thread for thread, _ in alone})) == ({1}, 2)
    assert threading.current_thread() not in {thread for thread, _ in alone}


def test_two_batches_under_way_in_one_thread_keep_their_order_and_bits(whole, monkeypatch):
    """As on a GPU, which computes one batch while outputs of the one before it are drawn."""
    made, scorer = whole(decoding="parallel")
    column, every = pa.array(LONG), keys(len(LONG))
    forward, seen = scorer.model.forward, []

    def noted(tokens, *rest):
        seen.append((threading.current_thread(), tokens.tobytes()))
        return forward(tokens, *rest)

    scorer.model.forward = noted
    found = []
    for width in (1, 2):
        monkeypatch.setattr(type(scorer), "batches_at_once", width)
        monkeypatch.setattr(type(scorer), "batch_threads", 1)
        sampler = Recorded()
        text = made.release_with(scorer, sampler, column, every).text.to_pylist()
        found.append((text, {where: row.tobytes() for where, row in sampler.scores.items()}))
    assert found[0] == found[1]
    one, two = ([where for where in seen if (where[0] is threading.current_thread()) is own] for own in (True, False))
    assert len(one) == len(two) > 2
    assert [tokens for _, tokens in one] == [tokens for _, tokens in two]
    assert len({thread for thread, _ in two}) == 1


def test_numbers_come_to_a_device_as_they_are():
    for values in (np.arange(6).reshape(2, 3), np.arange(6) > 2, np.arange(6, dtype=np.float64)[::2]):
        found = to_device(values, torch.device("cpu"))
        np.testing.assert_array_equal(found.numpy(), values)
        assert found.numpy().dtype == values.dtype


def test_a_large_model_has_all_threads_for_one_batch(whole, lanes):
    _, scorer = whole()
    lanes(2)
    scorer.model.parameters = masked_scorer._SMALL + 1
    assert scorer.batches_at_once == 1


@pytest.mark.parametrize(
    ("width", "message"),
    [(1, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling …"), (2, "DefaultCPUAllocator: can't allocate memory")],
)
def test_a_failing_text_is_lost_alone_and_memory_halves(whole, lanes, width, message):
    made, scorer = whole(decoding="parallel")
    column, every = pa.array([*LONG[:10], "z8 good", *LONG[10:]]), keys(41)
    expected = made.release_with(scorer, sampling, column, every).text.to_pylist()
    forward, failing = scorer.model.forward, made.vocabulary.encode(["z8"])[0][-1]
    pieces = made.vocabulary.encode([word for text in LONG for word in text.split()])
    assert not any(failing in piece for piece in pieces)

    def narrow(tokens, *rest):
        if len(tokens) > 2:
            raise RuntimeError(message)
        return forward(tokens, *rest)

    scorer.model.forward, scorer.model.failing = narrow, failing
    scorer.batch_rows.clear()
    lanes(width)
    sampler = Recorded()
    out = made.release_with(scorer, sampler, column, every).text.to_pylist()
    assert sampler.uniform == {(every[10].as_py(), 0), (every[10].as_py(), 1)}
    assert out[:10] + out[11:] == expected[:10] + expected[11:]
    assert set(out[10].split(" ")) <= made.output_words()
    assert all(rows <= 2 for rows in scorer.batch_rows.values())


@pytest.mark.parametrize(
    ("kind", "taken"),
    [("roberta", True), ("bert", True), ("deberta", False), ("electra", False), ("modernbert", False)],
)
def test_layers_are_taken_where_every_weight_has_a_known_place(mechanism, kind, taken):
    base = mechanism(kind).scorer().model._base
    assert (Encoder.of(base) is not None) == taken


def test_layers_with_a_weight_more_or_as_a_decoder_are_not_taken(mechanism):
    base = copy.deepcopy(mechanism().scorer().model._base)
    assert Encoder.of(base) is not None
    base.encoder.layer[1].attention.self.distance = torch.nn.Parameter(torch.ones(2))
    assert Encoder.of(base) is None
    del base.encoder.layer[1].attention.self.distance
    base.config.is_decoder = True
    assert Encoder.of(base) is None


def test_a_way_that_answers_otherwise_is_not_taken(mechanism, monkeypatch):
    real = mechanism().scorer().model
    given = np.full((1, 8), 7), np.array([6]), np.zeros((1, 8), np.int64), np.array([[2]])
    expected = real.forward(*given)
    monkeypatch.setattr(Encoder, "_after", lambda self, layer, every, asked, seen: asked)
    made = type(real)(real._model, real._columns, real.window)
    assert made._way == made._cut_last
    assert torch.allclose(made.forward(*given), expected, atol=1e-4)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_a_number_anywhere_in_a_row_makes_it_say_something(kind):
    scores = np.full((5, 200), -np.inf, np.float32)
    scores[1, 3], scores[2, 150] = 1, 0
    scores[3], scores[4, 0], scores[4, 199] = np.nan, np.nan, 2
    assert without_numbers(kind(scores)).tolist() == [True, False, False, True, False]
    assert without_numbers(kind(scores[:0])).tolist() == []
