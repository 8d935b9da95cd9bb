"""Every word gets a score from 0 to 1, in the direction that the paper's text says; tools are public and offline."""

import importlib
import json
import math
import sys
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dptext_etl import extensions
from dptext_etl.allocation import Allocation, score, spread
from dptext_etl.allocation.score import Tools
from dptext_etl.allocation.scores import ic
from dptext_etl.allocation.scores.ic import OwnTable
from dptext_etl.errors import PolicyError
from tests.quick import quick

FOX = ("The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog")
PRINTED = (2.17, 1.01, 0.43, 0.38, 0.38, 1.49, 2.07, 0.79, 0.28)
"""Figure 1 of paper 001."""


def of(name, tokens, **tools):
    return dict(zip(tokens, score.load(name)(Tools(**tools)).of(tokens).tolist(), strict=True))


def test_the_papers_figure_is_a_division_by_its_implied_scores():
    implied = (0.0307, 0.0659, 0.1547, 0.1751, 0.1751, 0.0447, 0.0321, 0.0842, 0.2376)
    assert sum(PRINTED) == pytest.approx(9.0)
    parts = spread(implied, 9_000_000, 1, 9_000_000)
    assert [part / 1e6 for part in parts] == pytest.approx(PRINTED, abs=0.006)


@settings(max_examples=40, deadline=None)
@given(
    words=st.lists(st.sampled_from(["the", "doctor", "Anna", "zzqx", "!", "of", "medicine"]), min_size=1, max_size=30),
    total=st.floats(0.5, 500),
    draws=st.integers(0, 40),
)
def test_a_text_never_gets_more_than_its_budget_and_every_word_gets_some(words, total, draws):
    allocation = Allocation(scores=("ic",), total=total)
    parts = allocation.over(words, draws=len(words) + draws)
    low, high = allocation.bounds(len(words) + draws)
    assert sum(parts) <= total * 1e6
    assert all(1 <= low <= part <= high for part in parts)
    assert len(parts) == len(words)


OF_MODELS = ("attention", "keybert")
"""Scores that load a model, for seconds."""
NAMES = sorted(score.available(), key=OF_MODELS.__contains__)


@pytest.mark.parametrize("name", quick(NAMES, first=sum(name not in OF_MODELS for name in NAMES)))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tokens=st.lists(
        st.one_of(
            st.sampled_from(["n't", "$5.00", "anna@x.org", "555-0134", "fair-trade", "<mask>", "😀", "", " ", "The"]),
            st.text(max_size=6),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_no_word_is_exempt_whatever_it_is(name, tokens):
    if name in {"pos", "ner"}:
        pytest.importorskip("nltk", reason="nltk is not installed (extra: allocation)")
    found = score.load(name)(Tools()).of(tokens)
    assert found.shape == (len(tokens),)
    assert np.isfinite(found).all()
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("name", score.available())
def test_a_text_without_words_has_no_scores(name):
    assert score.load(name)(Tools()).of(()).shape == (0,)


def test_rare_words_tell_more_than_frequent_ones():
    """The paper reads counts as information: there it is the other way round."""
    found = of("ic", ("the", "dog", "jumps", "lazy", "Zbigniew", "!"))
    assert found["!"] == 0.0
    assert 0.0 < found["the"] < found["dog"] < found["lazy"] < found["Zbigniew"] == 1.0
    counts = json.loads(ic.OWN.read_text())
    most, rare = 2 * counts["per"], min(counts["words"].values())
    assert OwnTable().one("Dog") == pytest.approx(np.log(counts["per"] / counts["words"]["dog"]) / np.log(most / rare))


def test_the_printed_variant_needs_wordnet():
    with pytest.raises(PolicyError, match="WordNet's counts"):
        of("ic", FOX, printed=True)


@pytest.fixture
def small_net(monkeypatch):
    """A WordNet of three words, and the counts of two corpora."""
    senses = {
        "dog": [("n", 1), ("n", 2), ("v", 3)],
        "run": [("v", 3), ("n", 4)],
        "quickly": [("r", 5)],
        "rare": [("n", 9)],
    }

    class Sense(NamedTuple):
        kind: str
        place: int

        def pos(self):
            return self.kind

        def offset(self):
            return self.place

    words = SimpleNamespace(
        synsets=lambda word: [Sense(*one) for one in senses.get(word, ())],
        morphy=lambda word, kind: {("dogs", "n"): "dog", ("dogs", "v"): "dog", ("ran", "v"): "run"}.get((word, kind)),
    )
    tables = [{"n": {1: 10.0, 2: 30.0, 4: 6.0}, "v": {3: 50.0}}, {"n": {1: 4.0}, "v": {3: 2.0}}]
    monkeypatch.setattr(ic, "wordnet", lambda _: SimpleNamespace(words=words))
    monkeypatch.setattr(ic, "printed_counts", lambda _: (tables, {}))


def test_the_printed_content_is_algorithm_1_or_what_the_papers_code_does(small_net):
    words = ("dogs", "ran", "quickly", "rare", "zzqx")
    # the largest count of a lemma's senses as nouns or verbs in each corpus, 1 without one; the mean over corpora
    assert ic.Printed(None).of(words).tolist() == [(50 + 4) / 2, 1.0, 1.0, 1.0, 1.0]
    assert ic.Printed(None).of(("run",)).tolist() == [(50 + 2) / 2]
    # lemmas as verbs, all senses looked up as nouns, means over senses with zeros; 1 where that is 0
    assert ic.Printed(None, as_code=True).of(words).tolist() == [
        pytest.approx((10 + 30 + 0 + 4 + 0 + 0) / 6),
        pytest.approx((0 + 6 + 0 + 0) / 4),
        1.0,
        1.0,
        1.0,
    ]


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("ic", {"information": "elsewhere"}),
        ("ic", {"information": "wordnet:nowhere"}),
    ],
)
def test_a_tool_that_is_not_here_is_an_error_with_a_hint(name, tools):
    with pytest.raises(PolicyError) as caught:
        of(name, ("sentinel",), **tools)
    assert caught.value.hint
    assert "sentinel" not in str(caught.value)


