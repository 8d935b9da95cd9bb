"""Draw pictures of the documentation: the page to sign, and the chart of README."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

SECTIONS = (
    ("Loss of the most charged person", "in this release and in all releases,", "as ε, as odds, and as a guess"),
    ("review: charges", "the largest charge of a record,", "and how many records were charged"),
    ("Excluded rows", "how many and why, and about whom", "the table then says less"),
    ("Bounds per person and per record", "caps and worst case, as odds:", "a guess of 1% becomes 36% at most"),
    ("Could a row be traced?", "rows that other columns single out,", "and the form of ids"),
    ("Contents", "number of rows, rewritten columns,", "unchanged columns, and a hash"),
    ("review: guarantee", "mechanism, its ε, and the facts that", "are released exactly"),
    ("Checks before publication", "each gate, and the defects", "that it catches"),
    ("Assumptions", "a sentence for each condition", "of the guarantee"),
    ("How to verify it", "commands for those who hold", "the policy and the ledger"),
)
"""Headings of `dptext_etl.runner.statement` for a column `review`, and two lines on each."""
INSIDE = 3
"""Number of sections, the first ones, that a statement with `--public` lacks."""
TITLE = "Statement: reviews, release 1"
_STYLE = """
.page{fill:#f6faf9;stroke:#56706c;stroke-width:1.5}.box{fill:#fff;stroke:#00796b;stroke-width:1.5}
.inside{stroke:#b23c17;stroke-dasharray:6 5}.line{stroke:#4b5b5b;stroke-width:1.5}
text{fill:#1b2a2a}.head{font-weight:600}
@media (prefers-color-scheme:dark){.page{fill:#1b2827;stroke:#8aa5a0}.box{fill:#14201f;stroke:#4db6ac}
.inside{stroke:#ff8a65}.line{stroke:#a9bab8}text{fill:#e6efee}}
"""
_WIDTH, _SHOWN = 390, 440
_TOP, _BOX, _GAP, _SIGNED = 50, 82, 8, 36


def page_to_sign() -> str:
    """Return the picture of the page that a data owner signs, legible where it is 358 pixels wide."""
    lines, y = [f'<text class="head" x="20" y="34">{escape(TITLE)}</text>'], _TOP
    for number, (heading, *said) in enumerate(SECTIONS):
        kind = "box inside" if number < INSIDE else "box"
        lines.append(f'<rect class="{kind}" x="20" y="{y}" width="350" height="{_BOX}" rx="8"/>')
        lines.append(f'<text class="head" x="34" y="{y + 26}">{escape(heading)}</text>')
        lines += [f'<text x="34" y="{y + 48 + 22 * row}">{escape(text)}</text>' for row, text in enumerate(said)]
        y += _BOX + _GAP
    for word in ("Signed", "Name", "Date"):
        y += _SIGNED
        lines.append(f'<text x="20" y="{y}">{word}:</text><path class="line" d="M86 {y + 2}H370"/>')
    bottom = y + 22
    lines.insert(0, f'<rect class="page" x="6" y="6" width="378" height="{bottom - 6}" rx="10"/>')
    lines.append(f'<text x="6" y="{bottom + 26}">Dashed: for readers inside your boundary only;</text>')
    lines.append(f'<text x="6" y="{bottom + 48}">--public omits these sections.</text>')
    height = bottom + 60
    label = (
        f"The page to sign. Sections: {'; '.join(heading for heading, *_ in SECTIONS)}. Then signature, name, and date."
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SHOWN}" height="{round(height * _SHOWN / _WIDTH)}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}" '
        'font-family="system-ui, sans-serif" font-size="16">'
    )
    return "\n".join([head, f"<style>{_STYLE}</style>", *lines, "</svg>"]) + "\n"


FIGURES = Path(__file__).resolve().parents[1] / "demo_figures.json"
BARS_STYLE = """
text{fill:#1b2a2a}.head{font-weight:600}.bar{fill:#00796b}.base{fill:#9db0ad}
@media (prefers-color-scheme:dark){text{fill:#e6efee}.bar{fill:#4db6ac}.base{fill:#5c706d}}
"""
BASELINES = ("label names, no text", "raw texts")
"""Bars of figures that no release has."""


def demo_figures() -> dict[str, float]:
    """Return macro-F1 by name of the form or baseline, as `make -C studies demo-figures` measured it."""
    return dict(json.loads(FIGURES.read_text(encoding="utf-8"))["macro_f1"])


def demo_words() -> str:
    """Return README's link to the chart, whose text names all figures."""
    return f"![{_demo_label()}](docs/images/demo-forms.svg)"


def _demo_label() -> str:
    shown = "; ".join(f"{name} {value:.2f}" for name, value in demo_figures().items())
    return f"Macro-F1 of classifiers, 1 is best: {shown}."


def demo_forms() -> str:
    """Return the chart of forms and baselines of `dptext demo`, one bar each, legible where it is 358 pixels wide."""
    lines, top, widest = ['<text class="head" x="8" y="24">Macro-F1 of classifiers, 1 is best</text>'], 36, 314
    for name, value in demo_figures().items():
        kind = "base" if name in BASELINES else "bar"
        lines.append(f'<text x="8" y="{top + 16}">{escape(name)}</text>')
        lines.append(f'<rect class="{kind}" x="8" y="{top + 23}" width="{widest * value:.0f}" height="14" rx="2"/>')
        lines.append(f'<text class="head" x="{16 + widest * value:.0f}" y="{top + 36}">{value:.2f}</text>')
        top += 46
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SHOWN}" height="{round((top + 8) * _SHOWN / _WIDTH)}" '
        f'viewBox="0 0 {_WIDTH} {top + 8}" role="img" aria-label="{escape(_demo_label())}" '
        'font-family="system-ui, sans-serif" font-size="16">'
    )
    return "\n".join([head, f"<style>{BARS_STYLE}</style>", *lines, "</svg>"]) + "\n"
