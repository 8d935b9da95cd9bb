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
                f"{corpus}, in domain" if (name, corpus) == IN_DOMAIN else corpus,
                *cells,
                *shown,
                "publish" if forms.best_form(guesses, {"surrogate": at[4.0]}) else "do not publish",
            )
        )
    head = ("set, texts", "corpus", "ε = 4", "ε = 8", "raw texts", *forms.SHORT.values(), "at ε = 4")
    return table(head, rows)


def all_forms() -> str:
    """Return macro-F1 of every form at two epsilons per person, and the best one that beats all guesses."""
    return table(*forms.compared(tidy.read()))


def readers() -> str:
    """Return how far readers are below the classifier, and how much a larger epsilon loses at most."""
    all_rows = tidy.read()

    def below(name: str, some: tuple[str, ...], classifier: str) -> str:
        best, at = forms.reached(all_rows, name, classifier), [forms.reached(all_rows, name, form) for form in some]
        return f"{max(best[epsilon] - max(one[epsilon] for one in at) for epsilon in best):.3f}"

    def lost(some: tuple[str, ...]) -> tuple[float, str]:
        every = ((forms.reached(all_rows, name, form), name) for name in forms.measured(all_rows) for form in some)
        pairs = ((at[low] - at[high], name) for at, name in every for low in at for high in at if low < high)
        return max(pairs)

    classifiers = ("linear_discriminant", "static_discriminant", "task_discriminant")
    tables = ("synthetic", *forms.READERS)
    kept, (table_lost, where) = lost(classifiers)[0], lost(tables)
    return (
        f"On Banking77, the better one of the readers of vectors and of scores is at most "
        f"{below('Banking77', ('vectors', 'scores'), 'linear_discriminant')} below the classifier, and over static "
        f"vectors {below('Banking77', ('static_vectors', 'static_scores'), 'static_discriminant')}. On UCI sentences, "
        f"a reader of words is at most {below('UCI sentences', ('synthetic',), 'linear_discriminant')} below it. A "
        f"larger ε lowers the F1 of a classifier by {kept:.3f} at most, and the F1 of a reader by {table_lost:.3f} "
        f"({where})."
    )
