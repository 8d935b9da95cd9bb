"""SanText's laws, enumerated from the integers that the kernel draws from, and its draws, one by one.

Specification: docs/spec/privacy.md#e4, docs/spec/privacy.md#e5, docs/spec/stream.md#draws.

The path that releases texts groups words, weighs each once and draws by blocks and threads. `alone` draws every word
separately, from its explicit weights, at the place of the word in the stream of its record.
"""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.embeddings import WordVectors
from dptext_etl.errors import PolicyError
from dptext_etl.families import distance
from dptext_etl.families.distance import rounding_within_slack
from dptext_etl.families.words import UNKNOWN
from dptext_etl.guarantee import Disclosure, GuaranteeClass
from dptext_etl.mechanism import PAD
from dptext_etl.mechanisms.santext import SanText
from dptext_etl.sampling import epsilon_implemented, integer_weights, smallest_weight

from .fixed_keys import release_with_keys

FIXED = {"length": "fixed", "n_max": 5}
KEYS = pa.array([bytes(range(at, at + 32)) for at in (50, 60, 70)], pa.binary(32))
CODES = pa.large_string()


def law(mechanism):
    """Logarithms of all probabilities and all distances, from integers: shapes (inputs, outputs), (inputs, inputs)."""
    weights = mechanism.pair_weights.weights(np.arange(len(mechanism.words)))
    totals = weights.sum(axis=1)
    logs = np.log(weights.astype(float)) - np.log(totals.astype(float))[:, None]
    squared = mechanism.words.squared_distances(slice(None), slice(None))
    return logs, np.sqrt(squared.astype(float)) * mechanism.words.scale


def beyond_metric(mechanism):
    """Largest log ratio beyond epsilon times the distance, over every x, x' and y, one y at a time."""
    logs, distances = law(mechanism)
    allowed = mechanism.epsilon * distances
    return max(float((column[:, None] - column[None, :] - allowed).max()) for column in logs.T)


@pytest.mark.parametrize("options", [{}, FIXED], ids=["disclose", "fixed"])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 6.0])
def test_e4_every_pair_of_words_and_every_output(small_vectors, epsilon, options):
    mechanism = SanText(epsilon=epsilon, vectors=small_vectors, **options)
    logs, distances = law(mechanism)
    per_word = float(mechanism.epsilon_per_word)
    assert per_word == epsilon * mechanism.diameter
    assert mechanism.diameter == distances.max()
    worst = float((logs.max(axis=0) - logs.min(axis=0)).max())
    assert worst <= mechanism.epsilon_table + 1e-12
    uniform = -math.log(logs.shape[1])
    unknown = float(np.abs(logs - uniform).max())
    assert unknown <= per_word / 2
    assert max(worst, unknown) <= mechanism.epsilon_table + 1e-12
    assert mechanism.epsilon_table <= mechanism.epsilon_tight + 1e-12
    assert mechanism.epsilon_tight == epsilon_implemented(per_word, logs.shape[1]) <= per_word
    assert mechanism.epsilon_table == pytest.approx(max(worst, unknown), abs=1e-9)
    assert beyond_metric(mechanism) <= 0
    assert mechanism.metric_claim == (epsilon, "euclidean", mechanism.diameter)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_published_formula(small_vectors, epsilon):
    """p(y | x) = exp(-epsilon |x - y| / 2) / sum, from the real coordinates, worked out in fractions of floats here."""
    mechanism = SanText(epsilon=epsilon, vectors=small_vectors)
    vectors = WordVectors.load(small_vectors)
    real = vectors.vectors.astype(float) * vectors.scale
    for word in ("wordaa", "good", "don't", "wordby"):
        away = [math.dist(real[vectors.index[word]], other) for other in real]
        scores = [math.exp(-epsilon * one / 2) for one in away]
        outputs, probabilities = mechanism.transition(word)
        assert tuple(outputs) == vectors.words
        assert sum(probabilities) == 1
        assert [float(p) for p in probabilities] == pytest.approx([s / math.fsum(scores) for s in scores], rel=1e-9)
        assert mechanism.survival(word) == probabilities[vectors.index[word]]


