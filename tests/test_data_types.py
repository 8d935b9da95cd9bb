"""Names that a type carries are not printed, and not published; its kind, its numbers, and the cells are."""

import json

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_series_equal

from dptext_etl.arrays import arrow_kind
from dptext_etl.data_types import all_plain, carries, kind_of, named_as, parsed, plain_type

RAW = "zxqvyuu"
ENUM = pl.Enum(["a", RAW])
CARRY = {
    "an Enum": (ENUM, ["a", None], pl.String(), "Enum"),
    "a named Categorical": (pl.Categorical(pl.Categories(RAW)), ["a", None], pl.String(), "Categorical"),
    "a list of Enum": (pl.List(ENUM), [["a", None], None], pl.List(pl.String), "List of Enum"),
    "an array of Enum": (pl.Array(ENUM, 1), [["a"], None], pl.Array(pl.String, 1), "Array(1) of Enum"),
    "a struct": (
        pl.Struct({RAW: pl.Int64, "b": pl.List(ENUM)}),
        [{RAW: 1, "b": ["a"]}, None],
        pl.Struct({"field_1": pl.Int64, "field_2": pl.List(pl.String)}),
        "Struct of 2 fields (Int64, List of Enum)",
    ),
    "a list of structs": (
        pl.List(pl.Struct({"a": pl.Struct({RAW: pl.Int64})})),
        [[{"a": {RAW: 1}}, None], []],
        pl.List(pl.Struct({"field_1": pl.Struct({"field_1": pl.Int64})})),
        "List of Struct of 1 field (Struct of 1 field (Int64))",
    ),
    "an extension": (pl.Extension(RAW, pl.String, RAW), ["a", None], pl.String(), "Extension"),
    "extensions in a struct in a list": (
        pl.List(pl.Struct({"a": pl.Extension(RAW, pl.Int64, RAW)})), [[{"a": 1}], None],
        pl.List(pl.Struct({"field_1": pl.Int64})), "List of Struct of 1 field (Extension)",
    ),
    "a map": (
        pl.Map(pl.String, pl.Struct({RAW: ENUM})), [{"x": {RAW: "a"}, "y": None}, None],
        pl.Map(pl.String, pl.Struct({"field_1": pl.String})), "Map of String to Struct of 1 field (Enum)",
    ),
    "no type": (pl.Null(), [None, None], pl.String(), "Null"),
}  # fmt: skip
STAY = [
    pl.String(), pl.Int8(), pl.UInt64(), pl.Int128(), pl.Float64(), pl.Boolean(), pl.Binary(), pl.Date(), pl.Time(),
    pl.Decimal(12, 3), pl.Duration("ms"), pl.Datetime("ns"), pl.Datetime("us", "Europe/Vienna"),
    pl.Datetime("us", "+05:30"), pl.List(pl.Int64), pl.Array(pl.Float32, 3), pl.Map(pl.Int64, pl.String),
]  # fmt: skip


def values(cells: object) -> object:
    """Cells without the names of fields."""
    if isinstance(cells, dict):
        return [values(cell) for cell in cells.values()]
    return [values(cell) for cell in cells] if isinstance(cells, list) else cells


@pytest.mark.parametrize("name", CARRY)
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_column_keeps_its_cells_and_loses_what_its_type_carries(name, engine):
    dtype, cells, expected, printed = CARRY[name]
    if isinstance(dtype, pl.Extension):
        column = pl.Series("x", cells, dtype.ext_storage()).ext.to(dtype)
    elif "extensions" in name:
        column = pl.DataFrame({"x": pl.Series(cells, dtype=pl.List(pl.Struct({"a": pl.Int64})))}).select(
            pl.col("x").list.eval(pl.element().struct.with_fields(pl.field("a").ext.to(dtype.inner.fields[0].dtype)))
        )["x"]
    else:
        column = pl.Series("x", cells, dtype)
    found = all_plain(column.to_frame().lazy(), {"x": dtype}, rename=True).collect(engine=engine)["x"]
    assert found.dtype == expected == plain_type(dtype, rename=True)
    assert (values(found.to_list()), kind_of(dtype)) == (values(cells), printed)
    assert kind_of(expected) == kind_of(plain_type(dtype))
    assert all_plain(found.to_frame().lazy(), {"x": expected}, rename=True).collect()["x"].equals(found)
    inside = all_plain(column.to_frame().lazy(), {"x": dtype}).collect(engine=engine)["x"]
    assert (inside.to_list(), inside.dtype) == (cells, plain_type(dtype))


@pytest.mark.parametrize("dtype", STAY, ids=str)
def test_other_types_stay_as_they_are_and_are_read_as_they_are_printed(dtype):
    assert plain_type(dtype, rename=True) == dtype
    assert RAW not in kind_of(dtype)
    assert parsed(str(dtype)) == dtype
    assert not carries(str(dtype))
    if not dtype.is_nested():
        assert kind_of(dtype) == str(dtype)


@pytest.mark.parametrize("name", CARRY)
def test_a_type_that_is_printed_whole_is_known_from_its_kind(name):
    dtype, _, expected, _ = CARRY[name]
    assert carries(str(dtype))
    assert not carries(kind_of(expected))


@pytest.mark.parametrize(
    "written",
    [
        "", "__import__('os').system('x')", "Struct(1)", "Object(", "pl", "List()", "String.x", "Array(Int64)",
        "Datetime(x=1)", "(" * 9999,
    ],
)  # fmt: skip
def test_what_is_no_type_is_none(written):
    assert parsed(written) is None


def test_printed_types_hold_no_name_and_no_unknown_zone():
    inner = pa.struct([(RAW, pa.dictionary(pa.int8(), pa.string()))])
    types = [
        inner, pa.list_(inner), pa.large_list(pa.field(RAW, pa.int8())), pa.list_(inner, 2), pa.map_(inner, inner),
        pa.dense_union([pa.field(RAW, pa.int8())]), pa.timestamp("us", RAW), pa.run_end_encoded(pa.int32(), inner),
        pa.list_view(inner), pa.opaque(pa.int8(), RAW, RAW),
    ]  # fmt: skip
    assert RAW not in json.dumps([arrow_kind(dtype) for dtype in types])
    assert arrow_kind(pa.list_(inner)) == "list of struct of 1 field (dictionary of string)"
    dtype = pl.Datetime("us", RAW)
    assert (kind_of(dtype), plain_type(dtype)) == (str(pl.Datetime("us", "UTC")), pl.Datetime("us", "UTC"))


def test_names_come_back_by_position():
    dtype = pl.Struct({"b": pl.Int64, "a": pl.Struct({"c": pl.String})})
    column = pl.Series("x", [{"b": 1, "a": {"c": "y"}}, None], dtype)
    hidden = all_plain(column.to_frame().lazy(), {"x": dtype}, rename=True)
    assert_series_equal(hidden.select(named_as(pl.col("x"), dtype)).collect()["x"], column)
