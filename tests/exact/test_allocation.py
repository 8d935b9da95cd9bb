"""Budgets divided among words: exact enumeration where words are drawn from integer weights, equal draws with noise.

Specification: docs/spec/privacy.md#allocation-allowed, docs/spec/privacy.md#allocation-by-mechanism,
docs/spec/privacy.md#e13.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl.accounting import allocated_epsilon
from dptext_etl.allocation import Allocation
from dptext_etl.embeddings import search
from dptext_etl.errors import PolicyError
from dptext_etl.families.words import release_divided
from dptext_etl.guarantee import Disclosure, GuaranteeClass
from dptext_etl.mechanism import PAD
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.mechanisms.diffractor import Diffractor
from dptext_etl.mechanisms.madlib import Madlib
from dptext_etl.mechanisms.santext import SanText
from dptext_etl.polars.namespace import in_kernel
from dptext_etl.sampling import epsilon_implemented

from ..fixed_allocations import FixedAllocation, Forced, scores_exist
from .fixed_keys import release_with_keys

TEXTS = pa.array(["the good film about a doctor zzzqq 7", "The Old town; people of", None, "", "state " * 40])
KEYS = pa.array([bytes([number] * 32) for number in range(len(TEXTS))], pa.binary(32))
LEAST = 1e-6


def geometric(**options):
    return Diffractor(variant="geometric", **options)


NOISY = {"madlib": (Madlib, {"limit": 400}), "geometric": (geometric, {"limit": 501})}
BOTH = pytest.mark.parametrize("name", NOISY)


@pytest.fixture(autouse=True)
def _scores(monkeypatch):
    scores_exist(monkeypatch)


@pytest.fixture(scope="module")
def ends():
    """The words of a list of three, from one end to the other."""
    made = geometric(epsilon=1.0, limit=3)
    return [made.division.names[number] for number in made.orders[0]]


def released(made, row):
    text, key = TEXTS.slice(row, 1), KEYS.slice(row, 1)
    out = (
        release_with_keys(made, text, key)
        if made.allocation is None
        else release_divided(made, made.allocation, text, key)
    )
    return (out.text[0].as_py() or "").split(), out.positions[0].as_py()


@BOTH
def test_every_position_is_drawn_as_by_the_mechanism_of_its_own_epsilon(name):
    """Equal streams and epsilons give equal words: the law of a position is the plain one, as is its claim."""
    kind, options = NOISY[name]
    shares, total = (3.0, 1.0, 2.0), 60.0
    made = kind(allocation=Allocation(total=total, template=shares), **options)
    assert made.spend(5).eps_pure == 60_000_000
    for row in (0, 1, 4):
        words, count = released(made, row)
        parts = made.allocation.by_position(shares, count)
        assert sum(parts) <= 60_000_000
        for place in {0, 1, 2, count - 1}:
            plain = kind(epsilon=per_unit(made, parts[place]), **options)
            assert plain.epsilon_per_word <= parts[place] / 1e6 * (1 + 1e-15)
            assert released(plain, row)[0][place] == words[place]


@pytest.mark.parametrize("part", [1, 7, 333_333, 2_000_001, 10**12])
def test_no_rate_of_noise_costs_more_than_its_part(part):
    made = Madlib(allocation=Allocation(total=60.0, template="uniform"), limit=400)
    rate = Fraction(float(made.noise_rates(np.array([part / 1e6]))[0]))
    cost = rate / Fraction(made.words.scale) * made.loss_range * 10**6
    assert part * (1 - Fraction(1, 10**12)) < cost <= part


def per_unit(made, part):
    """The parameter of the plain mechanism whose draw costs a part of the budget."""
    if isinstance(made, Madlib):
        return part / 1e6 / float(made.loss_range) * (1 - 2.0**-50)
    return float(part / 1_000_000 / made.loss_range)


def law(made, words, purposes=(1,)):
    """Probability of every transcript of one text on a list of three words, by the path that releases."""
    found, text = {}, pa.array([" ".join(words)])
    each = list(itertools.product(range(3), repeat=len(words)))
    for transcript in itertools.product(each, repeat=len(purposes)):
        forced = Forced(dict(zip(purposes, transcript, strict=True)))
        release_divided(made, made.allocation, text, KEYS.slice(0, 1), forced)
        assert {purpose for purpose, _, _ in forced.used} == set(purposes)
        found[transcript] = forced.probability
    assert math.isclose(sum(found.values()), 1.0)
    return found


def worst(laws):
    return max(abs(math.log(one[y] / other[y])) for one, other in itertools.combinations(laws, 2) for y in one)


def test_the_parts_of_a_template_add_up_exactly_between_the_ends_of_a_list(ends):
    made = geometric(allocation=Allocation(total=3.0, template=(2.0, 1.0), eps_lo=LEAST), limit=3)
    laws = [law(made, pair) for pair in itertools.product(ends, repeat=2)]
    assert worst(laws) == pytest.approx(3.0, abs=1e-9)
    assert worst(laws[:2]) <= 1.0 * 1 / 2 + 1e-9, "words one place apart at the second position: a half of its part"
    cost = made.spend(2)
    assert (cost.eps_pure, cost.eps_tight, cost.rho) == (3_000_000, 3_000_000, 4_500_000)
    assert (cost.metric_id, cost.eps_metric, cost.diameter) == ("listidx-max", 1_500_000, 2_000_000)


def test_a_chosen_template_costs_the_choice_and_the_budget(ends):
    parts = {(ends[0],) * 2: (3.0, 1.0), (ends[2],) * 2: (1.0, 3.0)}
    choice = {"templates": ((3.0, 1.0), (1.0, 3.0)), "choosing": 1.0}
    made = geometric(allocation=FixedAllocation(total=4.0, divisions=parts, eps_lo=LEAST, **choice), limit=3)
    laws = []
    for words in parts:
        found = {}
        for template, *drawn in itertools.product(range(2), range(3), range(3)):
            forced = Forced({7: [template], 1: drawn})
            release_divided(made, made.allocation, pa.array([" ".join(words)]), KEYS.slice(0, 1), forced)
            found[template, *drawn] = forced.probability
        laws.append(found)
    fits = math.log((1 + math.exp(1 / 4)) / (1 + math.exp(-1 / 4)))  # the other template is half a budget away
    assert worst(laws) == pytest.approx(4.0 + fits, abs=1e-6)
    cost = made.spend(2)
    assert worst(laws) <= cost.eps_tight / 1e6 == pytest.approx(4.0 + epsilon_implemented(1.0, 2), abs=2e-6)
    assert (cost.eps_pure, cost.eps_metric) == (5_000_000, math.inf), "equal words may choose other templates"


def test_two_passes_cost_the_sum_and_the_second_sees_only_what_the_first_released(ends):
    after = {pair: (3.0, 1.0) if pair[0] == ends[0] else (0.5, 3.5) for pair in itertools.product(ends, repeat=2)}
    allocation = FixedAllocation(total=4.0, first=1.0, divisions=after, eps_lo=LEAST, eps_hi=3.5)
    made = geometric(allocation=allocation, limit=3)
    laws = [law(made, [word] * 2, (1, 257)) for word in (ends[0], ends[2])]
    assert worst(laws) == pytest.approx(5.0, abs=1e-9)
    cost = made.spend(2)
    assert (cost.eps_pure, cost.eps_tight) == (5_000_000, 5_000_000)
    assert cost.rho == math.ceil((3.5 * 4.0 + 2 * 0.5**2) / 2 * 1e6)
    assert cost.eps_metric == 2_000_000, "(3.5 + 0.5) / 2 places"


@BOTH
def test_unknown_words_take_a_draw_in_every_pass(name):
    kind, options = NOISY[name]
    seen = []

    class Watching(FixedAllocation):
        def over(self, tokens, places=None, *, draws=None):
            seen.append(list(tokens))
            return [1_000_000] * len(places)

    made = kind(allocation=Watching(total=60.0, first=8.0), **options)
    words, count = released(made, 0)
    assert len(seen[0]) == count == len(words) == 8
    assert not {"zzzqq", "7"} & set(seen[0])
    assert set(seen[0]) <= set(made.input_words())
    chosen = kind(allocation=Watching(total=60.0, templates=((2, 1), (1, 2)), choosing=1.0), **options)
    released(chosen, 0)
    assert seen[1] == TEXTS[0].as_py().split(), "the choice of a template is charged"


@BOTH
def test_the_words_of_the_text_itself_divide_nothing(name):
    kind, options = NOISY[name]
    with pytest.raises(PolicyError, match="without a bound; divide by something public"):
        kind(allocation=Allocation(total=4.0, scores=("fixed",)), **options)


@BOTH
def test_a_hidden_length_pads_and_pays_one_budget(name):
    kind, options = NOISY[name]
    made = kind(allocation=Allocation(total=80.0, template=(2, 1)), length="fixed", n_max=8, **options)
    for row in (0, 3, 4):
        words, count = released(made, row)
        assert count == 8
        assert len(words) <= 8
        assert PAD not in words
    assert made.spend(8).eps_pure == 80_000_000


@BOTH
def test_bounds_for_checks_are_those_of_the_dearest_draw(name):
    kind, options = NOISY[name]
    made = kind(allocation=Allocation(total=9.0, template="uniform", eps_hi=5.0), **options)
    dearest = kind(epsilon=made.unit_epsilon, **options)
    assert dearest.epsilon_per_word == pytest.approx(5.0)
    word = made.input_words()[3]
    assert not made.reproducible
    assert dearest.survival(word) <= made.survival(word) <= float(dearest.survival(word)) * (1 + 1e-3)
    assert made.largest_probability() >= dearest.largest_probability()
    assert made.collision(word) == made.largest_probability(), "much noise piles words up: no draw bounds the others"
    with pytest.raises(PolicyError):
        made.transition(word)


def test_noise_that_is_too_large_is_refused_whatever_the_texts_are(monkeypatch):
    monkeypatch.setattr(search, "EXACT", 2**44)
    made = Madlib(allocation=Allocation(total=0.2, template="uniform"), limit=400)
    for text in ("the", "the good film"):
        with pytest.raises(PolicyError, match="so large"):
            release_divided(made, made.allocation, pa.array([text]), KEYS.slice(0, 1))
    assert released(made.model_copy(update={"n_max": 20}), 0)[1] == 8


KINDS = {
    "custext": (CusText, {"limit": 12, "k": 3}),
    "santext": (SanText, {"limit": 3}),
    "tem": (Diffractor, {"limit": 3, "gamma": 1}),
}


@pytest.mark.parametrize(
    ("kind", "options"),
    [(CusText, {"limit": 500}), (Diffractor, {"limit": 500}), (Diffractor, {"limit": 500, "walks": 3})],
)
def test_where_every_draw_has_the_epsilon_of_a_table_bytes_are_the_tables(kind, options):
    """Weights that are made draw by draw, slots and lists equal the stored table's."""
    plain = kind(epsilon=2.0, **options)
    each = float(plain.epsilon_per_word)
    for row, words in enumerate([8, 5, 1, 1, 40]):
        even = kind(allocation=Allocation(total=each * words, template="uniform"), **options)
        text, key = TEXTS.slice(row, 1), KEYS.slice(row, 1)
        assert release_divided(even, even.allocation, text, key) == release_with_keys(plain, text, key)


