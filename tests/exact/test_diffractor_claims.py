"""1-Diffractor's claims: spends, certificates, hidden lengths, and what strict mode refuses.

Specification: docs/spec/privacy.md#diffractor, docs/spec/privacy.md#faithful-and-strict.
"""

import json
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import _kernel
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Disclosure, GuaranteeClass
from dptext_etl.mechanism import PAD
from dptext_etl.mechanisms.diffractor import Diffractor

from .listed_words import KEYS, drawn, permuted, spelling, write

VARIANTS = ["tem", "geometric"]


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    """Makes a file of permuted lists of `count` words."""
    folder = tmp_path_factory.mktemp("lists")
    return lambda count, number: permuted(folder, count, number)


@pytest.mark.parametrize("variant", VARIANTS)
def test_spends(lists, variant):
    mechanism = Diffractor(epsilon=0.5, variant=variant, lists=lists(9, 3)[0])
    word = Fraction(5, 2) if variant == "tem" else Fraction(8, 2)
    cost = mechanism.spend(10)
    assert mechanism._epsilon_per_word == word
    assert cost.guarantee_class is GuaranteeClass.COND_PURE
    assert cost.disclosures == {Disclosure.LENGTH, Disclosure.NULLNESS}
    assert (cost.eps_pure, cost.eps_approx, cost.delta) == (10_000_000 * word, 10_000_000 * word, 0)
    assert cost.rho == math.ceil(10_000_000 * word**2 / (8 if variant == "tem" else 2))
    assert cost.eps_metric == 500_000
    assert cost.diameter == (5_000_000 if variant == "tem" else 8_000_000)
    assert cost.metric_id == ("min(listidx-max,5)" if variant == "tem" else "listidx-max")
    assert cost.eps_tight <= cost.eps_pure
    if variant == "tem":
        assert cost.eps_tight == pytest.approx(1e7 * mechanism.epsilon_table, abs=2)


