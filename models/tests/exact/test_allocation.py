"""Budgets that are divided by the text itself, by exact enumeration of releases (Theorem A).

Specification: docs/spec/privacy.md#e12, docs/spec/privacy.md#theorem-a.
"""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from polars.exceptions import PanicException

from dptext_etl import sampling
from dptext_etl.accounting import allocated_epsilon
from dptext_etl.allocation import Allocation
from dptext_etl.errors import PolicyError
from dptext_etl.sampling import epsilon_implemented
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from models.tests.toy_generator import END, Toy, ToyGenerator, sequences
from models.tests.toy_scorer import KEY, ToyScorer
from tests.fixed_allocations import FixedAllocation, Forced, scores_exist
from tests.later import later
from tests.quick import quick

later("torch")
INF = math.inf
BITS = 46
LEAST = 1e-6


@pytest.fixture(autouse=True)
def _scores(monkeypatch):
    scores_exist(monkeypatch)


def masked(allocation, **options):
    return DPMLM(model="example-masked", decoding="block", block=1, allocation=allocation, **options)


def law_of(made, words, score, outputs, purposes=(1,)):
    """Probability of every transcript of one text, over all passes, by the path that releases."""
    law, texts = {}, pa.array([" ".join(words)])
    each = itertools.product(range(outputs), repeat=len(words))
    for transcript in itertools.product(*itertools.tee(each, len(purposes))):
        forced = Forced(dict(zip(purposes, transcript, strict=True)))
        made.release_with(ToyScorer(outputs, score), forced, texts, KEY)
        assert {purpose for purpose, _, _ in forced.used} == set(purposes)
        law[transcript] = forced.probability
    assert sum(law.values()) == 1
    return law


def worst(one, other):
    return max(abs(math.log(one[transcript]) - math.log(other[transcript])) for transcript in one)


def favors(words, drawn, number, outputs):
    """One text favors the first output everywhere, the other favors all others."""
    return [INF if (output == 0) == (words[0] == "good") else -INF for output in range(outputs)]


def fixed(total, **parts):
    return FixedAllocation(
        total=total, divisions={(word, word): division for word, division in parts.items()}, eps_lo=LEAST
    )


@pytest.mark.parametrize(
    ("total", "division", "expected"),
    quick(
        [(6.0, (6.0 - LEAST, LEAST), 4.476449), (140.0, (70.0, 70.0), 65.97), (64.0, (63.769542, 0.230458), None)],
        first=2,
    ),
)
def test_the_worst_pair_of_divisions_attains_the_accounted_epsilon(total, division, expected):
    """One text divides evenly; the other puts all on one draw, or fills the integers' range: nothing is worse."""
    made = masked(fixed(total, good=(total / 2, total / 2), film=division))
    laws = [law_of(made, [word] * 2, lambda *seen: favors(*seen, outputs=4), 4) for word in ("good", "film")]
    accounted = allocated_epsilon(total, 2, 4, BITS)
    assert worst(*laws) == pytest.approx(accounted, abs=3e-6)
    assert worst(*laws) <= accounted + 1e-9 <= total
    if expected is not None:
        assert accounted == pytest.approx(expected, abs=5e-3 if total > 100 else 5e-7)
    assert accounted > 2 * epsilon_implemented(total / 2, 4), "dependence on the text costs more than a fixed division"


@pytest.mark.parametrize("total", [0.7, 6.0, 40.0, 130.0])
def test_no_pair_of_divisions_exceeds_it(total):
    """Divisions at random and at the ends, scores that move with every word and every draw."""
    random = np.random.default_rng(17)
    shares = [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0], *random.dirichlet([0.4, 0.4], size=5)]
    words = ["good", "film", "music", "town", "doctor", "people", "old", "about"]
    parts = {
        word: tuple(max(LEAST, math.floor(total * share * 1e6 - 1) / 1e6) for share in pair)
        for word, pair in zip(words, shares, strict=True)
    }
    made = masked(fixed(total, **parts))

    def score(seen, drawn, number):
        return np.random.default_rng([words.index(seen[0]), number, *drawn]).choice([-INF, -6, 0, 10, INF, math.nan], 3)

    laws = [law_of(made, [word] * 2, score, 3) for word in words]
    bound = allocated_epsilon(total, 2, 3, BITS)
    assert max(worst(*pair) for pair in itertools.combinations(laws, 2)) <= bound + 1e-9 <= total


def test_an_answer_of_any_length_costs_one_budget():
    """Texts of other lengths, whose answers end when they end: the budget of all steps is one."""
    total, made_for = 9.0, {("a",): (7.0, 1.0, 1.0), ("b", "c"): (1.0, 2.0, 6.0), (): (3.0, 3.0, 3.0)}
    made = Toy(l_max=3, n_max=10, allocation=FixedAllocation(total=total, divisions=made_for, eps_lo=LEAST, eps_hi=7.0))

    def score(text, drawn):
        return [INF if output == (len(text) + 2 * len(drawn)) % 3 else -INF for output in range(3)]

    def law(text):
        found = {}
        for sequence in sequences(3, END, 3):
            forced = Forced({1: sequence})
            made.release_with(ToyGenerator(score), pa.array([text]), KEY, sampler=forced)
            found[sequence] = forced.probability
        assert sum(found.values()) == 1
        return found

    laws = [law(text) for text in ("a", "b c", "")]
    cost = made.spend(3)
    assert (cost.eps_pure, made.guarantee.unit, made.refundable) == (9_000_000, "record", False)
    assert cost.rho == math.ceil(7.0 * 9.0 / 8 * 1e6)
    assert max(worst(*pair) for pair in itertools.combinations(laws, 2)) <= cost.eps_tight / 1e6 <= 9.0
    assert cost.eps_tight / 1e6 == pytest.approx(allocated_epsilon(9.0, 3, 3, BITS), abs=2e-6)


