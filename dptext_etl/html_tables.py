"""Write small HTML tables for notebooks: names, numbers and sentences, each escaped; never a text, an id or a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


def facts(caption: str, entries: Mapping[str, Any]) -> str:
    """Return a table of two columns, the names of facts and the facts; a fact that is None or empty is left out.

    >>> facts("a < b", {"rows": 3, "note": None})
    '<table><caption>a &lt; b</caption><tbody><tr><th>rows</th><td>3</td></tr></tbody></table>'
    """
    rows = (f"<tr><th>{escape(name)}</th>{_cell(value)}</tr>" for name, value in entries.items() if value not in _EMPTY)
    return f"<table><caption>{escape(caption)}</caption><tbody>{''.join(rows)}</tbody></table>"


def table(caption: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table with a head.

    >>> table("", ["gate"], [["raw"]])
    '<table><caption></caption><thead><tr><th>gate</th></tr></thead><tbody><tr><td>raw</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_EMPTY: tuple[Any, ...] = (None, "", (), [], {})


def _cell(value: Any) -> str:
    if isinstance(value, float):
        said = f"{value:g}"
    elif isinstance(value, int) and not isinstance(value, bool):
        said = f"{value:,}"
    elif isinstance(value, Mapping):
        said = ", ".join(f"{name} {amount:,}" for name, amount in value.items())
    elif isinstance(value, (set, frozenset, tuple, list)):
        said = ", ".join(map(str, value if isinstance(value, (tuple, list)) else sorted(value)))
    else:
        said = str(value)
    return f"<td>{escape(said)}</td>"