def test_rows_are_those_of_the_sampling_module(small_vectors):
    mechanism = SanText(epsilon=4.0, vectors=small_vectors)
    _, distances = law(mechanism)
    expected = integer_weights(-distances, mechanism.pair_weights.exponent, low=-mechanism.diameter, high=0.0)
    assert (mechanism.pair_weights.weights(np.arange(103)) == expected).all()


def test_no_weight_vanishes_at_any_epsilon(small_vectors):
    """Where floats would give probabilities of exactly zero, every output keeps its least weight."""
    mechanism = SanText(epsilon=1e6, vectors=small_vectors)
    weights = mechanism.pair_weights.weights(np.arange(103))
    assert weights.min() == smallest_weight(mechanism.pair_weights.exponent, 103) == 1
    assert np.exp(-1e6 * law(mechanism)[1] / 2).min() == 0.0
    assert mechanism.epsilon_table <= mechanism.epsilon_tight < 80 < mechanism.epsilon_per_word
    assert mechanism.metric_claim is None


@pytest.mark.parametrize("options", [{}, FIXED], ids=["disclose", "fixed"])
def test_certificates_hold_where_they_are_given(small_vectors, options):
    """Both certificates against all triples; somewhere only one of them speaks, and somewhere neither does."""
    spoken = set()
    for epsilon in (0.01, 1.0, 4.0, 6.0, 8.0, 10.0, 12.0, 20.0, 40.0):
        mechanism = SanText(epsilon=epsilon, vectors=small_vectors, **options)
        found = mechanism.pair_weights
        closed = rounding_within_slack(epsilon, found.diameter, found.inputs.scale, len(found.outputs))
        full = found.certificate() <= 0
        assert full or not closed, "what the closed form says, the pairs say too"
        assert (mechanism.metric_claim is not None) == full == found.is_metric()
        if full:
            assert beyond_metric(mechanism) <= 0
        assert mechanism.spend(3).eps_metric == (math.ceil(epsilon * 1e6) if full else math.inf)
        spoken.add((closed, full))
    assert spoken == {(True, True), (False, True), (False, False)}


def test_integers_that_break_the_metric_bound_are_seen(tmp_path):
    """A far word has weight 2 for one of two near words and 1 for the other: ln 2 against epsilon times one step."""
    places = np.array([[0], [1], [3000], [-500]], np.float32)
    np.savez(tmp_path / "v.npz", words=np.array(["a", "b", "c", "d"]), vectors=places)
    mechanism = SanText(epsilon=math.log(2**46 / 1.99) / 1500, vectors=str(tmp_path / "v.npz"))
    assert mechanism.pair_weights.weights(np.array([0, 1]))[:, 2].tolist() == [1, 2]
    assert beyond_metric(mechanism) == pytest.approx(math.log(2) - mechanism.epsilon, abs=1e-4)
    assert mechanism.metric_claim is None
    assert mechanism.spend(1).eps_metric == math.inf
    assert mechanism.spend(1).metric_id is None


@pytest.mark.thorough
def test_the_embedded_vocabulary_is_certified():
    """All pairs of the 20,000 words and the padding, from realized integers; the closed form says the same at once."""
    mechanism = SanText(epsilon=4.0, **FIXED)
    assert len(mechanism.words) == 20_001
    assert mechanism.pair_weights.settled
    assert mechanism.pair_weights.certificate() < 0
    assert mechanism.epsilon_table <= mechanism.epsilon_tight <= 4.0 * mechanism.diameter


def listed(tmp_path, words):
    path = tmp_path / "sensitive.txt"
    path.write_text("\n".join(words))
    return str(path)