@pytest.mark.parametrize("name", KINDS)
def test_no_pair_of_divisions_exceeds_what_is_charged(name):
    kind, options = KINDS[name]
    plain = kind(epsilon=1.0, **options)
    words, _ = plain.transition(plain.input_words()[0])
    words, total = [word for word in words if plain.transition(word)[0] == words][:3], 8.0
    divisions = [(4.0, 4.0), (total - LEAST, LEAST), (LEAST, total - LEAST), (1.0, 7.0)]
    laws, bound = [], math.inf
    for text, division in itertools.product(itertools.product(words, repeat=2), divisions):
        allocation = FixedAllocation(total=total, divisions={text: division}, eps_lo=LEAST)
        made = kind(allocation=allocation, **options)
        law = {}
        for transcript in itertools.product(range(made.division.largest_set), repeat=2):
            forced = Forced({1: transcript})
            release_divided(made, allocation, pa.array([" ".join(text)]), KEYS.slice(0, 1), forced)
            law[transcript] = forced.probability
        assert sum(law.values()) == 1
        laws.append(law)
        bound = made.spend(2).eps_tight / 1e6
    assert bound <= allocated_epsilon(total, 2, 3, 46) + 2e-6 <= total + 2e-6
    found = max(
        abs(math.log(one[y]) - math.log(other[y])) for one, other in itertools.combinations(laws, 2) for y in one
    )
    assert found <= bound
    assert found > total / 2, "the divisions are far apart"


