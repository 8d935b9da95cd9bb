"""MADLIB against the law that its definition gives (docs/spec/privacy.md#e6); test_radial_noise is about its noise."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import _kernel
from dptext_etl.embeddings import search
from dptext_etl.errors import PolicyError
from dptext_etl.families.words import sample_many
from dptext_etl.guarantee import Disclosure, GuaranteeClass
from dptext_etl.mechanism import PAD
from dptext_etl.mechanisms import madlib
from dptext_etl.mechanisms.madlib import IDEAL, Madlib
from tests.later import later
from tests.quick import quick

from .fixed_keys import release_with_keys

stats = later("scipy.stats")

SECRET = _kernel.Secret.from_bytes(bytes(range(7, 39)))
LINE = np.array([[-3.0], [0.0], [1.0], [1.5], [5.0]])
PLANE = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.5], [-1.0, -1.0], [2.0, 2.0], [0.5, 0.5]])
N = 20_000


@pytest.fixture
def placed(tmp_path):
    """A mechanism over words at given places; coordinates that a grid of powers of two holds exactly."""

    def make(places, epsilon, **parameters):
        path = tmp_path / f"vectors-{len(list(tmp_path.iterdir()))}.npz"
        words = np.array([f"w{chr(97 + i)}" for i in range(len(places))])
        np.savez(path, words=words, vectors=np.asarray(places, np.float32))
        return Madlib(epsilon=epsilon, vectors=str(path), **parameters)

    return make


def sampled(mechanism, word, n=N):
    return Counter(sample_many(mechanism, word, n, secret=SECRET))


def cells(epsilon, at):
    """The exact law on a line: Laplace noise of rate epsilon, one cell per word, ends half-way between neighbors."""
    places = LINE[:, 0]
    ends = [-math.inf, *(places[1:] + places[:-1]) / 2, math.inf]
    return np.diff(stats.laplace(at, 1 / epsilon).cdf(ends))


def fit(counts, law, words):
    """P-value of counts under a law; cells with too little to expect are put together."""
    seen, expected = np.array([counts[word] for word in words], float), np.asarray(law) * sum(counts.values())
    rare = expected < 10
    if rare.any():
        seen, expected = np.append(seen[~rare], seen[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    if expected[-1] < 5:
        return float(seen[-1] < 40) and float(
            stats.chisquare(seen[:-1], expected[:-1] * seen[:-1].sum() / expected[:-1].sum()).pvalue
        )
    return float(stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue)


def line_fit(mechanism):
    """The worst p-value over all words of the line."""
    words = mechanism.input_words()
    return min(
        fit(sampled(mechanism, w), cells(mechanism.epsilon, x), words) for w, x in zip(words, LINE[:, 0], strict=True)
    )


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_e6_one_dimension_is_the_laplace_distribution_on_cells(placed, epsilon):
    mechanism = placed(LINE, epsilon)
    assert line_fit(mechanism) > 1e-6
    laws = [cells(epsilon, x) for x in LINE[:, 0]]
    for (one, x), (other, y) in itertools.permutations(zip(laws, LINE[:, 0], strict=True), 2):
        assert np.log(one / other).max() <= epsilon * abs(x - y) + 1e-9
        assert epsilon * abs(x - y) <= float(mechanism.epsilon_per_word)
    ends = math.log(laws[0][0] / laws[-1][0])
    assert 0.8 * float(mechanism.epsilon_per_word) <= ends <= float(mechanism.epsilon_per_word)


def reference_noise(n, k, epsilon, seed):
    """The noise again, from NumPy's own generator."""
    random = np.random.default_rng(seed)
    direction = random.normal(size=(n, k))
    return direction / np.linalg.norm(direction, axis=1)[:, None] * random.gamma(k, 1 / epsilon, n)[:, None]


@pytest.mark.parametrize("epsilon", quick([0.7, 2.0]))
def test_e6_two_dimensions_by_monte_carlo(placed, epsilon):
    mechanism = placed(PLANE, epsilon)
    words = mechanism.input_words()
    counts = {}
    for at, word in enumerate(words):
        counts[word] = np.array([sampled(mechanism, word)[output] for output in words])
        moved = PLANE[at] + reference_noise(2 * N, 2, epsilon, at)
        nearest = ((moved[:, None, :] - PLANE) ** 2).sum(axis=2).argmin(axis=1)
        table = np.array([counts[word], np.bincount(nearest, minlength=len(words))])
        assert stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue > 1e-6
    seen = np.array(list(counts.values()))
    surely = np.nan_to_num(stats.beta.ppf(1e-9, seen, N - seen + 1))  # bounds that hold but once in 10^9 times
    at_most = stats.beta.ppf(1 - 1e-9, seen + 1, N - seen)
    for x, y in itertools.permutations(range(len(PLANE)), 2):
        assert (surely[x] <= math.exp(epsilon * math.dist(PLANE[x], PLANE[y])) * at_most[y]).all()


