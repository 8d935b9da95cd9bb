"""Word vectors: their files, the grid, and exact products."""

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from dptext_etl.artifacts import Artifact
from dptext_etl.embeddings import WordVectors, stopwords
from dptext_etl.embeddings.neighbor_lists import NeighborLists
from dptext_etl.embeddings.vectors import quantise, read_grid, write_grid, written
from dptext_etl.errors import ArtifactError

WORDS = ("the", "café", "don't", "naïve", "o")
REALS = np.array([[0.5, -1.25, 3], [0, 0, 0.125], [1, 2, 3], [-3.5, 0, 1e-3], [1, 2, 3]], dtype=np.float32)


def text(path, words=WORDS, rows=REALS, header=None, between=" "):
    lines = [between.join([word, *map(str, row)]) for word, row in zip(words, rows, strict=True)]
    path.write_text("\n".join([*([header] if header else []), *lines]) + "\n", encoding="utf-8")
    return path


def binary(path, after=b""):
    entries = [
        word.encode() + b" " + struct.pack("<3f", *row) + after for word, row in zip(WORDS, REALS.tolist(), strict=True)
    ]
    path.write_bytes(b"5 3\n" + b"".join(entries))
    return path


def npz(path, dtype=np.float32):
    np.savez(path, words=np.array(WORDS), vectors=REALS.astype(dtype))
    return path


