"""DP-MLM's transcripts by exact enumeration, with toy scorers that try to tell as much as they can.

Specification: docs/spec/privacy.md#e9.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Disclosure, GuaranteeClass
from dptext_etl.sampling import epsilon_implemented, weights
from dptext_etl_models.inference.masked.script import Script
from dptext_etl_models.inference.masked.steps import DrawParameters, draw
from dptext_etl_models.mechanisms.dpmlm import DPMLM
from models.tests.model_makers import example_folder
from models.tests.toy_scorer import KEY, Forced, ToyScorer
from tests.later import later
from tests.quick import quick

later("torch")
WORDS = ("good", "film", "music")
M = 3
INF = math.inf
DECODINGS = {"sequential": {}, "block": {"decoding": "block", "block": 2}, "parallel": {"decoding": "parallel"}}


def of_the_first_word(words, drawn, number):
    """Every position answers with only the first word."""
    return [INF if output == WORDS.index(words[0]) else -INF for output in range(M)]


def of_everything(words, drawn, number):
    """The best output moves with every word and everything that was drawn."""
    best = (sum(map(WORDS.index, words)) + sum(drawn) + number) % M
    return [20.0 if output == best else -20.0 for output in range(M)]


def of_anything(words, drawn, number):
    """Scores between and beyond the ends of the range, and no numbers."""
    random = np.random.default_rng([len(words), number, *map(WORDS.index, words), 7, *drawn])
    return random.choice([-INF, -6.0, 0.5, 3.0, 10.0, INF, math.nan], size=M)


SCORERS = [of_the_first_word, of_everything, of_anything]


def mechanism(epsilon=1.0, **options):
    return DPMLM(epsilon=epsilon, model="example-masked", **options)


def law_of(made, words, score, draws=None):
    """Probability of every transcript of one text, by the path that releases."""
    law = {}
    for transcript in itertools.product(range(M), repeat=draws or len(words)):
        forced = Forced(transcript)
        made.release_with(ToyScorer(M, score), forced, pa.array([" ".join(words)]), KEY)
        law[transcript] = forced.probability
    assert sum(law.values()) == 1
    return law


def worst(one, other):
    return max(math.log(one[transcript]) - math.log(other[transcript]) for transcript in one)


@pytest.mark.parametrize("decoding", DECODINGS)
@pytest.mark.parametrize("score", SCORERS)
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("epsilon", quick([4.0, 0.5]))
def test_any_two_texts_of_n_words_stay_within_n_epsilon(decoding, score, n, epsilon):
    made = mechanism(epsilon, **DECODINGS[decoding])
    laws = [law_of(made, words, score) for words in itertools.product(WORDS, repeat=n)]
    bound = n * epsilon_implemented(epsilon, M)
    assert max(worst(one, other) for one, other in itertools.permutations(laws, 2)) <= bound + 1e-9 <= n * epsilon


@pytest.mark.parametrize("decoding", DECODINGS)
def test_one_changed_word_can_cost_as_much_as_all_of_them(decoding):
    def whether_the_first_word_is_good(words, drawn, number):
        return [INF if (output == 0) == (words[0] == "good") else -INF for output in range(M)]

    made = mechanism(1.0, **DECODINGS[decoding])
    texts = [("good",) * 3, ("film", "good", "good")]
    one, other = (law_of(made, words, whether_the_first_word_is_good) for words in texts)
    assert worst(one, other) > 1.0, "there is no price per input word"
    assert worst(one, other) == pytest.approx(3 * epsilon_implemented(1.0, M), rel=1e-9), "the bound is attained"


def test_a_hidden_length_makes_any_two_texts_neighbors():
    def tells_the_length(words, drawn, number):
        return [INF if output == len(words) % M else -INF for output in range(M)]

    made = mechanism(1.0, length="fixed", n_max=3)
    texts = ["", "   ", "good", "good film", "good film music", "good film music good good"]
    laws = [law_of(made, [text], tells_the_length, draws=3) for text in texts]
    bound = 3 * epsilon_implemented(1.0, M)
    assert max(worst(one, other) for one, other in itertools.permutations(laws, 2)) <= bound + 1e-9


def test_a_position_that_fails_keeps_the_bound():
    """Where a scorer fails for one text and works for another, the uniform draw is within the band.

    Specification: docs/spec/privacy.md#fail-closed.
    """

    def fails_for_films(words, drawn, number):
        if words[0] == "film":
            raise ValueError(f"inside: {words}")
        return of_everything(words, drawn, number)

    made = mechanism(1.0)
    laws = [law_of(made, words, fails_for_films) for words in [("film", "good"), ("good", "good")]]
    assert set(laws[0].values()) == {Fraction(1, 9)}
    assert worst(*laws) <= 2 * epsilon_implemented(1.0, M) + 1e-9


def test_blocks_follow_from_the_number_of_draws_alone():
    seen = []

    def watched(words, drawn, number):
        seen.append((number, len(drawn)))
        return [0.0] * M

    script = Script.plain(["good"] * 5)
    for block, known in [(1, [0, 1, 2, 3, 4]), (2, [0, 0, 2, 2, 4]), (5, [0] * 5)]:
        seen.clear()
        law = DrawParameters(1.0, 0.0, 1.0)
        draw(ToyScorer(M, watched), Forced([0] * 5), [script], KEY, parameters=law, block=block)
        assert [before for _, before in sorted(seen)] == known


def test_spends_are_those_of_the_specification(monkeypatch):
    monkeypatch.setattr(DPMLM, "outputs", 50_265)
    cost = mechanism(25.0).spend(12)
    assert (cost.eps_pure, round(cost.eps_tight / 1e6, 4)) == (300_000_000, 277.8402)
    assert cost.rho == 12 * 25**2 * 1_000_000 // 8
    assert (cost.eps_approx, cost.delta, cost.mu2) == (cost.eps_pure, 0, INF)
    assert mechanism(25.0).spend(0).eps_pure == 0
    fixed = mechanism(25.0, length="fixed", n_max=12)
    assert fixed.spend(12).eps_pure == 300_000_000
    noisy = mechanism(25.0, length="noisy", n_max=12, epsilon_length=2.0)
    assert (noisy.spend(12).eps_pure, noisy.spend(12).rho) == (302_000_000, cost.rho + 2_000_000)


def test_the_appendix_score_has_a_range_of_its_own():
    made = mechanism(10.0, alpha=0.003, clip=(-3.2093127, 16.304797887802124))
    low, high = made.score_range
    assert high - low == pytest.approx(2.058542, abs=1e-6)
    assert made.cfg() != mechanism(10.0, clip=(-3.2093127, 16.304797887802124)).cfg()


def test_what_is_disclosed():
    plain = mechanism().guarantee
    shown = {Disclosure.LENGTH, Disclosure.NULLNESS}
    assert (plain.guarantee_class, plain.disclosures) == (GuaranteeClass.COND_PURE, shown)
    assert "SCORES_LOCAL" in plain.assumptions
    hidden = mechanism(length="fixed", n_max=5).guarantee
    assert (hidden.guarantee_class, hidden.disclosures) == (GuaranteeClass.PURE_LDP, {Disclosure.NULLNESS})
    assert Disclosure.STOPWORDS in mechanism(stopwords="english").guarantee.disclosures
    paper = mechanism(mode="faithful")
    assert {Disclosure.STOPWORDS, Disclosure.PUNCT, Disclosure.CASE, Disclosure.LENGTH} < paper.guarantee.disclosures
    assert paper.output_words() is None


@pytest.mark.parametrize(("options", "said"), [
    ({"decoding": "block"}, "both or neither"), ({"block": 3}, "both or neither"),
    ({"length": "noisy", "n_max": 9}, "both or neither"), ({"length": "fixed"}, "needs n_max"),
    ({"length": "fixed", "n_max": 9, "stopwords": "english"}, "would hide nothing"),
    ({"length": "fixed", "n_max": 9, "variant": "plusminus"}, "would hide nothing"),
    ({"length": "fixed", "n_max": 9, "mode": "faithful"}, "would hide nothing"), ({"addition": 0.2}, "plusminus"),
    ({"delta": 1e-6, "n_rec": 10_000}, "plusminus"), ({"antonyms": "wordnet"}, "faithful"),
    ({"clip": (1.0, 1.0)}, "low < high"),
])  # fmt: skip
def test_options_that_do_not_go_together_are_refused(options, said):
    with pytest.raises(PolicyError, match=said):
        mechanism(**options)


def test_an_unknown_model_without_a_range_is_refused(tmp_path):
    folder = str(example_folder("masked", tmp_path / "model"))
    made = DPMLM(epsilon=1.0, model=folder)
    with pytest.raises(PolicyError, match="dptext calibrate"):
        made.cfg()
    given = DPMLM(epsilon=1.0, model=folder, clip=(-6.0, 10.0))
    assert given.cfg() == mechanism().cfg(), "the same files and the same range under another name"


def test_every_probability_stays_below_what_gates_are_told():
    made = mechanism(3.0)
    words = made.input_words()
    assert set(words) == made.output_words()
    scores = np.full((1, made.outputs), -INF)
    scores[0, 0] = INF
    row = weights(scores, made.epsilon, *made.score_range)[0]
    most = Fraction(int(row[0]), int(row.sum()))
    assert made.survival(words[0]) == most
    assert most <= Fraction(made.largest_probability())
    assert made.survival("qzxvjkwp") == 0
    assert made.collision(words[0]) >= float(most) ** 2
