"""The corpus `everyday-30k` as mechanisms read it: the same file on every machine, near what `learning` finds."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import learn, names
from dptext_etl.corpora.shipped import everyday_30k
from dptext_etl.corpora.shipped.everyday_30k import everyday_texts
from dptext_etl.embeddings import WordVectors

PINNED = "dbe9250fe9eef3b1eb10d7633753568a86a111dd14cad67122d756154057b8f3"


@pytest.fixture(scope="module")
def corpus():
    return Corpus.open("everyday-30k")


def test_the_file_is_the_same_everywhere(corpus):
    assert corpus.sha256 == PINNED


def test_it_is_found_by_name_and_holds_our_sentences(corpus):
    assert "everyday-30k" in names()
    assert tuple(corpus.texts) == everyday_texts()
    assert corpus.hits[8.0] > corpus.hits[4.0] > corpus.hits[1.0]


def test_the_second_version_is_the_first_without_what_is_left_out(corpus):
    second = Corpus.open("everyday-30k-2")
    assert second.sha256 == "69f117e6e75ee2d88a0fc6991df91efb45c790bc342868ac1919fbbdff62761b"
    assert len(second) == 29_877
    stays = set(second.texts)
    kept = [number for number, text in enumerate(corpus.texts) if text in stays]
    assert tuple(corpus.texts[number] for number in kept) == second.texts
    assert np.array_equal(second.vectors, corpus.vectors[kept])
    assert second.hits == corpus.hits
    gone = set(corpus.texts) - stays
    assert len(gone) == 123
    assert "I am very happy with to travel by train through China." in gone
    assert not [text for text in second.texts if " bra" in text and text.split(" bra")[1][:1] in {" ", "."}]


def test_sums_stay_exact():
    """The largest sum of products that `encoder_of` can meet is an integer that a float64 holds."""
    directions = load_file(everyday_30k.DIRECTIONS)["directions"].astype(np.int64)
    vectors = WordVectors.load()
    shortest = np.sqrt(max(1, int(vectors.norms.min())))
    largest = int(np.abs(vectors.vectors).max()) * np.ceil(2.0**22 / shortest) * np.abs(directions).sum(axis=0).max()
    assert largest < 2**53


def test_a_text_is_nearest_to_itself_or_to_its_like(corpus):
    texts = ("what is the weather in Denver tomorrow", "book a table for two at a French restaurant")
    vectors = np.asarray(corpus.vectors).astype(np.int64)
    found = [corpus.texts[int((vectors @ one).argmax())] for one in corpus.encoder.encode(texts).astype(np.int64)]
    assert "weather" in found[0]
    assert "table" in found[1]


@pytest.mark.thorough
def test_the_vectors_are_those_that_learning_finds(corpus):
    texts = everyday_texts()
    ours = corpus.encoder.encode(texts[:500]).astype(np.float64)
    learned = learn(texts, WordVectors.load()).encode(texts[:500]).astype(np.float64)
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(learned, axis=1)
    assert ((ours * learned).sum(axis=1) / lengths).min() > 0.999