SOURCES = {
    "glove": lambda folder: text(folder / "glove.txt"),
    "tabs": lambda folder: text(folder / "tabs.vec", between="\t"),
    "word2vec text": lambda folder: text(folder / "w2v.txt", header="5 3"),
    "counter-fitted": lambda folder: text(folder / "cf.txt", words=[f"en_{word}" for word in WORDS]),
    "word2vec binary": lambda folder: binary(folder / "w2v.bin"),
    "word2vec binary, lines": lambda folder: binary(folder / "w2v.bin", after=b"\n"),
    "npz": lambda folder: npz(folder / "w.npz"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_format_gives_the_same_grid(name, tmp_path):
    vectors = WordVectors.load(SOURCES[name](tmp_path))
    assert vectors.words == WORDS
    assert vectors.vectors.dtype == np.int16
    np.testing.assert_allclose(vectors.vectors * vectors.scale, REALS, rtol=0, atol=vectors.scale / 2)
    assert np.abs(vectors.vectors).max() > 2**13
    again = WordVectors.load(vectors.artifact.path)
    assert again.words == vectors.words
    assert again.scale == vectors.scale
    assert again.artifact.sha256 == vectors.artifact.verify().sha256
    np.testing.assert_array_equal(again.vectors, vectors.vectors)


def test_the_identity_is_the_grid_and_the_provenance_the_file(tmp_path):
    path = text(tmp_path / "glove.txt")
    vectors = WordVectors.load(path)
    assert vectors.artifact.path != path
    assert Artifact.open(path).sha256 in vectors.artifact.provenance
    assert WordVectors.load(npz(tmp_path / "w.npz")).artifact.sha256 == vectors.artifact.sha256
    assert WordVectors.load(path, limit=2).artifact.sha256 != vectors.artifact.sha256


def test_half_precision_is_read(tmp_path):
    vectors = WordVectors.load(npz(tmp_path / "half.npz", np.float16))
    np.testing.assert_allclose(vectors.vectors * vectors.scale, REALS.astype(np.float16), atol=vectors.scale / 2)


@pytest.mark.parametrize("name", SOURCES)
def test_limit_takes_the_first_words(name, tmp_path):
    vectors = WordVectors.load(SOURCES[name](tmp_path), limit=3)
    assert vectors.words == WORDS[:3]
    grid = WordVectors.load(vectors.artifact.path, limit=2)
    assert grid.words == WORDS[:2]
    np.testing.assert_array_equal(grid.vectors, vectors.vectors[:2])


def test_first_of_equal_words_stays_and_impossible_words_are_excluded(tmp_path):
    words = ["The", "new york", "the", "don\u2019t", "don't", "a\u00a0b", "x"]
    vectors = WordVectors.load(text(tmp_path / "v.txt", words=words, rows=np.arange(1, 22).reshape(7, 3)))
    assert vectors.words == ("the", "don't", "x")
    assert (vectors.vectors * vectors.scale)[0].tolist() == [1, 2, 3]
    assert vectors.artifact.description["left_out"] == 2
    assert vectors.artifact.description["repeated"] == 2


BAD_TEXT = {
    "empty": (b"", "no word vectors"),
    "header alone": (b"0 3\n", "no word vectors"),
    "too few": (b"secret 1 2 3\nother 1 2\n", "line 2: expected a word and 3 numbers, got 3 fields"),
    "too many": (b"secret 1 2 3\nother 1 2 3 4\n", "line 2: expected a word and 3 numbers, got 5 fields"),
    "word alone": (b"secret\n", "line 1: expected a word"),
    "no number": (b"secret 1 2 3\nother 1 secret 3\n", "line 2: expected 3 numbers after the word"),
    "nan": (b"secret 1 2 3\nother 1 nan 3\n", "line 2: a number is not finite"),
    "infinite": (b"secret 1 inf 3\n", "line 1: a number is not finite"),
    "beyond float32": (b"secret 1 1e300 3\n", "line 1: a number is not finite"),
    "not UTF-8": (b"secret 1 2 3\nsecret\xff 1 2 3\n", "line 2: the word is not UTF-8"),
    "cut": (b"3 2\nsecret 1 2\nother 1 2\n", "promises 3 words in line 1 and holds 2"),
    "wrong header": (b"1 2\nsecret 1 2 3\n", "line 2: expected a word and 2 numbers"),
    "zeros": (b"secret 0 0\nother 0 0\n", "all coordinates"),
}


@pytest.mark.parametrize("name", BAD_TEXT)
def test_bad_text_names_the_line_and_quotes_nothing(name, tmp_path):
    content, message = BAD_TEXT[name]
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=message) as raised:
        WordVectors.load(path)
    assert "secret" not in str(raised.value)
    assert "Hint: " in str(raised.value)
    assert raised.value.__cause__ is raised.value.__context__ is None


def save_npz(**arrays):
    return lambda path: np.savez(path, **arrays)


def flagged(path):
    write_grid(path, ("a", "a"), np.ones((2, 2), dtype=np.int8), {"scale": "1.0"})


BAD_FILES = {
    "cut.bin": lambda path: path.write_bytes(b"2 2\nsecret " + struct.pack("<2f", 1, 2) + b"sec"),
    "short.bin": lambda path: path.write_bytes(b"1 2\nsecret " + struct.pack("<f", 1)),
    "nan.bin": lambda path: path.write_bytes(b"1 2\nsecret " + struct.pack("<2f", 1, float("nan"))),
    "headless.bin": lambda path: path.write_bytes(b"secret"),
    "noise.npz": lambda path: path.write_bytes(b"secret"),
    "keys.npz": save_npz(secret=np.ones(2)),
    "pickled.npz": save_npz(words=np.array(["secret", None]), vectors=np.ones((2, 2))),
    "ragged.npz": save_npz(words=np.array(["secret"]), vectors=np.ones((2, 2))),
    "flat.npz": save_npz(words=np.array(["secret"]), vectors=np.ones(1)),
    "nan.npz": save_npz(words=np.array(["secret"]), vectors=np.array([[np.nan]])),
    "empty.npz": save_npz(words=np.array([], dtype=str), vectors=np.ones((0, 2))),
    "none.bin": lambda path: path.write_bytes(b"0 3\n"),
    "none.safetensors": lambda path: write_grid(path, (), np.zeros((0, 3), np.int8), {"scale": "1.0"}),
    "other.safetensors": lambda path: save_file({"vectors": np.ones((1, 1), dtype=np.int8)}, path),
    "noise.safetensors": lambda path: path.write_bytes(b"secret"),
    "repeated.safetensors": flagged,
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_refused_and_not_quoted(name, tmp_path):
    BAD_FILES[name](tmp_path / name)
    with pytest.raises(ArtifactError, match=rf"{name}(.|\n)*Hint: ") as raised:
        WordVectors.load(tmp_path / name)
    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is raised.value.__context__ is None


def test_lists_of_embeddings_without_a_common_word_are_refused(tmp_path):
    for name in ("good", "bad"):
        (tmp_path / f"{name}.txt").write_text(f"{name} 1 2\n{name}ly 2 1\n")
    with pytest.raises(ArtifactError, match="the embeddings leave 0 words for a list that needs 2"):
        NeighborLists.build(tuple(str(tmp_path / f"{name}.txt") for name in ("good", "bad")))


def test_missing_file_and_senseless_limit(tmp_path):
    with pytest.raises(ArtifactError, match="cannot be read"):
        WordVectors.load(tmp_path / "none.txt")
    with pytest.raises(ArtifactError, match="limit is 0"):
        WordVectors.load(limit=0)


@given(hnp.arrays(np.float32, (3, 2), elements=st.floats(-(2.0**99), 2.0**99, width=32)))
def test_quantisation_moves_a_coordinate_by_half_a_step_at_most(reals):
    if not reals.any():
        return
    grid, scale = quantise(reals)
    assert np.log2(scale) == int(np.log2(scale))
    peak = Fraction(float(np.abs(reals).max()))
    assert Fraction(scale) * (2**14 - 1) <= peak
    for real, step in zip(reals.ravel().tolist(), grid.ravel().tolist(), strict=True):
        assert abs(Fraction(real) - step * Fraction(scale)) <= Fraction(scale) / 2


def test_take_keeps_the_order_asked_for():
    vectors = WordVectors.load()
    part = vectors.take(["good", "the"])
    assert part.words == ("good", "the")
    assert part.squared_distances([0], [1]) == vectors.squared_distances(*[[vectors.index[w]] for w in part.words])


def test_vectors_cannot_be_changed_and_print_no_content():
    vectors = WordVectors.load(limit=50)
    with pytest.raises(ValueError, match="read-only"):
        vectors.vectors[0, 0] = 1
    assert repr(vectors).startswith("WordVectors(50 words, ")


@given(st.text(max_size=8))
def test_written_words_are_stable(word):
    once = written(word)
    if once is not None:
        assert "\n" not in once
        assert "\u2019" not in once
        assert once.strip() == once


def test_own_stopwords_are_lower_case_and_unique():
    listed = stopwords()
    assert 150 <= len(listed.words) <= 250
    assert len(set(listed.words)) == len(listed.words)
    assert {"the", "don't", "she", "with", "would"} <= set(listed.words)
    assert listed.artifact.verify().license == "Apache-2.0"


def test_a_list_of_words_in_a_file(tmp_path):
    path = tmp_path / "list"
    path.write_bytes("# of ours\n\nThe\r\ndon\u2019t\nthe\n".encode())
    assert stopwords(path).words == ("the", "don't")
    path.write_bytes(b"the\nsecret word\n")
    with pytest.raises(ArtifactError, match="line 2: not one word") as raised:
        stopwords(path)
    assert "secret" not in str(raised.value)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ArtifactError, match="line 1"):
        stopwords(path)


def test_grid_files_hold_int8_too(tmp_path):
    write_grid(tmp_path / "g.safetensors", ("a", "b"), np.array([[1], [-2]], dtype=np.int8), {"scale": "0.5"})
    words, vectors, facts = read_grid(tmp_path / "g.safetensors", "")
    assert (words, vectors.tolist(), vectors.dtype, facts) == (("a", "b"), [[1], [-2]], np.int8, {"scale": "0.5"})


def grid_of(array, dtype):
    words = tuple(f"w{row}" for row in range(len(array)))
    vectors = WordVectors(words, np.asarray(array, dtype=dtype), 1.0, Artifact.open(__file__))
    return vectors, [[int(number) for number in row] for row in array]


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def squared(x, y):
    return sum((a - b) ** 2 for a, b in zip(x, y, strict=True))


def shaped(dtype):
    shape = st.tuples(st.integers(2, 12), st.integers(1, 40))
    full = np.iinfo(dtype)
    return shape.flatmap(
        lambda size: st.one_of(
            hnp.arrays(dtype, size, elements=st.integers(full.min, full.max)),
            hnp.arrays(dtype, size, elements=st.sampled_from([full.min, full.max])),
            hnp.arrays(dtype, size, elements=st.integers(-1, 1)),
        )
    )


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@given(data=st.data())
def test_products_and_distances_are_the_integers(dtype, data):
    vectors, rows = grid_of(data.draw(shaped(dtype)), dtype)
    everything = slice(None)
    assert vectors.products(everything, vectors).tolist() == [[dot(x, y) for y in rows] for x in rows]
    assert vectors.squared_distances([1], everything).tolist() == [[squared(rows[1], y) for y in rows]]
    assert vectors.norms.tolist() == [dot(x, x) for x in rows]


@pytest.mark.parametrize("d", [64, 256, 257, 1024])
def test_products_stay_exact_at_the_extremes(d):
    vectors, rows = grid_of(np.array([[127] * d, [-128] * d, [-127] * d]), np.int8)
    assert vectors.squared_distances([0], [1, 2]).tolist() == [[squared(rows[0], y) for y in rows[1:]]]
    assert vectors.squared_distances(slice(None), slice(None)).tolist()[2][2] == 0


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_closeness_agrees_with_plain_floats(metric):
    random = np.random.default_rng(3)
    array = random.integers(-99, 100, (20, 7))
    array[4] = 0
    vectors, _ = grid_of(array, np.int8)
    reals = array.astype(float)
    expected = -np.linalg.norm(reals[:, None] - reals, axis=2)
    if metric == "cosine":
        lengths = np.linalg.norm(reals, axis=1)
        expected = reals @ reals.T / np.maximum(np.outer(lengths, lengths), 1)
    (found,) = vectors.closeness_within(np.arange(20)[None], metric)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_array_equal(found, found.T)
    (keys,) = vectors.rank_keys([0], slice(None), metric)
    assert np.argsort(keys, kind="stable").tolist() == np.argsort(-found[0], kind="stable").tolist()
