"""Write what `make -C studies latent-utility` found: latent mechanisms whose models were trained under noise."""

from __future__ import annotations

import math

import polars as pl

from dptext_etl.accounting.conversion import largest_mu
from frontier.tables import figure, folded, table

LINES = {("dpbart", "PR+"): "DP-BART-PR+", ("dpbart", "PR"): "DP-BART-PR"}
LINES |= {("dpbart", "CLV"): "DP-BART-CLV", ("adept", ""): "ADePT"}
"""As the paper calls a mechanism and its variant."""
BLEU, F1 = "BLEU, 0 to 100", "macro-F1 on raw test texts"
DELTA = 1e-6
FACTS = "models of paper 003"


def latents(all_rows: pl.DataFrame) -> str:
    """Return, folded, macro-F1 and BLEU of both data sets by budget."""
    rows = all_rows.filter(pl.col("measure") == "latent_utility")
    parts = []
    for name in rows.filter(pl.col("dataset") != FACTS)["dataset"].unique(maintain_order=True).sort(descending=True):
        here = rows.filter(pl.col("dataset") == name)
        raw = here.select(pl.max("raw")).item()
        texts = f"{here.select(pl.max('n')).item():,} texts; macro-F1 from the original texts {figure(raw)}"
        parts.append(folded(f"{name}: {texts}", _figures(here)))
    return "".join(parts)


def facts(all_rows: pl.DataFrame) -> str:
    """Return how the models were made, in one sentence."""
    details = dict(all_rows.filter(pl.col("dataset") == FACTS).select("figure", "value").rows())
    steps = ", ".join(
        f"{name.removeprefix('steps of ')} {count:,.0f}"
        for name, count in details.items()
        if name.startswith("steps of ")
    )
    return (
        f"<p>The model has {details['megabytes of the model']:g} MB (bart-base 558). Steps of training: {steps}; "
        f"the paper uses 3,000 for PR and 50,000 and more for each PR+. Beams: "
        f"{details['beams']:g}; the paper's are 10.</p>"
    )


def nats_by_budget(all_rows: pl.DataFrame) -> str:
    """Return the most that a noisy latent reveals, by budget."""
    rows = all_rows.filter(pl.col("dataset") == "Snips, as paper 003", pl.col("epsilon").is_finite())
    budgets = rows["epsilon"].unique().sort(descending=True)
    return ", ".join(f"{nats(epsilon):.0f} at ε = {epsilon:,g}" for epsilon in budgets)


def nats(epsilon: float) -> float:
    """Return the most that a noisy latent reveals, in nats."""
    return largest_mu(epsilon, DELTA) ** 2 / 8


def _figures(here: pl.DataFrame) -> str:
    budgets = sorted(here["epsilon"].unique(), reverse=True)
    rows = []
    for (mechanism, variant), title in LINES.items():
        at = here.filter(pl.col("mechanism") == mechanism, pl.col("variant") == variant)
        values = {(epsilon, what): value for epsilon, what, value in at.select("epsilon", "figure", "value").rows()}
        rows.append([title, *(_cell(values.get((e, F1)), values.get((e, BLEU))) for e in budgets)])
    head = ["F1 / BLEU", *("ε = ∞" if math.isinf(epsilon) else f"ε = {epsilon:,g}" for epsilon in budgets)]
    return table(head, rows)


def _cell(f1: float | None, bleu: float | None) -> str:
    return "" if f1 is None else f"{f1:.3f} / {figure(bleu, digits=1)}"
