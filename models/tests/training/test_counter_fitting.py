"""Counter-fitting: synonyms come near, antonyms part, words without pairs stay, WordNet's tables are read rightly."""

import json

import numpy as np
import polars as pl
import pytest

pytest.importorskip("scipy", reason="training needs scipy (extra `dev`)")

from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.vectors import DATA, SYNONYMS, write_grid
from dptext_etl.errors import InputError
from dptext_etl.mechanisms.custext import CusText
from dptext_etl_models.training.counter_fitting import Settings, Thesaurus, fit, nearest_words, read_thesaurus
from tests.command_line import dptext

WORDS = ("good", "excellent", "bad", "awful", "table", "chair", "river", "light")


@pytest.fixture
def wordnet(tmp_path):
    """Good ~ excellent (similar), bad ~ awful (one synset), good against bad; light is rare as "good"."""
    folder = tmp_path / "wordnet"
    folder.mkdir()
    senses = [
        ("good", "s1", 1), ("excellent", "s2", 1), ("bad", "s3", 1), ("awful", "s3", 2), ("table", "s5", 1),
        ("river", "s6", 1), ("light", "s1", 3), ("unknown", "s1", 1),
    ]  # fmt: skip
    pl.DataFrame(senses, ["lemma", "synset", "sense_rank"], orient="row").write_parquet(folder / "senses.parquet")
    similar = {"source": ["s2"], "relation": ["similar"], "target": ["s1"]}
    pl.DataFrame(similar).write_parquet(folder / "synset_relations.parquet")
    opposite = {"source": ["s1"], "source_lemma": ["good"], "relation": ["antonym"], "target": ["s3"]}
    pl.DataFrame(opposite).write_parquet(folder / "sense_relations.parquet")
    return folder


@pytest.fixture
def vectors(tmp_path):
    random = np.random.default_rng(4)
    grid = random.integers(-90, 90, (len(WORDS), 12)).astype(np.int8)
    grid[2] = grid[0] + 5  # "bad" lies next to "good", as in text by itself
    facts = {"scale": "0.01", "provenance": "made up", "licence": "none"}
    write_grid(tmp_path / "base.safetensors", WORDS, grid, facts)
    return WordVectors.load(tmp_path / "base.safetensors")


def cosine(moved, one, other):
    a, b = (moved[WORDS.index(word)] for word in (one, other))
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def named(pairs):
    return {frozenset((WORDS[a], WORDS[b])) for a, b in pairs.tolist()}


def test_pairs_are_those_of_frequent_senses_and_of_what_is_similar(wordnet):
    found = read_thesaurus(wordnet, WORDS)
    assert named(found.synonyms) == {frozenset(("good", "excellent")), frozenset(("bad", "awful"))}
    assert named(found.antonyms) == {
        frozenset(pair) for pair in (("good", "bad"), ("good", "awful"), ("excellent", "bad"), ("excellent", "awful"))
    }
    assert frozenset(("good", "light")) in named(read_thesaurus(wordnet, WORDS, senses=3).synonyms)


def test_synonyms_come_near_and_antonyms_part(wordnet, vectors):
    before = vectors.vectors.astype(float)
    after = fit(vectors, read_thesaurus(wordnet, WORDS), Settings(near=2))
    assert cosine(before, "good", "bad") > 0.9
    assert cosine(after, "good", "bad") < 0.2
    assert cosine(after, "good", "excellent") > cosine(before, "good", "excellent") + 0.2
    assert np.linalg.norm(after, axis=1) == pytest.approx(np.ones(len(WORDS)))
    assert (after == fit(vectors, read_thesaurus(wordnet, WORDS), Settings(near=2))).all()


def test_without_pairs_nothing_moves(vectors):
    none = np.empty((0, 2), np.int64)
    before = vectors.vectors.astype(float)
    after = fit(vectors, Thesaurus(none, none), Settings(near=2, gain=0.0))
    assert after == pytest.approx(before / np.linalg.norm(before, axis=1, keepdims=True))


def test_the_command_writes_vectors_of_the_same_words(wordnet, vectors, tmp_path):
    out = tmp_path / "moved.safetensors"
    words = ["train", "vectors", "--wordnet", wordnet, "--base", tmp_path / "base.safetensors", "--out", out, "--json"]
    done = dptext(*words)
    assert done.exit_code == 0, done.output
    made = WordVectors.load(out)
    assert made.words == WORDS
    assert json.loads(done.stdout)["sha256"] == made.artifact.sha256 != vectors.artifact.sha256
    assert made.artifact.description["base"] == vectors.artifact.sha256
    assert "WordNet" in made.artifact.license


def test_a_missing_table_is_named_as_one(tmp_path):
    with pytest.raises(InputError, match="reading WordNet's tables"):
        read_thesaurus(tmp_path, WORDS)


def test_the_vectors_that_ship_part_what_the_text_puts_together():
    plain, moved = WordVectors.load(), WordVectors.load(SYNONYMS)
    assert (moved.words, moved.artifact.description["base"]) == (plain.words, plain.artifact.sha256)
    assert f"`{moved.artifact.sha256}`" in (DATA / f"{SYNONYMS}.md").read_text(encoding="utf-8")

    def near(vectors, one):
        (found,) = nearest_words(vectors, [vectors.index[one]], 20)
        return {vectors.words[place] for place in found}

    assert "bad" in near(plain, "good")
    assert not {"bad", "worse", "awful"} & near(moved, "good")
    assert "good" not in near(moved, "bad")
    assert {"excellent", "superb"} <= near(moved, "good")
    assert CusText(epsilon=2.0).vectors == "english-20k"  # old policies that name no vectors keep their hash
