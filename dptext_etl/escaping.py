"""Escape names for HTML and for Markdown: names of columns and datasets may hold any character."""

from __future__ import annotations

import re
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
