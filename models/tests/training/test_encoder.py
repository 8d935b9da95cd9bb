"""`dptext train encoder`: texts side by side come near, and a corpus is built with the vectors it writes."""

import json

import numpy as np
import polars as pl
import pytest

pytest.importorskip("torch", reason="training needs torch (extra `models`)")

from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.vectors import write_grid
from dptext_etl.errors import InputError
from dptext_etl_models.training import contrast
from tests.command_line import dptext

TOPICS = (
    ("flight", "airport", "gate", "plane", "ticket", "seat"),
    ("soup", "dinner", "table", "menu", "waiter", "dish"),
    ("rain", "storm", "cloud", "wind", "snow", "forecast"),
    ("song", "album", "band", "guitar", "singer", "concert"),
)
WORDS = tuple(word for topic in TOPICS for word in topic)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Vectors that know no topic."""
    path = tmp_path_factory.mktemp("vectors") / "base.safetensors"
    grid = np.random.default_rng(4).integers(-90, 90, (len(WORDS), 16)).astype(np.int8)
    write_grid(path, WORDS, grid, {"scale": "0.01", "provenance": "made up", "licence": "none"})
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Dialogues of four turns about one topic, and articles of three sentences about one."""
    folder, random = tmp_path_factory.mktemp("texts"), np.random.default_rng(5)

    def said():
        return " ".join(random.choice(TOPICS[random.integers(4)], 3))

    def about(topic):
        return " ".join(random.choice(TOPICS[topic], 3, replace=False))

    rows = [(f"d{number}", about(number % 4)) for number in range(400) for _ in range(4)]
    pl.DataFrame(rows, ["dialogue", "text"], orient="row").write_parquet(folder / "turns.parquet")
    articles = [". ".join(about(number % 4).capitalize() for _ in range(3)) + "." for number in range(300)]
    pl.DataFrame({"text": articles}).write_parquet(folder / "articles.parquet")
    return folder


def test_pairs_are_neighbors_within_a_dialogue_and_within_an_article(files, base):
    vectors = WordVectors.load(base)
    topics = np.arange(len(WORDS)) // 6
    turns = contrast.read_pairs([], [files / "turns.parquet"], vectors)
    assert len(turns.train) + len(turns.held) == 400 * (3 + 2)
    assert 0 < len(turns.held) < 0.1 * len(turns.train)
    for one, other in turns.train[::50]:
        assert len({*topics[one], *topics[other]}) == 1, "pairs stay within their dialogue"
    both = contrast.read_pairs([files / "articles.parquet"], [files / "turns.parquet"], vectors, most=900)
    assert len(both.train) + len(both.held) == 600 + 900
    assert set(both.sources) == {"articles.parquet", "turns.parquet"}
    with pytest.raises(InputError, match="pairs of texts with known words; allowed: 1,000"):
        contrast.read_pairs([files / "articles.parquet"], [], vectors)


def test_words_of_one_topic_come_near_and_equal_inputs_give_equal_vectors(files, base):
    vectors = WordVectors.load(base)
    pairs = contrast.read_pairs([], [files / "turns.parquet"], vectors)
    settings = contrast.Settings(steps=40, batch=64, rate=0.03)
    learned = contrast.fit(vectors, pairs.train, settings)
    assert np.array_equal(learned, contrast.fit(vectors, pairs.train, settings))
    assert np.allclose(np.linalg.norm(learned, axis=1), 1)
    same = np.kron(np.eye(4, dtype=bool), np.ones((6, 6), bool)) & ~np.eye(24, dtype=bool)
    cosines = learned @ learned.T
    assert cosines[same].mean() > 0.5 > 0.2 > cosines[~same & ~np.eye(24, dtype=bool)].mean()
    weights = contrast.word_weights(len(WORDS), pairs.train)
    one_each = [(np.arange(6 * topic, 6 * topic + 3), np.arange(6 * topic + 3, 6 * topic + 6)) for topic in range(4)]
    assert contrast.partners_found(learned, weights, one_each) == 1.0
    assert contrast.partners_found(vectors.vectors, weights, one_each) < 1.0
    turned = [(one_each[topic][0], one_each[topic - 1][1]) for topic in range(4)]
    assert contrast.partners_found(learned, weights, turned) == 0.0


def test_the_command_writes_vectors_that_other_commands_read(files, base, tmp_path):
    out = tmp_path / "learned.safetensors"
    asked = ["train", "encoder", files / "articles.parquet", "--turns", files / "turns.parquet", "--base", base]
    done = dptext(*map(str, asked), "--steps", "3", "--out", str(out), "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert 0 <= told["found_before"] <= 1
    assert 0 < told["found"] <= 1
    made = WordVectors.load(out)
    assert (made.words, made.vectors.dtype, made.artifact.sha256) == (WORDS, np.int8, told["sha256"])
    assert set(made.artifact.description["sources"]) == {"articles.parquet", "turns.parquet"}
    refused = dptext("train", "encoder", "--out", str(out))
    assert refused.exit_code == 5
    assert "no texts are named" in refused.output
