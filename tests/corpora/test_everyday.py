"""`everyday-30k`: the sentences, and the corpus that mechanisms read."""

import hashlib

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from safetensors.numpy import load_file

from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import names
from dptext_etl.corpora.learning import learn
from dptext_etl.corpora.shipped import everyday_30k
from dptext_etl.corpora.shipped.everyday_30k import everyday_texts
from dptext_etl.embeddings import WordVectors
from tests.study import study

TEXTS_SHA256 = "343d17c21e4139364299823a1acc03792db11940ef626c2c064adef0eef18414"


everyday = study("shipped_data.everyday")


def test_the_hash_of_the_sentences_is_pinned():
    content = "".join(f"{text}\n" for text in everyday_texts()).encode()
    assert hashlib.sha256(content).hexdigest() == TEXTS_SHA256


@pytest.mark.thorough
def test_the_files_that_ship_are_those_that_the_templates_give(everyday, monkeypatch, tmp_path):
    shipped = [pl.read_parquet(path) for path in (everyday.CORPUS, everyday.STAND_IN)]
    for name in ("CORPUS", "STAND_IN"):
        monkeypatch.setattr(everyday, name, tmp_path / name)
    everyday.main()
    for name, frame in zip(("CORPUS", "STAND_IN"), shipped, strict=True):
        assert_frame_equal(pl.read_parquet(tmp_path / name), frame)


@pytest.mark.thorough
def test_no_sentence_is_in_a_data_set(shared_data):
    """Only ours: no text of a public data set, and no sentence of one, is a sentence of the corpus."""
    ours = _plain(pl.Series(everyday_texts()))
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


def test_the_second_version_is_the_first_without_what_is_excluded(corpus):
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
def test_a_malformed_source_is_refused_by_line(everyday, text, line):
    with pytest.raises(ValueError, match=line):
        everyday.parse(text)
