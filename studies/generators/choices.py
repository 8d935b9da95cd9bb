"""Write the tables of README and `docs/choose.md`: usefulness of releases, next to guesses without private texts."""

from __future__ import annotations

import polars as pl
from frontier import forms, of_surrogate, tidy
from generators.markdown import table

from dptext_etl_eval.baselines import BETTER

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


def rule() -> str:
    """Return the rule by which a table says whether to publish."""
    return f"A form is worth publishing if its F1 is more than {BETTER:g} above every baseline."


def row_by_row() -> str:
    """Return the score of a classifier that learns from rows of `surrogate`, and whether that is more than a guess."""
    averages, rows = tidy.means(tidy.read()), []
    for name, labels, corpus in LINES:
        linked, guesses = forms.guesses(tidy.read(), name)
        here = averages.filter(pl.col("dataset") == name + of_surrogate.SETS)
        lines = here.filter(pl.col("figure") == of_surrogate.F1, pl.col("variant") == corpus)
        at = dict(lines.select("epsilon", "value").rows())
        cells = (f"{at[4.0]:.2f}", f"{at[8.0]:.2f}", f"{of_surrogate.first(lines, 'raw'):.2f}")
        shown = (f"{guesses[guess]:.2f}" if guess in guesses else "–" for guess in forms.SHORT)
        rows.append(
            (
                f"{name}: {labels}, {linked.select(pl.max('n')).item():,}",
                "publish" if forms.best_form(guesses, {"surrogate": at[4.0]}) else "do not publish",
                f"{corpus}, in domain" if (name, corpus) == IN_DOMAIN else corpus,
                *cells,
                *shown,
            )
        )
    head = ("set, texts", "at ε = 4", "corpus", "ε = 4", "ε = 8", "raw texts", *forms.SHORT.values())
    return table(head, rows)


def all_forms() -> str:
    """Return macro-F1 of every form at two epsilons per person, and the best one that beats all guesses."""
    return table(*forms.compared(tidy.read()))
