"""Draw pictures of the documentation: charts of measured figures, and a recorded terminal."""

from __future__ import annotations

import json
from functools import cache
from html import escape
from pathlib import Path

from frontier import forms, tidy
from frontier.forms import EPSILONS

_WIDTH, _SHOWN = 390, 440
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
    return _framed(lines, top + 8, _demo_label(), BARS_STYLE)


def _framed(lines: list[str], height: int, label: str, style: str, font: str = "system-ui, sans-serif") -> str:
    """Return a picture of 390 units, legible where it is 358 pixels wide."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SHOWN}" height="{round(height * _SHOWN / _WIDTH)}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}" font-family="{font}" font-size="16">'
    )
    return "\n".join([head, f"<style>{style}</style>", *lines, "</svg>"]) + "\n"


CURVES = (
    ("linear_discriminant", "classifier of a synthetic table", "a"),
    ("shuffled", "shuffled release", "b"),
    ("surrogate", "text per row", "c"),
)
"""Forms of the chart of epsilon against usefulness, with the class of each curve."""
SETS = ("Snips", "Banking77", "SST-2")
"""A set in domain, one with many labels, and one that is not to be published."""
CURVES_STYLE = """
text{fill:#1b2a2a}.head{font-weight:600}path{fill:none;stroke-width:3}.axis{stroke:#9db0ad;stroke-width:1}
.a{stroke:#00796b}.b{stroke:#c98a00}.c{stroke:#5e6cc0}.base{stroke:#b23c17;stroke-width:2;stroke-dasharray:6 5}
@media (prefers-color-scheme:dark){text{fill:#e6efee}
.axis{stroke:#5c706d}.a{stroke:#4db6ac}.b{stroke:#e0b040}.c{stroke:#9fa8da}
.base{stroke:#ff8a65}}
"""


def usefulness() -> str:
    """Return the chart of macro-F1 by epsilon per person: a panel per set, a curve per form, and the best baseline."""
    lines = [
        f'<path class="{kind}" d="M8 {18 + 24 * at}h28"/><text x="44" y="{24 + 24 * at}">{escape(says)}</text>'
        for at, (_, says, kind) in enumerate([*CURVES, ("", "best baseline, without private texts", "base")])
    ]
    top = 112
    for name, best, curves in _measured_curves():
        y0 = top + 150
        lines.append(f'<text class="head" x="8" y="{top + 18}">{escape(name)}</text>')
        lines.append(f'<path class="axis" d="M40 {top + 30}V{y0}H370"/><text x="8" y="{top + 40}">1.0</text>')
        lines.append(f'<text x="8" y="{y0}">0.0</text>')
        height = y0 - top - 30
        lines.append(f'<path class="base" d="M40 {y0 - height * best:.0f}H370"/>')
        for (_, _, kind), values in zip(CURVES, curves, strict=True):
            points = " L".join(f"{60 + 95 * at} {y0 - height * value:.0f}" for at, value in enumerate(values))
            lines.append(f'<path class="{kind}" d="M{points}"/>')
        for at, epsilon in enumerate(EPSILONS):
            lines.append(f'<text x="{44 + 95 * at}" y="{y0 + 20}">ε = {epsilon:g}</text>')
        top = y0 + 34
    return _framed(lines, top, _usefulness_label(), CURVES_STYLE)


def usefulness_words() -> str:
    """Return the link of `docs/choose.md` to the chart, whose text names the figures."""
    return f"![{_usefulness_label()}](images/usefulness.svg)"


def _usefulness_label() -> str:
    said = []
    for name, best, curves in _measured_curves():
        shown = (
            f"{says} {' / '.join(f'{value:.2f}' for value in values)}"
            for (_, says, _), values in zip(CURVES, curves, strict=True)
        )
        said.append(f"{name}: {', '.join(shown)}, best baseline {best:.2f}")
    return f"Macro-F1 at ε = {' / '.join(f'{at:g}' for at in EPSILONS)}. {'. '.join(said)}."


@cache
def _measured_curves() -> tuple[tuple[str, float, tuple[tuple[float, ...], ...]], ...]:
    """Return each set with its best baseline, and macro-F1 by form and epsilon."""
    rows = tidy.read()
    found = []
    for name in SETS:
        curves = tuple(tuple(forms.reached(rows, name, form)[at] for at in EPSILONS) for form, _, _ in CURVES)
        found.append((name, max(forms.guesses(rows, name)[1].values()), curves))
    return tuple(found)


SESSION = Path(__file__).resolve().parents[1] / "recorded_session.json"
SESSION_STYLE = ".screen{fill:#14201f}text{fill:#e6efee;white-space:pre}.typed{fill:#4db6ac}"
_COLUMNS = 38
"""Letters of a line of the recorded terminal."""


def session() -> str:
    """Return the recorded terminal: the three commands of README, and lines of their output, in 38 columns."""
    lines, y = list[str](), 14
    for step in json.loads(SESSION.read_text(encoding="utf-8")):
        for text, kind in [(f"$ {step['command']}", "typed"), *((line, "said") for line in step["lines"])]:
            for part in (text[at : at + _COLUMNS] for at in range(0, len(text), _COLUMNS)):
                y += 21
                lines.append(f'<text class="{kind}" x="14" y="{y}">{escape(part)}</text>')
    lines.insert(0, f'<rect class="screen" width="{_WIDTH}" height="{y + 16}" rx="10"/>')
    return _framed(lines, y + 16, session_words(), SESSION_STYLE, "ui-monospace, monospace")


def session_words() -> str:
    """Return the words of the recorded terminal."""
    steps = json.loads(SESSION.read_text(encoding="utf-8"))
    return " ".join(
        f"$ {step['command']}: {'; '.join(line for line in step['lines'] if line != '…')}." for step in steps
    )
