"""`everyday-30k`: the sentences, the corpus that mechanisms read, and the templates of the sentences."""

import hashlib

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file

from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import learn, names
from dptext_etl.corpora.shipped import everyday_30k
from dptext_etl.corpora.shipped.everyday_30k import (
    Draws,
    american,
    everyday_artifact,
    everyday_texts,
    expand,
    generate,
    parse,
    spoken,
)
from dptext_etl.embeddings import WordVectors

TEXTS_SHA256 = "343d17c21e4139364299823a1acc03792db11940ef626c2c064adef0eef18414"


@pytest.fixture(scope="module")
def sentences():
    return generate()


def test_the_bytes_are_pinned():
    assert everyday_artifact().sha256 == TEXTS_SHA256


def test_the_hash_of_a_text_file_is_that_of_its_sentences(sentences):
    content = "".join(f"{made.text}\n" for made in sentences).encode()
    assert hashlib.sha256(content).hexdigest() == TEXTS_SHA256


def test_the_artifact_holds_the_sentences_in_order(sentences):
    assert everyday_texts() == tuple(made.text for made in sentences)


@pytest.mark.thorough
def test_no_sentence_stands_in_a_data_set(sentences, shared_data):
    """Only ours: no text of a public data set, and no sentence of one, is a sentence of the corpus."""
    ours = _plain(pl.Series([made.text for made in sentences]))
    copies = set()
    for path in sorted(shared_data.glob("*/*.parquet")):
        table = pl.scan_parquet(path)
        for name, kind in table.collect_schema().items():
            if kind == pl.String:
                texts = table.select(name).collect().to_series().drop_nulls()
                pieces = texts.str.replace_all(r"([.?!])\s+|\n", "$1\u0001").str.split("\u0001").explode()
                found = pl.concat([_plain(texts), _plain(pieces)])
                copies |= {(path.parent.name, text) for text in found.filter(found.is_in(ours.implode()))}
    assert copies == set()


def _plain(texts):
    return texts.str.to_lowercase().str.replace_all("[^a-z']+", " ").str.strip_chars()


CORPUS_SHA256 = "dbe9250fe9eef3b1eb10d7633753568a86a111dd14cad67122d756154057b8f3"


@pytest.fixture(scope="module")
def corpus():
    return Corpus.open("everyday-30k")


def test_the_file_is_the_same_everywhere(corpus):
    assert corpus.sha256 == CORPUS_SHA256


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


SOURCE = """
# a comment
pet = dog | old (cat|owl)
  | {color} hen
color = red | blue

[praise]
what a {pet}
I like a {color} and a {color} hat, really
[question]
is it (a|a very) honest {pet}
"""


def _all(kind, row, draws=200, end="."):
    source = parse(SOURCE)
    return {expand(source.templates[kind][row], source.lists, Draws(f"{draw}"), end) for draw in range(draws)}


def test_slots_nest_and_every_phrase_is_drawn():
    assert _all("praise", 0) == {
        "What a dog.", "What an old cat.", "What an old owl.", "What a red hen.", "What a blue hen.",
    }  # fmt: skip


def test_two_slots_of_a_list_differ():
    assert _all("praise", 1) == {"I like a red and a blue hat, really.", "I like a blue and a red hat, really."}


def test_a_question_gets_its_mark_and_articles_follow_the_sound():
    found = _all("question", 0, end="?")
    assert {"Is it an honest dog?", "Is it a very honest dog?"} <= found


def test_draws_are_uniform_and_fixed_by_the_label():
    draws, again = Draws("label"), Draws("label")
    first = [draws.below(7) for _ in range(70_000)]
    assert first[:100] == [again.below(7) for _ in range(100)]
    assert all(abs(first.count(value) - 10_000) < 400 for value in range(7))  # 4.3 standard deviations


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[praise]\na (b", "line 2"),
        ("[praise]\na) b", "line 2"),
        ("[praise]\n\na {b", "line 3"),
        ("[praise]\na | b", "line 2"),
        ("a b", "line 1"),
        ("a = b\na = c", "line 2"),
    ],
)
def test_a_malformed_source_is_refused_by_line(text, line):
    with pytest.raises(ValueError, match=line):
        parse(text)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("I am sure that it is not here.", "I'm sure that it's not here."),
        ("Do not ask who that is.", "Don't ask who that is."),
        ("Tell me how it is going there.", "Tell me how it is going there."),
        ("It will rain until noon.", "It'll rain till noon."),
        ("Let us see what is on television tonight.", "Let's see what's on TV tonight."),
    ],
)
def test_speech_contracts_where_a_word_follows(written, said):
    assert spoken(written) == said


@pytest.mark.parametrize(
    ("british", "other"),
    [
        ("Films and theatres in gray colors.", "Movies and theaters in gray colors."),
        ("Neighbors like the neighborhood.", "Neighbors like the neighborhood."),
        ("A filmed program.", "A filmed program."),
    ],
)
def test_american_words_take_the_place_of_whole_words(british, other):
    assert american(british) == other
