"""`make -C studies allocation-utility`: what dividing a budget by scores gains (`studies/reports/allocation.md`).

A run that was stopped continues where it was: figures are kept in `target/allocation-utility/`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import allocation_measures as measures
from allocation_figure import figure
from allocation_measures import FIVE, SCORED, TURNED, UNIFORM, DataSet
from allocation_page import PAGE as PAGE_TEXT
from surrogate_measures import FigureCache

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
WORK_FOLDER = ROOT / "target" / "allocation-utility"
PAGE = ROOT / "studies" / "reports" / "allocation.md"
ROWS = {"custext": 1_000, "dpmlm": 200}
PER_WORD = {"custext": (3.0, 8.0, 20.0), "dpmlm": (20.0, 40.0)}
"""E of a text is one of these times the mean number of public words of the data set, rounded: a literal in a policy."""
BETWEEN = {"custext": (2.0, 4.0, 5.5, 11.0, 14.0), "dpmlm": (14.0, 28.0)}
"""More of them for the even division only. Its result at the use of another division lies between two of these."""
ALONE = 8.0
NOTHING = (
    "**Dividing by these scores brings nothing here that a smaller E for all words does not bring, too**, and a "
    "smaller E is also a stronger guarantee. Lower E first."
)
SHARE = 0.75
"""Share of the cells at equal use in which attacks find less, before the page says that they do."""
SEEDS = (0, 1, 2)
TITLES = {
    "kept": "words kept",
    "learnt": "label learned",
    "read": "label read",
    "secret": "secret found",
    "found": "text found",
}
USES, ATTACKS = ("learnt", "read"), ("secret", "found")
Cells = dict[tuple[str, float], dict[str, list[float]]]


def totals(data: DataSet, mechanism: str) -> list[float]:
    """Return the budgets of a text, one for each of `PER_WORD` and `BETWEEN`."""
    words = round(data.words)
    return [each * words for each in sorted(PER_WORD[mechanism] + BETWEEN[mechanism])]


def measured(
    kept: FigureCache, data: DataSet, mechanism: str, way: str, total: float, seed: int, make: Any
) -> dict[str, float]:
    """Release once and measure everything; figures that are there are not measured again."""
    key = (mechanism, data.name, len(data.texts), way, total, seed)
    means: dict[str, float] = {}

    def of(what: str) -> float:
        if not means:
            means.update(measures.figures(data, make()))
        return means[what]

    names = [name for name in TITLES if name != "secret" or data.secrets is not None]
    return {name: kept.figure((*key, name), partial(of, name)) for name in names}


def cells(kept: FigureCache, data: DataSet, mechanism: str) -> Cells:
    """Measure a data set: every way at every budget, three keys each."""
    figures_of: Cells = {}
    for total in totals(data, mechanism):
        each = total / round(data.words)
        ways = [UNIFORM] if each in BETWEEN[mechanism] else [UNIFORM, SCORED]
        if mechanism == "custext" and each in PER_WORD[mechanism]:
            ways += [TURNED, *(FIVE if each == ALONE else ())]
        for way in ways:
            runs = []
            for seed in SEEDS:

                def make(way: str = way, total: float = total) -> list[str]:
                    return measures.release(mechanism, way, total, data.texts)

                runs.append(measured(kept, data, mechanism, way, total, seed, make))
            figures_of[way, total] = {name: [run[name] for run in runs] for name in runs[0]}
            details = {name: round(statistics.fmean(values), 3) for name, values in figures_of[way, total].items()}
            print(mechanism, data.name, way, total, details, flush=True)
    return figures_of


def shown(values: Sequence[float]) -> str:
    """Write a mean and half the range."""
    return f"{statistics.fmean(values):.3f} ± {(max(values) - min(values)) / 2:.3f}"


def clear(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the difference of means where no figure of one lies among figures of the other, else 0."""
    apart = min(ours) > max(theirs) or max(ours) < min(theirs)
    return statistics.fmean(ours) - statistics.fmean(theirs) if apart else 0.0


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows])


def lines(data: DataSet, results: Cells, ways: Sequence[str]) -> str:
    """Write all figures of a data set."""
    names = [name for name in TITLES if name in next(iter(results.values()))]
    titles = [data.secret + " found" if name == "secret" else TITLES[name] for name in names]
    rows = [
        [f"{total:g}", way, *(shown(values[name]) for name in names)]
        for (way, total), values in sorted(results.items(), key=lambda item: item[0][1])
        if way in ways
    ]
    return table(["E", "division", *titles], rows)


def level(curve: Sequence[tuple[float, float]], use: float) -> float | None:
    """Return the attack of the even division at the same use, between its budgets; None outside them."""
    ordered = sorted(curve)
    for (low, least), (high, most) in pairwise(ordered):
        if low <= use <= high:
            return least + (most - least) * (use - low) / (high - low) if high > low else least
    return None


