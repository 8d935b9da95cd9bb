"""Draw a figure from 0 to 1 as a bar, with its interval, the blind figure, and the figure of raw texts."""

from __future__ import annotations

from html import escape

from dptext_etl_eval.measure import Score

WIDTH = 200
LEGEND = (
    '<p class="says">Bars go from 0 to 1. The bar is the release, the thin line its 95 % interval, the dashed mark the '
    "blind figure, the solid mark the raw texts.</p>"
)


def bar(score: Score) -> str:
    """Return the drawing as SVG; nothing for figures that are no shares."""
    if score.unit != "share" or score.value is None:
        return ""
    parts = [
        f'<line class="axis" x1="0" y1="19.5" x2="{WIDTH}" y2="19.5"/>',
        f'<rect class="bar" x="0" y="5" width="{_x(score.value):.1f}" height="10"/>',
    ]
    if score.interval is not None:
        low, high = map(_x, score.interval)
        parts.append(f'<line class="whisker" x1="{low:.1f}" y1="10" x2="{high:.1f}" y2="10"/>')
    for kind, value in (("blind", score.blind), ("raw", score.raw)):
        if value is not None:
            at = _x(value)
            parts.append(f'<line class="{kind}" x1="{at:.1f}" y1="1" x2="{at:.1f}" y2="19" stroke-width="2"/>')
    title = escape(f"{score.what}: {score.value:.3f}")
    drawn = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} 20" preserveAspectRatio="none" role="img"><title>{title}</title>{drawn}</svg>'


def _x(value: float) -> float:
    return WIDTH * min(1.0, max(0.0, value))
