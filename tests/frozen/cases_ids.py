"""Record ids of every Arrow type and layout: their one spelling, or the words that refuse them."""

import datetime as dt
import uuid
from decimal import Decimal

import polars as pl
import pyarrow as pa

from dptext_etl import _kernel, keys

from . import facts

NOON = dt.datetime(2026, 11, 20, 12, 0, 0, 250_000, tzinfo=dt.UTC)
UUIDS = [uuid.UUID(int=5), uuid.UUID("6F9619FF-8B86-D011-B42D-00C04FC964FF")]
NOT_UTF8 = pa.py_buffer(b"ok\xff\xfe")
OFFSETS = pa.py_buffer((0).to_bytes(4, "little") + (2).to_bytes(4, "little") + (4).to_bytes(4, "little"))


def ticks(values, unit, zone="UTC"):
    return pa.array(values, pa.int64()).cast(pa.timestamp(unit, zone))


def encoded(values, index, dtype=None):
    return pa.array(values, dtype).dictionary_encode().cast(pa.dictionary(index, dtype or pa.array(values).type))


class Marked(pa.ExtensionType):
    def __init__(self, storage):
        super().__init__(storage, "frozen.marked")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls(storage)


def marked(array):
    return pa.ExtensionArray.from_storage(Marked(array.type), array)


WORDS = ["a", "", " é😀\n", "007", "a word of more than twelve bytes"]
STRUCTS = [{"a": 'x"\\', "b": 5, "c": dt.date(2026, 1, 2)}, {"a": "é\n😀", "b": -1, "c": dt.date(1, 1, 1)}]
LONG = [f"a view of more than twelve bytes {i}" for i in range(5)]

