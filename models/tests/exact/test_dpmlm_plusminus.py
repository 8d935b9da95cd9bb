"""Algorithm 3 with its plan drawn first: every plan and transcript enumerated; the printed algorithm is caught.

Specification: docs/spec/privacy.md#e10.
"""

import itertools
import math
import struct
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from dptext_etl import catalog, sampling
from dptext_etl.column import step_costs
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import GuaranteeClass
from dptext_etl.sampling import epsilon_implemented
from dptext_etl_models.inference.masked.script import draw_plans, likely_draws, planned, write_strict
from dptext_etl_models.inference.masked.steps import DrawParameters, draw
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from models.tests.toy_scorer import KEY, Forced, ToyScorer, keys
from tests.later import later
from tests.quick import quick

later("torch")
WORDS = ("good", "film", "music")
M = 3
OUTPUTS = ("a", "b", "c")
INF = math.inf
PARAMETERS = DrawParameters(0.7, 0.0, 1.0)
DELETION, ADDITION = Fraction(1, 20), Fraction(1, 4)
BLOCKS = {"sequential": 1, "block": 2, "parallel": 100}


def telling(words, drawn, number):
    """Everything moves the scores: the words, the earlier draws, their number."""
    best = (sum(map(WORDS.index, words)) + 2 * sum(drawn) + number) % M
    return [INF if output == best else -INF for output in range(M)]


def first_word(words, drawn, number):
    return [INF if (output == 0) == (words[0] == "good") else -INF for output in range(M)]


def blind(words, drawn, number):
    return [0.5] * M


def plans(n):
    """All plans of n words and their probabilities."""
    for plan in itertools.product([False, True], repeat=2 * n):
        table = np.array(plan, bool).reshape(n, 2)
        chance = Fraction(1)
        for deleted, followed in table.tolist():
            chance *= DELETION if deleted else 1 - DELETION
            chance *= ADDITION if followed else 1 - ADDITION
        yield table, chance


def laws(words, score, block):
    """Probability of every released text, and by plan the probability of every transcript."""
    released, given = defaultdict(Fraction), {}
    for plan, chance in plans(len(words)):
        script = planned(words, [False] * len(words), plan)
        law = {}
        for transcript in itertools.product(range(M), repeat=script.draws):
            forced = Forced(transcript)
            ((chosen, _),) = draw(ToyScorer(M, score), forced, [script], KEY, parameters=PARAMETERS, block=block)
            assert tuple(chosen) == transcript
            law[transcript] = forced.probability
            text = write_strict(script, chosen, OUTPUTS)
            assert len(text.split()) == script.draws, "as many words as calls: none is left over"
            released[text] += chance * forced.probability
        assert sum(law.values()) == 1
        given[plan.tobytes()] = law
    assert sum(released.values()) == 1
    return released, given


def worst(one, other):
    assert one.keys() == other.keys()
    return max(math.log(one[key]) - math.log(other[key]) for key in one)


@pytest.mark.parametrize("block", quick(BLOCKS.values(), first=2), ids=BLOCKS)
@pytest.mark.parametrize("score", quick([telling, first_word]))
@pytest.mark.parametrize("n", [1, 2])
def test_two_draws_per_word_are_the_most(block, score, n):
    found = [laws(words, score, block) for words in itertools.product(WORDS[: 4 - n], repeat=n)]
    exact = epsilon_implemented(PARAMETERS.epsilon, M)
    for (one, one_given), (other, other_given) in itertools.permutations(found, 2):
        assert worst(one, other) <= 2 * n * exact + 1e-9 <= 2 * n * PARAMETERS.epsilon
        for plan, law in one_given.items():
            calls = len(next(iter(law)))
            assert worst(law, other_given[plan]) <= calls * exact + 1e-9, "given the plan, as many as were made"


SENTINELS = ("qzxa", "qzxb", "qzxc")


def written(script, transcript, block=1):
    """The text that a script gives where these outputs are drawn."""
    ((chosen, _),) = draw(ToyScorer(M, blind), Forced(transcript), [script], KEY, parameters=PARAMETERS, block=block)
    return write_strict(script, chosen, OUTPUTS)


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_no_input_word_survives_any_plan(block):
    for n in (0, 1, 2, 3):
        for plan, _ in plans(n):
            script = planned(SENTINELS[:n], [False] * n, plan)
            for transcript in ([0] * 6, [1, 2, 0, 2, 1, 0]):
                out = written(script, transcript, block).split()
                assert not set(out) & set(SENTINELS)
                assert len(out) == script.draws == n - plan[:, 0].sum() + plan[:, 1].sum()


def printed(tokens, plan):
    """Algorithm 3 as it is printed: a deletion is counted, and its slot is never removed.

    Specification: docs/spec/privacy.md#dpmlm-printed.
    """
    private, added, deleted = list(tokens), 0, 0
    for number, (delete, add) in enumerate(plan.tolist()):
        if delete:
            deleted += 1
        else:
            private[number + added - deleted] = "a"
        if add:
            added += 1
            private.insert(number + added - deleted, "a")
    return private


def corrected(tokens, plan):
    return written(planned(tokens, [False] * len(tokens), plan), [0] * 6).split()


def leaking(algorithm, n):
    """Probability that a word of the text comes out although every draw gives another."""
    return sum(chance for plan, chance in plans(n) if set(algorithm(SENTINELS[:n], plan)) & set(SENTINELS))


