"""Entries that come with the package: they follow from the vectors, and the mechanisms' defaults find them."""

import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from dptext_etl.artifacts import DERIVED, canon
from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.search import largest_squared_distance
from dptext_etl.embeddings.vectors import SYNONYMS
from dptext_etl.mechanisms import custext
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.mechanisms.diffractor import Diffractor
from dptext_etl.mechanisms.santext import SanText
from studies.shipped_data.derived import FORMATS

EVERY = [(path, json.loads((path / "about.json").read_bytes())) for path in DERIVED.iterdir()]
MOVED = WordVectors.load(SYNONYMS).artifact.sha256
ENTRIES = {
    about["description"]["format"]: (path, about) for path, about in EVERY if about["description"]["vectors"] != MOVED
}


def content(which):
    (found,) = ENTRIES[which][0].glob("content.*")
    return found


def test_there_is_one_entry_of_each_kind_under_the_hash_of_its_description():
    assert (sorted(ENTRIES), len(EVERY)) == (sorted(FORMATS), len(FORMATS) + 1)
    for path, about in EVERY:
        assert path.name == hashlib.sha256(canon(about["description"])).hexdigest()
        (found,) = path.glob("content.*")
        assert hashlib.sha256(found.read_bytes()).hexdigest() == about["sha256"]
        assert sorted(item.name for item in path.iterdir()) == ["about.json", found.name]


def test_the_output_sets_are_those_of_the_vectors():
    vectors = WordVectors.load()
    expected = np.concatenate(custext.partition(vectors, 20, "euclidean"))
    np.testing.assert_array_equal(load_file(content("dptext-sets/1"))["members"], expected)


def test_the_output_sets_of_the_moved_vectors_are_theirs():
    (path,) = (path for path, about in EVERY if about["description"]["vectors"] == MOVED)
    (found,) = path.glob("content.*")
    expected = np.concatenate(custext.partition(WordVectors.load(SYNONYMS), 20, "euclidean"))
    np.testing.assert_array_equal(load_file(found)["members"], expected)


def test_the_largest_distance_is_that_of_the_vectors():
    found = json.loads(content("dptext-span/1").read_bytes())
    assert found == {"found": largest_squared_distance(WordVectors.load())}


def test_the_list_goes_from_word_to_nearest_unused_word():
    """At 200 places of it, all later words compared in exact arithmetic."""
    vectors, stored = WordVectors.load(), load_file(content("dptext-neighbour-lists/1"))
    assert stored["words"].tobytes().decode().split("\n") == list(vectors.words)
    order = stored["lists"].astype(np.int64)
    assert (order[0], sorted(order)) == (0, list(range(len(vectors))))
    grid = vectors.vectors.astype(np.float64)  # sums of products below 2**53: exact
    places = np.arange(0, len(order) - 1, len(order) // 200)
    squared = vectors.norms[order[places], None] + vectors.norms - 2 * grid[order[places]] @ grid.T
    for place, distances in zip(places, squared, strict=True):
        left = np.sort(order[place + 1 :])  # ties fall to the earlier word
        assert order[place + 1] == left[distances[left].argmin()]


def test_the_defaults_find_what_came_with_the_package(tmp_path, monkeypatch):
    monkeypatch.setenv("DPTEXT_CACHE", str(tmp_path / "none"))
    monkeypatch.setattr(custext, "partition", lambda *_: pytest.fail("derived again"))
    for name in ("english-20k", SYNONYMS):
        made = CusText(epsilon=1.0, vectors=name)
        sets = custext.stored_sets(WordVectors.load(name), made.k, made.metric)
        assert sum(map(len, sets)) == len(WordVectors.load(name))
        assert {len(members) for members in sets} == {20}
    assert Diffractor(epsilon=1.0).neighbor_lists().artifact.path.is_relative_to(DERIVED)
    assert SanText(epsilon=1.0).span.path.is_relative_to(DERIVED)
    assert not (tmp_path / "none").exists()
