"""Judge a published table without its raw data: `dptext check POLICY`.

Anybody who has the policy, its key and its ledger can do so at any time. The pseudo-words of the canaries follow from
the key. A canary row that was left in shows as a row that no real record paid for.

A written Parquet file holds more than cells: the index of a pandas frame and the names of its levels, `attrs`, the name
of the index of the columns, categories that no row has, metadata of fields, parameters of types. Data frames drop most
of it when they are converted, and write it when they are saved. `as_columns` makes columns of it, so that every check
of cells sees it. Text never replaces numbers in a kept column (`changed`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from glob import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import available_timezones

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl.checks.gate import BATCH_ROWS, Candidate, Gate, Stage, judges, make, verdicts_of
from dptext_etl.checks.sink_files import HINT, MANIFEST, LocalSink, Manifest, fetched, is_inside
from dptext_etl.checks.verdict import Verdict
from dptext_etl.data_types import by_name, from_text, in_json, kind_of, parsed, plain_type, readable
from dptext_etl.errors import DPTextError, GateError, InputError, bare, seam
from dptext_etl.file_formats import FORMATS, Reading, format_of
from dptext_etl.files import literal
from dptext_etl.ledger import Ledger
from dptext_etl.policy import PARTITION, Policy, PolicyLike, resolve
from dptext_etl.policy.terms import TableSpec
from dptext_etl.storage import Objects, Storage

Table = str | Path | pl.DataFrame
OwnIds = Callable[[Path], pl.Series]


@bare
def check_published(
    released: Table, policy: PolicyLike, ledger: Ledger | None = None, own_ids: OwnIds | None = None
) -> tuple[Verdict, ...]:
    """Evaluate every gate that judges published tables."""
    policy = resolve(policy)
    if policy.ids != "keep" and (own_ids is None or isinstance(released, pl.DataFrame)):
        msg = f"with ids = {policy.ids!r} only staging knows whose rows these are"
        raise InputError(msg, "`dptext check POLICY` finds them there, and judges the published folder")
    with ExitStack() as stack:
        if ledger is None:
            opened = Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True)
            ledger = stack.enter_context(opened)
        if isinstance(released, str) and "://" not in released:
            released = Path(released)
        sink: LocalSink | None = None
        if isinstance(released, str):
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="dptext-check-")))
            sink = fetched(Objects.open(released, policy.storage_options), folder)
        elif isinstance(released, Path) and (released.is_dir() or LocalSink.at(released).manifest.is_file()):
            sink = LocalSink.at(released)
        manifest = None if sink is None else sink.read()
        tables: list[Table] = [released]
        if manifest is not None and sink is not None:
            tables = [path for part in manifest.parts if (path := sink.of_part(part)) is not None]
            if policy.table is not None:
                own = {part.path for part in manifest.parts if is_inside(part.path)}
                sink = replace(sink, listed=_listed(str(released), policy, policy.table, own))
        refs = ledger.releases.find_all(policy)
        texts, stage = () if sink is None else (sink.manifest.read_bytes(),), Stage.PUBLISHED
        release = Candidate(policy, (), (), ledger, refs, texts, stage=stage, manifest=manifest, sink=sink)
        gates = [make(kind, release) for kind in judges(policy, Stage.PUBLISHED)]
        types = published_types(policy, manifest)
        with seam("evaluating the gates", GateError):
            for table in tables:
                for batch in _batches(table, policy, types, own_ids):
                    feed_published(gates, batch, policy)
        return tuple(verdict for gate in gates for verdict in verdicts_of(gate))


def _listed(place: str, policy: Policy, spec: TableSpec, own: set[str]) -> frozenset[str]:
    """Return the files that a table with a log lists now; its own if another tool wrote the same rows again."""
    files = Storage.open(place.rstrip("/"), policy.storage_options)
    from dptext_etl.table_formats import open_table, rewrites  # other sinks start without it

    state = open_table(spec, files).state()
    current = frozenset[str]() if state is None else state.files
    return frozenset(own) if current != own and rewrites(files, own - current, current - own) else current


def feed_published(gates: Iterable[Gate], batch: pl.DataFrame, policy: Policy) -> None:
    """Show rows to gates: as they are, or as mechanisms released them, where post-processing came after them."""
    rewritten = any(item.postprocess for item in policy.columns)
    for gate in gates:
        (gate.rewritten_rows if rewritten else gate.rows)(batch)


def _batches(table: Table, policy: Policy, types: Mapping[str, str], own_ids: OwnIds | None) -> Iterator[pl.DataFrame]:
    """Read a table in batches, with the records' own ids; its metadata is shown in the first one."""
    if isinstance(table, pl.DataFrame):
        with seam("reading the table", InputError, HINT):
            shown = as_columns(table)
        yield shown
        return
    path = Path(table)
    if not path.is_file():
        raise InputError("the target of a check is neither a folder nor a file nor a table", HINT)
    if policy.ids == "keep" or own_ids is None:
        yield from _from_file(path, policy, types)
        return
    ids, start = own_ids(path), 0
    for batch in _from_file(path, policy, types):
        own = ids.slice(start, batch.height).alias(policy.id)
        if len(own) != batch.height:
            break
        start += batch.height
        yield batch.select(own, pl.exclude(policy.id))
    if start != len(ids):
        raise InputError("a published file and the list of its ids have other lengths", HINT)


