"""Draw pictures for metadata from spends and balances only, as small PNGs inside Markdown.

A record's spend depends only on disclosures: on the number of words if the length is disclosed; otherwise it is
constant.
"""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import dagster as dg

from dptext_etl.guarantee import MICRO, Disclosure
from dptext_etl.mechanism import worst_spend
from dptext_etl.runner import StagedRun
from dptext_etl.runner.publish.gating import copies_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (5.6, 2.4)
_DPI = 96
_BINS = 20
_INK = "#4f43dd"
_PALE = "#d9d6f7"
_CAP = "#d2433c"


def of_spends(staged: StagedRun) -> dict[str, dg.MarkdownMetadataValue]:
    """Draw a histogram per text column of the epsilon that the records of a run were charged."""
    pictures = {}
    counted = copies_of(staged)
    for column in staged.policy.column_policies():
        name, mechanism = str(column.column), column.mechanism
        draws = counted[name].rows_by_draws if name in counted else {}
        if Disclosure.LENGTH not in mechanism.guarantee.disclosures:
            draws = {mechanism.most_positions: sum(draws.values())}
        spends = Counter({worst_spend(mechanism, n).epsilon: rows for n, rows in draws.items() if rows})
        if spends and max(spends) < float("inf"):
            pictures[f"epsilon of {name}"] = _histogram(spends, name)
    return pictures


def of_remaining(remaining: Mapping[str, Any]) -> dict[str, dg.MarkdownMetadataValue]:
    """Draw the used and the remaining budget of units, at the quantiles of the ledger."""
    return {
        f"remaining budget ({component})": _quantiles(
            remaining["used"][component], limit, component, str(remaining["unit"])
        )
        for component, limit in remaining["limits"].items()
        if remaining["used"].get(component)
    }


def _histogram(spends: Mapping[float, int], column: str) -> dg.MarkdownMetadataValue:
    axes = _axes(f"Epsilon per record, column {column}", "epsilon charged", "records")
    axes.hist(list(spends), bins=_edges(sorted(spends)), weights=list(spends.values()), color=_INK, edgecolor="white")
    axes.set_xlim(left=0)
    return _picture(axes, f"histogram of the epsilon charged per record in column {column}")


def _edges(amounts: Sequence[float]) -> list[float]:
    """Cut a range between amounts; spends are multiples of a step, and every bin holds equally many multiples."""
    step = min((after - before for before, after in pairwise(amounts)), default=1.0)
    steps = round((amounts[-1] - amounts[0]) / step) + 1
    width = step * -(-steps // _BINS)
    return [amounts[0] - step / 2 + width * number for number in range(math.ceil(steps * step / width) + 1)]


def _quantiles(used: Mapping[str, int | str], limit: int, component: str, unit: str) -> dg.MarkdownMetadataValue:
    axes = _axes(f"Budget used per {unit}, by quantile", f"{unit}s", component)
    spent = [limit if amount == "inf" else int(amount) for amount in used.values()]
    axes.bar(list(used), [limit / MICRO] * len(spent), color=_PALE, width=0.6, label="left")
    axes.bar(list(used), [amount / MICRO for amount in spent], color=_INK, width=0.6, label="used")
    axes.axhline(limit / MICRO, color=_CAP, linewidth=1.5, label="cap")
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return _picture(axes, f"quantiles of the {component} that {unit}s have used, next to the cap")


def _axes(title: str, xlabel: str, ylabel: str) -> Axes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(xlabel, fontsize=9)
    axes.set_ylabel(ylabel, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _picture(axes: Axes, alt: str) -> dg.MarkdownMetadataValue:
    """Turn a picture into metadata that Dagster's pages show."""
    png = io.BytesIO()
    axes.figure.canvas.print_figure(png, format="png", metadata={"Software": None})
    return dg.MetadataValue.md(f"![{alt}](data:image/png;base64,{base64.b64encode(png.getvalue()).decode('ascii')})")
