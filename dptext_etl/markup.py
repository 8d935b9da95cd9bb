"""Write HTML, and escape names for HTML and Markdown: names of columns and datasets may hold any character.

Pages load nothing. Pages and the small tables for notebooks hold no text, no id, and no key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any
from unicodedata import category

_JOINERS = "\u200c\u200d"  # characters without their own shape that words of some languages need
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of line breaks, control and format characters."""
_MARKDOWN = re.compile(r"[\\`*\[\]<>|$~&#!{}]|(?<![^\W_])_|_(?![^\W_])")


def one_line(text: str) -> str:
    r"""Replace line breaks, control characters, and characters that turn the direction of writing.

    >>> ascii(one_line("a\nb\u202ec"))
    "'a\\ufffdb\\ufffdc'"
    """
    return "".join("\ufffd" if category(char) in _INVISIBLE and char not in _JOINERS else char for char in text)


def html(text: str) -> str:
    """Return text for HTML, within an element or an attribute in quotes.

    >>> html("<b>")
    '&lt;b&gt;'
    """
    return escape(one_line(text))


def markdown(text: str) -> str:
    r"""Return text for Markdown within a line, a cell, or the text of a link, also where "$" begins a formula.

    >>> print(markdown("a|b [c](d) $e$ snake_case _f_"))
    a\|b \[c\](d) \$e\$ snake_case \_f\_
    """
    return _MARKDOWN.sub(r"\\\g<0>", one_line(text))


def one_line_each(value: Any) -> Any:
    """Return plain data whose texts have one line each and no "`", which statements put around commands."""
    if isinstance(value, str):
        return one_line(value).replace("`", "'")
    if isinstance(value, dict):
        return {one_line_each(name): one_line_each(item) for name, item in value.items()}
    return [one_line_each(item) for item in value] if isinstance(value, (list, tuple)) else value


_EMPTY: tuple[Any, ...] = (None, "", (), [], {})
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d5d9de; --soft: #5a6472; --bar: #2f6fab;
  --raw: #b3541e; --warn: #fff3cd; --warn-ink: #5c4400 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --paper: #14171b; --line: #363c44; --soft: #9aa4b1;
  --bar: #6aa9e0; --raw: #e8955f; --warn: #3b3111; --warn-ink: #f0dd9a } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 64rem;
  margin: 0 auto; padding: 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2rem } h3 { font-size: 1rem; margin: 1.5rem 0 0 }
.inside, blockquote { background: var(--warn); color: var(--warn-ink); padding: .6rem .8rem; border-radius: .4rem }
blockquote { margin: 0 } blockquote p { margin: 0 }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top }
@media print { body { max-width: none } .scroll { overflow: visible } }
"""


def document(title: str, body: str, style: str = "") -> str:
    """Return a page: light and dark, narrow and wide, on paper."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}{style}</style></head><body><h1>{html(title)}</h1>{body}</body></html>\n"
    )


def of_markdown(text: str) -> str:
    """Return the HTML of a Markdown text with tables; HTML in it is shown as text.

    >>> print(of_markdown("*a* <b>"), end="")
    <p><em>a</em> &lt;b&gt;</p>
    """
    from markdown_it import MarkdownIt

    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(text))


def facts(caption: str, entries: Mapping[str, Any]) -> str:
    """Return a table of two columns, the names of facts and the facts; a fact that is None or empty is omitted.

    >>> facts("a < b", {"rows": 3, "note": None})
    '<table><caption>a &lt; b</caption><tbody><tr><th>rows</th><td>3</td></tr></tbody></table>'
    """
    rows = (f"<tr><th>{html(name)}</th>{_cell(value)}</tr>" for name, value in entries.items() if value not in _EMPTY)
    return f"<table><caption>{html(caption)}</caption><tbody>{''.join(rows)}</tbody></table>"


def table(caption: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table with a head.

    >>> table("", ["gate"], [["raw"]])
    '<table><caption></caption><thead><tr><th>gate</th></tr></thead><tbody><tr><td>raw</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{html(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><caption>{html(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        text = f"{value:g}"
    elif isinstance(value, int) and not isinstance(value, bool):
        text = f"{value:,}"
    elif isinstance(value, Mapping):
        text = ", ".join(f"{name} {amount:,}" for name, amount in value.items())
    elif isinstance(value, (set, frozenset, tuple, list)):
        text = ", ".join(map(str, value if isinstance(value, (tuple, list)) else sorted(value)))
    else:
        text = str(value)
    return f"<td>{html(text)}</td>"