# Divisions that no text decides


def test_two_passes_cost_the_sum_and_the_second_sees_only_what_the_first_released():
    """The joint law of both passes stays within both budgets, whatever the first pass makes of the second."""
    outputs = 2
    made = masked(None, epsilon=1.0)
    words = made.output_texts[:outputs]
    after = {pair: (3.0, 1.0) if pair[0] == words[0] else (0.5, 3.5) for pair in itertools.product(words, repeat=2)}
    made = masked(FixedAllocation(total=4.0, first=1.0, divisions=after, eps_lo=LEAST))  # a raw word is a KeyError
    favored = lambda *seen: favors(*seen, outputs=outputs)
    laws = [law_of(made, [word] * 2, favored, outputs, (1, 257)) for word in ("good", "film")]
    least = sum(epsilon_implemented(part, outputs) for part in (0.5, 0.5, 3.5, 0.5))
    assert worst(*laws) == pytest.approx(least, abs=1e-9), "the worst path of both passes"
    accounted = 2 * epsilon_implemented(0.5, made.outputs) + allocated_epsilon(4.0, 2, made.outputs, BITS)
    cost = made.spend(2)
    assert cost.eps_pure == 5_000_000
    assert accounted <= cost.eps_tight / 1e6 <= accounted + 2e-6
    assert worst(*laws) <= cost.eps_tight / 1e6


def test_a_template_is_by_position_alone_and_composes():
    made = masked(Allocation(total=3.0, template=(2.0, 1.0), eps_lo=LEAST))
    laws = [law_of(made, [word] * 2, lambda *seen: favors(*seen, outputs=3), 3) for word in ("good", "film")]
    assert worst(*laws) == pytest.approx(epsilon_implemented(2.0, 3) + epsilon_implemented(1.0, 3), abs=1e-9)
    assert worst(*laws) <= made.spend(2).eps_tight / 1e6


def test_a_chosen_template_costs_the_choice_and_the_budget():
    """Two texts want opposite templates: the choice is a separate draw, from purpose 7."""
    parts = {("good",) * 2: (3.0, 1.0), ("film",) * 2: (1.0, 3.0)}
    choice = {"templates": ((3.0, 1.0), (1.0, 3.0)), "choosing": 1.0}
    made = masked(FixedAllocation(total=4.0, divisions=parts, eps_lo=LEAST, **choice))
    laws = []
    for word in ("good", "film"):
        law = {}
        for template, *drawn in itertools.product(range(2), range(3), range(3)):
            forced = Forced({7: [template], 1: drawn})
            scorer = ToyScorer(3, lambda *seen: favors(*seen, outputs=3))
            made.release_with(scorer, forced, pa.array([f"{word} {word}"]), KEY)
            law[template, *drawn] = forced.probability
        assert sum(law.values()) == 1
        laws.append(law)
    steps = sum(epsilon_implemented(part, 3) for part in (1.0, 3.0))
    fits = math.log((1 + math.exp(-1 / 4)) / (1 + math.exp(1 / 4)))  # the other template is half a budget away
    assert worst(*laws) == pytest.approx(steps - fits, abs=1e-6)
    assert worst(*laws) <= made.spend(2).eps_tight / 1e6
    assert made.spend(2).eps_pure == 5_000_000


# A division must tell nothing


def test_where_scores_of_outputs_tell_nothing_a_division_tells_nothing_either():
    """Constant scores and one stream: texts of one length are released alike, whatever divides their budgets."""
    parts = {("good",) * 3: (5.0, 0.5, 0.5), ("film", "old", "town"): (0.1, 3.0, 2.9)}
    made = masked(FixedAllocation(total=6.0, divisions=parts, eps_lo=LEAST))
    released = [
        made.release_with(ToyScorer(made.outputs, lambda *_: [0.0] * made.outputs), sampling, pa.array([text]), KEY)
        for text in ("good good good", "film old town")
    ]
    assert released[0] == released[1]
    assert released[0].steps is None, "how a budget was used is said nowhere"


@pytest.mark.parametrize("failure", [ValueError, PanicException])
def test_a_score_that_fails_on_a_text_divides_evenly_and_quotes_nothing(failure, monkeypatch, caplog):
    class Broken:
        def of(self, tokens):
            raise failure(f"inside: {tokens}")

    secret = "zzqunknownqzz"
    allocation = Allocation(total=4.0, scores=("fixed",))
    monkeypatch.setitem(allocation.__dict__, "scorers", (Broken(),))
    assert allocation.over([secret] * 4) == [1_000_000] * 4
    assert caplog.text
    assert secret not in caplog.text


def test_another_epsilon_divides_another_budget_in_the_same_way():
    made = masked(Allocation(total=8.0, first=2.0, scores=("fixed",), eps_hi=4.0))
    half = made.model_copy(update={"epsilon": 5.0})
    assert half.allocation == Allocation(total=4.0, first=1.0, scores=("fixed",), eps_hi=2.0)
    with pytest.raises(PolicyError, match="leave it out"):
        made.model_copy(update={"epsilon": 5.0, "allocation": made.allocation})