@pytest.mark.parametrize("p", [0.2, 0.7])
@pytest.mark.parametrize("epsilon", [1.0, 6.0])
def test_e5_protected_outputs_of_plus(small_vectors, epsilon, p):
    mechanism = SanText(epsilon=epsilon, variant="plus", p=p, vectors=small_vectors)
    words = WordVectors.load(small_vectors)
    protected = words.words[-52:]  # half of 103, rounded up
    assert tuple(mechanism.pair_weights.outputs.words) == protected
    rows = {word: dict(zip(*mechanism.transition(word), strict=True)) for word in (*words.words, "nonesuch")}
    for word, row in rows.items():
        assert sum(row.values()) == 1
        assert set(row) == {*protected, word} & {*words.words} | set(protected)
        if word in words.index and word not in protected:
            assert row[word] == 1 - Fraction(repr(p)) == mechanism.survival(word)
    _, distances = law(mechanism)
    for y in protected:
        column = np.log([float(rows[x][y]) for x in words.words])
        allowed = epsilon * distances + math.log(1 / p)
        assert (column[:, None] - column[None, :] <= allowed + 1e-9).all()
    cost = mechanism.spend(4)
    assert cost.guarantee_class is GuaranteeClass.UMLDP is mechanism.guarantee.guarantee_class
    assert math.inf == cost.eps_pure == cost.eps_tight == cost.eps_approx == cost.rho == cost.mu2 == cost.eps_metric
    assert Disclosure.SENS_CLASS in cost.disclosures
    assert mechanism.spend(0).eps_pure == 0
    assert mechanism.epsilon_table is None
    assert mechanism.largest_probability() == 1.0


@pytest.mark.parametrize("options", [{}, FIXED], ids=["disclose", "fixed"])
def test_e5_plus_with_p_one_is_santext_onto_the_sensitive_words(small_vectors, tmp_path, options):
    path = listed(tmp_path, ["good", "wordcv", "the", "wordaa", "not-in-the-vocabulary"])
    mechanism = SanText(epsilon=3.0, variant="plus", p=1.0, sensitive=path, vectors=small_vectors, **options)
    words = WordVectors.load(small_vectors)
    outputs = ["wordaa", "wordcv", "the", "good", *([PAD] if options else [])]
    real = {word: words.vectors[words.index[word]] * words.scale for word in words.words} | {PAD: np.zeros(8)}
    for word in ("wordab", "good", *([PAD] if options else [])):
        scores = [math.exp(-1.5 * math.dist(real[word], real[other])) for other in outputs]
        found, probabilities = mechanism.transition(word)
        assert found == outputs
        assert [float(p) for p in probabilities] == pytest.approx([s / math.fsum(scores) for s in scores], rel=1e-9)
    assert mechanism.transition("nonesuch") == (outputs, [Fraction(1, len(outputs))] * len(outputs))
    logs, _ = law(mechanism)
    worst = float((logs.max(axis=0) - logs.min(axis=0)).max())
    assert worst <= mechanism.epsilon_table + 1e-12 <= float(mechanism.epsilon_per_word) + 1e-12
    assert mechanism.guarantee.guarantee_class is (GuaranteeClass.PURE_LDP if options else GuaranteeClass.COND_PURE)
    assert Disclosure.SENS_CLASS not in mechanism.guarantee.disclosures
    assert mechanism.metric_claim is None
    assert mechanism.output_words() == {"wordaa", "wordcv", "the", "good"}
    assert mechanism.survival("wordab") == 0


