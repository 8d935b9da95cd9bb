"""Write the measurements as a page for people and as JSON, in a folder that only its owner can read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from dptext_etl import files
from dptext_etl.cli.terminal import finite
from dptext_etl.errors import InputError, seam
from dptext_etl.markup import document
from dptext_etl_eval.baselines import BLIND
from dptext_etl_eval.evidence import INSIDE, Evidence, Measured
from dptext_etl_eval.measure import DISCRIMINANT, WAYS, Attack, Score
from dptext_etl_eval.readers import LINES, SCORES, VECTOR_SCORES, VECTORS, WORDS
from dptext_etl_eval.verdict import baselines, best_reader, verdict


def in_short(evidence: Evidence) -> list[str]:
    """Return the summary, in sentences; each rests on figures of the page."""
    return [
        *_use(evidence.metrics),
        *_table(evidence),
        *_shares(evidence.metrics),
        *_secrets(evidence.attacks),
        *_words(evidence.metrics),
        *_reidentified(evidence.attacks),
        *_read(evidence.attacks),
    ]


def _use(metrics: Sequence[Measured]) -> Iterator[str]:
    score = _first(metrics, "downstream")
    if score is None or score.value is None or score.blind is None or score.raw is None:
        return
    says = (
        f"A classifier that learns from the release reaches macro-F1 {score.value:.2f} on raw texts. It reaches "
        f"{score.raw:.2f} if it learns from raw texts, and a random baseline gets {score.blind:.2f}."
    )
    free = _free(next(_named(metrics, "downstream")).scores)
    if free:
        says += f" Without any release: {', '.join(f'{name} {value:.2f}' for name, value in free.items())}."
    yield says


def _free(scores: Sequence[Score]) -> dict[str, float]:
    """Return macro-F1 of the guesses that need no private text and look at texts, by name."""
    return {name: value for name, value in baselines(scores).items() if name != BLIND}


def _table(evidence: Evidence) -> Iterator[str]:
    """Summarize how much a synthetic table teaches, the free guesses, and the table's cost."""
    for measured in _named(evidence.metrics, "synthetic"):
        by_name = {score.what.removeprefix("macro-F1, "): score for score in measured.scores}
        score = by_name[WORDS]
        if score.value is None or score.raw is None or score.blind is None:
            continue
        values = {name: item.value for name, item in by_name.items() if item.value is not None}
        free = _free(measured.scores)
        others = ", ".join(f"{name} {values[name]:.2f}" for name in (VECTORS, SCORES, VECTOR_SCORES) if name in values)
        yield (
            f"The {DISCRIMINANT} reaches macro-F1 {values[DISCRIMINANT]:.2f} on raw texts, and a classifier that "
            f"learns words of the synthetic table {score.value:.2f} ({others}). From raw texts it reaches "
            f"{score.raw:.2f}; a random baseline gets {score.blind:.2f}."
        )
        yield f"The best reader in scikit-learn: {'; '.join(LINES[best_reader(measured.scores)])}"
        if free:
            yield f"Without any private text: {', '.join(f'{name} {value:.2f}' for name, value in free.items())}."
        cost = evidence.cost
        person = cost.get("epsilon of the whole table for a person")
        text = "a person with k records has k times the loss" if person is None else f"a person at most {person}"
        record = cost["epsilon of the whole table for one record"]
        yield f"The whole table costs a record epsilon {record} and {text}, at delta {cost['delta']:g}."


def _shares(metrics: Sequence[Measured]) -> Iterator[str]:
    """Say how near the shares of labels that readers of a shuffled release count come to the true ones."""
    for measured in _named(metrics, "shuffled"):
        seen, *more = measured.scores
        if not more or seen.value is None or more[0].value is None or seen.blind is None:
            continue
        by_rule = "" if seen.raw is None else f", and of those counted in raw texts by the same rule {seen.raw:.3f}"
        yield (
            f"The distance of counted shares of labels from the true ones is {seen.value:.3f}, of neighborhood shares "
            f"{more[0].value:.3f}, of the corpus by itself {seen.blind:.3f}{by_rule}."
        )


