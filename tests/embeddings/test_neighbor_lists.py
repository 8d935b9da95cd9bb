"""Neighbors by exact arithmetic: the greedy walk of lists, word by word, the nearest free words, and output sets."""

import logging
import shutil
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.artifacts import Artifact, save_tensors
from dptext_etl.embeddings import WordVectors
from dptext_etl.embeddings.neighbor_lists import FORMAT, NeighborLists, UnusedWords, nearest_walk
from dptext_etl.errors import ArtifactError
from dptext_etl.mechanisms.custext import partition

from ..examples import examples


def by_hand(vectors, start, metric):
    """The walk on Python's integers and fractions: all unused words are compared in every step."""
    grid = [list(map(int, row)) for row in vectors.vectors]

    def key(x, y):
        dot = sum(a * b for a, b in zip(grid[x], grid[y], strict=True))
        if metric == "euclidean":
            return sum((a - b) ** 2 for a, b in zip(grid[x], grid[y], strict=True))
        return Fraction(-dot * abs(dot), max(1, sum(b * b for b in grid[y])))

    order, unused = [start], set(range(len(grid))) - {start}
    while unused:
        order.append(min(unused, key=lambda y: (key(order[-1], y), y)))
        unused.remove(order[-1])
    return order


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("start", [0, 52, 102])
def test_every_step_goes_to_the_nearest_unused_word(small_vectors, metric, start):
    vectors = WordVectors.load(small_vectors)  # words 50 to 55 have one vector: ties fall to the earlier
    assert nearest_walk(vectors, start, metric).tolist() == by_hand(vectors, start, metric)


@pytest.mark.parametrize(("near", "block"), [(1, 1), (2, 5), (3, 64), (200, 200)])
def test_short_lists_of_any_length_give_the_same_walk(small_vectors, monkeypatch, near, block):
    vectors = WordVectors.load(small_vectors)
    monkeypatch.setattr("dptext_etl.embeddings.neighbor_lists.NEAR", near)
    monkeypatch.setattr("dptext_etl.embeddings.neighbor_lists.BLOCK", block)
    assert nearest_walk(vectors).tolist() == by_hand(vectors, 0, "euclidean")


def test_a_large_vocabulary_against_plain_distances():
    vectors = WordVectors.load()
    vectors = vectors.take(vectors.words[:1_500])
    free, current, expected = np.ones(1_500, dtype=bool), 0, [0]
    free[0] = False
    grid = vectors.vectors.astype(np.int64)
    while free.any():
        away = ((grid[free] - grid[current]) ** 2).sum(axis=1)
        current = int(np.flatnonzero(free)[away.argmin()])
        free[current] = False
        expected.append(current)
    assert nearest_walk(vectors).tolist() == expected


def test_the_lists_of_the_embedded_words_stay_as_they_are(caplog):
    with caplog.at_level(logging.INFO, "dptext_etl.embeddings"):
        lists = NeighborLists.build(limit=2_000)
    assert lists.content == "187ed040d61af006c953537832745f35c8867c9213f4ef7e293d54848aca81ff"
    assert [lists.words[word] for word in lists.lists[0][:6]] == ["the", "entire", "whole", "itself", "which", "also"]
    assert any("1 of 1: 2000 words" in record.getMessage() for record in caplog.records)
    assert lists.even
    assert "Wikipedia" in lists.artifact.provenance
    assert "CC BY-SA" in lists.artifact.license


@pytest.fixture
def two(tmp_path):
    """Two embeddings that share four words, in another order, and the vectors of these four words."""
    one = {"a": (0, 0), "b": (9, 0), "x": (1, 1), "c": (1, 0), "d": (8, 1)}
    other = {"d": (0, 1), "y": (5, 5), "c": (0, 2), "b": (0, 9), "a": (0, 3)}
    for name, words in (("one", one), ("other", other)):
        np.savez(
            tmp_path / f"{name}.npz",
            words=np.array(list(words)),
            vectors=np.array(list(words.values()), dtype=np.float32),
        )
    return str(tmp_path / "one.npz"), str(tmp_path / "other.npz")


