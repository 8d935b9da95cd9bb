import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("scipy", reason="training needs scipy (extra `dev`)")

from dptext_etl.artifacts import Artifact
from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.vectors import DATA
from studies.shipped_data.vectors import Settings, correlation, figures, main, train

SHIPPED = DATA / "english-20k.safetensors"
CARD = DATA / "english-20k.md"
TEXTS = [
    f"The {animal} doesn\u2019t {verb} the {food} in {place}, and a {animal} {verb}s it 12 times."
    for animal in ("cat", "dog", "bird", "fish")
    for verb in ("eat", "like", "see")
    for food in ("bread", "rice", "corn")
    for place in ("Paris", "Oslo")
]
TINY = Settings(words=20, dimensions=5, contexts=30)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.table({"text": TEXTS}), path)
    return path


def run(corpus, out, *more):
    main(["--corpus", str(corpus), "--out", str(out), "--words", "20", "--dimensions", "5", "--contexts", "30", *more])
    return out.read_bytes()


def test_the_same_corpus_gives_the_same_bytes(corpus, tmp_path):
    assert run(corpus, tmp_path / "one.safetensors") == run(corpus, tmp_path / "two.safetensors")
    assert run(corpus, tmp_path / "one.safetensors") != run(corpus, tmp_path / "three.safetensors", "--window", "1")


def test_a_trained_file_is_loaded_and_says_where_it_comes_from(corpus, tmp_path):
    out = tmp_path / "v.safetensors"
    run(corpus, out, "--provenance", "made up", "--license", "none needed")
    vectors = WordVectors.load(out)
    assert vectors.vectors.shape == (20, 5)
    assert (vectors.artifact.provenance, vectors.artifact.license) == ("made up", "none needed")
    assert vectors.artifact.description["corpus"] == Artifact.open(corpus).sha256


def test_the_vocabulary_is_made_of_words_by_frequency():
    words, vectors, scale = train(TEXTS, TINY)
    assert words[0] == "the"
    assert "doesn't" in words
    assert "a" in words
    assert not {"12", "t", "s"} & set(words)
    assert len(set(words)) == len(words)
    np.testing.assert_allclose(np.linalg.norm(vectors * scale, axis=1), 1, atol=0.05)


def test_capitalised_words_give_way():
    assert "oslo" in train(TEXTS, Settings(words=8, dimensions=5, contexts=30, capital=9))[0]
    assert "oslo" not in train(TEXTS, Settings(words=8, dimensions=5, contexts=30))[0]


def test_words_of_like_use_are_near():
    words, vectors, _ = train(TEXTS, TINY)
    at = {word: row for row, word in enumerate(words)}
    dots = vectors.astype(int) @ vectors.astype(int).T
    assert dots[at["bread"], at["rice"]] > dots[at["bread"], at["cat"]]
    assert dots[at["cat"], at["dog"]] > dots[at["cat"], at["rice"]]


def test_the_shipped_file_is_the_one_on_its_card():
    vectors = WordVectors.load()
    assert SHIPPED.stat().st_size <= 4_000_000
    assert f"`{vectors.artifact.sha256}`" in CARD.read_text(encoding="utf-8")
    assert len(vectors) == len(set(vectors.words)) == 20_000
    assert vectors.vectors.dtype == np.int8
    assert vectors.words[:3] == ("the", "of", "and")
    assert all(re.fullmatch(r"[^\W\d_]+(?:'[^\W\d_]+)*", word) and word == word.lower() for word in vectors.words)
    assert {"good", "terrible", "don't", "isn't", "i", "a", "movie"} <= set(vectors.words)
    assert "CC BY-SA" in vectors.artifact.license
    assert "Wikipedia" in vectors.artifact.provenance


def test_the_similarity_on_the_card_is_computed_again(shared_data):
    lists = shared_data / "word_lists"
    vectors = WordVectors.load()
    stated = re.search(r"\| this file \| ([\d.]+) \(([\d,]+)\) \| ([\d.]+) \(([\d,]+)\) \|", CARD.read_text("utf-8"))
    for file, column, at in (("counterfitting_SimLex-999.txt.gz", 3, 1), ("simverb3500.txt.gz", 2, 3)):
        value, pairs = correlation(vectors, lists / file, column)
        assert (f"{value:.3f}", f"{pairs:,}") == (stated[at], stated[at + 1])


def test_figures_leave_out_what_is_missing(corpus, tmp_path, capsys):
    run(corpus, tmp_path / "v.safetensors", "--evaluate", str(tmp_path))
    printed = capsys.readouterr().out
    assert printed == figures(tmp_path / "v.safetensors", tmp_path)
    assert "20 words x 5, int8" in printed