def test_spend_row(small_vectors):
    mechanism = SanText(epsilon=2.0, vectors=small_vectors)
    per_word = Fraction(repr(2.0 * mechanism.diameter))
    cost = mechanism.spend(8)
    assert cost.eps_pure == cost.eps_approx == math.ceil(8 * per_word * 10**6)
    assert cost.rho == math.ceil(8 * per_word**2 / 8 * 10**6)
    assert cost.guarantee_class is GuaranteeClass.COND_PURE
    assert cost.disclosures == {Disclosure.LENGTH, Disclosure.NULLNESS}
    assert (cost.eps_metric, cost.metric_id) == (2_000_000, "euclidean")
    assert cost.diameter / 1e6 == pytest.approx(mechanism.diameter, abs=1e-6)
    assert cost.eps_tight <= cost.eps_pure
    assert mechanism.spend(0).eps_pure == mechanism.spend(0).eps_metric == 0


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 1 / 3])
def test_aligned_never_costs_more_than_asked(small_vectors, epsilon):
    mechanism = SanText.aligned(epsilon, vectors=small_vectors, length="fixed", n_max=4)
    assert mechanism.length == "fixed"
    assert mechanism.epsilon_per_word <= epsilon
    assert mechanism.epsilon_per_word == pytest.approx(epsilon, rel=1e-12)
    assert mechanism.epsilon == pytest.approx(epsilon / mechanism.diameter, rel=1e-12)


