"""Make `docs/frontier-report.html` from `report.md`: it loads nothing, follows light and dark, and prints."""

from __future__ import annotations

import re
from pathlib import Path

from frontier.data import ROOT
from frontier.parts import PARTS

SOURCE = ROOT / "studies" / "frontier" / "report.md"
REPORT = ROOT / "docs" / "frontier-report.html"

COLORS = ("#1565c0", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#be123c", "#0f766e", "#475569", "#86198f", "#374151")
DARK = ("#6cb2ff", "#ff9a5c", "#5fd38a", "#c99bff", "#e6c04a", "#ff7d95", "#4fd1c5", "#a8b5c8", "#f08be0", "#d1d5db")
FIGURES = """
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(310px, 100%), 1fr)); gap: .8rem 1.2rem }
.plots figure { margin: 0 } .plots svg { width: 100%; height: auto; display: block }
figcaption { font-size: .85rem; text-align: center }
.plots .axis { stroke: currentColor; opacity: .18 } .plots text { fill: currentColor }
.plots .tick { font-size: 10px; opacity: .75 } .plots .name { font-size: 11px }
.turned { text-anchor: middle }
.bounds { fill: #2e9e5b; opacity: .14 } .line { fill: none; stroke-width: 1.3; opacity: .75 }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: .5rem 0; font-size: .9em }
.plots figcaption { font-style: normal; margin: 0 auto; max-width: none } .plots figure { width: 100% }
.legend .key { width: 1.8rem; height: .8rem; vertical-align: middle; margin-right: .35rem }
.scroll { overflow-x: auto; margin: .5rem 0 1rem } .scroll table { border-collapse: collapse; font-size: .85rem }
.scroll th, .scroll td { text-align: left; padding: .25rem .7rem .25rem 0; vertical-align: top;
  border-bottom: 1px solid rgba(128, 128, 128, .3) }
.scroll td.n { font-variant-numeric: tabular-nums; white-space: nowrap }
.sorts th { cursor: pointer } .sorts th[aria-sort]::after { content: " \\25B4" }
.sorts th[aria-sort=descending]::after { content: " \\25BE" } details { margin: .3rem 0 } summary { cursor: pointer }
@media print { .scroll { overflow: visible } .plots figure { break-inside: avoid } }
"""
PAGE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --link: #1257a8 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --paper: #14171b; --link: #7bb6f5 } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 76rem;
  margin: 0 auto; padding: 1rem } p, li { max-width: 52rem } a { color: var(--link) }
h1 { font-size: 1.6rem } h2 { margin-top: 2.2rem }
pre { overflow-x: auto }
@media print { body { max-width: none; font-size: 10pt } }
"""
SORT = """
for (const table of document.querySelectorAll("table.sorts")) table.querySelectorAll("th").forEach((head, at) => {
  head.tabIndex = 0;
  const sort = () => {
    const down = head.getAttribute("aria-sort") === "ascending", body = table.tBodies[0];
    const value = row => { const text = row.cells[at].textContent.trim(), number = parseFloat(text.replace(/,/g, ""));
      if (text === "" || text.startsWith("\\u2013")) return [2, 0];
      return text.startsWith("\\u221e") ? [0, Infinity] : isNaN(number) ? [1, text] : [0, number] };
    const rows = [...body.rows].map(row => [value(row), row]);
    rows.sort(([a], [b]) => a[0] - b[0] || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0) * (down ? -1 : 1));
    table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending"); rows.forEach(([, row]) => body.append(row));
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", event => { if (event.key === "Enter") sort() });
});
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = true }));
"""


def style() -> str:
    """Return the style of plots and tables."""
    light, dark = (
        "".join(f".m{at} {{ stroke: {one} }} .mark.m{at} {{ fill: {one} }}\n" for at, one in enumerate(colors))
        for colors in (COLORS, DARK)
    )
    return f"{FIGURES}{light}@media (prefers-color-scheme: dark) {{ {dark} }}"


_PART = re.compile(r"<!-- generated: (frontier_\w+)(?: by [^>]*)? -->.*?<!-- end -->", re.DOTALL)


def filled(markdown: str) -> str:
    """Return a page's Markdown with the figures of the parts put in, plots included."""
    return _PART.sub(lambda match: PARTS[match.group(1)](), markdown)


def report() -> str:
    """Return the report: the page in one file."""
    from markdown import Markdown

    body = Markdown(extensions=["attr_list", "tables", "fenced_code", "toc"]).convert(
        filled(SOURCE.read_text(encoding="utf-8"))
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>What releases keep, and what '
        "attackers get</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{PAGE}{style()}</style></head><body>{body}<script>{SORT}</script></body></html>\n"
    )


def write(path: Path = REPORT) -> None:
    """Write the report."""
    path.write_text(report(), encoding="utf-8")