def test_the_printed_algorithm_is_caught():
    """Planted: the check that the corrected algorithm passes finds the words that the printed one leaves."""
    assert ([leaking(corrected, n) for n in (1, 2, 3)], leaking(printed, 1)) == ([0, 0, 0], DELETION)
    assert leaking(printed, 2) > DELETION
    assert leaking(printed, 3) > leaking(printed, 2)
    alone = [chance for plan, chance in plans(3) if plan[:, 0].any() and not plan[:, 1].any()]
    assert sum(alone) / (1 - ADDITION) ** 3 == 1 - (1 - DELETION) ** 3, "without additions every deletion leaves one"
    assert round(float(1 - (1 - DELETION) ** 20), 2) == 0.64


def test_kept_words_take_no_part_in_the_plan():
    plan = np.array([[True, True], [False, False]])
    script = planned(["the", "good", "film"], [True, False, False], plan)
    assert (script.draws, written(script, [1, 2])) == (2, "the b c")


def below(key, position, bound):
    """The first integer below a bound from the overflow of purpose 3, by another library.

    Specification: docs/spec/stream.md#overflow.
    """
    nonce = struct.pack("<IQ", 3 + 2**31, position)
    stream = Cipher(algorithms.ChaCha20(key, bytes(4) + nonce), None).encryptor().update(bytes(4096))
    limit = 2**64 // bound * bound
    return next(word % bound for (word,) in struct.iter_unpack("<Q", stream) if word < limit)


def test_the_plan_comes_from_its_own_stream_exactly():
    drawn = draw_plans(keys(3), np.array([40, 0, 25]), 0.05, 0.1)
    assert [len(plan) for plan in drawn] == [40, 0, 25]
    for record, plan in ((0, drawn[0]), (2, drawn[2])):
        key = keys(3)[record].as_py()
        for word, (deleted, followed) in enumerate(plan.tolist()):
            assert (deleted, followed) == (below(key, 2 * word, 20) < 1, below(key, 2 * word + 1, 10) < 1)
    many = draw_plans(keys(1), np.array([20_000]), 0.05, 0.25)[0].mean(axis=0)
    assert abs(many[0] - 0.05) < 0.008
    assert abs(many[1] - 0.25) < 0.016
    assert not np.array_equal(draw_plans(keys(1, 9), np.array([40]), 0.05, 0.1)[0], drawn[0])


@pytest.mark.parametrize(("n", "few", "many"), [(20, 30, 35), (50, 66, 77), (100, 124, 144), (200, 236, 273)])
def test_likely_draws_are_those_of_the_specification(n, few, many):
    assert (likely_draws(n, 0.05, 0.1, 1e-6), likely_draws(n, 0.05, 0.25, 1e-6)) == (few, many)


def test_likely_draws_are_a_quantile():
    for n in (1, 2, 5):
        exact = defaultdict(Fraction)
        for plan, chance in plans(n):
            exact[n - int(plan[:, 0].sum()) + int(plan[:, 1].sum())] += chance
        for delta in (0.5, 0.01, 1e-4, 1e-12):
            t = likely_draws(n, 0.05, 0.25, delta)
            assert sum(chance for calls, chance in exact.items() if calls > t) <= Fraction(repr(delta))
            assert t == 0 or sum(chance for calls, chance in exact.items() if calls >= t) > Fraction(repr(delta))
    assert 10_000 < likely_draws(10_000, 0.05, 0.1, 1e-6) < 20_000


def test_spends_and_what_is_settled_afterwards():
    plain = DPMLM(epsilon=2.0, model="example-masked")
    made = DPMLM(epsilon=2.0, model="example-masked", variant="plusminus")
    assert made.refundable
    assert not plain.refundable
    assert made.spend(7).eps_pure == 2 * plain.spend(7).eps_pure == 28_000_000
    assert made.spend(7).rho == 2 * plain.spend(7).rho
    assert step_costs(made, np.array([0, 6, 9], np.uint32)).tolist() == [0, 12_000_000, 18_000_000]
    likely = made.model_copy(update={"delta": 1e-6, "n_rec": 10_000, "addition": 0.1})
    cost = likely.spend(20)
    assert (cost.guarantee_class, cost.eps_approx, cost.delta) == (GuaranteeClass.COND_APPROX, 60_000_000, 10**9)
    assert cost.eps_pure == 80_000_000


@pytest.mark.parametrize(("given", "said"), [
    ({"delta": 0.99}, "a delta needs a public bound"), ({"delta": 0.99, "n_rec": 10}, "at most 1e-06"),
    ({"delta": 1e-6, "n_rec": 10_001}, "n_rec \\* delta"), ({"n_rec": 10}, "leave it out, or give delta"),
])  # fmt: skip
def test_a_delta_is_small_for_a_record_and_over_all(given, said):
    plain = {"epsilon": 2.0, "model": "example-masked", "variant": "plusminus"}
    with pytest.raises(PolicyError, match=said):
        catalog.build({"name": "dpmlm", **plain, **given})
    with pytest.raises(PolicyError, match=said):
        DPMLM(**plain).model_copy(update=given)


def test_a_release_says_how_many_draws_it_made():
    made = DPMLM(epsilon=2.0, model="example-masked", variant="plusminus", addition=0.3, deletion=0.3)
    texts = pa.array(["good film about a doctor " * 4, None, "", "good"])
    released = made.release_with(ToyScorer(made.outputs, lambda *_: [0.0] * made.outputs), sampling, texts, keys(4))
    assert released.positions.to_pylist() == made.positions(texts).to_pylist() == [20, 0, 0, 1]
    words = [0 if text is None else len(text.split()) for text in released.text.to_pylist()]
    assert released.steps.to_pylist() == words
    assert words[0] not in (0, 20)
    assert (step_costs(made, released.steps.to_numpy()) <= [made.spend(n).eps_pure for n in (20, 0, 0, 1)]).all()
