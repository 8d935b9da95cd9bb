"""Recommend a choice in a few lines; every number is one of the figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from dptext_etl_eval.baselines import NAMES, PUBLIC
from frontier import forms
from frontier.cells import SPANS
from frontier.of_surrogate import OTHERS
from frontier.shares import BOUND
from frontier.tables import amount
from frontier.tidy import BY

SOMETHING = 0.25
"""A smaller share of the use counts as none."""


@dataclass(frozen=True)
class Found:
    """The figures: one row per cell, and the means of all figures."""

    points: pl.DataFrame
    means: pl.DataFrame

    def cells(self, *asked: tuple[str, str, str, float]) -> list[dict[str, Any]]:
        """Return some cells by data set, mechanism, variant and epsilon; none where one was not measured."""
        cells_near = []
        for values in asked:
            chosen = (pl.col(name) == value for name, value in zip(BY, values, strict=True))
            cells_near += self.points.drop_nulls(["use_kept", "attack_kept"]).filter(*chosen).to_dicts()
        return cells_near if len(cells_near) == len(asked) else []

    def study(self, name: str, variant: str, *epsilons: float) -> list[dict[str, Any]]:
        """Return the figures of `surrogate_utility` of a data set by epsilon; none where one was not measured."""
        chosen = {"dataset": f"{name} (surrogate)", "variant": variant, "figure": "macro-F1 on raw test texts"}
        rows = self.means.filter(*(pl.col(column) == value for column, value in chosen.items()))
        rows_near = rows.filter(pl.col("epsilon").is_in(epsilons)).sort("epsilon").to_dicts()
        return rows_near if len(rows_near) == len(epsilons) else []

    def free(self, name: str, *figures: str) -> dict[str, float]:
        """Return what guesses get that need no private text: names and public data, unless others are asked for."""
        rows = self.means.filter(pl.col("dataset") == name, pl.col("figure").is_in(figures or (NAMES, PUBLIC)))
        return dict(rows.select("figure", "value").rows())

    def spans(self, mechanism: str, variant: str, epsilon: float) -> float | None:
        """Return the share of typed personal data that is left."""
        cell = {"mechanism": mechanism, "variant": variant, "epsilon": epsilon, "measure": SPANS, "figure": "all"}
        rows = self.means.filter(*(pl.col(name) == value for name, value in cell.items()))
        return rows["value"].item() if len(rows) == 1 else None


def lines(figures: Found) -> Iterator[str]:
    """Yield the lines, as HTML; a line whose figures are missing is left out."""
    for line in (_bounds, _topics, _tables, _sentiment, _long, _writers, _words, _expected, _vectors, _names, _noise):
        text = line(figures)
        if text:
            yield str(text)


def _share(kept: float) -> str:
    return f"{min(max(kept, 0.0), 1.0):.0%}"


def _bounds(figures: Found) -> Any:
    inside = figures.points.filter(
        pl.col("epsilon_per_text") <= BOUND, pl.col("use_kept") >= SOMETHING, pl.col("dataset") != "pii_synth"
    )
    names = inside.group_by("mechanism").len().sort("len", descending=True)
    counted = ", ".join(f"{name} {count}" for name, count in names.iter_rows())
    return (
        f"<b>Decide by ε per text.</b> Up to about {BOUND:g}, it is a meaningful bound. Configurations with "
        f"ε ≤ {BOUND:g} that keep at least 25% of usefulness: {counted}. ε per word adds up over the words of a text. "
        "The ε of CusText holds within the output sets, which it reveals."
    )


def _topics(figures: Found) -> Any:
    parts = []
    for name, classes in (("Snips", 7), ("Banking77", 77)):
        rows = figures.study(name, "everyday-30k", 4.0, 8.0)
        names = figures.free(f"{name} (surrogate)").get(NAMES)
        if rows and names is not None:
            text = " and ".join(f"{row['value']:.2f} at ε = {row['epsilon']:g}" for row in rows)
            text = f"{name} ({classes} intents, {rows[0]['n']:,} texts) {text}"
            parts.append(f"{text}, raw {rows[0]['raw']:.2f}, {NAMES} {names:.2f}")
    cells = figures.cells(("Snips", "surrogate", "everyday-30k", 4.0), ("Snips", "surrogate", "everyday-30k", 8.0))
    fewer = " and ".join(f"{cell['use']:.2f}" for cell in cells)
    return (
        parts
        and cells
        and (
            f"<b>Topic or intent with few labels: surrogate.</b> Macro-F1 with everyday-30k: {'; '.join(parts)}. "
            f"{cells[0]['n']:,} texts of Snips give {fewer}. Labels are published unchanged."
        )
    )


def _tables(figures: Found) -> Any:
    parts = []
    for name in ("Snips", "Banking77", "SST-2"):
        at = {form: forms.reached(figures.means, name, form) for form in forms.SAYS}
        free = figures.free(f"{name} (surrogate)", NAMES, PUBLIC, OTHERS)
        best = max(free, key=lambda title: free[title], default="")
        if best and all({1.0, 4.0} <= set(one) for one in at.values()):
            text = (f"{' / '.join(f'{at[form][e]:.2f}' for form in forms.SAYS)} at ε = {e:g}" for e in (1.0, 4.0))
            parts.append(f"{name} {', '.join(text)} ({best} {free[best]:.2f})")
    return parts and (
        "<b>If rows do not need to match records: a synthetic table, or one shuffled release per label.</b> Macro-F1 "
        f"at an equal ε per person, {' / '.join(forms.SAYS.values())}: {'; '.join(parts)}."
    )


def _sentiment(figures: Found) -> Any:
    parts = []
    for name in ("SST-2", "UCI"):
        of_domain, everyday = ("corpus of the domain", "everyday-30k")
        cells = figures.cells((name, "surrogate", of_domain, 8.0), (name, "surrogate", everyday, 8.0))
        free = figures.free(f"{name} (baselines)")
        best = max(free, key=lambda title: free[title], default="")
        parts += [
            f"{name} {one['use']:.2f} and {other['use']:.2f} (raw {one['raw']:.2f}, {best} {free[best]:.2f})"
            for one, other in [cells]
            if cells and free
        ]
    return parts and (
        "<b>Sentiment of sentences: surrogate preserves little.</b> Macro-F1 at ε = 8, with a corpus of its domain and "
        f"with everyday-30k: {'; '.join(parts)}. A coin gets 0.50."
    )


def _long(figures: Found) -> Any:
    parts = []
    for name in ("IMDb", "DrugLib"):
        cells = figures.cells((name, "surrogate", "everyday-30k", 16.0), (name, "custext", "", 5.0))
        parts += [
            f"{name} {_share(whole['use_kept'])} at ε = 16, where CusText keeps {_share(words['use_kept'])} at "
            f"{amount(words['epsilon_per_text'])} per text"
            for whole, words in [cells]
            if cells
        ]
    return (
        parts
        and "<b>Long texts have no cheap answer.</b> Surrogate replaces a long text with one sentence: "
        f"{'; '.join(parts)}."
    )


def _writers(figures: Found) -> Any:
    parts = []
    for name, secret in (("blog_gender", "gender"), ("movie_snippets4", "author"), ("DrugLib", "illness")):
        cells = figures.cells((name, "surrogate", "everyday-30k", 8.0), (name, "custext", "", 10.0))
        parts += [
            f"the {secret} {_share(one['attack_kept'])} against {_share(two['attack_kept'])}"
            for one, two in [cells]
            if cells
        ]
    return parts and (
        "<b>Author attributes leak less than topics.</b> Success of an attacker who learns from releases, relative to "
        f"raw texts, surrogate at ε = 8 against CusText at 10 per word: {'; '.join(parts)}."
    )


def _words(figures: Found) -> Any:
    cells = figures.cells(("UCI", "custext", "", 2.0), ("UCI", "custext", "", 10.0))
    text = "; ".join(
        f"F1 {cell['use']:.2f} at {cell['epsilon']:g} per word ({amount(cell['epsilon_per_text'])} per text), "
        f"{cell['attack']:.0%} of the raw texts found again"
        for cell in cells
    )
    return (
        cells and f"<b>The sense of single words: CusText</b>, which reveals the output set of every word. UCI: {text}."
    )


def _expected(figures: Found) -> Any:
    cells = figures.cells(("Snips", "dpmlm", "at once", 25.0), ("Snips", "dpmlm", "at once", 50.0))
    text = "; ".join(
        f"F1 {cell['use']:.2f} of {cell['raw']:.2f} at {cell['epsilon']:g} per word "
        f"({amount(cell['epsilon_per_text'])} per text), {cell['attack']:.0%} found again"
        for cell in cells
    )
    return cells and f"<b>Sentences that follow the original: DP-MLM</b>; protection is empirical. Snips: {text}."


def _vectors(figures: Found) -> Any:
    cells = figures.cells(("Snips", "dpbart", "CLV", 1000.0))
    rows = figures.means.filter(
        pl.col("dataset") == "Snips, as paper 003", pl.col("variant") == "PR+", pl.col("epsilon") == 1000.0
    ).filter(pl.col("figure").str.starts_with("macro-F1"))
    return "".join(
        "<b>Noise on the vector of a text: only with a model that was trained under noise.</b> DP-BART at ε = 1,000 on "
        f"Snips: F1 {cell['use']:.2f} without (CLV), {trained:.2f} with it (PR+, by the former learner)."
        for cell in cells
        for trained in rows["value"]
    )


def _names(figures: Found) -> Any:
    cells = (("surrogate", "everyday-30k", 8.0), ("custext", "", 10.0), ("dpmlm", "at once", 50.0))
    shares = {f"{name} at {epsilon:g}": figures.spans(name, variant, epsilon) for name, variant, epsilon in cells}
    text = ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if share is not None)
    return (
        text
        and f"<b>Names and numbers</b> that remain in the release of their text: {text}. No mechanism looks for them."
    )


def _noise(figures: Found) -> Any:
    several = figures.points.filter(pl.col("keys") > 1)["spread"].drop_nulls()
    return len(several) and (
        "<b>Small differences are noise.</b> Between the keys of a cell, use differs by ± "
        f"{several.quantile(0.9):.2f} or less in nine cells of ten; other texts differ more."
    )
