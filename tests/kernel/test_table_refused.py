"""Files, policies and columns that no table is released from."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.errors import ArtifactError, InputError, PolicyError

from ..examples import examples
from .tables import STRICT, WORDS, blob, release, write

BROKEN = {
    "no inputs": {"inputs": blob([])},
    "inputs missing": {"inputs": None},
    "weights missing": {"cumulative": None},
    "members missing": {"members": None},
    "wrong numbers": {"members": np.arange(8, dtype=np.uint64)},
    "two dimensions": {"members": np.zeros((4, 2), np.uint32)},
    "an output that is not there": {"members": np.array([0, 1, 2, 3, 4, 5, 6, 8], np.uint32)},
    "fewer outputs": {"outputs": blob(WORDS[:7])},
    "a set that is not there": {"input_set": np.array([0, 0, 0, 0, 1, 1, 1, 2], np.uint32)},
    "too few words": {"input_set": np.zeros(7, np.uint32)},
    "sets beyond members": {"set_offsets": np.array([0, 4, 9], np.uint64)},
    "sets fall": {"set_offsets": np.array([0, 9, 8], np.uint64)},
    "sets start late": {"set_offsets": np.array([1, 4, 8], np.uint64)},
    "an empty set": {"set_offsets": np.array([0, 8, 8], np.uint64)},
    "rows beyond weights": {"row_offsets": np.arange(4, 40, 4, dtype=np.uint64)},
    "rows fall": {"row_offsets": np.array([0, 8, 4, 12, 16, 20, 24, 28, 32], np.uint64)},
    "rows shorter than sets": {"row_offsets": np.array([0, 3, 8, 12, 16, 20, 24, 28, 32], np.uint64)},
    "huge offsets": {"row_offsets": np.array([0] + [2**64 - 1] * 8, np.uint64)},
    "sums fall": {"cumulative": np.array([4, 3, 2, 1] * 8, np.uint64)},
    "a row of nothing": {"cumulative": np.array([0, 0, 0, 0] + [1, 2, 3, 4] * 7, np.uint64)},
    "a word twice": {"inputs": blob([*WORDS[:7], "alpha"])},
    "an empty word": {"inputs": blob([*WORDS[:7], ""])},
    "an empty output": {"outputs": blob(["", *WORDS])},
    "no UTF-8": {"inputs": np.frombuffer(b"a\nb\nc\nd\ne\nf\ng\n\xff", np.uint8)},
}


@pytest.mark.parametrize("case", BROKEN)
def test_malformed_tables_are_refused(tmp_path, case):
    path = tmp_path / "t"
    with pytest.raises(ArtifactError, match=r"malformed|twice"):
        _kernel.Table.open(str(path), write(path, **BROKEN[case]))


def test_another_format_is_refused(tmp_path):
    path = tmp_path / "t"
    with pytest.raises(ArtifactError, match="another format"):
        _kernel.Table.open(str(path), write(path, {"format": "dptext-table/2"}))


def test_truncated_changed_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "t"
    sha256 = write(path, members=np.arange(8, dtype=np.uint32)[::-1].copy())
    whole = path.read_bytes()
    for i in range(0, len(whole), 61):
        path.write_bytes(whole[:i])
        with pytest.raises(ArtifactError, match="SHA-256"):
            _kernel.Table.open(str(path), sha256)
        with pytest.raises(ArtifactError):
            _kernel.Table.open(str(path), hashlib.sha256(whole[:i]).hexdigest())
        changed = bytearray(whole)
        changed[i] ^= 1
        path.write_bytes(bytes(changed))
        with pytest.raises(ArtifactError, match="SHA-256"):
            _kernel.Table.open(str(path), sha256)
    path.unlink()
    with pytest.raises(ArtifactError, match="cannot be read"):
        _kernel.Table.open(str(path), sha256)
    with pytest.raises(ArtifactError, match="cannot be read"):
        _kernel.Table.open(str(tmp_path), sha256)
    path.write_bytes(whole)
    _kernel.Table.open(str(path), sha256)


@given(st.data())
@examples(200)
def test_a_table_of_any_bytes_is_refused_or_safe(table, tmp_path_factory, data):
    """Whatever a file holds, opening it under its own hash ends in an error or in a table that can be used."""
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    write(path)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(whole))
    try:
        changed = _kernel.Table.open(str(path), hashlib.sha256(bytes(whole)).hexdigest())
    except ArtifactError:
        return
    out = release(changed, pa.array(["alpha beta gamma delta don't 42 straße unknown"] * 3))
    assert out.field("positions").to_pylist() == [8] * 3


BAD_POLICIES = {
    "unknown field": {**STRICT, "extra": 1},
    "missing field": {name: value for name, value in STRICT.items() if name != "oov"},
    "unknown value": {**STRICT, "case": "upper"},
    "negative": {**STRICT, "n_max": -1},
}


@pytest.mark.parametrize("case", BAD_POLICIES)
def test_unknown_input_policies_are_refused(table, case):
    with pytest.raises(PolicyError, match="input policy"):
        release(table, pa.array(["alpha"]), policy=BAD_POLICIES[case])


def test_wrong_columns_are_refused_without_quoting_them(table):
    secret = "zxqvyuu"
    refused = [
        (pa.array([1, 2]), pa.array(["a", "b"]), "int64"),
        (pa.array([secret.encode()]), pa.array(["a"]), "binary"),
        (pa.array([[secret]]), pa.array(["a"]), "list"),
        (pa.array([secret]), pa.array(["a", secret]), "2"),
        (pa.array([secret]), pa.array([None], pa.string()), "nulls"),
        (pa.array([secret]), pa.array([1.5]), "float"),
    ]
    for texts, ids, said in refused:
        with pytest.raises(InputError, match=said) as caught:
            release(table, texts, ids)
        assert secret not in str(caught.value)
    for nothing in (secret, None, [secret], 3, np.array([secret])):
        with pytest.raises(TypeError, match="Arrow") as failure:
            release(table, nothing, pa.array(["a"]))
        assert secret not in str(failure.value)


def test_invalid_utf8_is_refused(table):
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(InputError, match="UTF-8"):
        release(table, broken)
