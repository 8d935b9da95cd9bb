"""Record ids: one spelling per value in every layout, and types that name nothing refused by name."""

import datetime as dt
import json
import uuid
from decimal import Decimal

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


NOON = dt.datetime(2026, 11, 20, 12, 0, 0, 250_000, tzinfo=dt.UTC)
TOKYO = dt.timezone(dt.timedelta(hours=9))
UUID = uuid.UUID("6F9619FF-8B86-D011-B42D-00C04FC964FF")

SPELLINGS = {
    "string": (pa.array(["a", "", " é😀\n", "007"]), ["a", "", " é😀\n", "007"]),
    "large string": (pa.array(["a"], pa.large_string()), ["a"]),
    "string view": (pa.array(["a" * 40], pa.string_view()), ["a" * 40]),
    "dictionary": (pa.array(["b", "a", "b"]).dictionary_encode(), ["b", "a", "b"]),
    "dictionary of integers": (pa.array([7, -7, 7]).dictionary_encode(), ["7", "-7", "7"]),
    "int8": (pa.array([-128, 127], pa.int8()), ["-128", "127"]),
    "int16": (pa.array([-5], pa.int16()), ["-5"]),
    "int32": (pa.array([0], pa.int32()), ["0"]),
    "int64": (pa.array([-(2**63), 2**63 - 1]), [str(-(2**63)), str(2**63 - 1)]),
    "uint8": (pa.array([255], pa.uint8()), ["255"]),
    "uint16": (pa.array([1], pa.uint16()), ["1"]),
    "uint32": (pa.array([1], pa.uint32()), ["1"]),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
    "decimal": (
        pa.array([Decimal("1.50"), Decimal("-0.05"), Decimal(200)], pa.decimal128(10, 2)),
        ["1.5", "-0.05", "200"],
    ),
    "decimal32": (pa.array([Decimal("-1.10")], pa.decimal32(5, 2)), ["-1.1"]),
    "decimal64": (pa.array([Decimal("1.10")], pa.decimal64(5, 2)), ["1.1"]),
    "date": (
        pa.array([dt.date(2026, 2, 3), dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        ["2026-02-03", "0001-01-01", "9999-12-31"],
    ),
    "date64": (pa.array([dt.date(1969, 12, 31)], pa.date64()), ["1969-12-31"]),
    "timestamp us": (pa.array([NOON], pa.timestamp("us", "UTC")), ["2026-11-20T12:00:00.250000Z"]),
    "timestamp zone": (
        pa.array([NOON.astimezone(TOKYO)], pa.timestamp("us", "Asia/Tokyo")),
        ["2026-11-20T12:00:00.250000Z"],
    ),
    "timestamp ms": (pa.array([NOON], pa.timestamp("ms", "UTC")), ["2026-11-20T12:00:00.250000Z"]),
    "timestamp s": (
        pa.array([0, -1], pa.int64()).cast(pa.timestamp("s", "UTC")),
        ["1970-01-01T00:00:00.000000Z", "1969-12-31T23:59:59.000000Z"],
    ),
    "timestamp ns": (
        pa.array([1000, -1000], pa.int64()).cast(pa.timestamp("ns", "UTC")),
        ["1970-01-01T00:00:00.000001Z", "1969-12-31T23:59:59.999999Z"],
    ),
    "binary": (pa.array([b"\x00\xff", b""]), ["00ff", ""]),
    "large binary": (pa.array([b"\xab"], pa.large_binary()), ["ab"]),
    "binary view": (pa.array([b"\xab" * 20], pa.binary_view()), ["ab" * 20]),
    "fixed-size binary": (pa.array([b"\x01\x02"], pa.binary(2)), ["0102"]),
    "uuid": (pa.array([UUID.bytes], pa.uuid()), ["6f9619ff-8b86-d011-b42d-00c04fc964ff"]),
    "struct": (
        pa.array([{"a": 'x"', "b": 5, "c": dt.date(2026, 1, 2)}, {"a": "é", "b": -1, "c": dt.date(1, 1, 1)}]),
        [
            json.dumps(['x"', "5", "2026-01-02"], separators=(",", ":")),
            json.dumps(["é", "-1", "0001-01-01"], separators=(",", ":")),
        ],
    ),
    "nested struct": (pa.array([{"a": {"b": "x"}}]), ['["[\\"x\\"]"]']),
    "chunked": (pa.chunked_array([[1], [], [2, 3]], pa.int64()), ["1", "2", "3"]),
    "sliced": (pa.array([1, 2, 3]).slice(1), ["2", "3"]),
    "sliced struct": (pa.array([{"a": 1}, {"a": 2}]).slice(1), ['["2"]']),
    "empty": (pa.array([], pa.int64()), []),
    "polars": (pl.Series([1, 2]), ["1", "2"]),
    "polars category": (pl.Series(["x", "y", "x"], dtype=pl.Categorical), ["x", "y", "x"]),
    "polars enum": (pl.Series(["x", "y"], dtype=pl.Enum(["y", "x"])), ["x", "y"]),
    "polars int128": (pl.Series([2**100], dtype=pl.Int128), [str(2**100)]),
    "polars decimal": (pl.Series([Decimal("1.50")], dtype=pl.Decimal(10, 2)), ["1.5"]),
}


@pytest.mark.parametrize("case", SPELLINGS)
def test_one_spelling_per_value(case):
    ids, expected = SPELLINGS[case]
    assert canonical(ids) == expected


def by_name(ids):
    return pa.array(_kernel.canonical_ids(ids, by_name=True)).to_pylist()


def test_by_name_the_order_of_fields_says_nothing():
    rows = [{"b": {"y": 'x"', "x": 1}, "a": "é"}]
    turned = pa.array([{"a": "é", "b": {"x": 1, "y": 'x"'}}])
    inner = json.dumps({"x": "1", "y": 'x"'}, separators=(",", ":"))
    expected = [json.dumps({"a": "é", "b": inner}, separators=(",", ":"))]
    assert by_name(pa.array(rows)) == by_name(turned) == expected
    assert by_name(pa.array([{"a": "5"}])) != by_name(pa.array([{"b": "5"}])), "names are part of the id"
    assert by_name(pa.array([7])) == ["7"], "other ids stay as they are"
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(InputError, match="one name"):
        by_name(twice)


REFUSED = {
    "float": (pa.array([1.0]), "float64"),
    "float32": (pa.array([1.0], pa.float32()), "float32"),
    "boolean": (pa.array([True]), "boolean"),
    "null type": (pa.nulls(2), "null"),
    "naive timestamp": (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")), "timestamp without time zone"),
    "nanoseconds": (pa.array([1], pa.int64()).cast(pa.timestamp("ns", "UTC")), "whole microseconds"),
    "far timestamp": (pa.array([2**62], pa.int64()).cast(pa.timestamp("s", "UTC")), "years 1 to 9999"),
    "far date": (pa.array([10_000_000], pa.int32()).cast(pa.date32()), "years 1 to 9999"),
    "half a day": (pa.array([1], pa.int64()).view(pa.date64()), "whole days"),
    "time": (pa.array([dt.time(1, 2)]), "time64"),
    "duration": (pa.array([dt.timedelta(1)]), "duration"),
    "list": (pa.array([[1]]), "list"),
    "map": (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "map"),
    "a null": (pa.array(["a", None]), "1 nulls"),
    "a null integer": (pa.array([1, None, None]), "2 nulls"),
    "a null field": (pa.array([{"a": None}, {"a": 1}]), "1 nulls"),
    "a null struct": (pa.array([None, {"a": 1}]), "1 nulls"),
    "a null category": (pa.array(["a", None]).dictionary_encode(), "1 nulls"),
    "a float field": (pa.array([{"a": 1.0}]), "float64"),
    "no fields": (pa.array([{}], pa.struct([])), "no fields"),
    "floats in a dictionary": (pa.array([1.5]).dictionary_encode(), "float64"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_types_that_name_nothing(case):
    ids, said = REFUSED[case]
    with pytest.raises(InputError, match=said) as caught:
        _kernel.canonical_ids(ids)
    assert "Hint:" in str(caught.value) or "nulls" in str(caught.value)


def test_layouts_that_the_reader_does_not_know_are_refused_without_a_panic():
    with pytest.raises(ValueError, match="cast it first"):
        _kernel.canonical_ids(pa.array([Decimal("1.10")], pa.decimal256(50, 2)))
    with pytest.raises(ValueError, match=r"cast it first|not allowed"):
        _kernel.canonical_ids(pa.array([[1]], pa.list_view(pa.int64())))


def test_a_null_inside_a_dictionary():
    ids = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None]))
    with pytest.raises(InputError, match="never null"):
        _kernel.canonical_ids(ids)


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