@pytest.mark.parametrize("name", KINDS)
def test_its_claim_is_that_of_one_budget(name):
    kind, options = KINDS[name]
    made = kind(allocation=FixedAllocation(total=8.0, eps_hi=5.0), **options)
    for words in (1, 2, 30):
        cost = made.spend(words)
        assert (cost.eps_pure, cost.rho, cost.eps_metric) == (8_000_000, 5_000_000, math.inf)
        assert cost.guarantee_class is GuaranteeClass.COND_PURE
    assert made.spend(0).eps_pure == 0
    assert made.metric_claim is None, "one word may get two epsilons in two texts"
    assert (Disclosure.CLUSTER in made.guarantee.disclosures) is (name == "custext")
    assert (made.reproducible, in_kernel(made)) == (False, None)
    with pytest.raises(PolicyError, match="whole texts"):
        made.transition(made.input_words()[0])
    dearest = kind(epsilon=made.unit_epsilon, **options)
    for word in made.input_words():
        assert made.survival(word) == dearest.survival(word)


def test_a_first_release_divides_the_second_and_draws_from_other_streams():
    seen = []

    class Watching(FixedAllocation):
        def over(self, tokens, places=None, *, draws=None):
            seen.append(list(tokens))
            return [1_000_000] * len(places)

    allocation = Watching(total=40.0, first=8.0)
    made = CusText(allocation=allocation, limit=500)
    drawn = {}

    class Noting:
        def choose(self, scores, slots, *, purpose=1, **law):
            drawn.setdefault(purpose, []).append(law["epsilon"])
            from dptext_etl import sampling

            return sampling.choose(scores, slots, purpose=purpose, **law)

    released = release_divided(made, allocation, TEXTS.slice(0, 1), KEYS.slice(0, 1), Noting())
    even = CusText(allocation=Allocation(total=8.0, template="uniform"), limit=500)
    first = release_divided(even, even.allocation, TEXTS.slice(0, 1), KEYS.slice(0, 1)).text[0].as_py()
    assert seen == [first.split()], "only what the first pass released is scored"
    assert set(drawn) == {1, 257}
    assert {float(epsilon) for part in drawn[1] for epsilon in part} == {1.0}
    assert {float(epsilon) for part in drawn[257] for epsilon in part} == {1.0}
    assert released.text[0].as_py() != first
    assert made.spend(8).eps_pure == 48_000_000
    assert made.epsilon == 48.0