def at_level(results: Cells, way: str, use: str, attack: str) -> list[tuple[float, float]]:
    """Return pairs of attacks at equal use: of this division, and of the even one at another budget."""
    mean = {
        cell: {name: statistics.fmean(values) for name, values in values_of.items()}
        for cell, values_of in results.items()
    }
    curve = [(values_of[use], values_of[attack]) for (other, _), values_of in mean.items() if other == UNIFORM]
    pairs = [
        (values_of[attack], level(curve, values_of[use])) for (other, _), values_of in mean.items() if other == way
    ]
    return [(ours, even) for ours, even in pairs if even is not None]


def counts(results: dict[str, Cells]) -> dict[str, tuple[int, int, int]]:
    """Count cells over all data sets: better, worse, all; for use, for protection, and for protection at equal use."""
    counted = {}
    for title, names, better in (("use", USES, 1), ("protection", ATTACKS, -1)):
        apart = [
            better * clear(values_of[what], all_rows[UNIFORM, total][what])
            for all_rows in results.values()
            for (way, total), values_of in all_rows.items()
            if way == SCORED
            for what in names
            if what in values_of
        ]
        counted[title] = (sum(each > 0 for each in apart), sum(each < 0 for each in apart), len(apart))
    pairs = [
        pair
        for all_rows in results.values()
        for attack in ATTACKS
        if all(attack in values_of for values_of in all_rows.values())
        for pair in at_level(all_rows, SCORED, "read", attack)
    ]
    level_ = (sum(ours < even for ours, even in pairs), sum(ours > even for ours, even in pairs), len(pairs))
    return {**counted, "protection at equal use": level_}


def verdict(results: dict[str, Cells]) -> str:
    """Say in how many cells scores help, and in how many they cost."""
    sentences = []
    for title, (good, bad, every) in counts(results).items():
        rest = f", {every - good - bad} not distinguished" if "equal" not in title else ""
        sentences.append(f"* **{title}**: better in {good} of {every} cells, worse in {bad}{rest}.")
    sentences[-1] += " (*Label read* is equal; the even division then has another budget. Differences may be noise.)"
    return "\n".join(sentences)


def conclusion(results: dict[str, dict[str, Cells]]) -> str:
    """Say the counts in words, mechanism by mechanism."""
    sentences, brought = [], False
    for mechanism, cells_ in results.items():
        (use, lost, _), (safe, open_, _), (level_, _, pairs) = counts(cells_).values()
        brought |= level_ >= pairs * SHARE
        sentences.append(
            f"* **{mechanism}**, at the same E: use is better in {use} and worse in {lost} cells, protection better in "
            f"{safe} and worse in {open_}. At equal use, attacks find less in {level_} of {pairs} cells."
        )
    last = "At equal use the scores protect more than an even budget does." if brought else NOTHING
    return "\n".join([*sentences, "", last])


def unspent(data: DataSet) -> str:
    """Say how much of E each division spends."""
    shares = [f"{way} {measures.spent(data.texts[:200], way):.0%}" for way in (SCORED, *FIVE)]
    return f"Of E is spent, on average over 200 texts of {data.name}: " + ", ".join(shares) + "."


def page(parts: dict[str, str]) -> str:
    """Write the page, with the figures in their places."""
    text = PAGE_TEXT
    for name, part in parts.items():
        text = text.replace(f"[[{name}]]", part)
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kept", action="store_true", help="write the page from figures at hand, measure nothing")
    given = parser.parse_args(arguments)
    if not DATA.exists():
        sys.exit("skipped: shared/data does not lie next to this checkout")
    WORK_FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FigureCache(WORK_FOLDER / "figures.jsonl", measures=not given.kept)
    parts, results, alone = {"figure": figure(DATA / "nltk_data")}, {}, []
    for mechanism, rows in ROWS.items():
        sets = [data.first(rows) for data in measures.data_sets(DATA, max(ROWS.values()))]
        results[mechanism] = {data.name: cells(kept, data, mechanism) for data in sets}
        details = [verdict(results[mechanism])]
        for data in sets:
            here = results[mechanism][data.name]
            details += [f"**{data.name}**: {len(data.texts):,} texts of {data.words:.1f} words."]
            details += [lines(data, here, (UNIFORM, SCORED, TURNED))]
            if mechanism == "custext":
                total = ALONE * round(data.words)
                some = {cell: values_of for cell, values_of in here.items() if cell[1] == total}
                alone += [f"**{data.name}**:", lines(data, some, (UNIFORM, SCORED, *FIVE))]
        parts[mechanism] = "\n\n".join(details)
    parts |= {
        "single": "\n\n".join([*alone, unspent(sets[-1])]),
        "conclusion": conclusion(results),
        "longest": str(measures.LONGEST),
    }
    PAGE.write_text(page({**parts, "when": f"Last run {datetime.now(UTC).date().isoformat()}."}), encoding="utf-8")
    print(f"written to {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
