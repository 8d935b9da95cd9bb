"""Files and laws that no list is released from."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.errors import ArtifactError

from ..examples import examples
from .listed_laws import GEOMETRIC, TEM, blob, make, names, orders, release, write

BROKEN = {
    "lists missing": {"lists": None},
    "no lists": {"lists": np.array([], np.uint32)},
    "half a list": {"lists": np.array([0, 1, 2, 3, 0, 1], np.uint32)},
    "a word twice": {"lists": np.array([0, 1, 2, 2], np.uint32)},
    "a word twice later on": {"lists": np.array([0, 1, 2, 3, 3, 2, 1, 1], np.uint32)},
    "a word that is not there": {"lists": np.array([0, 1, 2, 4], np.uint32)},
    "a word far away": {"lists": np.array([0, 1, 2, 2**32 - 1], np.uint32)},
    "wrong numbers": {"lists": np.arange(4, dtype=np.uint64)},
    "two dimensions": {"lists": np.arange(4, dtype=np.uint32).reshape(1, 4)},
    "no inputs": {"inputs": blob([])},
    "inputs missing": {"inputs": None},
    "inputs twice": {"inputs": blob(["a", "b", "c", "a"])},
    "an empty word": {"inputs": blob(["a", "", "b", "c"])},
    "offsets beyond": {"list_offsets": np.array([0, 5], np.uint64)},
    "offsets short": {"list_offsets": np.array([0, 3], np.uint64)},
    "offsets fall": {"list_offsets": np.array([0, 3, 2, 4], np.uint64)},
    "offsets of nothing": {"list_offsets": np.array([], np.uint64)},
    "no list at all": {"list_offsets": np.array([0], np.uint64)},
    "an empty list": {"list_offsets": np.array([0, 0, 4], np.uint64)},
    "huge offsets": {"list_offsets": np.array([0, 2**64 - 1], np.uint64)},
    "signed offsets": {"list_offsets": np.array([0, 4], np.int64)},
    "a word on no list": {"lists": np.arange(3, dtype=np.uint32), "list_offsets": np.array([0, 2, 3], np.uint64)},
    "too many uneven lists": {
        "lists": np.concatenate([np.arange(4), np.zeros(300)]).astype(np.uint32),
        "list_offsets": np.array([0, *range(4, 305)], np.uint64),
    },
    "outputs of its own": {"outputs": blob(["a", "b", "c", "d"])},
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("law", [TEM, GEOMETRIC])
def test_malformed_lists_are_refused(folder, case, law):
    with pytest.raises(ArtifactError, match=r"malformed|twice"):
        make(folder / "broken", names(4), [[0, 1, 2, 3]], law, **BROKEN[case])


BAD_LAWS = {
    "none": None,
    "no JSON": "tem",
    "nothing": "{}",
    "another": {"gauss": {}},
    "two": {**TEM, **GEOMETRIC},
    "no weights": {"tem": {"weights": [], "outside": 1}},
    "weights missing": {"tem": {"outside": 1}},
    "outside missing": {"tem": {"weights": [1]}},
    "more": {"tem": {"weights": [1], "outside": 1, "scale": 2}},
    "negative": {"tem": {"weights": [-1], "outside": 1}},
    "broken weight": {"tem": {"weights": [1.5], "outside": 1}},
    "nothing to draw": {"tem": {"weights": [0], "outside": 0}},
    "nothing to draw in the middle": {"tem": {"weights": [0, 0, 0, 1], "outside": 0}},
    "too heavy": {"tem": {"weights": [2**63, 2**62], "outside": 1}},
    "too heavy outside": {"tem": {"weights": [1], "outside": 2**62}},
    "beyond 64 bits": {"tem": {"weights": [2**64], "outside": 1}},
    "rate of nothing": {"geometric": {"rate": [0, 1]}},
    "no rate": {"geometric": {}},
    "no fraction": {"geometric": {"rate": [1, 0]}},
    "not in lowest terms": {"geometric": {"rate": [2, 4]}},
    "too fine": {"geometric": {"rate": [1, 2**48 + 1]}},
    "three numbers": {"geometric": {"rate": [1, 2, 3]}},
    "a float": {"geometric": {"rate": 0.5}},
}


@pytest.mark.parametrize("case", BAD_LAWS)
def test_unknown_laws_are_refused(folder, case):
    with pytest.raises(ArtifactError, match="malformed"):
        make(folder / "law", names(4), [[0, 1, 2, 3]], BAD_LAWS[case])


def test_another_format_is_refused(folder):
    with pytest.raises(ArtifactError, match="another format"):
        make(folder / "format", names(4), [[0, 1, 2, 3]], TEM, metadata={"format": "dptext-lists/2"})
    with pytest.raises(ArtifactError, match="missing"):
        make(folder / "format", names(4), [[0, 1, 2, 3]], TEM, metadata={"format": "dptext-table/1"})


@given(st.data())
@examples(200)
def test_a_file_of_any_bytes_is_refused_or_safe(folder, data):
    """Whatever a file holds, opening it under its own hash ends in an error or in a law that can be used."""
    path = folder / "any-bytes"
    write(path, names(4), orders(4, 2), data.draw(st.sampled_from([TEM, GEOMETRIC])))
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(whole))
    try:
        changed = _kernel.Table.open(str(path), hashlib.sha256(bytes(whole)).hexdigest())
    except ArtifactError:
        return
    assert release(changed, ["w0x w1x w2x w3x unknown"], b"\x01" * 32)[0]["positions"] == 5