def spelled(lists):
    return ["".join(lists.words[word] for word in order) for order in lists.lists]


def test_the_vocabulary_is_what_the_embeddings_share_in_the_order_of_the_first(two):
    lists = NeighborLists.build(two)
    assert lists.words == ("a", "b", "c", "d")
    assert spelled(lists) == ["acdb", "acdb"]
    assert lists.even
    assert all(path.rsplit("/", 1)[1] in lists.artifact.provenance for path in two)
    assert NeighborLists.build(two, limit=3).words == ("a", "b", "c")
    assert NeighborLists.build(two[::-1]).words == ("d", "c", "b", "a")


def test_walks_begin_at_other_public_words(two):
    assert spelled(NeighborLists.build(two[:1], walks=2)) == ["acxdb", "xcadb"]


def test_own_vocabularies_differ(two):
    lists = NeighborLists.build(two, vocabulary="own")
    assert lists.words == ("a", "b", "x", "c", "d", "y")
    assert [sorted(words) for words in spelled(lists)] == [list("abcdx"), list("abcdy")]
    assert not lists.even
    assert NeighborLists.build(two[:1], vocabulary="own").even


def test_a_saved_file_is_the_same_artifact(two, tmp_path):
    lists = NeighborLists.build(two)
    again = NeighborLists.open(lists.save(tmp_path / "mine.safetensors"))
    assert again.artifact.sha256 == lists.artifact.sha256 == Artifact.open(tmp_path / "mine.safetensors").sha256
    assert again.artifact.provenance == lists.artifact.provenance
    assert (again.words, spelled(again), again.content) == (lists.words, spelled(lists), lists.content)


def test_content_does_not_depend_on_what_files_are_called(two, tmp_path):
    elsewhere = tmp_path / "renamed.npz"
    shutil.copyfile(two[0], elsewhere)
    assert NeighborLists.build([elsewhere]).content == NeighborLists.build(two[:1]).content
    assert NeighborLists.build(two[:1]).content != NeighborLists.build(two).content


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sources": (0, 0)}, "1 of them different"),
        ({"sources": ()}, "0 embeddings"),
        ({"sources": (0,), "limit": 1}, "1 words"),
        ({"sources": (0,), "walks": 6}, "5 words"),
        ({"sources": (0,), "walks": 0}, "0 lists"),
    ],
)
def test_what_makes_no_lists_is_refused(two, options, said):
    sources = [two[which] for which in options["sources"]]
    with pytest.raises(ArtifactError, match=said):
        NeighborLists.build(sources, **{name: value for name, value in options.items() if name != "sources"})


@pytest.mark.parametrize(
    "lists",
    [[[0, 1, 1]], [[0, 1, 3]], [[0, 1]], [[0, 1, 2], [0]], []],
    ids=["twice", "beyond", "missing", "one", "none"],
)
def test_malformed_files_are_refused(tmp_path, lists):
    tensors = {
        "words": np.frombuffer(b"a\nb\nc", np.uint8),
        "lists": np.array([word for order in lists for word in order], np.uint32),
        "offsets": np.cumsum([0, *map(len, lists)]).astype(np.uint64),
    }
    save_tensors(tmp_path / "lists.safetensors", tensors, {"format": FORMAT, "description": "{}"})
    with pytest.raises(ArtifactError, match="repeat or miss"):
        NeighborLists.open(tmp_path / "lists.safetensors")


def test_other_files_are_refused(small_vectors, two):
    for path in (small_vectors, WordVectors.load(two[0]).artifact.path):
        with pytest.raises(ArtifactError, match="lists"):
            NeighborLists.open(path)


@pytest.mark.thorough
def test_five_embeddings_make_five_lists(shared_data):
    names = [
        "glove6b_50d_5k", "glove_twitter_25d_12k", "googlenews_w2v_300d_8k", "sgns_300d_30k", "counterfit_300d_30k",
    ]  # fmt: skip
    paths = [str(shared_data / "word_vectors" / f"{name}.npz") for name in names]
    lists = NeighborLists.build(paths, limit=600)
    assert len(lists.lists) == 5
    assert len(lists.words) == 600
    assert lists.even
    assert len({order.tobytes() for order in lists.lists}) == 5


