"""CusText's tables, enumerated from the integers that the kernel draws from.

Specification: docs/spec/privacy.md#e2, docs/spec/privacy.md#e3.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import ColumnPolicy, _kernel, privatize
from dptext_etl.embeddings import WordVectors
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Disclosure, GuaranteeClass
from dptext_etl.mechanisms.custext import CusText, partition
from tests.score_oracle import epsilon_star

FAITHFUL = {"mode": "faithful"}


def rows_by_set(mechanism, words):
    """Exact distributions of `words`, grouped by their output set."""
    sets = {}
    for word in words:
        outputs, probabilities = mechanism.transition(word)
        sets.setdefault(tuple(outputs), {})[word] = probabilities
    return sets


@pytest.mark.parametrize("k", [2, 5, 20])
@pytest.mark.parametrize(("norm", "mode"), [("cluster", "strict"), ("cluster", "faithful"), ("row", "faithful")])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_e2_every_pair_of_words_stays_within_epsilon(small_vectors, k, norm, mode, metric, epsilon):
    mechanism = CusText(epsilon=epsilon, k=k, norm=norm, mode=mode, metric=metric, vectors=small_vectors)
    vocabulary = WordVectors.load(small_vectors).words
    if mode == "faithful" and len(vocabulary) % k == 1:
        vocabulary = [word for word in vocabulary if word in set(_kernel_inputs(mechanism))]
    sets = rows_by_set(mechanism, vocabulary)
    worst = 0.0
    for outputs, rows in sets.items():
        assert set(outputs) == set(rows), "output sets are the input sets: a partition"
        assert len(outputs) >= 2
        for a, b in itertools.product(rows.values(), repeat=2):
            ratio = max(p / q for p, q in zip(a, b, strict=True))
            worst = max(worst, math.log(ratio))
        assert all(sum(row) == 1 for row in rows.values())
    largest = max(map(len, sets))
    assert worst <= mechanism.epsilon_table + 1e-12
    assert mechanism.epsilon_table <= epsilon_star(epsilon, largest) + 1e-9 <= epsilon + 1e-9
    assert sum(map(len, sets)) == len(vocabulary)


def _kernel_inputs(mechanism):
    return _kernel.Table.open(str(mechanism.table.path), mechanism.table.sha256).input_words()


@pytest.mark.parametrize("k", [2, 5, 17, 20, 51, 103])
def test_strict_merges_the_remainder(small_vectors, k):
    sizes = sorted(
        map(len, rows_by_set(CusText(epsilon=1.0, k=k, vectors=small_vectors), WordVectors.load(small_vectors).words))
    )
    assert sizes[0] >= k
    assert sizes[-1] <= 2 * k - 1
    assert sum(sizes) == 103


def test_faithful_never_has_a_set_of_one(small_vectors):
    mechanism = CusText(epsilon=1.0, k=17, vectors=small_vectors, **FAITHFUL)  # 103 = 6 * 17 + 1
    assert len(_kernel_inputs(mechanism)) == 102


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("k", [2, 7, 20])
def test_the_partition_is_the_papers(small_vectors, metric, k):
    """Algorithm 1, one word at a time, on Python's integers and fractions."""
    vectors = WordVectors.load(small_vectors)
    grid = [list(map(int, row)) for row in vectors.vectors]

    def key(x, y):
        dot = sum(a * b for a, b in zip(grid[x], grid[y], strict=True))
        if metric == "euclidean":
            return sum((a - b) ** 2 for a, b in zip(grid[x], grid[y], strict=True))
        return Fraction(-dot * abs(dot), max(1, sum(b * b for b in grid[y])))

    unused, expected = list(range(len(grid))), []
    while len(unused) >= k:
        x, *others = unused
        near = sorted(others, key=lambda y: (key(x, y), y))[: k - 1]
        expected.append([x, *near])
        unused = [word for word in unused if word not in {x, *near}]
    if unused:
        expected.append(unused)
    assert [list(map(int, members)) for members in partition(vectors, k, metric)] == expected


