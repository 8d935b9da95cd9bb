"""Record ids: one spelling per value in every layout, and types that name nothing refused by name."""

import datetime as dt
import json
import uuid
from decimal import Decimal
from functools import partial

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl import _kernel
from dptext_etl.errors import InputError
from dptext_etl.keys import canonical_series


def canonical(ids):
    return pa.array(_kernel.canonical_ids(ids)).to_pylist()


dumps = partial(json.dumps, separators=(",", ":"))


def ticks(values, unit):
    return pa.array(values, pa.int64()).cast(pa.timestamp(unit, "UTC"))


UUID = uuid.UUID("6F9619FF-8B86-D011-B42D-00C04FC964FF")

SPELLINGS = {
    "int64": (pa.array([-(2**63), 2**63 - 1]), [str(-(2**63)), str(2**63 - 1)]),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
    "timestamp ns": (ticks([1000, -1000], "ns"), ["1970-01-01T00:00:00.000001Z", "1969-12-31T23:59:59.999999Z"]),
    "binary": (pa.array([b"\x00\xff", b""]), ["00ff", ""]),
    "uuid": (pa.array([UUID.bytes], pa.uuid()), ["6f9619ff-8b86-d011-b42d-00c04fc964ff"]),
    "dictionary": (pa.array(["b", "a", "b"]).dictionary_encode(), ["b", "a", "b"]),
    "struct": (pa.array([{"a": 'x"', "b": 5, "c": {"d": 1}}]), [dumps(['x"', "5", dumps(["1"])])]),
    "polars enum": (pl.Series(["x", "y"], dtype=pl.Enum(["y", "x"])), ["x", "y"]),
}
"""A spelling of each kind; `tests/frozen` holds spellings of every type and layout, and the words of every refusal."""


@pytest.mark.parametrize("case", SPELLINGS)
def test_one_spelling_per_value(case):
    ids, expected = SPELLINGS[case]
    assert canonical(ids) == expected


def by_name(ids):
    return pa.array(_kernel.canonical_ids(ids, by_name=True)).to_pylist()


def test_by_name_the_order_of_fields_says_nothing():
    rows = [{"b": {"y": 'x"', "x": 1}, "a": "é"}]
    turned = pa.array([{"a": "é", "b": {"x": 1, "y": 'x"'}}])
    inner = dumps({"x": "1", "y": 'x"'})
    expected = [dumps({"a": "é", "b": inner})]
    assert by_name(pa.array(rows)) == by_name(turned) == expected
    assert by_name(pa.array([{"a": "5"}])) != by_name(pa.array([{"b": "5"}])), "names are part of the id"
    assert by_name(pa.array([7])) == ["7"], "other ids stay as they are"
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(InputError, match="one name"):
        by_name(twice)


@given(st.lists(st.text(max_size=30), max_size=20))
def test_strings_are_taken_as_they_are(ids):
    for dtype in (pa.string(), pa.large_string(), pa.string_view()):
        assert canonical(pa.array(ids, dtype)) == ids


@given(
    st.lists(
        st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=6), max_size=10
    )
)
def test_decimals_keep_their_value_and_lose_their_zeros(values):
    for value, text in zip(values, canonical(pa.array(values, pa.decimal128(30, 6))), strict=True):
        assert Decimal(text) == value
        assert "E" not in text
        assert "." not in text or not text.endswith("0")
        assert text != "-0"


@given(st.lists(st.datetimes(timezones=st.just(dt.UTC)), max_size=10))
def test_timestamps_are_written_as_python_writes_them(values):
    expected = [value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z" for value in values]
    assert canonical(pa.array(values, pa.timestamp("us", "Europe/Berlin"))) == expected


@given(st.lists(st.dates(), max_size=10))
def test_dates_are_written_as_python_writes_them(values):
    assert canonical(pa.array(values, pa.date32())) == [value.isoformat() for value in values]


@pytest.mark.parametrize("ids", [pl.Series("id", ["b", "", "é"]), pl.Series("id", [7, -7]), pl.Series("id", [b"\x07"])])
def test_a_series_is_written_in_the_same_form_under_its_name(ids):
    written = canonical_series(ids)
    assert (written.name, written.dtype) == ("id", pl.String)
    assert written.to_list() == canonical(ids.to_arrow())
    with pytest.raises(InputError, match="1 record id is null"):
        canonical_series(ids.append(pl.Series([None], dtype=ids.dtype)))
