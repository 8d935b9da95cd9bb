"""The audit: true claims hold, planted defects do not, and the figures agree with independent counts."""

import math
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl.errors import InputError, PolicyError
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import Mechanism, Released
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.mechanisms.diffractor import Diffractor
from dptext_etl.mechanisms.madlib import Madlib
from dptext_etl.mechanisms.santext import SanText
from dptext_etl_eval import audit_mechanism
from dptext_etl_eval.auditing import results
from dptext_etl_eval.auditing.certificate import certificate_of, list_distances, of_distributions
from eval.tests import planted_keys
from eval.tests.planted_keys import SECRETS

DRAWS = 20_000


class Memoised(CusText):
    """The same word, the same replacement: what dropDuplicates before, and a join after, come to."""

    def release(self, texts, keys):
        released, seen = super().release(texts, keys), {}
        again = [
            " ".join(seen.setdefault(word, other) for word, other in zip(text.split(), out.split(), strict=bool(out)))
            for text, out in zip(texts.to_pylist(), released.text.to_pylist(), strict=True)
        ]
        return Released(pa.array(again, pa.large_string()), released.positions)


class TopThree(CusText):
    """The outputs that a word can have depend on the word, after the clip."""

    def release(self, texts, keys):
        released = super().release(texts, keys)
        likeliest = {}
        for text in set(texts.to_pylist()) - {"?!", ""}:  # which have no word
            outputs, chances = self.transition(text.split()[0])
            likeliest[text] = [outputs[at] for at in np.argsort([-float(chance) for chance in chances])[:3]]
        again = [
            " ".join(word if word in likeliest[text] else likeliest[text][0] for word in out.split())
            for text, out in zip(texts.to_pylist(), released.text.to_pylist(), strict=True)
        ]
        return Released(pa.array(again, pa.large_string()), released.positions)


class Table(CusText):
    """A table under another description."""

    def table_description(self):
        return {**super().table_description(), "planted": type(self).__name__}


class TwiceEpsilon(Table):
    """Weights of twice the epsilon that is claimed."""

    def parts(self):
        return CusText(**{**self.model_dump(exclude_unset=True), "epsilon": 2 * self.epsilon}).parts()


class Understated(Table):
    """A stored table that says less of itself than it realizes."""

    @property
    def epsilon_table(self):
        return super().epsilon_table / 2


class PublicSeed(planted_keys.PublicSeed, CusText):
    """A key that everybody knows."""


class SharedGenerator(planted_keys.SharedGenerator, CusText):
    """One stream for all records."""


class OneDrawPerRecord(CusText):
    """One stream position for all words of a record."""

    def release(self, texts, keys):
        words = [text.split() for text in texts.to_pylist()]
        flat = pa.array([word for text in words for word in text], pa.large_string())
        ids = pa.array([record for record, text in zip(keys.ids.to_pylist(), words, strict=True) for _ in text])
        drawn = iter(super().release(flat, RecordKeys(keys.release, ids, 0)).text.to_pylist())
        again = [" ".join(next(drawn) for _ in text) for text in words]
        return Released(pa.array(again, pa.large_string()), self.positions(texts))


PLANTED = {
    Memoised: ("holds", {"two positions"}),  # of two records, too, unless both words were memoised alike
    TopThree: ("holds", {"one draw"}),
    PublicSeed: ("holds", {"two keys"}),
    SharedGenerator: ("holds", {"two records"}),
    OneDrawPerRecord: ("holds", {"two positions"}),
}


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("epsilon", [2.0, 30.0])
def test_planted_defects_are_refuted(kind, epsilon, small_vectors):
    """At an epsilon that draws can refute, and at one that they cannot: there by the same code at a small one."""
    found = audit_mechanism(kind(epsilon=epsilon, k=5, vectors=small_vectors), draws=DRAWS, secrets=SECRETS)
    by_table, by_trials = PLANTED[kind]
    assert found.by_table == by_table
    assert {trial.counts.trial for trial in found.trials if trial.refuted} >= by_trials
    assert found.refuted


def test_true_claims_stand(word_mechanism):
    found = audit_mechanism(word_mechanism, draws=2_000, secrets=SECRETS)
    assert not found.refuted
    assert found.by_table in ("holds", "not applicable")
    for trial in found.trials:
        assert trial.lower_bound <= trial.claim
    if found.claim is None:
        assert "no finite epsilon is claimed" in found.note
    else:
        assert len(found.trials) >= 5
        assert (found.certificate is None) == isinstance(word_mechanism, Madlib)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_trials_come_close_to_what_is_realized(epsilon, small_vectors):
    """The words of the certificate and the event that the pilot finds show most of the loss there is."""
    found = audit_mechanism(CusText(epsilon=epsilon, k=5, vectors=small_vectors), draws=100_000, secrets=SECRETS)
    realized = found.certificate.realized
    assert 0.9 * realized <= max(trial.lower_bound for trial in found.trials) <= realized


