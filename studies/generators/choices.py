"""Write the tables of README and `docs/choose.md`: usefulness of releases, next to guesses without private texts."""

from __future__ import annotations

from frontier import forms, tidy
from generators.markdown import table

from dptext_etl_eval.baselines import BETTER


def rule() -> str:
    """Return the rule by which a table says whether to publish."""
    return f"A form is worth publishing if its F1 is more than {BETTER:g} above every baseline."


def all_forms() -> str:
    """Return macro-F1 of every form at two epsilons per person, and the best one that beats all guesses."""
    return table(*forms.compared(tidy.read()))