ARRAYS = {
    # strings
    "string": lambda: pa.array(WORDS),
    "large_string": lambda: pa.array(WORDS, pa.large_string()),
    "string_view": lambda: pa.array(WORDS, pa.string_view()),
    "string sliced": lambda: pa.array([None, *WORDS, None]).slice(1, 5),
    "large_string sliced": lambda: pa.array([None, *WORDS, None], pa.large_string()).slice(1, 5),
    "string_view sliced": lambda: pa.array([None, *LONG, None], pa.string_view()).slice(1, 5),
    "string chunked": lambda: pa.chunked_array([["a"], [], ["b", "c"]], pa.string()),
    "string_view chunked": lambda: pa.chunked_array([LONG[:2], [], LONG[2:]], pa.string_view()),
    "string no chunks": lambda: pa.chunked_array([], pa.string()),
    "string no rows": lambda: pa.array([], pa.string()),
    "string null": lambda: pa.array(["a", None]),
    "large_string nulls": lambda: pa.array(["a", None, None], pa.large_string()),
    "string_view null": lambda: pa.array(["a", None], pa.string_view()),
    "string null outside the slice": lambda: pa.array(["a", "b", None]).slice(0, 2),
    "string not utf-8": lambda: pa.Array.from_buffers(pa.string(), 2, [None, OFFSETS, NOT_UTF8]),
    "string from an extension": lambda: marked(pa.array(WORDS)),
    "json": lambda: pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(["1", "{}"])),
    # whole numbers
    **{
        f"{kind}": lambda kind=kind, low=low, high=high: pa.array([low, 0, 7, high], kind)
        for kind, low, high in (
            (pa.int8(), -128, 127),
            (pa.int16(), -(2**15), 2**15 - 1),
            (pa.int32(), -(2**31), 2**31 - 1),
            (pa.int64(), -(2**63), 2**63 - 1),
            (pa.uint8(), 0, 255),
            (pa.uint16(), 0, 2**16 - 1),
            (pa.uint32(), 0, 2**32 - 1),
            (pa.uint64(), 0, 2**64 - 1),
        )
    },
    "int64 sliced": lambda: pa.array([1, None, 3, 4]).slice(2),
    "int64 chunked": lambda: pa.chunked_array([[1], [], [2, 3]], pa.int64()),
    "int64 no rows": lambda: pa.array([], pa.int64()),
    "int64 nulls": lambda: pa.array([1, None, None]),
    "int64 from an extension": lambda: marked(pa.array([1, 2])),
    # decimals
    "decimal128": lambda: pa.array([Decimal("1.50"), Decimal("-0.05"), Decimal(200), Decimal(0)], pa.decimal128(10, 2)),
    "decimal128 wide": lambda: pa.array([Decimal(10**37), Decimal(-(10**37))], pa.decimal128(38, 0)),
    "decimal128 fractions alone": lambda: pa.array([Decimal("0.00100"), Decimal("-0.00001")], pa.decimal128(5, 5)),
    "decimal128 negative scale": lambda: pa.array([Decimal(1200), Decimal(-500)], pa.decimal128(5, -2)),
    "decimal128 null": lambda: pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
    "decimal32": lambda: pa.array([Decimal("-1.10")], pa.decimal32(5, 2)),
    "decimal64": lambda: pa.array([Decimal("1.10")], pa.decimal64(5, 2)),
    "decimal256": lambda: pa.array([Decimal("1.10")], pa.decimal256(50, 2)),
    # days and instants
    "date32": lambda: pa.array([dt.date(2026, 2, 3), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)]),
    "date32 year 0": lambda: pa.array([-719_163], pa.int32()).cast(pa.date32()),
    "date32 far": lambda: pa.array([10_000_000], pa.int32()).cast(pa.date32()),
    "date64": lambda: pa.array([dt.date(1969, 12, 31), dt.date(2026, 2, 3)], pa.date64()),
    "date64 half a day": lambda: pa.array([1], pa.int64()).view(pa.date64()),
    "timestamp s": lambda: ticks([0, -1, 1_700_000_000], "s"),
    "timestamp ms": lambda: ticks([0, -1, 1_700_000_000_123], "ms"),
    "timestamp us": lambda: ticks([0, -1, 1_700_000_000_123_456], "us"),
    "timestamp ns": lambda: ticks([0, -1_000, 1_700_000_000_123_456_000], "ns"),
    "timestamp Asia/Tokyo": lambda: pa.array([NOON], pa.timestamp("us", "Asia/Tokyo")),
    "timestamp +02:00": lambda: pa.array([NOON], pa.timestamp("us", "+02:00")),
    "timestamp unknown zone": lambda: ticks([0], "us", "Nowhere/Town"),
    "timestamp naive": lambda: pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")),
    "timestamp nanoseconds": lambda: ticks([1], "ns"),
    "timestamp far": lambda: ticks([2**62], "s"),
    "timestamp year 10000": lambda: ticks([253_402_300_800], "s"),
    "time32": lambda: pa.array([dt.time(1, 2)], pa.time32("s")),
    "time64": lambda: pa.array([dt.time(1, 2)], pa.time64("us")),
    "duration": lambda: pa.array([dt.timedelta(1)]),
    "month_day_nano_interval": lambda: pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    # bytes
    "binary": lambda: pa.array([b"\x00\xff", b"", b"text"]),
    "large_binary": lambda: pa.array([b"\x00\xff", b""], pa.large_binary()),
    "binary_view": lambda: pa.array([b"\xab" * 20, b"\xcd", b""], pa.binary_view()),
    "binary sliced": lambda: pa.array([b"x", b"\x01", b"\x02"]).slice(1),
    "fixed_size_binary": lambda: pa.array([b"\x01\x02", b"\xff\x00"], pa.binary(2)),
    "fixed_size_binary sliced": lambda: pa.array([b"\x01\x02", b"\xff\x00"], pa.binary(2)).slice(1),
    "uuid": lambda: pa.array([value.bytes for value in UUIDS], pa.uuid()),
    "uuid sliced": lambda: pa.array([value.bytes for value in UUIDS], pa.uuid()).slice(1),
    # dictionaries
    **{
        f"dictionary of strings by {index}": lambda index=index: encoded(["b", "a", "b"], index)
        for index in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    },
    "dictionary of large_string": lambda: encoded(["b", "a", "b"], pa.int32(), pa.large_string()),
    "dictionary of string_view": lambda: pa.DictionaryArray.from_arrays(
        pa.array([1, 0, 1], pa.int8()), pa.array(LONG[:2], pa.string_view())
    ),
    "dictionary of integers": lambda: encoded([7, -7, 7], pa.int16()),
    "dictionary of dates": lambda: encoded([dt.date(2026, 1, 2)] * 2, pa.int8()),
    "dictionary of bytes": lambda: encoded([b"\x01", b"\x02"], pa.int8()),
    "dictionary of a dictionary": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0, 1], pa.int8()), encoded(["x", "y"], pa.int8())
    ),
    "dictionary of floats": lambda: encoded([1.5], pa.int32()),
    "dictionary sliced": lambda: encoded(["x", "y", "z"], pa.int8()).slice(1),
    "dictionary chunked": lambda: pa.chunked_array([encoded(["x"], pa.int8()), encoded(["y", "x"], pa.int8())]),
    "dictionary with a null place": lambda: encoded(["a", None], pa.int8()),
    "dictionary with a null entry": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0, 1], pa.int8()), pa.array(["a", None])
    ),
    "dictionary with an unused null entry": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0, 0], pa.int8()), pa.array(["a", None])
    ),
    "dictionary no rows": lambda: encoded(["x"], pa.int8()).slice(1),
    # structs
    "struct": lambda: pa.array(STRUCTS),
    "struct sliced": lambda: pa.array(STRUCTS).slice(1),
    "struct nested": lambda: pa.array([{"a": {"b": "x", "c": 1}}, {"a": {"b": "", "c": 2}}]),
    "struct of many layouts": lambda: pa.StructArray.from_arrays(
        [
            pa.array(LONG[:2], pa.string_view()),
            encoded(["p", "q"], pa.int8()),
            pa.array([Decimal("1.50"), Decimal("-0.05")], pa.decimal128(10, 2)),
            pa.array([NOON, NOON], pa.timestamp("us", "UTC")),
            pa.array([value.bytes for value in UUIDS], pa.uuid()),
            pa.array([b"\x01", b""]),
        ],
        ["view", "category", "decimal", "instant", "uuid", "bytes"],
    ),
    "struct chunked": lambda: pa.chunked_array([[{"a": 1}], [{"a": 2}]]),
    "struct null": lambda: pa.array([None, {"a": 1}]),
    "struct null field": lambda: pa.array([{"a": None}, {"a": 1}]),
    "struct of floats": lambda: pa.array([{"a": 1.0}]),
    "struct without fields": lambda: pa.array([{}], pa.struct([])),
    "record batch": lambda: pa.record_batch({"a": ["x"], "b": [1]}),
    "table": lambda: pa.table({"a": ["x"], "b": [1]}),
    # what names nothing
    "float16": lambda: pa.array([1.0], pa.float16()),
    "float32": lambda: pa.array([1.0], pa.float32()),
    "float64": lambda: pa.array([1.0]),
    "bool": lambda: pa.array([True]),
    "null": lambda: pa.nulls(2),
    "list": lambda: pa.array([[1]]),
    "large_list": lambda: pa.array([[1]], pa.large_list(pa.int64())),
    "fixed_size_list": lambda: pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
    "list_view": lambda: pa.array([[1]], pa.list_view(pa.int64())),
    "map": lambda: pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "sparse union": lambda: pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
    "dense union": lambda: pa.UnionArray.from_dense(
        pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]
    ),
    "run_end_encoded": lambda: pa.RunEndEncodedArray.from_arrays([2], ["a"]),
    "a list of Python": lambda: ["a", "b"],
    "a string of Python": lambda: "a",
    "None": lambda: None,
}