def test_duplicate_vectors_are_drawn_uniformly(tmp_path):
    np.savez(tmp_path / "same.npz", words=np.array(["a", "b", "c", "d"]), vectors=np.ones((4, 3), np.float32))
    mechanism = CusText(epsilon=3.0, k=2, vectors=str(tmp_path / "same.npz"))
    for word in "abcd":
        assert set(mechanism.transition(word)[1]) == {Fraction(1, 2)}


def test_the_published_formula(small_vectors):
    """p(y|x) is proportional to exp(epsilon u / 2), u scaled by the extremes of the set (section 4 of the paper)."""
    mechanism = CusText(epsilon=3.0, k=103, vectors=small_vectors)
    vectors = WordVectors.load(small_vectors)
    real = vectors.vectors.astype(float)
    distances = np.linalg.norm(real[:, None] - real[None], axis=2)
    u = 1 - distances / distances.max()
    expected = np.exp(1.5 * u) / np.exp(1.5 * u).sum(axis=1, keepdims=True)
    for word in ("wordaa", "good", "don't"):
        outputs, probabilities = mechanism.transition(word)
        row = dict(zip(outputs, map(float, probabilities), strict=True))
        assert [row[w] for w in vectors.words] == pytest.approx(expected[vectors.index[word]], rel=1e-9)


def test_e3_plus_keeps_stopwords_and_says_so(small_vectors, tmp_path):
    listed = tmp_path / "stop.txt"
    listed.write_text("the\nof\ndon't\n")
    mechanism = CusText(epsilon=1.0, k=5, variant="plus", vectors=small_vectors, stopwords=str(listed))
    assert Disclosure.STOPWORDS in mechanism.guarantee.disclosures
    policy = ColumnPolicy(
        dataset="d",
        column="c",
        release="r",
        mechanism=mechanism,
        key="env:DPTEXT_SUITE_SECRET",
        allow={"cluster", "stopwords"},
    )
    text = "The good of Don\u2019t nonesuch the"
    [released] = privatize(pa.array([text]), pa.array(["1"]), policy).to_pylist()
    words = released.split(" ")
    assert [words[i] for i in (0, 2, 3, 5)] == ["the", "of", "don't", "the"]
    assert mechanism.positions(pa.array([text])).to_pylist() == [2]
    for word in ("the", "of", "don't"):
        assert mechanism.transition(word) == ([word], [1])


def test_unknown_words_are_uniform_over_the_vocabulary_and_a_class_of_their_own(small_vectors):
    mechanism = CusText(epsilon=1.0, k=5, vectors=small_vectors)
    outputs, probabilities = mechanism.transition("nonesuch")
    assert list(outputs) == list(WordVectors.load(small_vectors).words)
    assert set(probabilities) == {Fraction(1, 103)}
    assert mechanism.transition("12345") == (outputs, probabilities)


def test_disclosed_bits(small_vectors):
    facts = CusText(epsilon=1.0, k=103, vectors=small_vectors).described()["table"]
    assert float(facts["disclosed_bits_per_token"]) == 0.0
    sizes = [20] * 4 + [23]
    entropy = -sum(s / 103 * math.log2(s / 103) for s in sizes)
    facts = CusText(epsilon=1.0, k=20, vectors=small_vectors).described()["table"]
    assert float(facts["disclosed_bits_per_token"]) == pytest.approx(entropy)


def test_spend_row(small_vectors):
    mechanism = CusText(epsilon=3.0, k=20, vectors=small_vectors)
    cost = mechanism.spend(8)
    assert (cost.eps_pure, cost.eps_approx, cost.delta, cost.rho) == (24_000_000, 24_000_000, 0, 9_000_000)
    assert cost.guarantee_class is GuaranteeClass.COND_PURE
    assert cost.disclosures == {Disclosure.LENGTH, Disclosure.NULLNESS, Disclosure.CLUSTER}
    assert cost.eps_tight / 1e6 == pytest.approx(8 * mechanism.epsilon_table, abs=2e-6)
    assert mechanism.spend(0).eps_pure == 0


def test_k_beyond_the_vocabulary(small_vectors):
    with pytest.raises(PolicyError, match="103 words"):
        CusText(epsilon=1.0, k=104, vectors=small_vectors).table.sha256  # noqa: B018
