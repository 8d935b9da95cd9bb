"""Choose the columns of a raw table that a run reads, and check their roles before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import polars as pl

from dptext_etl.errors import DPTextError, InputError
from dptext_etl.keys import id_type
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout, format_of
from dptext_etl.runner.source import hive
from dptext_etl.runner.source.arranging import in_pinned_order
from dptext_etl.runner.source.table import Files, schema_of

Rows = TypeVar("Rows")
"""Rows as an engine holds them: a lazy frame, or a data frame of Spark."""


@dataclass(frozen=True)
class Table(Generic[Rows]):
    """A raw table, projected to the columns of a policy.

    Attributes:
        frame: Lazy: id, kept columns, text columns, and last the subject if it is not kept.
        schema: Types of those columns, as Polars names them.
        dropped: Places of the columns that the policy does not name ("column 3"); they are never read, nor their names
            quoted, which may be texts.
        id_type: The kind of the record ids, as the ledger pins it.
        origin: Which version of which kind of table is read; None for plain files and frames.
    """

    frame: Rows
    schema: pl.Schema
    dropped: tuple[str, ...]
    id_type: str
    origin: dict[str, str] | None = None


def open_table(policy: Policy, layout: Layout) -> Table[pl.LazyFrame]:
    """Find, scan and check the source of a policy."""
    files = Files.find(layout)
    texts = string_columns(policy)
    files.refuse_drift(wanted_columns(policy))
    as_written, all_text = _as_written(policy, texts), layout.sink_format == "csv"
    scanned = files.scan(as_written, all_text=all_text)
    found = schema_of(scanned)
    named = hive.columns_of([path for path in files.paths if files.version is None])
    if in_folders := [name for name in wanted_columns(policy) if name not in found and name in named]:
        beside = files.scan(as_written, all_text=all_text, paths_as=hive.PATHS)
        scanned = hive.with_columns(beside, files.paths, in_folders)
    return table_of(scanned, policy, layout, files.origin)


def table_of(
    rows: pl.LazyFrame, policy: Policy, layout: Layout, origin: dict[str, str] | None = None
) -> Table[pl.LazyFrame]:
    """Project a lazy frame to the columns of a policy, and check their roles."""
    found, texts = schema_of(rows), string_columns(policy)
    roles = Roles.of(policy, found, layout)
    chosen = (_plain(name, found[name]) if name in texts else pl.col(name) for name in wanted_columns(policy))
    frame = in_pinned_order(rows.select(*chosen), found, policy)
    return Table(frame, schema_of(frame), roles.dropped, roles.id_type, origin)


@dataclass(frozen=True)
class Roles:
    """The roles of the columns of a raw table under a policy.

    Attributes:
        dropped: Places of the columns that the policy does not name ("column 3"); they are never read, nor their names
            quoted, which may be texts.
        id_type: The kind of the record ids, as the ledger pins it.
    """

    dropped: tuple[str, ...]
    id_type: str

    @classmethod
    def of(cls, policy: Policy, found: pl.Schema, layout: Layout) -> Roles:
        """Check that the columns of a table can play the roles that a policy gives them."""
        wanted = wanted_columns(policy)
        dropped = tuple(f"column {place}" for place, name in enumerate(found, start=1) if name not in wanted)
        _check_names(policy, found, dropped, layout)
        _check_writable(policy, found, layout.sink_format)
        for name in string_columns(policy):
            _check_text(name, found[name])
        kind = check_id(policy.id, found[policy.id])
        if policy.subject is not None:
            check_id(policy.subject, found[policy.subject], role="subjects")
        return cls(dropped, kind)


def wanted_columns(policy: Policy) -> tuple[str, ...]:
    """Return the columns that a run reads, in output order; a subject that is not kept comes last."""
    columns = [policy.id, *policy.keep, *string_columns(policy)]
    if policy.subject is not None and policy.subject not in columns:
        columns.append(policy.subject)
    return tuple(columns)


def string_columns(policy: Policy) -> tuple[str, ...]:
    """Return the columns that hold texts, or the labels of a synthetic table."""
    return policy.text_columns if policy.synthetic is None else policy.synthetic.columns


def output_columns(policy: Policy) -> tuple[str, ...]:
    """Return the columns that a run computes, in order: ids, kept columns, released texts."""
    if policy.synthetic is not None:
        return policy.synthetic.columns
    return (policy.id, *policy.keep, *(item.name for item in policy.columns))


def published_columns(policy: Policy) -> tuple[str, ...]:
    """Return the columns of the published table, with what mechanisms released next to what was made of it."""
    if policy.unlinked is not None:
        return policy.unlinked.columns(policy.columns[0].name)
    texts = (name for item in policy.columns for name in (item.name, item.intermediate) if name is not None)
    return (policy.id, *policy.keep, *texts)


def shown_columns(policy: Policy) -> tuple[str, ...]:
    """Return the columns that readers see: those of the published table, but for ids that are dropped."""
    columns = published_columns(policy)
    return tuple(name for name in columns if name != policy.id) if policy.ids == "drop" else columns


def _as_written(policy: Policy, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns whose spelling matters: "007" is not 7, and a text of digits is a text."""
    subject = () if policy.subject is None else (policy.subject,)
    return tuple(dict.fromkeys((policy.id, *subject, *texts)))


