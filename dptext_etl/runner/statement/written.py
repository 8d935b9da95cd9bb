"""Write a statement as Markdown and as a page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from dptext_etl.errors import InputError, seam
from dptext_etl.html_page import document
from dptext_etl.runner.statement.sections import Section, sections, title

INSIDE = (
    "For readers inside your boundary: what records were charged depends on their texts. "
    "`--public` leaves these amounts out."
)
SIGNED = ("Signed", "Name", "Date")
STYLE = """
th { font-weight: 500; width: 38% } td { overflow-wrap: anywhere } pre { overflow-x: auto; font-size: .85rem }
.sign { display: grid; grid-template-columns: 2fr 2fr 1fr; gap: 2rem; margin-top: 4rem }
.sign span { border-top: 1px solid var(--ink); padding-top: .3rem }
@media print { h2 { break-after: avoid } tr { break-inside: avoid } }
"""


def markdown(found: dict[str, Any]) -> str:
    """Return the statement as Markdown."""
    lines = [f"# {title(found)}", *_inside(found)]
    for part in sections(found):
        lines += [f"## {part.title}", *part.says]
        if part.rows:
            lines.append(
                "\n".join(["| | |", "|---|---|", *(f"| {_cell(name)} | {_cell(value)} |" for name, value in part.rows)])
            )
        if part.commands:
            lines.append("\n".join(["```sh", *part.commands, "```"]))
    lines.append("  \n".join(f"{word}: ____________________" for word in SIGNED))
    return "\n\n".join(lines) + "\n"


def page(found: dict[str, Any]) -> str:
    """Return the statement as a page that loads nothing."""
    body = [f'<p class="inside">{_html(line)}</p>' for line in _inside(found)]
    body += map(_section, sections(found))
    body.append(f'<p class="sign">{"".join(f"<span>{word}</span>" for word in SIGNED)}</p>')
    return document(title(found), "".join(body), STYLE)


def write(found: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write both forms into a folder, which is made if it is missing."""
    paths = folder / "statement.md", folder / "statement.html"
    with seam("writing the statement", InputError, "give a folder that can be written: --out FOLDER"):
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, (markdown(found), page(found)), strict=True):
            path.write_text(text, encoding="utf-8")
    return paths


def _inside(found: dict[str, Any]) -> Iterable[str]:
    return () if found["public"] or not any("charged" in column for column in found["columns"]) else (INSIDE,)


def _section(part: Section) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{_html(value)}</td></tr>" for name, value in part.rows)
    table = f'<div class="scroll"><table>{rows}</table></div>' if rows else ""
    commands = f"<pre>{escape(chr(10).join(part.commands))}</pre>" if part.commands else ""
    says = "".join(f"<p>{_html(line)}</p>" for line in part.says)
    return f"<h2>{escape(part.title)}</h2>{says}{table}{commands}"


def _html(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