def test_moved_vectors_are_what_the_definition_says(small_vectors):
    """Every output again, from the noise of its own record and position, in integers."""
    mechanism = Madlib(epsilon=3.0, vectors=small_vectors)
    words = mechanism.words
    texts = pa.array(["good wordaa the", "don't good", None, "", "wordba unknownword 17 good"])
    keys = [bytes([i]) * 32 for i in range(5)]
    released = release_with_keys(mechanism, texts, pa.array(keys, pa.binary(32)))
    assert released.positions.to_pylist() == [3, 2, 0, 0, 4]
    known = [["good", "wordaa", "the"], ["don't", "good"], None, [], ["wordba", words.words[0], words.words[0], "good"]]
    for key, row, text in zip(keys, known, released.text.to_pylist(), strict=True):
        if row is None:
            assert text is None
            continue
        expected = []
        for position, word in enumerate(row):
            place = pa.array([key], pa.binary(32)), pa.array([0], pa.uint32()), pa.array([position], pa.uint64())
            noise = pa.array(_kernel.radial_noise(*place, madlib.VECTOR, 8)).to_numpy()
            moved = noise / (3.0 * words.scale) + words.vectors[words.index[word]]
            z = [int(v) for v in np.rint(moved * 2.0**mechanism.search.bits)]
            far = [
                sum((2**mechanism.search.bits * int(y) - x) ** 2 for y, x in zip(vector, z, strict=True))
                for vector in words.vectors
            ]
            expected.append(words.words[far.index(min(far))])
        assert text == " ".join(expected)


def test_draws_side_by_side_are_those_of_one_thread(small_vectors, monkeypatch):
    mechanism = Madlib(epsilon=3.0, vectors=small_vectors)
    texts = pa.array(["good wordaa the wordba"] * 30)
    keys = pa.array([bytes([at]) * 32 for at in range(30)], pa.binary(32))
    monkeypatch.setenv("DPTEXT_THREADS", "1")
    alone = release_with_keys(mechanism, texts, keys).text
    monkeypatch.setattr(search, "ROWS", 16)
    monkeypatch.setenv("DPTEXT_THREADS", "3")
    assert release_with_keys(mechanism, texts, keys).text.equals(alone)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 12.0])
def test_survival_is_an_upper_bound(small_vectors, epsilon):
    mechanism = Madlib(epsilon=epsilon, vectors=small_vectors)
    n = 4000
    for word in ("good", "wordaa", "wordcz", "don't"):
        seen = sampled(mechanism, word, n)[word]
        bound = float(mechanism.survival(word))
        assert stats.binom.sf(seen - 1, n, bound) > 1e-9
        assert bound <= mechanism.largest_probability() < 1
    two = Madlib(epsilon=8.0, vectors=small_vectors)
    assert two.survival("good") >= Madlib(epsilon=1.0, vectors=small_vectors).survival("good") >= Fraction(49, 100)


def test_of_words_at_one_place_only_the_first_comes_back(small_vectors):
    mechanism = Madlib(epsilon=40.0, vectors=small_vectors)
    first, later = mechanism.words.words[50], mechanism.words.words[53]
    assert (mechanism.words.vectors[50] == mechanism.words.vectors[53]).all()
    assert mechanism.survival(later) == 0
    counts = sampled(mechanism, later, 2000)
    assert counts[later] == 0
    assert counts[first] > 1000
    assert stats.binom.sf(counts[first] - 1, 2000, float(mechanism.survival(first))) > 1e-9
    assert stats.binom.sf(counts[first] - 1, 2000, mechanism.largest_probability()) > 1e-9


def test_survival_on_a_line_is_close_to_the_cell(placed):
    mechanism = placed(LINE[[0, 4]], 0.5)
    exact = 1 - math.exp(-0.5 * 4) / 2
    for word in mechanism.input_words():
        assert exact <= float(mechanism.survival(word)) <= exact + 1e-4
    assert placed(np.array([[2.0], [2.0]]), 1.0).survival("wa") == 1
    assert placed(np.array([[2.0], [2.0]]), 1.0).largest_probability() == 1


