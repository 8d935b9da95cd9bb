"""Draw the plots as SVG that loads nothing and follows the page's colors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

import polars as pl

from frontier.data import CUTS
from frontier.shares import BOUND, axes

WIDTH, HEIGHT = 340, 250
LEFT, RIGHT, TOP, BOTTOM = 40, 332, 12, 208
HIGHEST = 1e5
"""Budgets per text above this, infinite ones too, are drawn at the right edge."""
MECHANISMS = (
    "surrogate",
    "custext",
    "santext",
    "madlib",
    "diffractor",
    "dpmlm",
    "dpbart",
    "dp_prompt",
    "dp_paraphrase",
    "adept",
)
DASHED = ("everyday-30k", "plus", "geometric", "one word after the other")
DOTTED = "one budget among words"
LINE = ["dataset", "mechanism", "variant"]
SERIES = 6
"""Lines of a plot, at most."""
SHAPES = {
    "surrogate": "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0z",
    "custext": "M-3.2,-3.2h6.4v6.4h-6.4z",
    "santext": "M0,-4.2L4,3H-4z",
    "madlib": "M0,4.2L4,-3H-4z",
    "diffractor": "M0,-4.4L4.4,0L0,4.4L-4.4,0z",
    "dpmlm": "M-1.2,-4h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8v-2.4h2.8z",
    "dpbart": "M-4,-1.2h8v2.4h-8z",
    "dp_prompt": "M-1.2,-4h2.4v8h-2.4z",
    "dp_paraphrase": "M-4,-3L-3,-4L4,3L3,4z",
}


def shown(points: pl.DataFrame) -> pl.DataFrame:
    """Return the cells of the lines that plots show: per data set, the six best mechanisms in their best variants.

    A line is as good as the largest lead of use over attack among its budgets. Tables have all lines.
    """
    complete = points.drop_nulls(["use_kept", "attack_kept"])
    leads = complete.group_by(LINE).agg(lead=(pl.col("use_kept") - pl.col("attack_kept")).max())
    ranked = leads.sort(pl.col("lead"), *LINE, descending=[True, False, False, False])
    best = ranked.unique(["dataset", "mechanism"], keep="first", maintain_order=True).group_by("dataset").head(SERIES)
    return complete.join(best, on=LINE, how="semi", maintain_order="left")


def legend(points: pl.DataFrame) -> str:
    """Return the name of each mechanism next to its mark; the title of a mark names the variant."""
    items = []
    for mechanism in dict.fromkeys(mechanism for (mechanism, _), _ in _lines(shown(points))):
        drawn = _path([(-14, 0), (14, 0)], mechanism, "") + _mark(mechanism, 0, 0)
        items.append(f'<span><svg class="key" viewBox="-14 -6 28 12">{drawn}</svg>{escape(mechanism)}</span>')
    hint = "Point at a mark to see its variant, its ε, ε per text, use, and attack."
    return f'<div class="legend">{"".join(items)}<span>{hint}</span></div>'


def frontier(points: pl.DataFrame, data_set: str) -> str:
    """Draw the use that is kept against the success that is left to the attacker; up and left is better."""
    here, chosen = shown(points).filter(pl.col("dataset") == data_set), axes(data_set)
    x, y = _scale(LEFT, RIGHT), _scale(BOTTOM, TOP)
    body = [_grid(x, y, "success left to the attacker", "use kept")]
    for (mechanism, variant), rows in _lines(here):
        at = [(x(row["attack_kept"]), y(row["use_kept"])) for row in rows]
        body.append(_path(at, mechanism, variant))
        body += [_mark(mechanism, *place, _said(row)) for place, row in zip(at, rows, strict=True)]
    says = f"{data_set}: {chosen.use_says} against {chosen.attack_says}"
    return _figure(
        "".join(body),
        f"<b>{escape(data_set)}</b>: {escape(chosen.use_says)} against {escape(chosen.attack_says)}",
        says,
    )


def budgets(points: pl.DataFrame, data_set: str) -> str:
    """Draw the use that is kept against epsilon per text; where epsilon bounds anything is shaded."""
    here, chosen = shown(points).filter(pl.col("dataset") == data_set), axes(data_set)
    y, decades = _scale(BOTTOM, TOP), math.log10(HIGHEST)

    def x(epsilon: float) -> float:
        return LEFT + (RIGHT - LEFT) * math.log10(min(max(epsilon, 1.0), HIGHEST)) / decades

    shade = f'<rect class="bounds" x="{LEFT}" y="{TOP}" width="{x(BOUND) - LEFT:.1f}" height="{BOTTOM - TOP}"/>'
    details = f'<text class="tick" x="{LEFT + 4}" y="{TOP + 10}">ε is a meaningful bound</text>'
    ticks = [(x(10.0**power), f"10{_raised(power)}" if power > 1 else f"{10**power}") for power in range(6)]
    body = [shade, details, _grid(None, y, "ε per text", "use kept", ticks)]
    for (mechanism, variant), rows in _lines(here):
        at = [(x(row["epsilon_per_text"]), y(row["use_kept"])) for row in rows]
        body.append(_path(at, mechanism, variant))
        body += [_mark(mechanism, *place, _said(row)) for place, row in zip(at, rows, strict=True)]
    says = f"{data_set}: {chosen.use_says} against epsilon per text"
    return _figure("".join(body), f"<b>{escape(data_set)}</b>: {escape(chosen.use_says)}", says)


def grid(points: pl.DataFrame, draw: Callable[[pl.DataFrame, str], str]) -> str:
    """Return one plot for each data set that is there."""
    there = set(points["dataset"].to_list())
    drawn = "".join(draw(points, name) for name in CUTS if name in there and name != "pii_synth")
    return f'<div class="plots">{drawn}</div>'


def _lines(points: pl.DataFrame) -> Iterable[tuple[tuple[str, str], Sequence[dict[str, Any]]]]:
    rows = points.sort("epsilon", maintain_order=True).to_dicts()
    names = sorted({(row["mechanism"], row["variant"]) for row in rows}, key=lambda name: (_rank(name[0]), name[1]))
    return [(name, [row for row in rows if (row["mechanism"], row["variant"]) == name]) for name in names]


def _rank(mechanism: str) -> int:
    return MECHANISMS.index(mechanism) if mechanism in MECHANISMS else len(MECHANISMS)


def _scale(low: int, high: int) -> Callable[[float], float]:
    return lambda share: low + (high - low) * (min(max(share, -0.08), 1.1) + 0.1) / 1.2


def _grid(
    x: Callable[[float], float] | None,
    y: Callable[[float], float],
    x_says: str,
    y_says: str,
    ticks: Sequence[tuple[float, str]] = (),
) -> str:
    shares = [(0.0, "0"), (0.5, "½"), (1.0, "1")]
    across = ticks if x is None else [(x(share), text) for share, text in shares]
    parts = [
        *(f'<line class="axis" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{BOTTOM}"/>' for at, _ in across),
        *(
            f'<text class="tick" x="{at:.1f}" y="{BOTTOM + 14}" text-anchor="middle">{text}</text>'
            for at, text in across
        ),
        *(
            f'<line class="axis" x1="{LEFT}" y1="{y(share):.1f}" x2="{RIGHT}" y2="{y(share):.1f}"/>'
            for share, _ in shares
        ),
        *(
            f'<text class="tick" x="{LEFT - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{text}</text>'
            for share, text in shares
        ),
        f'<text class="name" x="{(LEFT + RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{x_says}</text>',
        f'<text class="name turned" transform="translate(12 {(TOP + BOTTOM) / 2}) rotate(-90)">{y_says}</text>',
    ]
    return "".join(parts)


def _path(at: Sequence[tuple[float, float]], mechanism: str, variant: str) -> str:
    pattern = "4 3" if variant in DASHED else "1 3" if DOTTED in variant else ""
    dashed = f' stroke-dasharray="{pattern}"' if pattern else ""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    return f'<polyline class="m{_rank(mechanism)} line" points="{points}"{dashed}/>'


def _mark(mechanism: str, x: float, y: float, says: str = "") -> str:
    shape = SHAPES.get(mechanism, SHAPES["surrogate"])
    title = f"<title>{escape(says)}</title>" if says else ""
    return f'<path class="m{_rank(mechanism)} mark" transform="translate({x:.1f} {y:.1f})" d="{shape}">{title}</path>'


def _said(row: dict[str, Any]) -> str:
    name = row["mechanism"] + (f" ({row['variant']})" if row["variant"] else "")
    cost = "∞" if math.isinf(row["epsilon_per_text"]) else f"{row['epsilon_per_text']:,.0f}"
    return f"{name}, ε={row['epsilon']:g}, {cost}/text: {row['use']:.2f}, {row['attack']:.2f}"


def _raised(power: int) -> str:
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(power))


def _figure(body: str, caption: str, says: str) -> str:
    drawn = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(says)}</title>{body}</svg>'
    return f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>"
