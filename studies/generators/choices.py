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


def readers() -> str:
    """Return how far readers are below the classifier, and how much a larger epsilon loses at most."""
    all_rows = tidy.read()

    def below(name: str, some: tuple[str, ...], classifier: str) -> str:
        best, at = forms.reached(all_rows, name, classifier), [forms.reached(all_rows, name, form) for form in some]
        common = set(best).intersection(*at)
        return f"{max(best[epsilon] - max(one[epsilon] for one in at) for epsilon in common):.3f}"

    def lost(some: tuple[str, ...]) -> tuple[float, str]:
        every = ((forms.reached(all_rows, name, form), name) for name in forms.measured(all_rows) for form in some)
        pairs = ((at[low] - at[high], name) for at, name in every for low in at for high in at if low < high)
        return max(pairs)

    classifiers = ("linear_discriminant", "static_discriminant", "task_discriminant")
    tables = ("synthetic", *forms.READERS)
    kept, (table_lost, where) = lost(classifiers)[0], lost(tables)
    return (
        f"On Banking77, the best one of the readers of vectors, of scores, and of both is at most "
        f"{below('Banking77', forms.READERS[:3], 'linear_discriminant')} below the classifier, and over static "
        f"vectors {below('Banking77', forms.READERS[3:], 'static_discriminant')}. On UCI sentences, "
        f"a reader of words is at most {below('UCI sentences', ('synthetic',), 'linear_discriminant')} below it. A "
        f"larger ε lowers the F1 of a classifier by {kept:.3f} at most, and the F1 of a reader by {table_lost:.3f} "
        f"({where})."
    )
