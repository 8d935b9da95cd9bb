"""Agreement among equal texts: bounds hold for correct draws of every law, shared draws are found, and no others."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from dptext_etl import load
from dptext_etl.checks.comparison import Repeats
from dptext_etl.checks.gates.record_gates import PairedCanaries, prefix_digests, prefix_words
from dptext_etl.checks.text_counts import word_chance
from dptext_etl.errors import PolicyError
from dptext_etl.families.words import sample_many
from dptext_etl.mechanisms.custext import CusText

ALARM = 1e-9


@pytest.fixture(scope="module")
def mechanism(small_vectors):
    return CusText(epsilon=2.0, k=10, vectors=small_vectors)


def test_the_chance_of_agreement_bounds_the_law_of_every_mechanism(word_mechanism):
    words = [word for word in word_mechanism.input_words() if word.isalpha() and word == word.lower()]
    for word in words[:: max(1, len(words) // 5)]:
        try:
            _, chances = word_mechanism.transition(word)
        except PolicyError:
            with pytest.raises(PolicyError):
                word_mechanism.collision(word)
            assert 0 <= word_mechanism.simulated_collisions([word], 64) <= 64
            continue
        exact = float(sum(chance * chance for chance in chances))
        assert exact * (1 - 1e-12) <= word_mechanism.collision(word) <= 1
        if word_mechanism.name != "diffractor":  # the mean over its lists is a bound
            assert word_mechanism.collision(word) <= exact * (1 + 1e-6)


def test_a_simulated_chance_agrees_with_what_the_mechanism_does():
    madlib = load("madlib").example()
    words = [word for word in madlib.input_words() if word.isalpha()][:8]
    pairs = 4_000
    drawn = [sample_many(madlib, word, pairs // 4) for word in words]
    shown = sum(one == other for found in drawn for one, other in zip(found[::2], found[1::2], strict=True)) / pairs
    simulated = madlib.simulated_collisions(words, pairs) / pairs
    assert abs(shown - simulated) < 6 * math.sqrt(0.5 / pairs)
    assert simulated > 0


def drawn(mechanism, random, words):
    """Independent draws of a text, by the law."""
    laws = [mechanism.transition(word) for word in words]
    return " ".join(random.choice(outputs, p=np.array(chances, dtype=float)) for outputs, chances in laws)


def fed(mechanism, releases):
    """Paired canaries of one text from releases by (shard, half)."""
    pairs = PairedCanaries(mechanism)
    for (shard, half), (words, text) in releases.items():
        pairs.feed((0, shard, half), words, text)
    return {item.name: item for item in pairs.comparisons(ALARM)}


def texts(mechanism, number=24):
    words = [word for word in mechanism.input_words() if word.isalpha()]
    return tuple(words[place % 17] for place in range(number))


def test_independent_draws_agree_as_often_as_the_law_says(mechanism):
    random = np.random.default_rng(5)
    words = texts(mechanism)
    shards = 300
    found = fed(
        mechanism,
        {place: (words, drawn(mechanism, random, words)) for place in itertools.product(range(shards), range(2))},
    )
    assert not any(item.beyond_chance for item in found.values())
    chances = [mechanism.collision(word) for word in words]
    inside = found["pairs of a shard"]
    assert inside.compared == shards * len(words)
    spread = math.sqrt(shards * sum(chance * (1 - chance) for chance in chances))
    assert abs(inside.equal - shards * sum(chances)) < 6 * spread
    assert found["pairs of two shards"].compared == shards // 2 * len(words)
    assert found["a word twice in a row"].compared == 2 * shards * (len(words) - 17)
    assert found["rows of one text"].compared == math.comb(2 * shards, 2)


def test_one_seed_is_found_likely_agreement_and_lost_rows_are_not(mechanism, small_vectors):
    random = np.random.default_rng(5)
    words = texts(mechanism)
    same = drawn(mechanism, random, words)
    found = fed(mechanism, {(0, half): (words, same) for half in range(2)})
    assert found["pairs of a shard"].beyond_chance
    assert found["rows of one text"].beyond_chance
    assert found["pairs of two shards"].compared == 0
    mechanism = CusText(epsilon=200.0, k=10, vectors=small_vectors)
    words = texts(mechanism)
    found = fed(mechanism, {(0, half): (words, " ".join(words)) for half in range(2)})
    assert not any(item.beyond_chance for item in found.values())
    assert all(item.limit > item.compared for item in found.values())
    words = texts(mechanism)
    assert (fed(mechanism, {}), fed(mechanism, {(0, 0): (words, None), (0, 1): (words, "good")})) == ({}, {})


@pytest.mark.parametrize("apart", [1, 2, 3])
def test_a_generator_that_workers_share_is_found_wherever_the_shards_meet(mechanism, apart):
    random = np.random.default_rng(6)
    words = texts(mechanism)
    releases = {place: (words, drawn(mechanism, random, words)) for place in itertools.product(range(4), range(2))}
    for half in range(2):
        releases[apart, half] = releases[0, half]
    found = fed(mechanism, releases)
    assert found["rows of one text"].beyond_chance
    assert not found["pairs of a shard"].beyond_chance
    assert found["pairs of two shards"].beyond_chance is (apart == 1)


def test_one_replacement_per_word_inside_a_record_is_found(mechanism):
    random = np.random.default_rng(7)
    words = texts(mechanism, 34)
    releases = {}
    for place in itertools.product(range(2), range(2)):
        chosen = dict(zip(words, drawn(mechanism, random, words).split(" "), strict=True))
        releases[place] = (words, " ".join(chosen[word] for word in words))
    found = fed(mechanism, releases)
    assert {name for name, item in found.items() if item.beyond_chance} == {"a word twice in a row"}


class Uneven:
    """A law without fractions under which one word agrees with itself far oftener than the others."""

    length, n_max = "disclose", 100

    def input_policy(self):
        return {"oov": "uniform"}

    def simulated_survivals(self, word, trials):
        raise AssertionError("pairs alone are judged")

    def collision(self, word):
        raise PolicyError("no fractions")

    def simulated_collisions(self, words, pairs):
        return round(sum(0.7 if word == "often" else 0.1 for word in words) * pairs / len(words))


@pytest.mark.parametrize(("agreeing", "found"), [(225, False), (300, True)])
def test_a_repeated_word_is_judged_by_its_own_chance_not_by_the_mean_of_its_text(agreeing, found):
    words = ("often", "often", *(f"w{place}" for place in range(22)))
    rest = [f"w{place}" for place in range(22)]
    said = [" ".join([f"a{at}", f"a{at}" if at < agreeing else f"b{at}", *rest]) for at in range(300)]
    releases = {(at // 2, at % 2): (words, text) for at, text in enumerate(said)}
    compared = fed(Uneven(), releases)["a word twice in a row"]
    assert (compared.compared, compared.equal) == (300, agreeing)
    assert compared.beyond_chance is found


def test_heads_need_as_many_words_as_the_bound_says(mechanism):
    largest = mechanism.largest_probability()
    for rows in (2, 1_000, 10**6):
        words = prefix_words(mechanism, rows, ALARM)
        assert math.comb(rows, 2) * largest**words <= ALARM * (1 + 1e-9)
        assert math.comb(rows, 2) * largest ** (words - 1) > ALARM
    assert prefix_words(mechanism.model_copy(update={"n_max": 5}), 1_000, ALARM) is None
    assert prefix_words(mechanism.model_copy(update={"mode": "faithful"}), 1_000, ALARM) is None


def test_heads_of_padded_texts_count_every_way_in_which_padding_vanishes():
    """Exact: the chance that two padded texts show the same first k words, over all texts, is below the bound."""
    p = {"<PAD>": 0.2, "a": 0.25, "b": 0.3, "c": 0.25}
    draws, k, shown = 6, 2, {}
    for outcome in itertools.product(p, repeat=draws):
        visible = tuple(word for word in outcome if word != "<PAD>")
        if len(visible) >= k:
            shown[visible[:k]] = shown.get(visible[:k], 0) + math.prod(p[word] for word in outcome)
    padded = {
        "mode": "strict",
        "word_disclosures": (),
        "length": "fixed",
        "largest_probability": lambda: max(p.values()),
    }
    bound = word_chance(SimpleNamespace(**padded))
    assert sum(chance**2 for chance in shown.values()) <= max(shown.values()) <= bound**k < 1


def test_equal_heads_are_found_and_short_texts_are_let_be(mechanism):
    random = np.random.default_rng(8)
    words = list(mechanism.output_words())
    needed, heads = prefix_words(mechanism, 400, ALARM), Repeats()
    long = [" ".join(random.choice(words, 60)) for _ in range(200)]
    short = [" ".join(random.choice(words, 1)) for _ in range(190)]
    heads.add(prefix_digests(pl.Series([*long, *short, None, ""]), needed))
    assert (heads.counts().rows, heads.counts().shared) == (200, 0)
    heads.add(prefix_digests(pl.Series([f"{long[3]} {words[0]}", long[7], long[7]]), needed))
    assert (heads.counts().rows, heads.counts().shared) == (203, 5)
