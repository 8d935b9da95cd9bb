"""1-Diffractor's draws: word for word the draws of the stream, of its exact law, and of no other.

Specification: docs/spec/privacy.md#diffractor.
"""

import json
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import _kernel
from dptext_etl.guarantee import Disclosure
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
