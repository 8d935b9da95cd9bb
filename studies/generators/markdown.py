"""Write Markdown from facts: tables, amounts, links to the specification."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Write a Markdown table."""
    lines: list[list[object]] = [list(header), ["---"] * len(list(header)), *(list(row) for row in rows)]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )


def command_json(*arguments: str) -> dict[str, Any]:
    """Return what `dptext ARGUMENTS --json` says."""
    from typer.testing import CliRunner

    from dptext_etl.cli.app import app

    return dict(json.loads(CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False).stdout))


def linked(words: str) -> str:
    """Turn the references of a docstring to the specification into links of a page."""
    return re.sub(
        r"docs/spec/(\w+\.md)#([\w-]+)",
        lambda match: f"[{match.group(2).replace('-', ' ')}](spec/{match.group(1)}#{match.group(2)})",
        words,
    )


def shown(amount: float | str) -> str:
    """Write an amount for people."""
    return amount if isinstance(amount, str) else f"{amount:.6g}"
