"""1-Diffractor: draws of the stream and of its exact law, spends, certificates, hidden lengths, and refusals.

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
from .test_discrete_laplace import Oracle

TOKEN, LIST = 1, 2
VARIANTS = ["tem", "geometric"]


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    """Makes a file of permuted lists of `count` words."""
    folder = tmp_path_factory.mktemp("lists")
    return lambda count, number: permuted(folder, count, number)


def expected(mechanism, orders, known, key):
    """The same by the stream's definition: explicit weights, one integer per draw; an independent discrete Laplace."""
    epsilon = mechanism.epsilon
    for position, word in enumerate(known):
        holding = [np.asarray(order) for order in orders if word in order]
        order = holding[_kernel.below(key, LIST, position, len(holding), 1) if len(holding) > 1 else 0]
        places = len(order)
        place = int(np.flatnonzero(order == word)[0])
        if mechanism.variant == "geometric":
            step = Oracle(key, TOKEN, position).laplace(Fraction(repr(epsilon)))
            yield spelling(order[min(max(place + step, 0), places - 1)])
            continue
        away = np.abs(np.arange(places) - place)
        top = 2 ** min(46, 62 - (max(map(len, orders)) - 1).bit_length())
        by_distance = [explicit(top, epsilon, gap, mechanism.gamma) for gap in range(mechanism.gamma + 1)]
        weights = [by_distance[min(int(steps), mechanism.gamma)] for steps in away]
        yield spelling(order[_kernel.draw(key, TOKEN, position, weights, 1)])


def explicit(top, epsilon, gap, gamma):
    """The weight of the sampler by high-precision arithmetic."""
    from decimal import Decimal, localcontext

    with localcontext() as context:
        context.prec = 50
        least = int(top * (-Decimal(repr(epsilon)) * gamma / 2).exp()) + 1
        return max(least, int(top * (-Decimal(repr(epsilon)) * gap / 2).exp()))


def test_unknown_words_take_steps_from_the_first_word_of_the_vocabulary(lists):
    path, orders = lists(9, 3)
    mechanism = Diffractor(epsilon=0.75, variant="geometric", lists=path)
    known = [0, 3, 0, 8, 0, 0, 0]
    text = f"zzxqv {spelling(3)} 42, {spelling(8)}! qqq {spelling(0)} 7"
    assert drawn(mechanism, text, KEYS[0]) == list(expected(mechanism, orders, known, KEYS[0]))
    assert mechanism.positions(pa.array([text, "zzxqv 42"])).to_pylist() == [7, 2]
    assert mechanism.transition("zzxqv") == mechanism.transition(spelling(0))
    assert mechanism.survival("zzxqv") == 0
    former = mechanism.model_copy(update={"unknown_words": "drop"})
    assert drawn(former, text, KEYS[0]) == list(expected(former, orders, [3, 8, 0], KEYS[0]))
    assert former.guarantee.disclosures == mechanism.guarantee.disclosures | {Disclosure.OOV_FLAG}
    assert (former.configuration()["mechanism_version"], mechanism.configuration()["mechanism_version"]) == (1, 2)


ORDERS = [list(range(9)), [4, 1, 7, 0, 8, 2, 6, 3, 5], [8, 6, 4, 2, 0, 1, 3, 5, 7]]
GOLDEN = {
    ("tem", 1): "iafbcihdeicbfbcchcaiecfg",
    ("tem", 3): "iaadbfhhbahbaiahcciffaff",
    ("geometric", 1): "ebaehbihhbadfbfgfhaaacdf",
    ("geometric", 3): "ebifacihaiedfefgdhceebdf",
}


@pytest.mark.parametrize(("variant", "number"), GOLDEN)
def test_golden_draws_stay_frozen(tmp_path, variant, number):
    path = write(tmp_path / "lists.safetensors", 9, ORDERS[:number])
    mechanism = Diffractor(epsilon=0.5, variant=variant, lists=path)
    text = " ".join(spelling(word % 9) for word in range(24))
    released = drawn(mechanism, text, KEYS[0])
    assert "".join(word[1:] for word in released) == GOLDEN[variant, number]
    assert released == list(expected(mechanism, ORDERS[:number], [word % 9 for word in range(24)], KEYS[0]))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("number", [1, 3])