def _check_names(policy: Policy, found: pl.Schema, dropped: tuple[str, ...], layout: Layout) -> None:
    missing = [name for name in wanted_columns(policy) if name not in found]
    if missing:
        said = ", ".join(repr(name) for name in missing)
        if set(missing) >= set(wanted_columns(policy)):  # then its first line may be a text, not a header
            msg = f"the source has no column {said}; none of its {len(found)} columns is named in the policy"
            apart = " Is csv.separator right?" if len(found) == 1 and format_of(layout.source) == "csv" else ""
            hint = f"does the file have a header line?{apart} Correct id, subject, keep or [[column]]"
            raise InputError(msg, hint, {"missing": missing, "columns": len(found)})
        msg = f"the source has no column {said}, and {len(found)} others"
        hint = "correct id, subject, keep or [[column]] in the policy"
        raise InputError(msg, hint, {"missing": missing, "columns": len(found)})
    if dropped and policy.strict_columns:
        msg = f"strict_columns: the policy does not say what becomes of {', '.join(dropped)} of the source"
        raise InputError(msg, "release it, name it in keep, or set strict_columns = false to drop it")


def _check_writable(policy: Policy, found: pl.Schema, file_format: str) -> None:
    """Refuse columns that the files of the sink cannot hold, before anything is charged."""
    for name in output_columns(policy) if file_format == "csv" else ():
        if found[name].is_nested() or found[name] in {pl.Binary, pl.Object}:
            msg = f"column {name!r} of type {found[name]} cannot stand in a CSV file; nothing was spent"
            raise InputError(msg, "publish as Parquet (a sink such as published/reviews.parquet), or do not keep it")


def _check_text(name: str, dtype: pl.DataType) -> None:
    if not isinstance(dtype, pl.String | pl.Categorical | pl.Enum):
        raise InputError(f"text column {name!r} must hold strings, got {dtype}", "cast the column, or name another")


def id_kind(dtype: pl.DataType) -> str | None:
    """Return the kind of id that a type can hold (`keys.id_type`), or None if it can hold none."""
    try:
        return id_type(pl.Series([], dtype=dtype).to_arrow().type)
    except (DPTextError, pl.exceptions.PolarsError):
        return None


def check_id(name: str, dtype: pl.DataType, role: str = "record ids") -> str:
    """Return the kind of id that a column holds, or refuse the column."""
    kind = id_kind(dtype)
    if kind is None:
        msg = f"{role} (column {name!r}) of type {dtype} are not allowed"
        allowed = "strings, integers, decimals, dates, timestamps with a zone, bytes, and structs of these"
        raise InputError(msg, f"name a column of an allowed type, or cast it first: {allowed}")
    return kind


def _plain(name: str, dtype: pl.DataType) -> pl.Expr:
    return pl.col(name) if dtype == pl.String else pl.col(name).cast(pl.String)
