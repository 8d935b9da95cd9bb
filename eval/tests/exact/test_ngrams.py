"""The language model of the evaluation: probabilities that sum to 1, known answers, and perplexity that sees order."""

import math
from collections import Counter

import numpy as np
import pytest

from dptext_etl.artifacts import sha256_file
from dptext_etl.embeddings.vectors import DATA
from dptext_etl.errors import ArtifactError
from dptext_etl_eval import Pairs
from dptext_etl_eval.metrics.perplexity import Perplexity
from dptext_etl_eval.ngrams import NAME, OTHERS, START, Ngrams
from studies.shipped_data.ngrams import Settings, count, write

pytest.importorskip("scipy", reason="counting needs scipy (extra `dev`)")

WORDS = ("the", "cat", "sat", "on", "mat")
TEXTS = ["the cat sat on the mat", "The cat sat", "the dog sat on the cat", "mat"]
D = 0.75


@pytest.fixture(scope="module")
def small():
    table = count(TEXTS, WORDS, Settings(words=5, pairs=1, triples=1)).to_pydict()
    parts = [
        (
            np.array([s for s, o in zip(table["sequence"], table["order"], strict=True) if o == order]),
            np.array([c for c, o in zip(table["count"], table["order"], strict=True) if o == order]),
        )
        for order in (1, 2, 3)
    ]
    return Ngrams(WORDS, [part[0] for part in parts], [part[1] for part in parts], D, "small")


def by_hand(first, second, third):
    """The same probability from counters of words, with no arrays."""
    runs = [["", *("?" if word not in WORDS else word for word in text.lower().split())] for text in TEXTS]
    two = Counter(tuple(run[at : at + 2]) for run in runs for at in range(len(run) - 1))
    three = Counter(tuple(run[at : at + 3]) for run in runs for at in range(len(run) - 2))
    single = Counter(word for run in runs for word in run[1:])

    def mixed(sequences, context, whole, below):
        held = {sequence: n for sequence, n in sequences.items() if sequence[:-1] == context}
        if not held:
            return below
        left = (whole - sum(held.values()) + D * len(held)) / whole
        return max(held.get((*context, third), 0) - D, 0) / whole + left * below

    whole = single[second] or sum(n for (word, _), n in two.items() if word == second)
    below = mixed(two, (second,), whole, single[third] / sum(single.values()))
    return mixed(three, (first, second), two[first, second], below)


@pytest.mark.parametrize(
    ("first", "second", "third"),
    [("the", "cat", "sat"), ("", "the", "cat"), ("on", "the", "mat"), ("sat", "on", "on"), ("", "the", "?")],
)
def test_a_probability_is_that_of_counters(small, first, second, third):
    number = {"": START, "?": small.other, **small.place}
    found = small.chances(*(np.array([number[word]]) for word in (first, second, third)))[0]
    assert found == pytest.approx(by_hand(first, second, third), abs=2e-3)


@pytest.mark.parametrize("words", [(), ("the",), ("of", "the"), ("qqqq", "united"), ("in", "qqqq")])
def test_probabilities_of_the_model_that_ships_sum_to_one(words):
    model = Ngrams.load()
    first, second = [START, START, *model.numbers(words)][-2:]
    every = np.arange(1, model.other + 1)
    chances = model.chances(np.full(len(every), first), np.full(len(every), second), every)
    assert chances.sum() == pytest.approx(1)
    assert chances.min() > 0


def test_the_card_names_the_file_that_ships():
    path = DATA / f"{NAME}.parquet"
    card = (DATA / f"{NAME}.md").read_text()
    assert sha256_file(path) in card
    assert f"{path.stat().st_size:,} bytes" in card


def test_an_unknown_word_is_as_unlikely_as_one_of_a_million():
    model = Ngrams.load()
    other = model.chances(np.array([START]), np.array([START]), np.array([model.other]))[0]
    assert model.surprise(["zzqzz"])[0] == pytest.approx(-math.log(other / OTHERS))
    assert model.surprise([]).shape == (0,)


def test_perplexity_sees_the_order_of_words():
    texts = tuple(f"it was one of the most popular songs of the {word}" for word in ("year", "decade", "world") * 10)
    backwards = tuple(" ".join(reversed(text.split())) for text in texts)
    same, turned = (Perplexity().of(Pairs(raw=texts, released=out))[0] for out in (texts, backwards))
    assert same.value == same.raw == turned.raw
    assert same.interval[0] <= same.value <= same.interval[1]
    assert same.value < same.blind
    assert turned.value > 4 * same.value
    nothing = Perplexity().of(Pairs(raw=texts, released=("",) * len(texts)))[0]
    assert (nothing.value, nothing.note) == (None, "one side holds no words")


def test_counts_of_another_vocabulary_are_refused(tmp_path):
    write(tmp_path / "other.parquet", count(TEXTS, WORDS, Settings(words=5)), {"vocabulary": "0" * 64, "words": 5})
    with pytest.raises(ArtifactError, match="another format or vocabulary"):
        Ngrams.load(tmp_path / "other.parquet")