@pytest.mark.parametrize("variant", ["plain", "plus"])
def test_faithful_is_the_published_code_and_never_published(small_vectors, variant):
    mechanism = SanText(mode="faithful", variant=variant, vectors=small_vectors)
    assert (mechanism.epsilon, mechanism.p) == (15.0, 0.2)
    outputs, probabilities = mechanism.transition("nonesuch")
    assert set(probabilities) == {Fraction(1, len(outputs))}
    released = release_with_keys(mechanism, pa.array(["Nonesuch, 12 zzqx!"], CODES), KEYS.slice(0, 1)).text[0].as_py()
    assert not {"nonesuch", "12", "zzqx"} & set(released.lower().replace(",", "").replace("!", "").split())
    assert "," in released
    assert {Disclosure.PUNCT, Disclosure.CASE} <= mechanism.guarantee.disclosures
    assert not {Disclosure.OOV, Disclosure.NUMBERS} & mechanism.guarantee.disclosures
    assert mechanism.metric_claim is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"p": 0.5}, 'only for variant "plus"'),
        ({"sensitive_share": 0.1}, 'only for variant "plus"'),
        ({"variant": "plus", "sensitive": "x.txt", "sensitive_share": 0.1}, "not by both"),
        ({"variant": "plus", "p": 0.0}, "must be above 0"),
        ({"variant": "plus", "p": 1e-20}, "at most 18 decimals"),
        ({"variant": "plus", "length": "fixed", "n_max": 9}, "would hide nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(small_vectors, options, said):
    from dptext_etl import catalog

    with pytest.raises(PolicyError, match=said):
        catalog.build({"name": "santext", "epsilon": 1.0, "vectors": small_vectors, **options})


def test_too_few_outputs(small_vectors, tmp_path):
    one = SanText(epsilon=1.0, variant="plus", vectors=small_vectors, sensitive=listed(tmp_path, ["good"]))
    with pytest.raises(PolicyError, match="1 words could be drawn"):
        one.transition("good")
    with pytest.raises(PolicyError, match="at least 2"):
        SanText(epsilon=1.0, vectors=small_vectors, limit=1).transition("wordaa")


def test_equal_vectors_are_drawn_uniformly(tmp_path):
    np.savez(tmp_path / "same.npz", words=np.array(["a", "b", "c"]), vectors=np.ones((3, 2), np.float32))
    mechanism = SanText(epsilon=3.0, vectors=str(tmp_path / "same.npz"))
    assert set(mechanism.transition("a")[1]) == {Fraction(1, 3)}
    assert mechanism.epsilon_table == 0.0
    assert beyond_metric(mechanism) <= 0


def test_another_epsilon_is_another_law(small_vectors):
    """A copy with other parameters keeps nothing that the old ones decided."""
    mechanism = SanText(epsilon=1.0, vectors=small_vectors)
    mechanism.pair_weights.weights(np.arange(3))
    copied = mechanism.model_copy(update={"epsilon": 3.0})
    fresh = SanText(epsilon=3.0, vectors=small_vectors)
    assert copied.transition("good") == fresh.transition("good") != mechanism.transition("good")
    assert copied.spend(2) == fresh.spend(2)


def test_the_search_for_a_certificate_ends_where_it_fails(monkeypatch):
    monkeypatch.setattr(distance, "CELLS", 400)
    mechanism = SanText(epsilon=40.0, limit=400)
    blocks = []
    cut = distance.PairWeights.blocks
    monkeypatch.setattr(distance.PairWeights, "blocks", lambda *given: (blocks.append(b) or b for b in cut(*given)))
    assert mechanism.pair_weights.certificate() > 0
    assert len(blocks) < 400


RECORDS = [bytes(range(at, at + 32)) for at in (50, 61, 72, 83)]
TEXTS = [
    "good the wordaa nonesuch good good wordbx",
    "The GOOD, wordaa!  42 wordcc wordcd",
    "",
    "good good good good good good good good good good good good good good good good good good good good",
]


def record_keys(keys=RECORDS):
    return pa.array(keys, pa.binary(32))


def texts(given=TEXTS):
    return pa.array(given, pa.large_string())


def words_of(text):
    return [word.lower() for word, is_word in _kernel.split(text) if is_word]


def overflow(key, purpose, position):
    """The overflow words of a position, in sequence."""
    at = 0
    while True:
        yield from _kernel.stream_words(key, purpose | 2**31, position, at, 8)
        at += 8


def coin(key, position, p):
    """Bernoulli(p), docs/spec/stream.md#discrete-laplace: purpose 3, width 0, an integer below p's denominator."""
    share = Fraction(repr(p))
    bound = 2**64 // share.denominator * share.denominator
    word = next(word for word in overflow(key, 3, position) if word < bound)
    return word % share.denominator < share.numerator


def alone(mechanism, key, text):
    """The release of one text, drawn word by word; independent of the mechanism's `choose`."""
    words, outputs = mechanism.words, list(mechanism.pair_weights.outputs.words)
    columns = [words.index[word] for word in outputs]
    width = 2 if len(outputs) > 4_096 else 1
    released = []
    for position, word in enumerate(words_of(text)):
        if word not in words.index:
            released.append(outputs[_kernel.below(key, 1, position, len(outputs), width)])
        elif mechanism.shows_words and word not in outputs and not coin(key, position, mechanism.p):
            released.append(word)
        else:
            squared = words.squared_distances([words.index[word]], columns)[0].astype(float)
            scores = -(np.sqrt(squared) * words.scale)
            weights = integer_weights(scores, mechanism.pair_weights.exponent, low=-mechanism.diameter, high=0.0)
            released.append(outputs[_kernel.draw(key, 1, position, weights.tolist(), width)])
    return " ".join(released)


def matches(mechanism, given=TEXTS, keys=RECORDS):
    """Whether a batch is released as its texts are separately, and again, when rows of its words are kept."""
    released = release_with_keys(mechanism, texts(given), record_keys(keys)).text.to_pylist()
    again = release_with_keys(mechanism, texts(given), record_keys(keys)).text.to_pylist()
    return released == again == [alone(mechanism, key, text) for key, text in zip(keys, given, strict=True)]


VARIANTS = [
    {},
    {"variant": "plus", "p": 1.0},
    {"variant": "plus", "p": 0.3},
    {"variant": "plus", "p": 0.3, "sensitive_share": 0.9},
]


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_every_word_is_drawn_as_alone(small_vectors, epsilon, options):
    assert matches(SanText(epsilon=epsilon, vectors=small_vectors, **options))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """5,000 words: draws of two levels."""
    random = np.random.default_rng(11)
    words = np.array([*(f"w{chr(97 + i // 676)}{chr(97 + i // 26 % 26)}{chr(97 + i % 26)}" for i in range(5_000))])
    path = tmp_path_factory.mktemp("many") / "many.npz"
    np.savez(path, words=words, vectors=random.normal(size=(5_000, 4)).astype(np.float32))
    return str(path)


@pytest.mark.parametrize("options", [{}, {"variant": "plus", "p": 0.5, "sensitive_share": 0.9}])
def test_two_levels_above_4096_words(many, options):
    mechanism = SanText(epsilon=1.0, vectors=many, **options)
    assert mechanism.pair_weights.width == 2
    assert matches(mechanism, ["waaa wbbc zzz waaa waab wfxh", "weee wdef unknown", "waaa", "wabc waaa"])


@pytest.mark.parametrize("options", [*VARIANTS, {"length": "fixed", "n_max": 9}])
@pytest.mark.parametrize(("cells", "threads"), [(1, "3"), (200, "1")])
def test_batch_order_blocks_and_threads_change_nothing(small_vectors, options, cells, threads, monkeypatch):
    mechanism = SanText(epsilon=4.0, vectors=small_vectors, **options)
    whole = release_with_keys(mechanism, texts(), record_keys()).text.to_pylist()
    monkeypatch.setattr(distance, "CELLS", cells)
    monkeypatch.setattr(distance, "AT_ONCE", min(cells, 8))
    monkeypatch.setenv("DPTEXT_THREADS", threads)
    mechanism = SanText(epsilon=4.0, vectors=small_vectors, **options)  # without kept rows
    assert release_with_keys(mechanism, texts(), record_keys()).text.to_pylist() == whole
    backwards = release_with_keys(mechanism, texts(TEXTS[::-1]), record_keys(RECORDS[::-1])).text.to_pylist()
    assert backwards == whole[::-1]
    for key, text, expected in zip(RECORDS, TEXTS, whole, strict=True):
        assert release_with_keys(mechanism, texts([text]), record_keys([key])).text.to_pylist() == [expected]


@pytest.mark.parametrize("largest", [3, 65_534, 65_535, 65_536, 300_000])
def test_draws_are_sorted_by_word_unknown_ones_last(largest):
    words = np.random.default_rng(2).integers(0, largest + 1, 5_000).astype(np.uint32)
    words[::7] = UNKNOWN
    words[3] = largest
    draws = distance.Draws(record_keys(), np.arange(5_000, dtype=np.uint32), np.arange(5_000, dtype=np.uint64), words)
    assert (draws.by_word() == np.argsort(words, kind="stable")).all()


def test_the_width_of_the_product_changes_nothing(small_vectors):
    """float32 and float64 products of the same grid are the same integers, so the same weights and draws."""
    mechanism = SanText(epsilon=4.0, limit=300)
    assert mechanism.words.floats.dtype == np.float32
    narrow = release_with_keys(mechanism, texts(), record_keys())
    fresh = SanText(epsilon=4.0, limit=300)
    distance.shared_vocabulary.cache_clear()
    fresh.words.__dict__["floats"] = fresh.words.floats.astype(np.float64)
    try:
        assert release_with_keys(fresh, texts(), record_keys()).text.equals(narrow.text)
    finally:
        distance.shared_vocabulary.cache_clear()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.data())
def test_draws_are_numbered_by_record_and_position(counts, data):
    first = data.draw(st.integers(0, len(counts)))
    last = data.draw(st.integers(first, len(counts)))
    offsets = np.cumsum([0, *counts]).astype(np.uint64)
    found = distance.number_draws(np.arange(offsets[-1], dtype=np.uint32), offsets, None, first, last)
    expected = [(record, place) for record in range(first, last) for place in range(counts[record])]
    assert list(zip(found.records.tolist(), found.positions.tolist(), strict=True)) == expected
    assert found.words.tolist() == list(range(offsets[first], offsets[last]))
