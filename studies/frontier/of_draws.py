"""Write what `make -C studies score-utility` found: DP-MLM's words one after the other, in blocks, and all at once."""

from __future__ import annotations

import polars as pl

from frontier.tables import figure, folded, table

SETS = ", how DP-MLM draws"
LESS = ", less that of sequential draws"
RATE, TIGHT = "words per CPU-second", "ε per word that a draw can tell"
COLUMNS = {
    "BLEU, 0 to 100": ("BLEU", 1),
    "mean cosine": ("cosine", 3),
    "accuracy, trained on raw text": ("accuracy (raw)", 3),
    "accuracy, trained on released text": ("accuracy (released)", 3),
}
"""Figures of the table: their columns, and how many digits they have."""


def draws(all_rows: pl.DataFrame) -> str:
    """Return what differs between the three ways, and below it, folded, all figures."""
    rows = all_rows.filter(pl.col("measure") == "score_utility")
    sentences, parts = [], []
    for name in rows["dataset"].unique(maintain_order=True):
        here, title = rows.filter(pl.col("dataset") == name), name.removesuffix(SETS)
        sentences += [f"<li>{title}, {line}</li>" for line in verdicts(here)]
        parts.append(folded(f"{title}: {here.select(pl.max('n')).item():,} texts", _figures(here)))
    return f"<ul>{''.join(sentences)}</ul>{''.join(parts)}"


def verdicts(here: pl.DataFrame) -> list[str]:
    """Say of every way how fast it is, and by how much its figures differ from figures of sequential draws.

    A difference whose interval of two standard errors holds 0, or for which no row has a figure, counts as level.
    """
    rates = {
        name: float(rows["value"].median())  # type: ignore[arg-type]
        for (name,), rows in here.filter(pl.col("figure") == RATE).group_by("variant", maintain_order=True)
    }
    sentences = []
    for name in sorted(set(rates) - {"sequential"}):
        rows = here.filter(pl.col("variant") == name, pl.col("figure").str.ends_with(LESS))
        budgets = here.filter(pl.col("variant") == name)["epsilon"].drop_nulls().n_unique()
        parts = []
        for column, (title, _) in COLUMNS.items():
            some = rows.filter(pl.col("figure") == f"{column.replace('BLEU', 'BLEU of a text')}{LESS}")
            apart = some.filter((pl.col("low") > 0) | (pl.col("high") < 0)).sort("epsilon")
            gaps = ", ".join(f"{row['value']:+.3g} at {row['epsilon']:g}" for row in apart.to_dicts())
            level = f"level at {budgets - len(apart)} of {budgets} budgets"
            parts.append(f"{title} {level}, {gaps}" if gaps else f"{title} {level}")
        sentences.append(f"<b>{name}</b>: {rates[name] / rates['sequential']:.1f} × as fast; {'; '.join(parts)}.")
    return sentences


def _figures(here: pl.DataFrame) -> str:
    rows = []
    lines = here.filter(pl.col("figure") == "mean cosine").select("variant", "epsilon")
    for name, epsilon in lines.sort("epsilon", nulls_last=False, maintain_order=True).rows():
        at = here.filter(pl.col("variant") == name, pl.col("epsilon").eq_missing(epsilon))
        values = dict(at.select("figure", "value").rows())
        cells = [figure(values.get(what), digits=digits) for what, (_, digits) in COLUMNS.items()]
        rows.append(["" if epsilon is None else f"{epsilon:g}", figure(values.get(TIGHT), digits=1), name, *cells])
    return table(["ε per word", "tight", "draws", *(title for title, _ in COLUMNS.values())], rows)