@pytest.mark.parametrize("length", [{}, {"length": "fixed", "n_max": 4}])
@pytest.mark.parametrize("variant", VARIANTS)
def test_alignment_gives_a_draw_its_epsilon_and_no_more(lists, variant, length):
    for epsilon in (0.1, 1.0, 3.0):
        mechanism = Diffractor.aligned(epsilon, variant=variant, lists=lists(9, 3)[0], **length)
        assert 0 <= Fraction(repr(epsilon)) - mechanism._epsilon_per_word <= Fraction(9, 10**12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_hidden_lengths_pad_with_a_word_at_the_end_of_every_list(lists, variant):
    path, _ = lists(9, 3)
    fixed = Diffractor(epsilon=0.5, variant=variant, lists=path, length="fixed", n_max=6)
    assert fixed.places == 10
    assert fixed.guarantee.guarantee_class is GuaranteeClass.PURE_LDP
    assert Disclosure.LENGTH not in fixed.guarantee.disclosures
    outputs, chances = fixed.transition(PAD)
    assert outputs[-1] == PAD
    assert sum(chances) == 1
    assert PAD not in fixed.input_words()
    assert fixed._metric_claim.epsilon == Fraction(1, 2)
    texts = pa.array(["", "  ", spelling(3), " ".join(map(spelling, range(9))), None])
    assert fixed.positions(texts).to_pylist() == [6, 6, 6, 6, 0]
    noisy = Diffractor(epsilon=0.5, variant=variant, lists=path, length="noisy", n_max=6, epsilon_length=1.0)
    assert noisy._metric_claim is None
    assert noisy.spend(6).eps_pure == fixed.spend(6).eps_pure + 1_000_000


@pytest.mark.slow
def test_the_certificate_of_the_embedded_vocabulary():
    """Every pair of its words and every output, from the stored integers."""
    mechanism = Diffractor(epsilon=1.0)
    stored = json.loads(_kernel.Table.open(str(mechanism.table.path), mechanism.table.sha256).metadata()["law"])["tem"]
    places, gamma = mechanism.places, len(stored["weights"])
    assert (places, gamma) == (20_000, 5)
    by_distance = np.array([*stored["weights"], stored["outside"]], dtype=np.uint64)
    at = np.arange(places, dtype=np.int16)
    totals = np.full(places, places * by_distance[gamma])
    for gap, weight in enumerate(by_distance[:gamma]):
        beside = (at >= gap).astype(np.uint64) + (at < places - gap) * np.uint64(gap > 0)
        totals += beside * (weight - by_distance[gamma])
    logs, log_totals = np.log(by_distance.astype(float)), np.log(totals.astype(float))
    worst = 0.0
    for start in range(0, places, 500):
        rows = np.repeat((logs[gamma] - log_totals)[:, None], 500, axis=1)
        for place in range(max(0, start - gamma), min(places, start + 500 + gamma)):
            gaps = np.minimum(np.abs(place - at[start : start + 500]), gamma)
            rows[place] = logs[gaps] - log_totals[place]
        most, least = rows.max(axis=0), rows.min(axis=0)
        unknown = -math.log(places)
        worst = max(worst, float((np.maximum(most, unknown) - np.minimum(least, unknown)).max()))
    assert worst == pytest.approx(mechanism.epsilon_table, abs=1e-9)
    assert worst <= 5.0
    for gap in range(1, gamma):  # words less than gamma apart: outputs near them one by one, all others alike
        ratio = np.abs(log_totals[gap:] - log_totals[:-gap]).max() + near_ratio(logs, gap, gamma)
        assert ratio <= 1.0 * gap
    assert mechanism._metric_claim.diameter == 5
    assert sorted(np.concatenate(mechanism.orders).tolist()) == list(range(places))


def near_ratio(logs, gap, gamma):
    """Largest log ratio of the weights of one output seen from two places `gap` apart."""
    outputs = np.arange(-2 * gamma, 2 * gamma + gap + 1)
    one, other = (logs[np.minimum(np.abs(outputs - place), gamma)] for place in (0, gap))
    return float(np.abs(one - other).max())


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """Two lists of nine words that share all but one each."""
    path = tmp_path_factory.mktemp("uneven") / "lists.safetensors"
    return write(path, 9, [np.arange(8), np.arange(1, 9)[::-1]])


@pytest.mark.parametrize("variant", VARIANTS)
def test_e7_lists_of_unequal_vocabularies_are_refused(uneven, variant):
    with pytest.raises((PolicyError, ValueError), match="different words"):
        Diffractor(epsilon=1.0, variant=variant, lists=uneven)
    late = Diffractor.model_construct(epsilon=1.0, variant=variant, lists=uneven)
    with pytest.raises(PolicyError, match="different words"):
        late.neighbor_lists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"variant": "geometric", "gamma": 3}, "gamma belongs"),
        ({"variant": "geometric", "epsilon": 0.1 + 0.2}, "14 digits"),
        ({"variant": "gauss"}, "tem"),
        ({"scoring": "gauss pdf"}, "scoring"),
        ({"lists": "somewhere", "walks": 2}, "walks"),
        ({"lists": "somewhere", "limit": 20}, "limit"),
        ({"gamma": 0}, "gamma"),
        ({"vectors": ()}, "vectors"),
        ({"length": "fixed"}, "n_max"),
        ({"length": "fixed", "n_max": 9, "mode": "faithful"}, "hide nothing"),
    ],
)
def test_what_has_no_theorem_is_refused(options, said):
    with pytest.raises(PolicyError, match=said):
        Diffractor(**{"epsilon": 1.0, **options})


def test_one_embedding_may_be_named_without_a_list(small_vectors):
    one = Diffractor(epsilon=1.0, vectors=small_vectors)
    assert one == Diffractor(epsilon=1.0, vectors=(small_vectors,))
    assert one.places == 103
    more = Diffractor(epsilon=1.0, vectors=small_vectors, walks=3)
    assert more.cfg() != one.cfg()
    assert len(more.orders) == 3
    assert more.epsilon_table <= one.epsilon_table + 1e-12


def test_faithful_keeps_what_papers_keep(lists):
    mechanism = Diffractor(epsilon=1.0, mode="faithful", lists=lists(9, 3)[0])
    assert mechanism.guarantee.guarantee_class is GuaranteeClass.COND_PURE
    assert mechanism.guarantee.disclosures >= {Disclosure.STOPWORDS, Disclosure.OOV, Disclosure.PUNCT}
    assert mechanism.transition("The") == (["The"], [1])
    assert mechanism.transition("zzxqv") == (["zzxqv"], [1])
    assert drawn(mechanism, "The zzxqv, 42!", KEYS[0]) == ["The", "zzxqv,", "42!"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_faithful_lists_of_unequal_vocabularies_claim_nothing(uneven, variant):
    mechanism = Diffractor(epsilon=1.0, variant=variant, mode="faithful", lists=uneven)
    assert mechanism.guarantee.guarantee_class is GuaranteeClass.NONE
    assert mechanism._metric_claim is None
    assert mechanism.epsilon_table is None
    cost = mechanism.spend(3)
    assert (cost.eps_pure, cost.eps_tight, cost.rho, cost.eps_metric) == (math.inf,) * 4
    assert mechanism.spend(0).eps_pure == 0