def _secrets(attacks: Sequence[Measured]) -> Iterator[str]:
    score = _first(attacks, "attribute")
    if score is None or score.value is None or score.blind is None or score.raw is None:
        return
    yield (
        f"An attacker who learns from releases guesses the attribute with macro-F1 {score.value:.2f}: {score.raw:.2f} "
        f"from raw texts, {score.blind:.2f} by a random baseline."
    )


def _words(metrics: Sequence[Measured]) -> Iterator[str]:
    for measured in _named(metrics, "words_kept"):
        everywhere, rare = measured.scores[1], measured.scores[-1]
        if everywhere.value is not None and rare.value is not None:
            yield (
                f"{everywhere.value:.0%} of the words of raw texts are in their release; of the rare ones, "
                f"{rare.value:.0%}."
            )


def _reidentified(attacks: Sequence[Measured]) -> Iterator[str]:
    score = _first(attacks, "nearest_neighbour")
    if score is not None and score.value is not None and score.blind is not None:
        yield (
            f"An attacker with a raw text finds its release at the first try in {score.value:.1%} of the rows "
            f"({score.blind:.1%} by chance)."
        )


def _read(attacks: Sequence[Measured]) -> Iterator[str]:
    for measured in _named(attacks, "reconstruction"):
        recovered = measured.scores[0]
        if recovered.value is not None and len(measured.scores) > 1:
            yield (
                f"An attacker who knows the mechanism but not the key reads {recovered.value:.0%} of the words by "
                f"weighing its odds with a small language model; {measured.scores[1].value:.0%} are correct as is."
            )


def _named(measured: Sequence[Measured], name: str) -> Iterator[Measured]:
    return (item for item in measured if type(item.measure).__module__.rpartition(".")[2] == name)


def _first(measured: Sequence[Measured], name: str) -> Score | None:
    return next((item.scores[0] for item in _named(measured, name)), None)


PAGE, FACTS = "evidence.html", "evidence.json"
WRITABLE = "give a folder that can be written: --out FOLDER"
STYLE = """
p.says { color: var(--soft); margin: .2rem 0 .5rem; max-width: 48rem }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap } td.what { min-width: 14rem }
svg { display: block; width: 12rem; height: 1.2rem } svg .axis { stroke: var(--line) } svg .bar { fill: var(--bar) }
svg .whisker { stroke: var(--ink) } svg .blind { stroke: var(--soft); stroke-dasharray: 2 2 }
svg .raw { stroke: var(--raw) }
@media (max-width: 40rem) { svg { width: 5rem } td.what { min-width: 8rem }
  .figures td:nth-child(3), .figures th:nth-child(3) { display: none } }
"""
WIDTH = 200
LEGEND = (
    '<p class="says">Bars go from 0 to 1. The bar is the release, the thin line its 95% interval, the dashed mark the '
    "baseline, the solid mark the raw texts. After ± is the standard deviation over seeds.</p>"
)


def write(evidence: Sequence[Evidence], folder: Path) -> tuple[Path, Path]:
    """Write the page and the JSON file of some columns."""
    columns = [finite({"verdict": verdict(item), **item.as_dict()}) for item in evidence]
    facts = json.dumps({"columns": columns}, indent=1, ensure_ascii=False)
    with seam("writing the report", InputError, WRITABLE):
        files.make_folders(folder)
        for name, text in ((PAGE, page(evidence)), (FACTS, facts + "\n")):
            files.write(folder / name, text.encode(), action="writing the report")
    return folder / PAGE, folder / FACTS


def refuse_published(folder: Path, sink: str) -> None:
    """Refuse a report in the folder of a published table: figures of raw texts stay inside the boundary.

    A path that is a file, or below one, is refused too, before anything is measured.
    """
    if not next(path for path in (folder, *folder.absolute().parents) if path.exists()).is_dir():
        raise InputError("the report's folder is a file, or lies below one", WRITABLE)
    published = {Path(f"{sink.rstrip('/')}{suffix}").resolve() for suffix in ("", ".versions")}
    if published & {folder.resolve(), *folder.resolve().parents}:
        raise InputError("the report would lie in the published table", "give another folder: --out FOLDER")


