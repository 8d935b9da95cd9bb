"""The query attack against laws whose answer can be counted by hand, and against releases that answer alike."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dptext_etl import _kernel
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.families.words import sample_many
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.mechanisms.diffractor import Diffractor
from dptext_etl.mechanisms.madlib import Madlib
from dptext_etl.mechanisms.santext import SanText
from dptext_etl_eval import queries_needed, replays_seen
from dptext_etl_eval.attacks.query import success_probability


def exactly(chances, queries):
    """P[output 0 is the most frequent], ties at random, by enumeration of all counts."""
    total, m = 0.0, len(chances)
    for counts in itertools.product(range(queries + 1), repeat=m):
        if sum(counts) != queries:
            continue
        ways = math.factorial(queries) / math.prod(map(math.factorial, counts))
        chance = ways * math.prod(p**c for p, c in zip(chances, counts, strict=True))
        winners = [place for place, count in enumerate(counts) if count == max(counts)]
        total += chance * (0 in winners) / len(winners)
    return total


@pytest.mark.parametrize("chances", [(0.6, 0.4), (0.5, 0.3, 0.2), (0.34, 0.33, 0.33), (0.2, 0.3, 0.5)])
@pytest.mark.parametrize("queries", [1, 2, 3, 7, 12])
def test_estimates_agree_with_enumeration(chances, queries):
    found = success_probability(np.array(chances), 0, queries, 20_000, np.random.default_rng(1))
    assert found == pytest.approx(exactly(chances, queries), abs=5 * 0.5 / math.sqrt(20_000))


def test_few_and_many_draws_are_counted_alike():
    """Below and above the size of the law, where the simulation changes its way of counting."""
    chances = np.array([0.12, *[0.88 / 11] * 11])
    rates = [success_probability(chances, 0, n, 20_000, np.random.default_rng(n)) for n in (11, 12)]
    assert rates[0] == pytest.approx(rates[1], abs=0.03)


@pytest.mark.parametrize("epsilon", [2.0, 4.0, 8.0])
def test_the_smallest_number_is_the_smallest(small_vectors, epsilon):
    mechanism = CusText(epsilon=epsilon, k=5, vectors=small_vectors)
    found = queries_needed(mechanism, "good", repeats=4_000)
    assert found.exact
    assert found.stays == pytest.approx(float(mechanism.survival("good")))
    outputs, law = mechanism.transition("good")
    chances = np.array(list(map(float, law)))
    at = outputs.index("good")
    better = success_probability(chances, at, found.queries, 40_000, np.random.default_rng(5))
    fewer = success_probability(chances, at, max(1, found.queries * 3 // 4), 40_000, np.random.default_rng(6))
    assert better > 0.94
    assert fewer < 0.95


def test_a_larger_epsilon_needs_fewer_queries(small_vectors):
    needed = [queries_needed(CusText(epsilon=e, k=10, vectors=small_vectors), "good").queries for e in (1.0, 3.0, 9.0)]
    assert needed[0] > needed[1] > needed[2] >= 1


def test_a_word_that_is_not_its_likeliest_output_is_never_found(small_vectors, tmp_path):
    np.savez(tmp_path / "same.npz", words=np.array(["a", "b", "c", "d"]), vectors=np.ones((4, 3), np.float32))
    found = queries_needed(CusText(epsilon=3.0, k=2, vectors=str(tmp_path / "same.npz")), "a")
    assert found.queries is None
    assert found.success <= 0.5
    unknown = queries_needed(CusText(epsilon=3.0, k=5, vectors=small_vectors), "nonesuch")
    assert (unknown.queries, unknown.stays) == (None, 0.0)


def test_beyond_the_limit_it_says_so(small_vectors):
    found = queries_needed(CusText(epsilon=0.5, k=20, vectors=small_vectors), "good", limit=4, repeats=200)
    assert found.queries is None
    assert 0 < found.success < 0.95


def test_a_law_without_fractions_is_sampled(small_vectors, monkeypatch):
    mechanism = CusText(epsilon=6.0, k=5, vectors=small_vectors)
    exact = queries_needed(mechanism, "good")

    def lawless(self, word):
        raise PolicyError("no fractions")

    monkeypatch.setattr(CusText, "transition", lawless)
    sampled = queries_needed(mechanism, "good")
    assert not sampled.exact
    assert sampled.stays == pytest.approx(exact.stays, abs=0.02)
    assert abs(sampled.queries - exact.queries) <= 2


def test_out_of_range(small_vectors):
    mechanism = CusText(epsilon=1.0, k=5, vectors=small_vectors)
    for wrong in ({"share": 1.0}, {"repeats": 0}, {"limit": 0}):
        with pytest.raises(InputError):
            queries_needed(mechanism, "good", **wrong)
    with pytest.raises(PolicyError):
        queries_needed(mechanism, "two words")


def test_asking_a_release_again_tells_nothing_new(small_vectors, monkeypatch):
    """Keyed replay: a thousand queries are one draw, although independent draws of the word do differ."""
    secret = _kernel.Secret.from_bytes(bytes(range(3, 35)))
    for kind in (Madlib, SanText, Diffractor, CusText):
        mechanism = kind(epsilon=2.0, vectors=small_vectors)
        assert replays_seen(mechanism, "good", 1_000, secret) == 1
        assert len(set(sample_many(mechanism, "good", 200))) > 1
    honest, again = CusText.release, itertools.count()
    ids = lambda texts: pa.array([str(next(again)) for _ in range(len(texts))])
    monkeypatch.setattr(
        CusText, "release", lambda self, texts, keys: honest(self, texts, replace(keys, ids=ids(texts)))
    )
    assert replays_seen(mechanism, "good", 1_000, secret) > 1
