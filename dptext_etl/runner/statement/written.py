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
@page {
  size: 210mm 297mm; margin: 20mm 18mm;
  @bottom-right { content: counter(page) " / " counter(pages); font: 8pt serif }
}
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --line: #999; --soft: #000 }
  body { font: 9.5pt/1.4 Georgia, "Times New Roman", serif; padding: 0 }
  h1 { font-size: 15pt; margin: 0 0 4mm } h2 { font-size: 11pt; margin: 6mm 0 1mm; break-after: avoid }
  p { margin: 0 0 2mm }
  .inside { background: none; color: #000; padding: 0; border-radius: 0; font-style: italic }
  th, td { font-size: 8.5pt; line-height: 1.35; padding: 1mm 3mm 1mm 0 } tr, .sign { break-inside: avoid }
  code, pre { font-size: 8pt } pre { white-space: pre-wrap; overflow: visible }
  .sign { margin-top: 18mm }
}
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