def test_the_certificate_agrees_with_the_laws_of_all_words(small_vectors):
    mechanism = CusText(epsilon=1.5, k=5, vectors=small_vectors)
    laws = {word: dict(zip(*mechanism.transition(word), strict=True)) for word in mechanism.input_words()}
    worst = max(
        math.log(one[output] / other[output])
        for one in laws.values()
        for other in laws.values()
        if one.keys() == other.keys()
        for output in one
    )
    found = certificate_of(mechanism)
    assert found.realized == pytest.approx(worst, abs=1e-12)
    one, other = (laws[word] for word in found.words)
    assert max(math.log(one[output] / other[output]) for output in one) == pytest.approx(worst, abs=1e-12)


@pytest.mark.parametrize(
    "mechanism",
    [SanText(epsilon=4.0, limit=40), Diffractor(epsilon=1.0, limit=40), Diffractor(epsilon=1.0, limit=40, walks=2)],
    ids=["santext", "tem", "tem-mixture"],
)
def test_closed_forms_agree_with_fractions(mechanism):
    found, compared = certificate_of(mechanism), of_distributions(mechanism)
    assert found.exact
    assert found.realized == pytest.approx(compared.realized, abs=1e-9)


class Shut(Table):
    """Output sets that can rule a word out, and that the mechanism does not disclose."""

    @property
    def word_disclosures(self):
        return frozenset()


@pytest.mark.parametrize(
    ("kind", "problem"), [(TwiceEpsilon, "loses|less"), (Understated, "charges less"), (Shut, "no loss is finite")]
)
@pytest.mark.parametrize("epsilon", [2.0, 30.0])
def test_defects_of_the_law_are_refused_before_an_audit(kind, problem, epsilon, small_vectors):
    with pytest.raises(PolicyError, match=problem):
        audit_mechanism(kind(epsilon=epsilon, k=5, vectors=small_vectors), draws=DRAWS, secrets=SECRETS)


def test_distance_is_the_largest_over_the_lists():
    mechanism = Diffractor(epsilon=1.0, limit=40, walks=3)
    words, places = mechanism.input_words(), [np.argsort(order) for order in mechanism.orders]
    for one, other in ((0, 8), (2, 3), (4, 4)):
        largest = max(abs(int(place[one]) - int(place[other])) for place in places)
        assert list_distances(mechanism.table.path, words[one])[words[other]] == largest
    assert list_distances(mechanism.table.path, "zzxqv") is None


def test_limits_are_those_of_clopper_and_pearson():
    beta = pytest.importorskip("scipy.stats").beta
    for draws in (10, 1_000, 1_000_000):
        for hits in sorted({0, 1, 3, draws // 7, draws // 2, draws - 1, draws}):
            for alpha in (0.025, 1e-7):
                high = beta.isf(alpha, hits + 1, draws - hits) if hits < draws else 1.0
                low = beta.ppf(alpha, hits, draws - hits + 1) if hits else 0.0
                assert results.high(hits, draws, alpha) == pytest.approx(high, rel=1e-5)
                assert results.low(hits, draws, alpha) == pytest.approx(low, rel=1e-5)


def test_what_draws_can_show_is_said():
    found = audit_mechanism(Diffractor(epsilon=40.0, limit=60), draws=1_000, secrets=SECRETS)
    assert found.claim == 200 > found.largest
    assert "200 per word is beyond what 1,000 draws can refute" in found.note
    assert {trial.epsilon for trial in found.trials} == {40.0, min(trial.epsilon for trial in found.trials)}
    assert all(trial.claim < found.largest for trial in found.trials if trial.epsilon < 40)


def test_what_is_no_word_mechanism_is_not_audited():
    class Other(Mechanism):
        guarantee: ClassVar = None
        spend: ClassVar = None
        positions: ClassVar = None
        release: ClassVar = None
        example: ClassVar = None

    found = audit_mechanism(Other(epsilon=1.0))
    assert (found.refuted, found.by_table, found.by_trials) == (False, "not applicable", "not applicable")
    assert "word by word" in found.note


def test_too_few_draws_are_refused():
    for options in ({"draws": 999}, {"confidence": 1.0}):
        with pytest.raises(InputError, match="an audit needs 1,000 draws"):
            audit_mechanism(CusText.example(), **options)