POLARS = {
    "polars String": lambda: pl.Series(WORDS),
    "polars String chunks": lambda: pl.concat([pl.Series(WORDS[:2]), pl.Series(WORDS[2:])], rechunk=False),
    "polars String sliced": lambda: pl.Series([None, *LONG, None]).slice(1, 5),
    "polars Categorical": lambda: pl.Series(["b", "a", "b"], dtype=pl.Categorical),
    "polars Enum": lambda: pl.Series(["b", "a", "b"], dtype=pl.Enum(["a", "b", "c"])),
    "polars Int128": lambda: pl.Series([2**100, -(2**127), 2**127 - 1], dtype=pl.Int128),
    "polars UInt128": lambda: pl.Series([2**127 + 5, 0], dtype=pl.UInt128),
    "polars Decimal": lambda: pl.Series([Decimal("1.50"), Decimal("-0.05")], dtype=pl.Decimal(10, 2)),
    "polars Date": lambda: pl.Series([dt.date(2026, 1, 2)]),
    "polars Datetime ms": lambda: pl.Series([NOON], dtype=pl.Datetime("ms", "UTC")),
    "polars Datetime us": lambda: pl.Series([NOON], dtype=pl.Datetime("us", "Europe/Berlin")),
    "polars Datetime ns": lambda: pl.Series([NOON], dtype=pl.Datetime("ns", "UTC")),
    "polars Datetime naive": lambda: pl.Series([NOON.replace(tzinfo=None)]),
    "polars Time": lambda: pl.Series([dt.time(1)]),
    "polars Duration": lambda: pl.Series([dt.timedelta(1)]),
    "polars Binary": lambda: pl.Series([b"\x00\xff", b"a binary of more than twelve bytes"]),
    "polars Struct": lambda: pl.DataFrame({"a": ["x", "y"], "b": [1, 2]}).to_struct("id"),
    "polars Struct null": lambda: pl.Series([{"a": 1}, None]),
    "polars Boolean": lambda: pl.Series([True]),
    "polars Float32": lambda: pl.Series([1.0], dtype=pl.Float32),
    "polars Float16": lambda: pl.Series([1.0], dtype=pl.Float16),
    "polars Null": lambda: pl.Series([None, None]),
    "polars List": lambda: pl.Series([[1]]),
    "polars Array": lambda: pl.Series([[1, 2]], dtype=pl.Array(pl.Int64, 2)),
    "polars frame": lambda: pl.DataFrame({"a": ["x"]}),
    "polars no rows": lambda: pl.Series([], dtype=pl.String),
}


def by_kernel(made):
    return facts.attempted(lambda: facts.of_column(_kernel.canonical_ids(made())))


def by_library(made):
    return facts.attempted(lambda: {"kind": keys.id_type(made().type), **facts.of_column(keys.canonical_ids(made()))})


def observed():
    """Every case, through the kernel's door and, where pyarrow made it, through the library's."""
    seen = {f"kernel: {name}": by_kernel(made) for name, made in (ARRAYS | POLARS).items()}
    one_chunk = {name: made for name, made in ARRAYS.items() if isinstance(facts.attempted(made), pa.Array)}
    return seen | {f"library: {name}": by_library(made) for name, made in one_chunk.items()}