def _from_file(path: Path, policy: Policy, types: Mapping[str, str]) -> Iterator[pl.DataFrame]:
    kind = format_of(path.name)
    if kind is None:
        *titles, last = (kind.title for kind in FORMATS.values())
        raise InputError(f"a published file is {', '.join(titles)} or {last}, got the suffix {path.suffix!r}", HINT)
    if (written := kind.arrow_schema(str(path), {})) is not None:
        schema = pl.Schema(pl.read_parquet_schema(literal(path)))
        row = pa.table([pa.nulls(1, field.type) for field in written], schema=written)
        schema.update({name: dtype for name, dtype in as_columns(row).schema.items() if name not in written.names})
        yield pl.DataFrame(schema=schema)
    rows = kind.scan([str(path)], Reading(all_text=True, infer=None))
    if kind.holds == "all":
        yield from rows.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)
        return
    nulls = {name for name, dtype in rows.collect_schema().items() if dtype == pl.Null}
    rows = rows.with_columns(by_name(name).cast(dtype) for name, dtype in in_json(types).items() if name in nulls)
    # kept columns and ids of strings get the type under which they were published, if all cells have it
    clear = {*policy.kept_columns, *([policy.id] if policy.ids == "keep" else [])}
    published = {name: parsed(types[name]) for name in types if name in clear}
    schema = rows.collect_schema()
    values = {
        name: [from_text(by_name(name), dtype, strict=strict) for strict in (True, False)]
        for name, dtype in published.items()
        if dtype is not None and readable(dtype) and schema.get(name) == pl.String
    }
    same = rows.select(read.null_count() == by_name(name).null_count() for name, (_, read) in values.items())
    fits = same.collect(engine="streaming").to_dicts()[0] if values else {}
    typed = rows.with_columns(value for name, (value, _) in values.items() if fits[name])
    yield from typed.collect_batches(chunk_size=BATCH_ROWS)


CATEGORIES = " (categories without a row)"
"""The suffix of the name of a column that holds the unused categories of another one."""
_PLAIN_EXTENSIONS = frozenset({"arrow.json", "arrow.uuid", "arrow.bool8", "pandas.period", "pandas.interval"})
"""Extension types without a parameter that a user writes; others are text themselves."""
_ENUM = b"_PL_ENUM_VALUES2"
"""Metadata in which Polars writes the categories of an Enum."""
_PLAIN_METADATA = {b"_PL_CATEGORICAL2": re.compile(rb"0;0;u(8|16|32);"), b"PARQUET:field_id": re.compile(rb"-?\d+")}
"""Metadata that libraries write by themselves: a Categorical without a name, the number of a field."""
_SPARK_VERSION, _SPARK_ROW = b"org.apache.spark.version", b"org.apache.spark.sql.parquet.row.metadata"


def as_columns(frame: Any, id_column: str | None = None) -> pl.DataFrame:
    """Return a table with more columns, of lists of texts, for the texts next to its cells.

    An index of pandas becomes columns, unless it is unnamed and holds whole numbers that name each row once. pandas 3
    makes a range of an index of consecutive numbers, and a file has the name of a range as metadata: `id_column` is no
    text of a row.
    """
    other: list[str] = []
    if isinstance(frame, pl.DataFrame):
        table, arrow = frame, frame.to_arrow()
    else:
        arrow = frame if isinstance(frame, pa.Table) else _of_pandas(frame, other, id_column)
        table = pl.DataFrame(arrow)
        other += _of_file(arrow.schema.metadata or {})
    more: dict[str, list[str]] = {}
    for field, column in zip(arrow.schema, arrow.columns, strict=True):
        unused: list[str] = []
        _look(field, column.combine_chunks() if column.num_chunks else pa.array([], column.type), unused, other)
        if unused:
            more[field.name + CATEGORIES] = unused
    if other:
        more["(metadata)"] = other
    for name, texts in more.items():
        column = pl.Series(name, [texts, *[None] * (table.height - 1)][: table.height], dtype=pl.List(pl.String))
        while column.name in table.columns and not table[column.name].equals(column):  # a frame may come here twice
            column = column.alias(f"{column.name}'")
        table = table.with_columns(column)
    return table


def _of_pandas(frame: Any, other: list[str], id_column: str | None) -> pa.Table:
    """Convert a pandas frame as its `to_parquet` does, its index as columns."""
    other += [_text(key, value) for key, value in frame.attrs.items()]
    other += [str(name) for name in frame.columns.names if name is not None]
    index = frame.index
    is_range = isinstance(getattr(index, "start", None), int)
    other += [str(index.name)] if is_range and index.name not in (None, id_column) else []
    if index.names != [None] or index.dtype.kind not in "iu" or not index.is_unique:
        frame = frame.reset_index()
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)


