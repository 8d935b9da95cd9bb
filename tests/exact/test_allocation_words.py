"""Budgets divided among words that are drawn from integer weights: CusText, SanText and TEM, by exact enumeration.

Specification: docs/spec/privacy.md#allocation-by-mechanism, docs/spec/privacy.md#e13.
"""

import itertools
import math

import pyarrow as pa
import pytest

from dptext_etl.accounting import allocated_epsilon
from dptext_etl.allocation import Allocation
from dptext_etl.errors import PolicyError
from dptext_etl.families.words import release_divided
from dptext_etl.guarantee import Disclosure, GuaranteeClass
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.mechanisms.diffractor import Diffractor
from dptext_etl.mechanisms.santext import SanText
from dptext_etl.polars.plan_expressions import in_kernel

from ..fixed_allocations import FixedAllocation, Forced, scores_exist
from .fixed_keys import release_with_keys

TEXTS = pa.array(["the good film about a doctor zzzqq 7", "The Old town; people of", None, "", "state " * 40])
KEYS = pa.array([bytes([number] * 32) for number in range(len(TEXTS))], pa.binary(32))
LEAST = 1e-6
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
    each = float(plain._epsilon_per_word)
    for row, words in enumerate([8, 5, 1, 1, 40]):
        even = kind(allocation=Allocation(total=each * words, template="uniform"), **options)
        text, key = TEXTS.slice(row, 1), KEYS.slice(row, 1)
        assert release_divided(even, even.allocation, text, key) == release_with_keys(plain, text, key)


@pytest.mark.parametrize("name", KINDS)
def test_no_pair_of_divisions_exceeds_what_is_charged(name, monkeypatch):
    scores_exist(monkeypatch)
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
        for transcript in itertools.product(range(made._division.largest_set), repeat=2):
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
def test_its_claim_is_that_of_one_budget(name, monkeypatch):
    scores_exist(monkeypatch)
    kind, options = KINDS[name]
    made = kind(allocation=FixedAllocation(total=8.0, eps_hi=5.0), **options)
    for words in (1, 2, 30):
        cost = made.spend(words)
        assert (cost.eps_pure, cost.rho, cost.eps_metric) == (8_000_000, 5_000_000, math.inf)
        assert cost.guarantee_class is GuaranteeClass.COND_PURE
    assert made.spend(0).eps_pure == 0
    assert made._metric_claim is None, "one word may get two epsilons in two texts"
    assert (Disclosure.CLUSTER in made.guarantee.disclosures) is (name == "custext")
    assert (made.reproducible, in_kernel(made)) == (False, None)
    with pytest.raises(PolicyError, match="whole texts"):
        made.transition(made.input_words()[0])
    dearest = kind(epsilon=made._unit_epsilon, **options)
    for word in made.input_words():
        assert made.survival(word) == dearest.survival(word)


def test_a_first_release_divides_the_second_and_draws_from_other_streams(monkeypatch):
    scores_exist(monkeypatch)
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
def test_where_no_theorem_holds_the_reason_and_a_sound_way_are_said(name, options, said, monkeypatch):
    if name in {"adept", "dpbart"}:
        pytest.importorskip("dptext_etl_models")
    from dptext_etl import catalog

    scores_exist(monkeypatch)
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
def test_faithful_mode_divides_by_the_words_of_the_text_and_claims_nothing(name, options, monkeypatch):
    """Paper 001: the drawn words get their shares; unchanged words and unknown words get none."""
    from dptext_etl import catalog

    class Watching(FixedAllocation):
        def over(self, tokens, places=None, *, draws=None):
            drawn = [tokens[place].lower() for place in places]
            return [9_000_000_000 if word == "film" else 1 for word in drawn]

    scores_exist(monkeypatch)
    allocation = Watching(total=9_001.0)
    made = catalog.build({"name": name, "mode": "faithful", "limit": 600, **options, "allocation": allocation})
    texts = pa.array([" ".join(["Film; the zzzqq film good 7 film"] * 8)], pa.large_string())
    words = release_divided(made, allocation, texts, KEYS.slice(0, 1)).text[0].as_py().lower().replace(";", "").split()
    assert words.count("film") == 24, "so large a share returns the word"
    assert words.count("good") < 8, "so small a share does not"
    assert words.count("zzzqq") == (0 if name == "madlib" else 8)
    assert made.guarantee.guarantee_class is GuaranteeClass.NONE
    assert made.spend(3).eps_pure == made.spend(3).rho == math.inf
    assert made._cost_factors(3) == {"∞": math.inf}
    assert [word.lower() for word in made._units("the film zzzqq")[0]][-1] == "film"


def test_faithful_mode_divides_in_no_other_way():
    with pytest.raises(PolicyError, match="as the paper does: give scores"):
        CusText(mode="faithful", allocation={"template": "uniform", "total": 5.0})
