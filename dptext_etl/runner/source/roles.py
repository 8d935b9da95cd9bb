"""Choose the columns of a raw table that a run reads, and check their roles before anything is drawn.

Public inputs that were made from a private table are refused. Every artifact that a command makes lists the files from
which it was made (`artifacts.made_from`). Files are compared by their SHA-256, so a copy that was edited or written
anew is not recognized.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, filterfalse
from pathlib import Path, PurePosixPath
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

import polars as pl
from pydantic import BaseModel

import dptext_etl
from dptext_etl.accounting.shuffling import OTHER
from dptext_etl.artifacts import Lineage, made_from, sha256_file
from dptext_etl.checks.canaries import CANARY
from dptext_etl.data_types import by_name, from_text, kind_of, parts_of, plain, plain_type
from dptext_etl.errors import (
    DPTextError,
    InputError,
    PolicyError,
    by_place,
    collect,
    counted,
    meant,
    seam,
    together,
    unlike_names,
)
from dptext_etl.file_formats import FORMATS, PARQUET, format_of
from dptext_etl.keys import IdForm, Normalization, id_type
from dptext_etl.ledger import IdForms, Ledger, Scope
from dptext_etl.ledger.ledger import ledger_exists
from dptext_etl.policy import Policy
from dptext_etl.policy.synthetic import SCORES
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.source.column_types import (
    coarse,
    coarse_type,
    csv_scan,
    keeps_spelling,
    logical_types,
    restored,
    with_nulls_typed,
)
from dptext_etl.runner.source.table import READ_HINT, Files, existing_paths, naming_file, schema_of

Rows = TypeVar("Rows")
"""Rows as an engine holds them: a lazy frame, or a data frame of Spark."""


@dataclass(frozen=True)
class Table(Generic[Rows]):
    """A raw table, projected to the columns of a policy."""

    frame: Rows  # lazy: id, kept columns, text columns, and last the subject if it is not kept
    schema: pl.Schema
    dropped: tuple[str, ...]  # places of other columns ("column 3"): never read; their names may be texts
    id_type: str  # the kind of the record ids, as the ledger pins it
    origin: dict[str, str] | None = None  # format and version of a Delta Lake or Iceberg table
    exact: bool = False  # whether values of CSV columns keep their spelling under types that no policy named


def open_table(
    policy: Policy, layout: Layout, files: Files | None = None, *, coarsen: bool = True
) -> Table[pl.LazyFrame]:
    """Find (unless someone did so before), scan and check the source of a policy; coarsen kept columns if asked to."""
    files, wanted = Files.find(layout) if files is None else files, wanted_columns(policy)
    refuse_own_inputs(policy, files.paths)
    with naming_file(lambda: files, wanted):
        types = logical_types(files, wanted)
        scan = csv_scan(files, policy, layout) if files.kind.holds == "none" else files.scan
        scanned = restored(scan(), types)
        schema = schema_of(scanned)
    files.kind.require_columns(schema.names(), wanted, files.facts)
    if added := from_folders(files, policy, scan, schema):
        scanned = restored(scan(paths_as=_PATHS), types)
        scanned = scanned.with_columns(_by_path(values).alias(name) for name, values in added.items()).drop(_PATHS)
    table = table_of(scanned, policy, layout, coarsen=coarsen)
    return replace(table, origin=files.origin, exact=keeps_spelling(files, policy, layout, table.schema))


_PATHS = "__dptext_path"
"""Column of file paths while columns are read from folder names."""


def folder_columns(paths: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """Return the columns that are in the folder names of all files, as Hive writes them: values by path, by column.

    >>> folder_columns(["/raw/day=1/a.parquet", "/raw/day=2/b.parquet"])
    {'day': {'/raw/day=1/a.parquet': '1', '/raw/day=2/b.parquet': '2'}}
    """
    null, pairs_of = "__HIVE_DEFAULT_PARTITION__", dict[str, dict[str, str | None]]()
    for path in paths:
        parts = (part.partition("=") for part in PurePosixPath(path).parent.parts)
        named = ((unquote(name), value) for name, sign, value in parts if sign and name)
        pairs_of[path] = {name: None if value == null else unquote(value) for name, value in named}
    shared = set.intersection(*map(set, pairs_of.values())) if pairs_of else set()
    return {name: {path: pairs[name] for path, pairs in pairs_of.items()} for name in sorted(shared)}


def from_folders(
    files: Files, policy: Policy, scan: Callable[..., pl.LazyFrame], schema: Mapping[str, pl.DataType]
) -> dict[str, dict[str, str | None]]:
    """Return the columns of a policy that are only in the folder names of its files, as `folder_columns` does.

    Refuse a column that the files hold, too, with other values: libraries differ about which of them they read.
    """
    if files.version is not None:
        return {}
    in_folders = folder_columns(files.each)
    wanted = [name for name in wanted_columns(policy) if name in schema]
    twice = {name: in_folders[other] for name in wanted for other in in_folders if other.lower() == name.lower()}
    for name, values in twice.items():
        dtype, there = schema[name], _by_path(values)
        differ = name in string_columns(policy) or dtype.is_nested() or dtype == pl.Binary
        if not differ:
            same = by_name(name).eq_missing(from_text(there, dtype, strict=False))
            same &= there.is_null() == by_name(name).is_null()
            with seam("comparing a column with the names of folders", InputError, READ_HINT):
                differ = not scan(paths_as=_PATHS).select(same.all()).collect(engine="streaming").item()
        if differ:
            msg = f"column {name!r} is in the names of the source's folders, and in its files with other values"
            hint = f"rename the folders, such as {name}=…, or the column; no budget used"
            raise InputError(msg, hint, {"column": name})
    return {name: in_folders[name] for name in wanted_columns(policy) if name not in schema and name in in_folders}


def _by_path(values: Mapping[str, str | None]) -> pl.Expr:
    return pl.col(_PATHS).replace_strict([*values], [*values.values()], return_dtype=pl.String)


def table_of(rows: pl.LazyFrame, policy: Policy, layout: Layout, *, coarsen: bool = True) -> Table[pl.LazyFrame]:
    """Project a lazy frame to the columns of a policy, and check their roles."""
    rows = with_nulls_typed(rows, policy, layout)
    schema = schema_of(rows)
    types = pl.Schema({name: plain_type(dtype) for name, dtype in schema.items()})
    dropped, kind = check_roles(policy, types, layout, lambda: why_hidden(rows))
    frame = rows.select(plain(by_name(name), schema[name]) for name in wanted_columns(policy))
    frame = in_pinned_order(frame, types, policy)
    if coarsen:
        # labels that are numbers or booleans are read as text: "5", "true"
        frame = frame.with_columns(by_name(name).cast(pl.String) for name in label_columns(policy))
        frame = coarsened(frame, types, policy)
    return Table(frame, schema_of(frame), dropped, kind)


def coarsened(frame: pl.LazyFrame, schema: Mapping[str, pl.DataType], policy: Policy) -> pl.LazyFrame:
    """Return a frame whose kept columns hold their published values; `schema` has the types of the frame.

    A text whose label is not published becomes null: it is not charged, drawn, or published.
    """
    frame = frame.with_columns(coarse(item, schema[item.column]) for item in policy.kept if item.rule)
    if policy.labels is None or OTHER in policy.labels.values:
        return frame
    is_public = by_name(policy.labels.column).is_in(policy.labels.named)
    if CANARY in schema:  # on Spark canary rows are planted before, and have no label
        is_public |= pl.col(CANARY)
    return frame.with_columns(pl.when(is_public).then(by_name(name)).alias(name) for name in policy.text_columns)


def coarse_schema(schema: Mapping[str, pl.DataType], policy: Policy) -> pl.Schema:
    """Return the types of a frame after its kept columns are coarsened, or refuse a column that has another type."""
    return pl.Schema({**schema, **{item.column: coarse_type(item, schema[item.column]) for item in policy.kept}})


def check_roles(
    policy: Policy, schema: pl.Schema, layout: Layout, hidden: Callable[[], str | None]
) -> tuple[tuple[str, ...], str]:
    """Refuse columns that cannot play their roles; return the places of unnamed columns and the kind of the ids.

    `schema` holds plain types (`data_types.plain_type`). `hidden` says why refusals must not name columns.
    """
    wanted = wanted_columns(policy)
    dropped = tuple(f"column {place}" for place, name in enumerate(schema, start=1) if name not in wanted)
    _check_names(policy, schema, layout, hidden)
    problems = list[DPTextError]()
    for name in label_columns(policy):
        if not can_be_label(schema[name]):
            msg = f"labels are strings, whole numbers, or booleans, and {name!r} is a column of {kind_of(schema[name])}"
            problems.append(InputError(msg, "cast the column, or name another"))
    for name in policy.text_columns:
        if schema[name] != pl.String:
            msg = f"text column {name!r} must hold strings, got {kind_of(schema[name])}"
            problems.append(InputError(msg, "cast the column, or name another"))
    collect(problems, partial(check_id, policy.id, schema[policy.id]))
    if policy.subject is not None:
        collect(problems, partial(check_id, policy.subject, schema[policy.subject], role="subjects"))
    if problems:
        raise together(problems)
    schema = coarse_schema({**schema, **dict.fromkeys(label_columns(policy), pl.String())}, policy)  # as they count
    scores = {SCORES: pl.List(pl.Float32())} if policy.synthetic is not None and policy.synthetic.scores else {}
    schema = pl.Schema({**schema, **scores})
    kind = FORMATS[layout.sink_format]
    for name in output_columns(policy):
        parts = [*parts_of(schema[name])]
        empty = any(isinstance(part, pl.Struct) and not part.fields for part in parts)
        if empty or any(isinstance(part, kind.unfit) for part in parts):
            msg = f"column {name!r} of type {kind_of(schema[name])} cannot be in a {kind.title} file; no budget used"
            hint = "publish as Parquet (a sink such as published/reviews.parquet)"
            raise InputError(msg, f"{'cast it' if kind is PARQUET else hint}, or do not keep it")
    if (table := layout.table_format) is not None:
        # other columns hold texts, or counts
        clear = {*policy.kept_columns, *scores, *((policy.id,) if policy.ids == "keep" else ())}
        names = shown_columns(policy) if policy.synthetic is None else policy.synthetic.published_columns
        table.require_columns(
            {name: plain_type(schema[name], rename=True) if name in clear else pl.String() for name in names}
        )
    return dropped, check_id(policy.id, schema[policy.id])


def wanted_columns(policy: Policy) -> tuple[str, ...]:
    """Return the columns that a run reads, in output order; a subject that is not kept comes last."""
    columns = [policy.id, *policy.kept_columns, *string_columns(policy)]
    if policy.subject is not None and policy.subject not in columns:
        columns.append(policy.subject)
    return tuple(columns)


def label_columns(policy: Policy) -> tuple[str, ...]:
    """Return the columns of the labels of a shuffled release or a synthetic table."""
    if policy.labels is not None:
        return (policy.labels.column,)
    labels = None if policy.synthetic is None else policy.synthetic.labels
    return () if labels is None else labels.all_columns


def can_be_label(dtype: pl.DataType) -> bool:
    return dtype in {pl.String(), pl.Boolean()} or dtype.is_integer()


def string_columns(policy: Policy) -> tuple[str, ...]:
    """Return the columns that hold texts, or the labels of a synthetic table."""
    return policy.text_columns if policy.synthetic is None else policy.synthetic.columns


def output_columns(policy: Policy) -> tuple[str, ...]:
    """Return the columns that a run computes, in order: ids, kept columns, released texts."""
    if policy.synthetic is not None:
        return policy.synthetic.published_columns
    return (policy.id, *policy.kept_columns, *(item.name for item in policy.columns))


def published_columns(policy: Policy) -> tuple[str, ...]:
    """Return the columns of the published table, with released texts next to post-processed ones."""
    if policy.shuffled is not None:
        return policy.shuffled.columns(policy.columns[0].name)
    texts = (name for item in policy.columns for name in (item.name, item.intermediate) if name is not None)
    return (policy.id, *policy.kept_columns, *texts)


def shown_columns(policy: Policy) -> tuple[str, ...]:
    """Return the columns that readers see: columns of the published table, except dropped ids."""
    columns = published_columns(policy)
    return tuple(name for name in columns if name != policy.id) if policy.ids == "drop" else columns


def why_hidden(rows: pl.LazyFrame) -> str | None:
    """Say why messages must not hold the names of the columns; None if they look like names and are not values."""

    def compared() -> tuple[int, bool]:
        words = [name for name, dtype in schema.items() if dtype == pl.Boolean or plain_type(dtype) == pl.String]
        lower = {name: by_name(name).cast(pl.String).str.strip_chars().str.to_lowercase() for name in words}
        equal = pl.any_horizontal(pl.lit(value=False), *((cell == name.lower()).any() for name, cell in lower.items()))
        return rows.select(pl.len(), repeats_name=equal).collect(engine="streaming").row(0)

    schema = schema_of(rows)
    return hidden_by(schema.names(), compared)


def hidden_by(names: Sequence[str], compared: Callable[[], tuple[int, bool]]) -> str | None:
    """Return `why_hidden` by the number of rows, and by whether a column holds its own name.

    Names may be the first row of a file without a header line, so an engine compares them with the values below them.
    """
    if (why := unlike_names(names)) is not None:
        return why
    try:
        with seam("comparing names with values"):
            count, repeats_name = compared()
    except DPTextError:
        return "the values below them cannot be read"
    return (
        "there is no row to compare them with" if not count else "a column holds its own name" if repeats_name else None
    )


def _check_names(policy: Policy, schema: pl.Schema, layout: Layout, hidden: Callable[[], str | None]) -> None:
    missing = [name for name in wanted_columns(policy) if name not in schema]
    if missing:
        names = ", ".join(repr(name) for name in missing)
        msg = f"the source has no column {names}, and {counted(len(schema), 'other')}"
        hint = "correct id, subject, keep or [[column]] in the policy"
        if len(missing) == len(wanted_columns(policy)):  # then its first line may be a text, not a header
            msg = f"the source has no column {names}; none of its {len(schema)} columns is named in the policy"
            kind = format_of(layout.source) if len(schema) == 1 else None
            separator = "" if kind is None or not kind.dialect else " Is csv.separator right?"
            hint = f"does the file have a header line?{separator} Correct id, subject, keep or [[column]]"
        hint = f"{hint}. {meant(missing, schema.names(), hidden())}"
        raise InputError(msg, hint, {"missing": missing, "columns": len(schema)})
    dropped = [name for name in schema if name not in wanted_columns(policy)]
    if dropped and policy.strict_columns:
        why = hidden()
        places, unnamed = by_place(dropped, schema, shown=why is None), f" (names are not shown: {why})" if why else ""
        msg = f"strict_columns: the policy does not say what becomes of {places} of the source{unnamed}"
        raise InputError(msg, "release it, name it in keep, or set strict_columns = false to drop it")


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
        msg = f"{role} (column {name!r}) of type {kind_of(dtype)} are not allowed"
        allowed = "strings, integers, decimals, dates, timestamps with a zone, bytes, and structs of these"
        raise InputError(msg, f"name a column of an allowed type, or cast it first: {allowed}")
    return kind


def in_pinned_order(frame: pl.LazyFrame, schema: Mapping[str, pl.DataType], policy: Policy) -> pl.LazyFrame:
    """Return a frame whose composite ids have their fields in the pinned order; other columns stay."""
    orders = pinned_orders(schema, policy)
    return frame.with_columns(by_name(name).cast(_ordered(schema[name], form)) for name, form in orders.items())


def pinned_orders(schema: Mapping[str, pl.DataType], policy: Policy) -> dict[str, IdForm]:
    """Return the pinned forms of the composite ids that only need their fields in another order."""
    roles = {policy.subject: "subject", policy.id: "record"}
    forms = {name: form_of(schema[name]) for name in roles if name and isinstance(schema.get(name), pl.Struct)}
    pinned = pinned_forms(policy) if forms else {}
    wanted = {name: pinned.get(roles[name]) for name in forms}
    return {name: form for name, form in wanted.items() if form is not None and form.orders(forms[name])}


def pinned_forms(policy: Policy) -> dict[str, IdForm]:
    """Return the forms of ids that the ledger pins, by role."""
    if not ledger_exists(policy.ledger.url):
        return {}
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
        return ledger.pinned_forms(Scope.of(policy), list(policy.text_columns))


def form_of(dtype: pl.DataType, normalize: tuple[Normalization, ...] = ()) -> IdForm:
    return IdForm.of(pl.Series([], dtype=dtype).to_arrow().type, normalize)


def forms_of(schema: Mapping[str, pl.DataType], policy: Policy) -> IdForms:
    """Return the forms of the ids of a table, as the ledger pins them."""
    by_record = policy.unit == "record" or policy.subject is None
    subject = None if by_record else form_of(schema[str(policy.subject)], policy.normalize)
    return IdForms(form_of(schema[policy.id]), subject, policy.id_columns)


def _ordered(dtype: Any, form: IdForm) -> Any:
    """Return the same type with its fields in the order of a form; Polars casts fields by name."""
    if not isinstance(dtype, pl.Struct):
        return dtype
    inner = {field.name: field.dtype for field in dtype.fields}
    return pl.Struct({name: _ordered(inner[name], part) for name, part in form.fields})


_OURS = Path(dptext_etl.__file__).parent
"""What comes with the library was made from public files."""


def refuse_raw(paths: Sequence[str], policies: Iterable[Path] = (), *, why: str) -> None:
    """Refuse files that a policy names as its source, copies of them, and artifacts that were made from them.

    Policies in the folders of `paths` and in the working folder are read, then `policies`; `why` is the reason.
    """
    folders = {Path.cwd(), *(Path(path).absolute().parent for path in paths if not is_remote(path))}
    for policy in (*policies, *sorted(file for folder in folders for file in folder.glob("*.toml"))):
        try:
            raw = tomllib.loads(policy.read_text("utf-8-sig")).get("source")
        except (OSError, ValueError):
            raise PolicyError(f"the policy {policy} cannot be read", "repair it, or move it away") from None
        if not isinstance(raw, str):
            continue
        pattern, local = raw.removeprefix("file://").replace("{partition}", "*"), [*filterfalse(is_remote, paths)]
        if is_remote(pattern):
            named = any(path == raw or Path(path).match(pattern) for path in paths)
        else:
            places = existing_paths(str(policy.absolute().parent / pattern))
            lineage, inside = made_from(local) if places else {}, chain.from_iterable(map(_inside, places))
            named = any(_holds(lineage, file) for file in inside) or any(
                place.resolve() in {path, *path.parents} or path.samefile(place)
                for path in (Path(path).resolve() for path in local)
                for place in places
            )
        if named:
            msg = f"the policy {policy} names this table as raw; {why}"
            raise PolicyError(msg, "give a public table of the same kind of texts")


def _inside(path: Path) -> Iterator[Path]:
    yield from sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _holds(lineage: Lineage, file: Path) -> bool:
    """Return whether a lineage holds a file, whose bytes are only read if its size fits."""
    sizes = {size for _, size in lineage.values()}
    return bool(sizes & {None, file.stat().st_size}) and sha256_file(file) in lineage


def refuse_own_inputs(policy: Policy, paths: Sequence[str]) -> None:
    """Refuse a source from which a public input of the policy was made; objects of a store are not compared."""
    lineage = {name: made_from([path]) for name, path in dict.fromkeys(inputs_of_policy(policy))}
    for file in (file for path in paths if lineage and not is_remote(path) for file in _inside(Path(path))):
        for name, files in lineage.items():
            if file.is_file() and _holds(files, file):
                msg = f"{name} was made from a file of the source: it holds the private column, and is not public"
                hint = "make it from published or public texts, or use one that comes with the library"
                raise PolicyError(msg, f"{hint}; delete this one")


def inputs_of_policy(policy: Policy) -> Iterator[tuple[str, Path]]:
    """Yield the names and the places of the files and folders that are public inputs of a policy."""
    parts = list[tuple[str, BaseModel]]()
    if policy.synthetic is not None:
        parts.append(("synthetic", policy.synthetic.mechanism))
        if policy.synthetic.pool is not None:
            yield "the pool", Path(policy.pool.path)  # its texts are published as they are
    for column in policy.charged_columns():
        opened = getattr(getattr(column.mechanism, "opened", None), "path", None)
        if opened is not None:  # also a corpus that came from a store
            yield "the corpus", Path(opened)
        parts += [(step.name, step) for step in (column.mechanism, *column.postprocess)]
    for name, part in parts:
        yield from _inputs_of(name, part)


def _inputs_of(name: str, part: BaseModel) -> Iterator[tuple[str, Path]]:
    fields: frozenset[str] = getattr(part, "artifact_fields", frozenset())
    for field in type(part).model_fields:
        value = getattr(part, field)
        if isinstance(value, BaseModel):
            yield from _inputs_of(name, value)
        for text in (value if isinstance(value, tuple) else (value,)) if field in fields else ():
            for place in {str(text or ""), str(text or "").partition(":")[2]}:  # such as "nltk:FOLDER"
                if place and Path(place).exists() and _OURS not in Path(place).absolute().parents:
                    yield f"{field} of {name}", Path(place)
