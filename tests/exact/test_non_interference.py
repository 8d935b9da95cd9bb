"""Under a constant scorer and a fixed stream only the disclosures reach the output.

Specification: docs/spec/privacy.md#ni, docs/spec/privacy.md#ni-err.
"""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.artifacts import sha256_file
from dptext_etl.errors import ArtifactError, DPTextError
from dptext_etl.families.stored_distributions import TableParts
from dptext_etl.families.words import STRICT_INPUT

from ..examples import examples

WORDS = [f"{a}{b}" for a in ("ba", "ce", "di", "fo", "gu") for b in ("ka", "le", "mi", "no", "pu", "ra")]
SETS = [np.arange(i, i + 6) for i in range(0, 30, 6)]
POLICY = json.dumps({**STRICT_INPUT, "n_max": 10_000})
KEY = pa.array([bytes(range(100, 132))], pa.binary(32))

between = st.text(
    alphabet=" ,;!?\t\n\u3000\u00a0…—“”()[]<>/\\|@#%^&*+=~`\u200b\u202e😀\U0001f469\u200d", max_size=6
).map(lambda s: f" {s} ")
casing = st.sampled_from([str.lower, str.upper, str.title, str.capitalize])
foreign = st.sampled_from(
    ["zzxqv", "ünïcödé", "12345", "3.14", "я", "我", "e\u0301x", "x" * 10_000, "don\u2019tt", "½", "\u0627\u0644"]
)


@pytest.fixture(scope="module")
def blind(tmp_path_factory):
    """A table whose scorer is constant: within a set every word has the same row."""
    path = tmp_path_factory.mktemp("blind") / "table.safetensors"
    rows = np.broadcast_to(np.array([5, 1, 3, 7, 2, 9], np.uint64), (6, 6))
    TableParts.partition(WORDS, SETS, [rows] * 5).save(path, {"scorer": "constant"})
    return _kernel.Table.open(str(path), sha256_file(path))


def release(table, text):
    [row] = pa.array(table.release_with_keys(KEY, pa.array([text]), POLICY)).to_pylist()
    return row


@st.composite
def neighbors(draw):
    """Two texts that agree on the number of words and the output set of each, and on nothing else."""
    clusters = draw(st.lists(st.integers(-1, 4), max_size=12))

    def text():
        words = [draw(foreign) if c < 0 else draw(casing)(WORDS[6 * c + draw(st.integers(0, 5))]) for c in clusters]
        return draw(between) + "".join(word + draw(between) for word in words)

    return len(clusters), text(), text()


@examples(300)
@given(neighbors())
def test_equal_disclosures_give_equal_bytes(blind, pair):
    positions, one, other = pair
    first, second = release(blind, one), release(blind, other)
    assert first == second
    assert first["positions"] == positions


def test_another_length_or_output_set_is_seen(blind):
    """The test above can fail: a difference in what is disclosed does reach the output."""
    assert release(blind, "baka bale")["text"] != release(blind, "baka")["text"]
    assert release(blind, "baka " * 20)["text"] != release(blind, "ceka " * 20)["text"]


@examples(60)
@given(st.text(max_size=200))
def test_any_text_is_released_within_the_vocabulary(blind, text):
    row = release(blind, text)
    words = row["text"].split(" ") if row["text"] else []
    assert set(words) <= set(WORDS)
    assert len(words) == row["positions"]


def test_ni_err_a_failing_table_releases_nothing(blind, tmp_path):
    sentinel = "qzxvjkw"
    with pytest.raises(DPTextError) as caught:
        blind.release_with_keys(KEY, pa.array([sentinel, sentinel]), POLICY)
    assert sentinel not in str(caught.value)
    with pytest.raises(DPTextError) as caught:
        blind.release_with_keys(KEY, pa.array([sentinel]), '{"case": "qzxvjkw"}')
    assert sentinel not in str(caught.value)
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"no table")
    with pytest.raises(ArtifactError):
        _kernel.Table.open(str(broken), sha256_file(broken))
