"""Print for people and programs: amounts, tables on a terminal, plain lines in a pipe, JSON with `--json`."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any

import typer

from dptext_etl.errors import counted
from dptext_etl.guarantee import ADDITIVE
from dptext_etl.markup import one_line

if TYPE_CHECKING:
    from rich.console import Console


_COUNTED = frozenset(("epsilon", "diameter", *ADDITIVE))


def plain(micros: float | str) -> float | str:
    """Return millionths as an amount; "inf" stays.

    >>> plain(4_000_000), plain(7), plain(1e-06), plain("inf")
    (4.0, 7e-06, 1e-12, 'inf')
    """
    if isinstance(micros, str) or micros == float("inf"):
        return "inf"
    return float(Decimal(repr(micros)) / 1_000_000)


def plain_all(amounts: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the numbers of nested mappings."""
    return {name: plain_all(item) if isinstance(item, Mapping) else plain(item) for name, item in amounts.items()}


def balance(remaining: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `Ledger.remaining` as a mapping."""
    converted: dict[str, Any] = {name: plain_all(remaining[name]) for name in ("limits", "used", "left")}
    if "charges" in remaining:
        charges = [[{**item, "used": plain_all(item["used"])} for item in unit] for unit in remaining["charges"]]
        converted["charges"] = charges
    return {**remaining, **converted, "asked": [plain_all(unit) for unit in remaining["asked"]]}


def releases(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert the rows of `Reports.show`; all counts but `canaries` then leave canary rows out."""
    converted = []
    for release in rows:
        row = {name: plain(item) if name.startswith("max_") else item for name, item in release.items()}
        del row["canaries_by_state"]
        planted: Mapping[str, int] = release["canaries_by_state"]
        row |= {name: release[name] - count for name, count in planted.items()}
        converted.append({**row, "records": release["records"] - release["canaries"]})
    return converted


def public_view(exported: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `Reports.export`."""
    datasets = {}
    for name, dataset in exported["datasets"].items():
        releases = [dict(release) for release in dataset["releases"]]
        for release in releases:
            for place in ("worst_case", "least"):
                if amounts := release.get(place):
                    counts = {key: plain(amounts[key]) for key in _COUNTED & {*amounts} if amounts[key] is not None}
                    release[place] = {**amounts, **counts}
        datasets[name] = {**dataset, "releases": releases}
    return {**exported, "amounts": "epsilon, rho, delta", "datasets": datasets}


def show_balance(scope: Mapping[str, Any]) -> None:
    """Print one scope of `balance`: the cap, quantiles of used and left amounts, requested units."""
    unit = scope["unit"]
    limits = ", ".join(f"{name} {number(limit)}" for name, limit in scope["limits"].items())
    capped = f"cap of {limits} per {unit}" if limits else "no cap"
    heading(f"Budget of {scope['scope']}: {capped}")
    say(f"{scope['units']:,} {unit}s charged, {scope['exhausted']:,} at the cap")
    tables = [(f"{name} {word}", at) for word in ("used", "left") for name, at in scope[word].items() if at]
    columns = list(dict.fromkeys(place for _, at in tables for place in at))
    if tables:
        table(("", *columns), [(name, *(at[place] for place in columns)) for name, at in tables])
    for place, requested in enumerate(scope["asked"], start=1):
        text = "; ".join(f"{name} {number(amounts)}" for name, amounts in requested.items())
        say(f"{unit} {place} of those asked for: {text}")
        charges = scope["charges"][place - 1]
        if charges:
            facts = ("date", "dataset", "release", "column", "records", "used")
            table(facts, [[item[name] for name in facts] for item in charges])


def show_further(further: Mapping[str, Any]) -> None:
    """Print how many more releases fit (`runner.planning.further`)."""
    person = "person" if further["unit"] == "subject" else "record"
    for kind, singular in {"units": person, "rows": "row without a person"}.items():
        fitting = further.get(kind)
        if fitting is None:
            continue
        fits = counted(fitting["p99"], "more such release fits", "more such releases fit")
        if further["from_ledger"]:
            several = singular.replace(" ", "s ", 1) if " " in singular else f"{singular}s"
            say(f"{fits} for 99% of {fitting['count']:,} {several}, {fitting['least']:,} for the most charged one")
        else:
            longest = f"{counted(further['records'], 'record')} of the longest text"
            say(f"{fits} for a new {singular} with {longest}: the ledger holds no record of this dataset")


def amounts_text(amounts: Mapping[str, float] | None) -> str:
    return " and ".join(f"{name} {amount:g}" for name, amount in (amounts or {}).items())


BEYOND_CHANCE, FAILED = "BEYOND CHANCE", "FAILED"
RED = (BEYOND_CHANCE, FAILED)
JSON, EMITTED = "json", "emitted"
"""Entries of `call`: the command has --json, and it has printed its JSON object."""
_CALL: ContextVar[dict[str, Any] | None] = ContextVar("call", default=None)


def call(*, new: bool = False) -> dict[str, Any]:
    """Return what options of many commands set for the current call; `new` starts a call."""
    facts = None if new else _CALL.get()
    if facts is None:
        _CALL.set(facts := {})
    return facts


def emit(facts: Mapping[str, Any]) -> None:
    """Print `facts` as one JSON object on stdout; infinite numbers become the string "inf"."""
    typer.echo(json.dumps(finite(facts), ensure_ascii=False, indent=2, default=str))
    call()[EMITTED] = True


def as_json() -> bool:
    """Return whether the current command has --json."""
    return bool(call().get(JSON))


def emitted(facts: Mapping[str, Any]) -> bool:
    """Print `facts` as JSON if the command has --json, and return whether it has."""
    if as_json():
        emit(facts)
    return as_json()


def report(facts: Mapping[str, Any], sentence: str) -> None:
    """Print facts as JSON with --json, or a sentence for people."""
    if not emitted(facts):
        say(sentence)


def say(line: str = "") -> None:
    """Print a line for people on stdout without changes."""
    typer.echo(line)


def note(line: str) -> None:
    """Print a line for people on stderr, so that it does not mix with piped output."""
    typer.echo(line, err=True)


def warn(line: str) -> None:
    """Print a warning for people on stdout, red on a terminal."""
    typer.secho(line, fg="red", bold=True)


def heading(title: str) -> None:
    """Print a heading: bold on a terminal, plain in a pipe."""
    typer.echo()
    typer.secho(title, bold=True)


def table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print a table: ruled and wrapped on a terminal, aligned and never cut in a pipe.

    Cells are plain text; a cell in `RED` is red on a terminal.
    """
    heads, cells = list(columns), [[number(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        _aligned([heads, *cells])
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in heads:
        grid.add_column(Text(name), overflow="fold")
    for line in cells:
        grid.add_row(*(Text(cell, style="bold red" if cell in RED else "") for cell in line))
    console().print(grid)


def pairs(facts: Mapping[str, Any]) -> None:
    """Print facts one per line with aligned names; long values wrap on a terminal."""
    lines = [[name, number(value)] for name, value in facts.items()]
    if not sys.stdout.isatty():
        _aligned(lines)
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in lines:
        grid.add_row(Text(name, style="bold"), Text(value))
    console().print(grid)


WIDTH = 80
"""Columns of a screen on which facts and sentences are wrapped."""


def facts(lines: Iterable[tuple[str, Any]]) -> None:
    """Print one fact per line with aligned names, none wider than `WIDTH`; a value that is a list has several lines.

    A value that is None is omitted.
    """
    shown = [(name, value if isinstance(value, list) else [value]) for name, value in lines if value is not None]
    at = max((len(name) for name, values in shown if values), default=0) + 2
    for name, values in shown:
        for place, value in enumerate(values):
            typer.echo(_wrapped(number(value), " " * at if place else name.ljust(at), " " * at))


def sentences(lines: Iterable[str]) -> None:
    """Print sentences, none wider than `WIDTH`."""
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        typer.echo(_wrapped(line.strip(), indent, indent + "  "))


def _wrapped(text: str, first: str, rest: str) -> str:
    wrapper = textwrap.TextWrapper(
        WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return wrapper.fill(text)


def _aligned(lines: list[list[str]]) -> None:
    """Print columns without rich, whose import is slower than printing to a pipe."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def console(*, err: bool = False) -> Console:
    """Return a console for a terminal, on stdout or stderr: no markup, no highlighting."""
    from rich.console import Console

    return Console(file=sys.stderr if err else sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=False)


def number(value: Any) -> str:
    """Write the value of a cell, such as 12,345 or 0.1284 or yes or a, b or -.

    Fractions have six decimals, or six digits if they are small, and are rounded up: most of them are upper bounds.
    """
    match value:
        case None:
            text = "-"
        case bool():
            text = "yes" if value else "no"
        case float() if not value.is_integer() or abs(value) >= 1e15:
            text = _rounded(value, ROUND_CEILING)
        case int() | float():
            text = f"{value:,.0f}"
        case Mapping():
            text = ", ".join(f"{name} {number(item)}" for name, item in value.items())
        case Iterable() if not isinstance(value, str):
            text = ", ".join(number(item) for item in value)
        case _:
            text = one_line(str(value))
    return text or "-"


def at_least(value: float) -> str:
    """Write a lower bound, rounded down."""
    return _rounded(value, ROUND_FLOOR)


def _rounded(value: float, how: str) -> str:
    """Write a number in a rounding mode of `decimal`; the ledger's amounts, which are millionths, keep all digits."""
    if not math.isfinite(value):
        return str(value)
    exact = Decimal(repr(value))
    if 0.1 <= abs(value) < 1e15:
        return f"{exact.quantize(Decimal('1e-6'), how):,f}".rstrip("0").rstrip(".")
    return f"{float(exact.normalize(Context(prec=6, rounding=how))):.6g}"


def finite(value: Any) -> Any:
    """Return plain data for JSON: infinite numbers and NaN as strings, sets sorted."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case Mapping():
            return {str(name): finite(item) for name, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case set() | frozenset():
            return sorted(finite(item) for item in value)
    return value
