"""The gate of in-vocabulary canaries, on a small mechanism with every option: lengths, laws, lost words."""

from fractions import Fraction
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dptext_etl.checks import CANARY, Candidate
from dptext_etl.checks.canaries import CanaryPlan, CanaryRow
from dptext_etl.checks.gates import canary_gates
from dptext_etl.checks.gates.canary_gates import CanaryWordsReplaced, Chances
from dptext_etl.checks.text_counts import copy_chances, upper_bound
from dptext_etl.errors import PolicyError
from dptext_etl.families.words import WordMechanism
from dptext_etl.mechanism import PAD, Released
from tests.later import later
from tests.quick import quick

stats = later("scipy.stats")

WORDS = [f"{a}{b}{c}" for a in "bcdfghkl" for b in "aeiou" for c in "mnprst"]
ROW = 24


class Stay(WordMechanism):
    """Keeps a word with probability `stay`, else draws from all words; `lawless` hides the law; `broken` keeps all."""

    _pads: ClassVar[bool] = True
    stay: float = 0.2
    lawless: bool = False
    broken: bool = False

    @property
    def outputs(self):
        return [*WORDS, *([PAD] if self.length != "disclose" else [])]

    def input_words(self):
        return tuple(WORDS)

    def output_words(self):
        return frozenset(WORDS)

    def transition(self, word):
        if self.lawless:
            raise PolicyError("no fractions")
        rest = (1 - Fraction(repr(self.stay))) / len(self.outputs)
        return self.outputs, [rest + (output == word) * Fraction(repr(self.stay)) for output in self.outputs]

    def survival(self, word):
        return Fraction(repr(self.stay)) + (1 - Fraction(repr(self.stay))) / len(self.outputs)

    def draw(self, words, random):
        """Words of one text -> its release."""
        words = [word for word in words if self._unknown == "uniform" or word in WORDS]
        if self.length != "disclose":
            words = [*words, *[PAD] * self.n_max][: self.n_max]
            if self.length == "noisy":
                words = words[: random.integers(1, self.n_max + 1)]
        if not self.broken:
            outputs = self.outputs
            stays, other = random.random(len(words)) < self.stay, random.integers(0, len(outputs), len(words))
            words = [word if kept else outputs[at] for word, kept, at in zip(words, stays, other, strict=True)]
        return " ".join(word for word in words if word != PAD)

    def positions(self, texts):
        return pa.array([self.n_max] * len(texts), pa.uint32())

    def release(self, texts, keys):
        random = np.random.default_rng(5)
        return Released(
            pa.array([self.draw(text.split(), random) for text in texts.to_pylist()]), self.positions(texts)
        )

    @classmethod
    def example(cls):
        return cls(epsilon=1.0)


class Dropping(Stay):
    _unknown: ClassVar[str] = "drop"


LENGTHS = {
    "disclose": {}, "fixed": {"length": "fixed", "n_max": 60}, "cut": {"length": "fixed", "n_max": 10},
    "noisy": {"length": "noisy", "n_max": 60, "epsilon_length": 1.0},
}  # fmt: skip


def planned(random, shards=2, palette=tuple(WORDS[:40])):
    rows = []
    for shard in range(shards):
        texts = [tuple(random.choice(palette, ROW)) for _ in range(6)]
        rows.append([CanaryRow(f"{shard}-{n}", "in_vocabulary", {}, {"text": words}) for n, words in enumerate(texts)])
    return [CanaryPlan(shard, tuple(some), frozenset(), pl.String()) for shard, some in enumerate(rows)]


def judge(mechanism, plans, release):
    policy = SimpleNamespace(id="id", column_policies=lambda: [SimpleNamespace(column="text", mechanism=mechanism)])
    gate = CanaryWordsReplaced(Candidate(policy, (), tuple(plans), None, {}))
    for plan in plans:
        texts = [release(row.words["text"], row.id) for row in plan.rows]
        gate.rows(pl.DataFrame({"id": plan.ids(), "text": texts, CANARY: [True] * len(texts)}))
    return gate.verdict()


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("lawless", [False, True])
@pytest.mark.parametrize("kind", quick([Stay, Dropping]))
def test_a_correct_run_passes_and_words_that_pass_through_are_found(kind, length, lawless):
    random = np.random.default_rng(1)
    mechanism = kind(epsilon=1.0, lawless=lawless, **length)
    plans = planned(random)
    correct = judge(mechanism, plans, lambda words, _: mechanism.draw(words, random))
    assert correct.passed
    assert correct.counts["words"] >= 120
    assert "suspicious in" not in correct.message
    passing = judge(mechanism, plans, lambda words, _: " ".join(words[: mechanism.n_max]))
    assert not passing.passed
    assert passing.counts["suspicious"]


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("lawless", [False, True])
def test_a_mechanism_that_returns_its_input_is_found_although_its_samples_lie(length, lawless):
    """The chance that a word survives never comes from the code that is under suspicion."""
    random = np.random.default_rng(2)
    mechanism = Stay(epsilon=1.0, lawless=lawless, broken=True, **length)
    verdict = judge(mechanism, planned(random), lambda words, _: mechanism.draw(words, random))
    assert not verdict.passed
    assert verdict.counts["suspicious"]


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
def test_words_that_pass_through_one_shard_are_found(length):
    random = np.random.default_rng(3)
    mechanism = Stay(epsilon=1.0, **length)
    honest = mechanism.draw

    def release(words, row):
        return " ".join(words[: mechanism.n_max]) if row.startswith("1-") else honest(words, random)

    assert not judge(mechanism, planned(random, 12), release).passed