def _of_file(metadata: dict[bytes, bytes]) -> Iterable[str]:
    """Yield the metadata of a file that a user wrote; versions and types that libraries write are excluded."""
    for key, value in metadata.items():
        if key == b"pandas":
            about = json.loads(value)
            yield from [_text(*item) for item in about.get("attributes", {}).items()]
            ranges = [level for level in about.get("index_columns", []) if isinstance(level, dict)]
            levels = [*ranges, *about.get("column_indexes", [])]
            yield from [str(level["name"]) for level in levels if level["name"] is not None]
        elif key != _SPARK_VERSION and (key != _SPARK_ROW or b'"metadata":{' in value.replace(b'"metadata":{}', b"")):
            yield _text(key, value)


def _look(field: pa.Field, array: Any, unused: list[str], other: list[str]) -> None:
    """Collect categories that no row has, and metadata and parameters of types, of a field and those inside it."""
    kind = array.type
    for key, value in (field.metadata or {}).items():
        if key == _ENUM and pa.types.is_dictionary(kind):
            unused += Counter(_enum_values(value)) - Counter(array.dictionary.to_pylist())
        elif not (key in _PLAIN_METADATA and _PLAIN_METADATA[key].fullmatch(value)):
            other.append(_text(key, value))
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name not in _PLAIN_EXTENSIONS:
            other.append(_text(kind.extension_name, getattr(kind, "__arrow_ext_serialize__", str)()))
        _look(pa.field("", kind.storage_type), array.storage, unused, other)
    elif pa.types.is_dictionary(kind):
        unused += _without_a_row(array)
        _look(pa.field("", kind.value_type), array.dictionary, unused, other)
    elif pa.types.is_struct(kind):
        for inner, cells in zip(kind.fields, array.flatten(), strict=True):
            _look(inner, cells, unused, other)
    elif pa.types.is_map(kind):
        _look(kind.key_field, array.keys, unused, other)
        _look(kind.item_field, array.items, unused, other)
    elif pa.types.is_nested(kind):
        _look(kind.value_field, array.flatten(), unused, other)
    elif zone := getattr(kind, "tz", None):
        other += [] if re.fullmatch(r"[+-]\d\d:\d\d", zone) or zone in available_timezones() else [zone]


def _without_a_row(array: pa.DictionaryArray) -> list[str]:
    """Return the values of a dictionary that no cell has, unless they are numbers or moments."""
    used = pc.is_in(pa.array(range(len(array.dictionary))), value_set=pc.unique(array.indices).cast(pa.int64()))
    values = array.dictionary.filter(pc.invert(used))
    if pa.types.is_primitive(values.type) or pa.types.is_decimal(values.type):
        return []
    return [_text(value) for value in values.to_pylist() if value is not None]


def _enum_values(written: bytes) -> Iterable[str]:
    """Read the categories of an Enum of Polars: "1;x3;raw" is "x" and "raw"."""
    while written:
        size, _, rest = written.partition(b";")
        yield rest[: int(size)].decode()
        written = rest[int(size) :]


def _text(*values: Any) -> str:
    return " ".join(item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in values)


_KINDS = (
    (re.compile(r"\b(U?Int|Float)\d+\b|\bDecimal(\([^()]*\))?"), "Boolean"),
    (re.compile(r"\b(Datetime|Duration)(\([^()]*\))|\b(Date|Time|Datetime|Duration)\b"), "Date"),
    (re.compile(r"\bArray\(\d+\) of"), "List of"),
)
"""How types are compared: engines widen numbers, and keep moments in their own units."""


def published_types(policy: Policy, manifest: Manifest | None = None) -> dict[str, str]:
    """Return the types of the published columns, as the manifest writes them."""
    if manifest is not None:
        return manifest.schema
    with suppress(DPTextError, ValueError, KeyError, TypeError):
        if "://" in policy.sink:
            content = Storage.open(policy.sink, policy.storage_options).read(MANIFEST)
            return {} if content is None else Manifest.parse(content.decode("ascii")).schema
    sink = Path(policy.sink).absolute()
    pattern = escape(str(sink.relative_to(sink.anchor))).replace(PARTITION, "*")
    for place in sorted(Path(sink.anchor).glob(pattern)):
        with suppress(DPTextError):
            return LocalSink.at(place).read().schema
    return {}


def changed(schema: Mapping[str, pl.DataType], policy: Policy, types: Mapping[str, str]) -> set[str]:
    """Return the kept columns whose cells are of another kind than was published.

    Numbers, moments and texts are three kinds. Where the published type is not known, a kept column holds no text.
    """
    others = set()
    for name in policy.kept_columns:
        dtype, published = schema.get(name, pl.Null()), types.get(name)
        if dtype == pl.Null:
            continue
        plain = plain_type(dtype, rename=True)
        kind = _kind(kind_of(plain))
        other = plain != plain_type(dtype)  # fields have names that no run publishes
        other |= published is None and re.search("String|Binary|Object|Extension|Unknown", kind) is not None
        if other or (published is not None and kind != _kind(published)):
            others.add(name)
    return others


def _kind(dtype: str) -> str:
    for pattern, kind in _KINDS:
        dtype = pattern.sub(kind, dtype)
    return dtype