def grid(tmp_path_factory, reals):
    path = tmp_path_factory.mktemp("grid") / "grid.npz"
    np.savez(path, words=np.array([f"w{i:04d}x" for i in range(len(reals))]), vectors=reals.astype(np.float32))
    return WordVectors.load(path)


def plain(vectors, word, k, metric, free):
    (keys,) = vectors.rank_keys([word], slice(None), metric)
    order = sorted(np.flatnonzero(free).tolist(), key=lambda other: (keys[other], other))
    return order[:k]


@examples(40)
@given(st.integers(0, 2**32), st.sampled_from(["euclidean", "cosine"]), st.integers(1, 7), st.integers(1, 16))
def test_the_nearest_free_words_are_those_of_exact_arithmetic(tmp_path_factory, seed, metric, k, block):
    random = np.random.default_rng(seed)
    reals = random.normal(size=(60, 3)).round(1)  # many equal and nearly equal distances
    reals[20:30] *= 100
    reals[5] = 0
    vectors = grid(tmp_path_factory, reals)
    words, free = UnusedWords(vectors, metric), np.ones(60, dtype=bool)
    while words.left > k:
        words.compact()
        rows = np.flatnonzero(free)[:block]
        for row, guess in zip(rows, words.guesses(rows), strict=True):
            if not free[row] or words.left <= k:
                continue
            words.use(row[None])
            free[row] = False
            found = words.nearest(row, k, guess)
            assert found.tolist() == plain(vectors, row, k, metric, free)
            words.use(found)
            free[found] = False
    assert words.left == free.sum()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_differences_that_float32_cannot_see_decide(tmp_path_factory, metric):
    """Coordinates near the grid's largest: one step moves a squared distance by less than float32 resolves."""
    random = np.random.default_rng(1)
    reals = random.normal(size=300) + random.normal(size=(200, 300)) * 2e-5
    vectors = grid(tmp_path_factory, reals)
    words = UnusedWords(vectors, metric)
    row, free = 0, np.arange(200) > 0
    (guess,) = words.guesses(np.array([row]))
    exact = plain(vectors, row, 50, metric, free)
    seen = guess * -2 + vectors.norms.astype(np.float32)
    assert np.argsort(seen[1:], kind="stable")[:50].tolist() != [other - 1 for other in exact], "float32 alone errs"
    words.use(np.array([row]))
    assert words.nearest(row, 50, guess).tolist() == exact


def sets_of(vectors, k, metric):
    """Cut the vocabulary by the definition, word by word."""
    free, sets = np.ones(len(vectors), dtype=bool), []
    while free.sum() >= k:
        row = int(np.flatnonzero(free)[0])
        free[row] = False
        near = plain(vectors, row, k - 1, metric, free)
        free[near] = False
        sets.append([row, *near])
    rest = np.flatnonzero(free).tolist()
    return [*sets, rest] if rest else sets


@examples(25)
@given(st.integers(0, 2**32), st.sampled_from(["euclidean", "cosine"]), st.integers(2, 9))
def test_output_sets_are_those_of_exact_arithmetic(tmp_path_factory, seed, metric, k):
    random = np.random.default_rng(seed)
    reals = random.normal(size=(150, 3)).round(1)  # many equal and nearly equal distances, more than one round of words
    reals[20:30] *= 100
    reals[5] = reals[90] = 0
    vectors = grid(tmp_path_factory, reals)
    assert [members.tolist() for members in partition(vectors, k, metric)] == sets_of(vectors, k, metric)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_low_bytes_decide_between_words_whose_high_bytes_are_equal(tmp_path_factory, metric):
    random = np.random.default_rng(1)
    reals = random.normal(size=40) + random.normal(size=(200, 40)) * 1e-3
    vectors = grid(tmp_path_factory, reals)
    assert len(np.unique((vectors.vectors.astype(int) + 128) >> 8, axis=0)) < 150
    assert [members.tolist() for members in partition(vectors, 7, metric)] == sets_of(vectors, 7, metric)
