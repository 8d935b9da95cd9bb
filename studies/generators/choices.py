"""Write the tables of `docs/choose.md`: the use that a release keeps, next to guesses that need no private text."""

from __future__ import annotations

import polars as pl
from frontier import forms, of_surrogate, tidy
from frontier.baselines import LEVEL
from generators.markdown import table

FILMS, EVERYDAY = "film reviews", "everyday-30k"
LINES = (
    ("Snips", "7 kinds of requests", FILMS),
    ("Snips", "7 kinds of requests", EVERYDAY),
    ("Banking77", "77 intents", EVERYDAY),
    ("DrugLib, condition", "medical conditions", EVERYDAY),
    ("SST-2", "sentiment", EVERYDAY),
    ("UCI sentences", "sentiment", EVERYDAY),
    ("IMDb", "sentiment of long texts", EVERYDAY),
)
IN_DOMAIN = ("Snips", EVERYDAY)
"""A corpus whose authors knew the topics of the set."""
NAMES = {"label names alone": "label names", "public data alone": "public data", "other labeled texts": "labeled texts"}
"""Guesses, as pages call them."""


def row_by_row() -> str:
    """Return the score of a classifier that learns from rows of `surrogate`, and whether that is more than a guess."""
    averages, rows = tidy.means(tidy.read()), []
    for name, labels, corpus in LINES:
        here = averages.filter(pl.col("dataset") == name + of_surrogate.SETS)
        lines = here.filter(pl.col("figure") == of_surrogate.F1, pl.col("variant") == corpus)
        at = dict(lines.select("epsilon", "value").rows())
        free = {what: of_surrogate.value_of(here, what) for what in NAMES}
        free_scores = {NAMES[what]: value for what, value in free.items() if value is not None}
        free_scores["guessing"] = of_surrogate.first(lines, "blind") or 0.0
        says = f"{corpus}, in domain" if (name, corpus) == IN_DOMAIN else corpus
        guesses = ("–" if value is None else f"{value:.2f}" for value in free.values())
        kept = (f"{at[4.0]:.2f}", f"{at[8.0]:.2f}", f"{of_surrogate.first(lines, 'raw'):.2f}")
        rows.append(
            (
                f"{name}: {labels}, {lines.select(pl.max('n')).item():,}",
                says,
                *kept,
                *guesses,
                _said(free_scores, at[4.0]),
            )
        )
    head = ("set, texts", "corpus", "ε = 4", "ε = 8", "raw texts", *NAMES.values(), "at ε = 4")
    return table(head, rows)


def _said(free: dict[str, float], value: float) -> str:
    best = max(free, key=lambda what: free[what])
    return f"better than {best}" if value > free[best] + LEVEL else "do not publish"


def all_forms() -> str:
    """Return macro-F1 of every form at two epsilons per person, and the best one that beats all guesses."""
    all_rows, rows = tidy.read(), []
    for name in forms.measured(all_rows):
        linked, free = forms.guesses(all_rows, name)
        at = {form: forms.reached(all_rows, name, form) for form in forms.SAYS}
        best = max(free, key=lambda what: free[what])
        cells = (" / ".join(f"{one[epsilon]:.2f}" for epsilon in forms.SHOWN) for one in at.values())
        use = (forms.advice(free, {form: at[form][epsilon] for form in at}) for epsilon in forms.SHOWN)
        says = ("do not publish" if "publish nothing" in one else one.removesuffix(" of its statistic") for one in use)
        texts = f"{name}, {linked.select(pl.max('n')).item():,}"
        rows.append((texts, *cells, f"{NAMES.get(best, best)} {free[best]:.2f}", " / ".join(dict.fromkeys(says))))
    shown = " / ".join(f"{epsilon:g}" for epsilon in forms.SHOWN)
    return table((f"set, texts: F1 at ε = {shown}", *forms.SAYS.values(), "best baseline", "publish"), rows)