@pytest.mark.parametrize("epsilon", [0.1, 3.0, 40.0])
def test_what_is_claimed_and_charged(small_vectors, epsilon):
    mechanism = Madlib(epsilon=epsilon, vectors=small_vectors)
    guarantee, spend = mechanism.guarantee, mechanism.spend(7)
    assert guarantee.guarantee_class == GuaranteeClass.COND_PURE
    assert guarantee.disclosures == {Disclosure.LENGTH, Disclosure.NULLNESS}
    assert IDEAL in guarantee.assumptions
    assert IDEAL in spend.assumptions
    squared = mechanism.words.squared_distances(slice(None), slice(None)).max()
    diameter = math.sqrt(squared) * mechanism.words.scale
    charged = Fraction(spend.eps_pure, 10**6)
    assert charged >= Fraction(7) * Fraction(repr(epsilon)) * Fraction(diameter)
    assert float(charged) == pytest.approx(7 * epsilon * diameter, abs=2e-6)
    assert spend.eps_tight == spend.eps_approx == spend.eps_pure
    assert spend.delta == 0
    assert spend.mu2 == math.inf
    assert spend.rho / 1e6 == pytest.approx(7 * (epsilon * diameter) ** 2 / 2, rel=1e-9, abs=2e-6)
    assert spend.eps_metric == pytest.approx(epsilon * 1e6)
    assert spend.metric_id == "euclidean"
    assert spend.diameter == math.ceil(diameter * 1e6)
    assert mechanism.epsilon_table is None
    assert mechanism.described() == {}


def test_aligned_never_costs_more_than_asked(small_vectors):
    for epsilon in (0.1, 1.0, 3.0, 17.3):
        mechanism = Madlib.aligned(epsilon, vectors=small_vectors)
        assert mechanism.epsilon_per_word <= Fraction(repr(epsilon))
        assert float(mechanism.epsilon_per_word) == pytest.approx(epsilon)
        assert mechanism.spend(4).eps_pure <= 4 * epsilon * 1e6 + 1e-6


def test_a_law_is_refused_with_what_is_near_to_it(small_vectors):
    mechanism = Madlib(epsilon=1.0, vectors=small_vectors)
    with pytest.raises(PolicyError, match="fractions") as caught:
        mechanism.transition("good")
    assert "sample_many" in caught.value.hint
    for word in ("unknownword", "17"):
        assert mechanism.survival(word) == mechanism.simulated_survivals(word, 9) == 0
        assert sample_many(mechanism, word, 3, secret=SECRET)
    for word in ("two words", ""):
        with pytest.raises(PolicyError):
            mechanism.survival(word)
        with pytest.raises(PolicyError):
            sample_many(mechanism, word, 3)


def test_noise_beyond_exact_numbers_is_refused(small_vectors):
    with pytest.raises(PolicyError, match="larger epsilon"):
        sample_many(Madlib(epsilon=1e-12, vectors=small_vectors), "good", 1)


@pytest.mark.parametrize("options", [{"length": "fixed"}, {"length": "noisy", "epsilon_length": 2.0}])
def test_a_hidden_length(small_vectors, options):
    mechanism = Madlib(epsilon=2.0, vectors=small_vectors, n_max=6, **options)
    assert mechanism.guarantee.guarantee_class == GuaranteeClass.COND_PURE, "its noise is no exact draw"
    assert mechanism.guarantee.disclosures == {Disclosure.NULLNESS}
    texts = pa.array(["good", "", "wordaa " * 30, "unknownword 4", None])
    keys = pa.array([bytes([9]) * 32] * 5, pa.binary(32))
    released = release_with_keys(mechanism, texts, keys)
    assert released.positions.to_pylist() == [6, 6, 6, 6, 0]
    counts = Counter(sample_many(mechanism, PAD, 3000, secret=SECRET))
    assert 0 < counts[PAD] < 3000
    assert stats.binom.sf(counts[PAD] - 1, 3000, float(mechanism.survival(PAD))) > 1e-9
    assert (mechanism.metric_claim is None) == (options["length"] == "noisy")
    plain = Madlib(epsilon=2.0, vectors=small_vectors)
    assert mechanism.diameter >= plain.diameter


def test_faithful_keeps_punctuation_and_drops_unknown_words(small_vectors):
    mechanism = Madlib(epsilon=1000.0, vectors=small_vectors, mode="faithful")
    released = release_with_keys(
        mechanism, pa.array(["good, unknownword; wordaa 17!"]), pa.array([bytes(32)], pa.binary(32))
    )
    text = released.text[0].as_py()
    assert "unknownword" not in text
    assert "17" not in text
    assert text.startswith("good,")
    assert Disclosure.OOV not in mechanism.guarantee.disclosures
    assert Disclosure.OOV_FLAG in mechanism.guarantee.disclosures, "the number of words reveals it"