REFUSED = [
    ("madlib", {}, 'variant "tem"'),
    ("surrogate", {}, "one draw of a whole public text"),
    ("adept", {"model": "example-lstm", "n_rec": 10}, "one epsilon per record"),
    ("dpbart", {"model": "example-bart", "n_rec": 10, "sentences": 3}, "one epsilon per record"),
    ("diffractor", {"variant": "geometric"}, 'variant "tem"'),
    ("santext", {"variant": "plus"}, "p = 1"),
    ("diffractor", {"mode": "faithful", "lists": "lists.safetensors"}, "one set of vectors"),
]


@pytest.mark.parametrize(("name", "options", "said"), REFUSED)
def test_where_no_theorem_holds_the_reason_and_a_sound_way_are_said(name, options, said):
    if name in {"adept", "dpbart"}:
        pytest.importorskip("dptext_etl_models")
    from dptext_etl import catalog

    with pytest.raises(PolicyError, match=said):
        catalog.build({"name": name, "epsilon": 5.0, **options, "allocation": {"scores": ["fixed"], "total": 5.0}})


PAPERS = [
    ("diffractor", {"variant": "geometric"}),
    ("diffractor", {"variant": "tem"}),
    ("madlib", {}),
    ("custext", {"variant": "plus"}),
    ("custext", {"norm": "row"}),
]


@pytest.mark.parametrize(("name", "options"), PAPERS)
def test_faithful_mode_divides_by_the_words_of_the_text_and_claims_nothing(name, options):
    """Paper 001: the drawn words get their shares; unchanged words and unknown words get none."""
    from dptext_etl import catalog

    class Watching(FixedAllocation):
        def over(self, tokens, places=None, *, draws=None):
            drawn = [tokens[place].lower() for place in places]
            return [9_000_000_000 if word == "film" else 1 for word in drawn]

    allocation = Watching(total=9_001.0)
    made = catalog.build({"name": name, "mode": "faithful", "limit": 600, **options, "allocation": allocation})
    texts = pa.array([" ".join(["Film; the zzzqq film good 7 film"] * 8)], pa.large_string())
    words = release_divided(made, allocation, texts, KEYS.slice(0, 1)).text[0].as_py().lower().replace(";", "").split()
    assert words.count("film") == 24, "so large a share returns the word"
    assert words.count("good") < 8, "so small a share does not"
    assert words.count("zzzqq") == (0 if name == "madlib" else 8)
    assert made.guarantee.guarantee_class is GuaranteeClass.NONE
    assert made.spend(3).eps_pure == made.spend(3).rho == math.inf
    assert made.cost_factors(3) == {"∞": math.inf}
    assert [word.lower() for word in made.text_units("the film zzzqq")[0]][-1] == "film"


def test_faithful_mode_divides_in_no_other_way():
    with pytest.raises(PolicyError, match="as the paper does: give scores"):
        CusText(mode="faithful", allocation={"template": "uniform", "total": 5.0})