@pytest.mark.parametrize("length", quick(LENGTHS.values()), ids=LENGTHS)
@pytest.mark.parametrize("lawless", quick([False, True]))
def test_a_correct_run_fails_no_more_often_than_is_said(length, lawless, monkeypatch):
    """With a bound that can be seen: at most half of the runs may fail, and exact chances come near to some."""
    monkeypatch.setattr(canary_gates, "FALSE_ALARM", 0.5)
    random = np.random.default_rng(4)
    mechanism = Stay(epsilon=1.0, lawless=lawless, **length)
    plans = planned(random, 1)
    wrong = sum(not judge(mechanism, plans, lambda words, _: mechanism.draw(words, random)).passed for _ in range(24))
    assert wrong <= 12
    if not lawless and mechanism.length != "noisy":
        assert wrong > 0


def test_lost_and_added_words_are_seen_and_where_nothing_can_be_seen_is_said():
    random = np.random.default_rng(6)
    mechanism = Dropping(epsilon=1.0)
    plans = planned(random, palette=[*WORDS[:20], "qqqqqqqqqq"])
    verdict = judge(mechanism, plans, lambda words, _: mechanism.draw(words, random))
    assert verdict.passed
    assert verdict.counts["misaligned"] == 0
    assert verdict.counts["words"] < 2 * 6 * ROW
    kept = Stay(epsilon=1.0)
    assert not judge(kept, plans, lambda words, _: mechanism.draw(words, random)).passed  # rows lost words
    random = np.random.default_rng(7)
    mechanism = Stay(epsilon=1.0, length="fixed", n_max=60)
    verdict = judge(mechanism, planned(random), lambda words, _: " ".join(random.choice(WORDS, 61)))
    assert verdict.counts["misaligned"] == 12
    assert not verdict.passed
    random = np.random.default_rng(8)
    mechanism = Stay(epsilon=1.0, stay=1.0 - 1e-9, length="fixed", n_max=60)
    verdict = judge(mechanism, planned(random), lambda words, _: mechanism.draw(words, random))
    assert verdict.passed
    assert "no count would be suspicious in 'text'" in verdict.message


def test_chances_are_those_of_the_law():
    mechanism = Stay(epsilon=1.0, length="fixed", n_max=9)
    chances = Chances(mechanism, WORDS[:5])
    targets = frozenset(WORDS[:3])
    rest = 0.8 / (len(WORDS) + 1)
    assert chances.exact
    assert chances.within(WORDS[0], targets, 1e-9) == pytest.approx(0.2 + 3 * rest)
    assert chances.within(WORDS[4], targets, 1e-9) == pytest.approx(3 * rest)
    assert chances.within(PAD, targets, 1e-9) == pytest.approx(3 * rest)
    estimated = Chances(mechanism.model_copy(update={"lawless": True}), WORDS[:5])
    assert not estimated.exact
    for word in (WORDS[0], WORDS[4], PAD):
        assert chances.within(word, targets, 0.01) <= estimated.within(word, targets, 0.01) < 0.5


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (0, 2048), (3, 100), (50, 100), (99, 100), (100, 100)])
@pytest.mark.parametrize("alarm", [0.3, 1e-3, 1e-12])
def test_estimates_are_bounded_at_least_as_widely_as_by_clopper_and_pearson(hits, trials, alarm):
    exact = (
        1.0 if hits == trials else stats.beta.ppf(1 - alarm, hits + 1, trials - hits) if alarm > 1e-9 else hits / trials
    )
    assert exact - 1e-12 <= upper_bound(hits, trials, alarm) <= 1


def test_copies_where_padding_vanishes(monkeypatch):
    """Every text's exact probability under N draws, by enumeration of a law of three outputs, is within the bound."""
    law = {"a": 0.5, "b": 0.3, PAD: 0.2}
    monkeypatch.setattr(Stay, "largest_probability", lambda self: 0.5)
    import itertools

    for n in (1, 2, 4):
        texts: dict[str, float] = {}
        for drawn in itertools.product(law, repeat=n):
            read = " ".join(word for word in drawn if word != PAD)
            texts[read] = texts.get(read, 0.0) + float(np.prod([law[word] for word in drawn]))
        fixed = Stay(epsilon=1.0, length="fixed", n_max=n)
        assert max(texts.values()) <= copy_chances(fixed, np.array([n]))[0]
    plain = copy_chances(Stay(epsilon=1.0), np.array([1, 3]))
    assert plain == pytest.approx([0.5, 0.125])
    noisy = Stay(epsilon=1.0, length="noisy", n_max=9, epsilon_length=1.0)
    monkeypatch.setattr(Stay, "largest_probability", lambda self: 0.1)
    assert copy_chances(noisy, np.array([9])) == pytest.approx([0.2])
