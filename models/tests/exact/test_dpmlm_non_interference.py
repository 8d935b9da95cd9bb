"""DP-MLM: texts reach the output only through scores, and failures draw uniformly.

Specification: docs/spec/privacy.md#ni, docs/spec/privacy.md#ni-err.
"""

import logging
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from dptext_etl import sampling
from dptext_etl_models.inference.masked.script import Script
from dptext_etl_models.inference.masked.steps import Answer
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from models.tests.toy_scorer import KEY, ToyScorer, ToySession, keys
from tests.examples import examples
from tests.later import later
from tests.quick import quick

later("torch")
VARIANTS = {
    "sequential": {},
    "block": {"decoding": "block", "block": 3},
    "parallel": {"decoding": "parallel"},
    "plusminus": {"variant": "plusminus", "addition": 0.3, "deletion": 0.3},
}
HIDDEN = {
    "fixed": {"length": "fixed", "n_max": 6},
    "noisy": {"length": "noisy", "n_max": 6, "epsilon_length": 0.5},
    "fixed-parallel": {"length": "fixed", "n_max": 6, "decoding": "parallel"},
}
HARD = [
    *("", "   ", "\x00", "<mask>"),
    "</s> <s> <mask> [MASK]",
    "😀👩\u200d👩\u200d👧\u200d👦 🇩🇪",
    "qzxv.jkw@example.org",
    "naïve café — œuvre ß ǅ İ don\u2019t",
    "我们 喜欢 电影 مرحبا",
    "3.14 1,000 ½ 10th",
    "x" * 10_000,
    "e\u0301cole co\u0301mbining \u202e\u200b",
    "<PAD> <pad> ĠG ##ing ▁",
]
texts = st.lists(st.one_of(st.sampled_from(HARD), st.text(max_size=30)), max_size=4).map(" ".join)


def mechanism(**options):
    return DPMLM(epsilon=3.0, model="example-masked", **options)


def blind(made):
    return ToyScorer(made.outputs, lambda words, drawn, number: [0.25] * made.outputs)


def released(made, text, scorer=None):
    out = made.release_with(scorer or blind(made), sampling, pa.array([text], pa.large_string()), KEY)
    return out.text.to_pylist(), out.positions.to_pylist(), out.steps and out.steps.to_pylist()


@pytest.mark.parametrize("variant", VARIANTS)
@examples(40, suppress_health_check=list(HealthCheck))
@given(text=texts)
def test_texts_of_as_many_words_are_released_alike(variant, text):
    made = mechanism(**VARIANTS[variant])
    n = made.positions(pa.array([text])).to_pylist()[0]
    assert released(made, text) == released(made, "good " * n)


@pytest.mark.parametrize("hidden", HIDDEN)
@examples(40, suppress_health_check=list(HealthCheck))
@given(text=texts)
def test_any_two_texts_are_released_alike_where_the_length_is_hidden(hidden, text):
    made = mechanism(**HIDDEN[hidden])
    assert released(made, text) == released(made, "good film about a doctor again and again")


@examples(40, suppress_health_check=list(HealthCheck))
@given(text=texts)
def test_as_many_words_are_read_as_are_counted(text):
    for mode in ("strict", "faithful"):
        made = mechanism(mode=mode)
        (count,) = made.positions(pa.array([text])).to_pylist()
        read = made._read(text, count)
        assert sum(not keep for keep in read.kept) == count
        assert "" not in read.words, "the words are those of the text, not what stands in for them"


@examples(40)
@given(column=st.lists(st.one_of(st.none(), texts), max_size=4))
def test_columns_are_read_as_single_texts_are(column):
    for settings in ({}, {"stopwords": "english"}, HIDDEN[next(iter(HIDDEN))]):
        made = mechanism(**settings)
        given = pa.array(column, pa.large_string())
        _, offsets = made._reader.encode(given, made._input_policy_json, keys(len(column)))
        counts = np.diff(pa.array(offsets).to_numpy().astype(np.int64))
        scripts = made._scripts(given, counts, keys(len(column)))
        for text, count, script in zip(column, counts.tolist(), scripts, strict=True):
            read = made._read(text, count)
            words = read.words[:count] if made.length != "disclose" else read.words
            alone = Script.plain(words, read.kept[: len(words)], count - len(words) if made.length != "disclose" else 0)
            assert (script.words, list(script.items)) == (list(alone.words), list(alone.items))