def test_a_file_is_all_that_a_score_needs(tmp_path, monkeypatch):
    room = importlib.import_module("dptext_etl.allocation.scores")
    (tmp_path / "length.py").write_text(
        "import numpy as np\nfrom dptext_etl.allocation.score import Score\n\n\nclass Length(Score):\n"
        "    title = 'Length'\n\n    def compute(self, tokens):\n"
        "        return np.array([len(t) / 9 for t in tokens])\n"
    )
    monkeypatch.setattr(room, "__path__", [*room.__path__, str(tmp_path)])
    try:
        assert "length" in score.available()
        assert of("length", ("abc", "abcdefghi")) == {"abc": pytest.approx(1 / 3), "abcdefghi": 1.0}
    finally:
        sys.modules.pop("dptext_etl.allocation.scores.length", None)


MILLION = 1_000_000


@given(
    st.lists(st.one_of(st.floats(0, 1), st.just(math.nan), st.floats()), min_size=1, max_size=12),
    st.integers(12, 50 * MILLION),
    st.data(),
)
def test_parts_lie_within_bounds_and_never_exceed_the_budget(scores, total, data):
    lowest = data.draw(st.integers(0, total // len(scores)))
    highest = data.draw(st.integers(lowest, 2 * total))
    parts = spread(scores, total, lowest, highest)
    assert len(parts) == len(scores)
    assert all(lowest <= part <= highest for part in parts)
    assert sum(parts) <= total


def test_the_known_answer_of_the_paper():
    assert spread([0.1, 0.2, 0.4], 7 * MILLION, 1, 7 * MILLION) == [4 * MILLION, 2 * MILLION, MILLION]


def test_where_a_score_is_zero_its_floor_counts_and_others_keep_the_least_part():
    parts = spread([0.0, 1.0, 1.0], 10 * MILLION, MILLION, 10 * MILLION)
    assert parts[1:] == [MILLION, MILLION]
    assert 8 * MILLION - 10 < parts[0] <= 8 * MILLION


def test_what_exceeds_the_budget_after_the_bounds_is_taken_from_the_excess_over_the_least_part():
    """Two words are raised to the least part; the excess of the others shrinks in proportion."""
    parts = spread([0.01, 0.02, 1.0, 1.0], 10 * MILLION, 2 * MILLION, 10 * MILLION)
    assert parts[2:] == [2 * MILLION, 2 * MILLION]
    first, second = (part - 2 * MILLION for part in parts[:2])
    assert 2 * MILLION - 3 <= first + second <= 2 * MILLION
    inverse = [100, 50, 1, 1]
    shares = [10 * MILLION * each / sum(inverse) - 2 * MILLION for each in inverse[:2]]
    assert first / second == pytest.approx(shares[0] / shares[1], rel=1e-5)


def test_bounds_that_do_not_fit_are_refused():
    for arguments in ([[1.0] * 3, 5, 2, 9], [[1.0], 5, 3, 2]):
        with pytest.raises(ValueError, match="least parts"):
            spread(*arguments)


def test_a_score_of_another_package_names_the_package(monkeypatch):
    """The class of all such names, without the package that brings them."""
    monkeypatch.setattr(extensions, "entry_points", lambda **_: [])
    extensions.installed.cache_clear()
    try:
        for group, name in extensions.ELSEWHERE:
            with pytest.raises(PolicyError, match=f"{name} comes with dptext-etl-"):
                extensions.module(group, name)
        with pytest.raises(PolicyError, match="score pos comes with dptext-etl-models"):
            Allocation(scores=("ic", "pos"), total=9.0)
    finally:
        extensions.installed.cache_clear()