def page(evidence: Sequence[Evidence]) -> str:
    """Return the page of some columns."""
    title = "Evidence: " + ", ".join(item.column for item in evidence)
    body = f'<p class="inside">{escape(INSIDE)}</p>{"".join(map(_column, evidence))}'
    return document(title, body, STYLE)


def _column(evidence: Evidence) -> str:
    sample = (
        f"{evidence.rows:,} rows"
        if evidence.rows == evidence.of
        else f"{evidence.rows:,} rows, a sample of {evidence.of:,}"
    )
    short = "".join(f"<li>{escape(line)}</li>" for line in in_short(evidence))
    parts = [f"<h2>{escape(evidence.column)}: {sample}</h2><p><b>{escape(verdict(evidence))}</b></p><ul>{short}</ul>"]
    if evidence.cost:
        parts.append(f"<h2>Cost</h2>{_pairs(evidence.cost.items())}")
    parts += [f"<h2>Use of the release</h2>{LEGEND}", *map(_measured, evidence.metrics)]
    parts += ["<h2>Attacks</h2>", *map(_measured, evidence.attacks)]
    if evidence.examples:
        rows = "".join(f"<tr><td>{escape(raw)}</td><td>{escape(out)}</td></tr>" for raw, out in evidence.examples)
        parts.append(
            "<h2>Rows that keep most of their words</h2><p class=inside>Raw texts, because --show-texts was given.</p>"
            f"<table><tr><th>raw</th><th>released</th></tr>{rows}</table>"
        )
    if evidence.excluded:
        named = "".join(
            f"<li>{escape(title)}: {escape('; '.join(WAYS[need] for need in needs))}</li>"
            for title, needs in evidence.excluded.items()
        )
        parts.append(f"<h2>Skipped</h2><ul>{named}</ul>")
    return "".join(parts)


def _measured(result: Measured) -> str:
    knows = f" The attacker knows {result.measure.knows}." if isinstance(result.measure, Attack) else ""
    rows = "".join(map(_row, result.scores))
    return (
        f'<h3>{escape(result.measure.title)}</h3><p class="says">{escape(result.measure.says + knows)}</p>'
        '<div class="scroll"><table class="figures"><tr><th>figure</th><th>released</th><th>95% interval</th>'
        f"<th>baseline</th><th>raw</th><th></th></tr>{rows}</table></div>"
    )


def _row(score: Score) -> str:
    if score.value is None:
        return f'<tr><td class="what">{escape(score.what)}</td><td colspan="5">{escape(score.note or "-")}</td></tr>'
    spread = "" if score.interval is None else " to ".join(written(end, score.unit) for end in score.interval)
    value = written(score.value, score.unit)
    if score.deviation is not None:
        value += f" ± {written(score.deviation, score.unit)}"
    cells = (value, spread, written(score.blind, score.unit), written(score.raw, score.unit))
    figures = "".join(f'<td class="n">{cell}</td>' for cell in cells)
    note = f"<br><small>{escape(score.note)}</small>" if score.note else ""
    return f'<tr><td class="what">{escape(score.what)}{note}</td>{figures}<td>{bar(score)}</td></tr>'


def written(value: float | None, unit: str) -> str:
    """Write a figure: shares with three digits after the point, other numbers with three in all."""
    if value is None:
        return ""
    return f"{value:.3f}" if unit == "share" else f"{value:,.3g}" if abs(value) < 1_000 else f"{value:,.0f}"


def _pairs(facts: Iterable[tuple[str, object]]) -> str:
    rows = "".join(f"<tr><th>{escape(str(name))}</th><td>{escape(_plain(value))}</td></tr>" for name, value in facts)
    return f'<div class="scroll"><table>{rows}</table></div>'


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, (list, tuple)) else str(value)


def bar(score: Score) -> str:
    """Return the drawing as SVG; nothing for figures that are not shares."""
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