class Broken(ToyScorer):
    """Fails at one of its four calls, or answers a value that is not an answer."""

    def __init__(self, outputs, how):
        super().__init__(outputs, lambda *_: [0.0] * outputs)
        self.how = how

    def open(self, scripts):
        session = (BrokenSession if self.how in ("none", "empty", "narrow", "nan") else ToySession)(self, scripts)

        def fail(*_):
            raise RuntimeError("inside: the words themselves")

        if self.how == "open":
            fail()
        if self.how in ("ask", "answer", "put"):
            setattr(session, self.how, fail)
        session.how = self.how
        return session


class BrokenSession(ToySession):
    def answer(self):
        records, draws, scores = super().answer()
        answers = {
            "none": None, "empty": np.zeros((0, 0)), "narrow": scores[:, :3], "nan": np.full_like(scores, math.nan),
        }  # fmt: skip
        return Answer(records, draws, answers[self.how])


FAILURES = ["open", "ask", "answer", "put", "none", "empty", "narrow", "nan"]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("how", FAILURES)
def test_failures_draw_uniformly_at_the_same_spend(variant, how, caplog):
    made = mechanism(**VARIANTS[variant])
    text = "qzxvj kwpqz xvjkw pqzxv qzxvj kwpqz xvjkw"
    with caplog.at_level(logging.DEBUG):
        out = made.release_with(Broken(made.outputs, how), sampling, pa.array([text]), KEY)
    working = made.release_with(blind(made), sampling, pa.array([text]), KEY)
    assert out.positions == working.positions
    assert (out.steps is None) or out.steps == working.steps
    failed = out.failed.to_pylist()
    if how != "put":
        assert failed == [len(out.text[0].as_py().split(" "))]
    assert working.failed.to_pylist() == [0]
    words = out.text[0].as_py().split(" ")
    assert len(words) == len(working.text[0].as_py().split(" "))
    assert set(words) <= made.output_words()
    assert not set(words) & set(text.split())
    assert "qzxv" not in caplog.text
    assert "themselves" not in caplog.text
    if how not in ("nan", "put"):
        slots = sampling.Slots(KEY, np.zeros(len(words), np.uint32), np.arange(len(words), dtype=np.uint64))
        uniform = sampling.choose_uniform(slots, made.outputs)
        assert words == [made.output_texts[number] for number in uniform]


def test_scores_without_a_number_are_the_lowest():
    """All lowest are all equal: a draw of the law that equal scores have."""
    made = mechanism()
    assert released(made, "good film", Broken(made.outputs, "nan")) == released(made, "good film")


@pytest.mark.parametrize(
    ("rows", "newest_first"), quick([(7, True), *((rows, order) for rows in (7, 1, 2, 100) for order in (False, True))])
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_batches_order_and_partition_change_no_draw(rows, newest_first, variant):
    """Whole-numbered scores: who is scored with whom, and when, is nothing that a draw can see."""
    made = mechanism(**VARIANTS[variant])

    def score(words, drawn, number):
        seed = sum(map(len, words)) + 3 * sum(drawn) + number
        return [float((seed + 5 * output) % 13) - 3 for output in range(made.outputs)]

    column = [f"{'good film about ' * (i % 4)}{'music ' * (i % 3)}" for i in range(12)]
    column[5] = None
    alone = [
        made.release_with(ToyScorer(made.outputs, score), sampling, pa.array([text], pa.large_string()), keys(1, i + 1))
        for i, text in enumerate(column)
    ]
    expected = [out.text[0].as_py() for out in alone]
    scorer = ToyScorer(made.outputs, score, rows, newest_first)
    array, every = pa.array(column, pa.large_string()), keys(12)
    assert made.release_with(scorer, sampling, array, every).text.to_pylist() == expected
    order = np.random.default_rng(1).permutation(12)
    mixed = made.release_with(scorer, sampling, array.take(order), every.take(order)).text.to_pylist()
    assert mixed == [expected[i] for i in order]
    parts = [made.release_with(scorer, sampling, array.slice(i, 5), every.slice(i, 5)).text for i in (0, 5, 10)]
    assert pa.concat_arrays(parts).to_pylist() == expected


def test_columns_are_worked_through_in_parts(monkeypatch):
    made = mechanism(decoding="block", block=2)
    column, every = pa.array(["good film music", None, "", "music good", "film"] * 4), keys(20)
    expected = made.release_with(blind(made), sampling, column, every)
    monkeypatch.setattr("dptext_etl_models.families.masked.AT_ONCE", 4)
    assert made.release_with(blind(made), sampling, column, every) == expected