def test_transition_is_the_published_law(lists, variant, number):
    path, orders = lists(9, number)
    mechanism = Diffractor(epsilon=0.5, variant=variant, gamma=5 if variant == "geometric" else 3, lists=path)
    a = math.exp(-0.5)
    for word in range(9):
        law = np.zeros(9)
        for order in orders:
            at = np.argsort(order)
            gap = np.abs(at - at[word])
            if variant == "tem":
                chances = np.exp(-0.5 * np.minimum(gap, 3) / 2)
                chances /= chances.sum()
            else:
                ends = (at == 0) | (at == 8)
                chances = np.where(ends, 1 / (1 + a), (1 - a) / (1 + a)) * a**gap
            law += chances / number
        outputs, probabilities = mechanism.transition(spelling(word))
        assert outputs == [spelling(other) for other in range(9)]
        assert sum(probabilities) == 1
        np.testing.assert_allclose([float(p) for p in probabilities], law, rtol=1e-11)
        assert float(mechanism.survival(spelling(word))) == pytest.approx(law[word], rel=1e-11)
        assert law.max() <= mechanism.largest_probability()
        if variant == "tem":
            table = _kernel.Table.open(str(mechanism.table.path), mechanism.table.sha256)
            _, weights = table.row(spelling(word), json.dumps(mechanism.input_policy()))
            assert [Fraction(weight, sum(weights)) for weight in weights] == probabilities
    if variant == "tem":
        assert set(mechanism.transition("zzxqv")[1]) == {Fraction(1, 9)}


@pytest.mark.parametrize("variant", VARIANTS)
def test_faithful_draws_among_the_lists_that_hold_a_word(tmp_path, variant):
    path = write(tmp_path / "lists.safetensors", 9, [np.arange(8), np.arange(1, 9)[::-1]])
    mechanism = Diffractor(epsilon=1.0, variant=variant, mode="faithful", lists=path)
    known, orders = [0, 5, 8, 7, 0, 8, 5, 6, 5], [np.arange(8), np.arange(1, 9)[::-1]]
    released = drawn(mechanism, " ".join(map(spelling, known)), KEYS[0])
    assert released == list(expected(mechanism, orders, known, KEYS[0]))
    first = dict(zip(*mechanism.transition(spelling(0)), strict=True))
    assert first[spelling(8)] == 0
    assert first[spelling(0)] > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_spends(lists, variant):
    mechanism = Diffractor(epsilon=0.5, variant=variant, lists=lists(9, 3)[0])
    word = Fraction(5, 2) if variant == "tem" else Fraction(8, 2)
    cost = mechanism.spend(10)
    assert mechanism.epsilon_per_word == word
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
        assert 0 <= Fraction(repr(epsilon)) - mechanism.epsilon_per_word <= Fraction(9, 10**12)


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
    assert fixed.metric_claim.epsilon == Fraction(1, 2)
    texts = pa.array(["", "  ", spelling(3), " ".join(map(spelling, range(9))), None])
    assert fixed.positions(texts).to_pylist() == [6, 6, 6, 6, 0]
    noisy = Diffractor(epsilon=0.5, variant=variant, lists=path, length="noisy", n_max=6, epsilon_length=1.0)
    assert noisy.metric_claim is None
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
        neighbors = (at >= gap).astype(np.uint64) + (at < places - gap) * np.uint64(gap > 0)
        totals += neighbors * (weight - by_distance[gamma])
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
    assert mechanism.metric_claim.diameter == 5
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
    assert mechanism.metric_claim is None
    assert mechanism.epsilon_table is None
    cost = mechanism.spend(3)
    assert (cost.eps_pure, cost.eps_tight, cost.rho, cost.eps_metric) == (math.inf,) * 4
    assert mechanism.spend(0).eps_pure == 0
