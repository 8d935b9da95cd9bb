"""Release a public stand-in under several forms and budgets, and compare what is learned with what is free."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dptext_etl import catalog, column, keys
from dptext_etl.guarantee import Disclosure, steps
from dptext_etl.runner.statement.sections import at_most
from dptext_etl_eval.baselines import BLIND, CORPUS, NAMES, PUBLIC, label_names, public_data
from dptext_etl_eval.classifier import counted, fit
from dptext_etl_eval.stand_in import StandIn
from dptext_etl_eval.statistics import macro_f1, unseen

_UNCONDITIONAL = frozenset({Disclosure.NULLNESS.value})
"""What a release may reveal exactly and still bound the odds between any two texts that are not null."""


@dataclass(frozen=True)
class Figure:
    """What one form kept at one budget.

    Attributes:
        form: Name of the form.
        asked: Epsilon per text that was asked for.
        epsilon: Mean epsilon per text that the ledger would charge.
        person: The most that all records of a person cost: the cost of the most expensive text of the stand-in, times
            their number.
        log10_odds: Decimal logarithm of the most by which a person's odds move.
        macro_f1: Macro-F1 on raw texts that were not released.
        discloses: What the mechanism releases exactly; the odds hold between texts that agree on it.
    """

    form: str
    asked: float
    epsilon: float
    person: float
    log10_odds: float
    macro_f1: float
    discloses: tuple[str, ...] = ()


def _surrogate(_: StandIn, epsilon: float) -> dict[str, Any]:
    return {"name": "surrogate", "epsilon": epsilon, "corpus": CORPUS}


def _custext(rows: StandIn, epsilon: float) -> dict[str, Any]:
    mean = np.mean([max(1, len(text.split())) for text in rows.texts])
    return {"name": "custext", "epsilon": float(epsilon / mean)}


FORMS: Mapping[str, Callable[[StandIn, float], dict[str, Any]]] = {"surrogate": _surrogate, "custext": _custext}
"""Forms by name: the parameters of a mechanism, of public rows and an epsilon per text."""


def rehearse(
    rows: StandIn,
    epsilons: Sequence[float],
    *,
    forms: Sequence[str] = tuple(FORMS),
    per_person: int = 1,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Return figures, baselines and a recommendation, as JSON can hold them; no ledger is opened.

    Args:
        rows: Public rows.
        epsilons: Epsilons per text.
        forms: Names of `FORMS`.
        per_person: Records of one person.
        progress: Takes a line before each release.
    """
    judged = counted(rows.test_texts)

    def score(texts: Sequence[str]) -> float:
        return float(macro_f1(rows.test_labels, fit(counted(texts), rows.labels)(judged)))

    figures: list[Figure] = []
    for form in forms:
        for epsilon in epsilons:
            if progress is not None:
                progress(f"{len(figures) + 1} of {len(forms) * len(epsilons)}: {form} at epsilon {epsilon:g}")
            released, mean, most, discloses = _released(FORMS[form](rows, epsilon), rows.texts)
            person = most * per_person
            figures.append(Figure(form, epsilon, mean, person, float(person / np.log(10)), score(released), discloses))
    baselines = free(rows)
    facts = {
        "rows": len(rows.texts),
        "tested": len(rows.test_texts),
        "labels": len(np.unique(rows.labels)),
        "mean_words": float(np.mean([len(text.split()) for text in rows.texts])),
        "per_person": per_person,
        "raw": score(rows.texts),
        "baselines": baselines,
        "figures": [asdict(figure) for figure in figures],
    }
    return {**facts, "recommendation": recommendation(figures, baselines)}


def free(rows: StandIn) -> dict[str, float]:
    """Return macro-F1 of guesses that need no private text; a guess by names is left out if no name has a vector."""
    names, counts = np.unique(rows.labels, return_counts=True)
    found = {BLIND: unseen(macro_f1, rows.test_labels, np.repeat(names[counts.argmax()], len(rows.test_labels)))}
    for title, guess in ((NAMES, label_names), (PUBLIC, public_data)):
        guessed = guess(names, rows.test_texts)
        if guessed is not None:
            found[title] = float(macro_f1(rows.test_labels, guessed))
    return found


def recommendation(figures: Sequence[Figure], baselines: Mapping[str, float]) -> str:
    """Return what to do: the cheapest release near the best, or nothing where a baseline does as well.

    A bound that holds only between texts that agree on something is proposed if no other release beats the baselines.
    """
    name = max(baselines, key=lambda one: baselines[one])
    sound = [one for one in figures if _UNCONDITIONAL.issuperset(one.discloses) and one.macro_f1 > baselines[name]]
    figures = sound or figures
    best = max(figure.macro_f1 for figure in figures)
    if best <= baselines[name]:
        return f"Publish nothing, do this instead: {name}. Macro-F1 {baselines[name]:.2f}; no release does better."
    near = [one for one in figures if one.macro_f1 >= max(best - 0.02, baselines[name] + 1e-9)]
    take = min(near, key=lambda one: one.epsilon)
    exact = f" It releases exactly: {', '.join(take.discloses)}." if take.discloses else ""
    return (
        f"Use {take.form} at epsilon {take.asked:g} per text: macro-F1 {take.macro_f1:.2f},"
        f" {name} {baselines[name]:.2f}. A person spends {at_most(take.person, 4)} at most on texts like these:"
        f" odds move by a factor of at most 10^{at_most(take.log10_odds, 3)}.{exact}"
    )


def _released(given: Mapping[str, Any], texts: Sequence[str]) -> tuple[list[str], float, float, tuple[str, ...]]:
    mechanism = catalog.build(dict(given))
    ids = pa.array([str(row) for row in range(len(texts))])
    drawn = column.draw(mechanism, pa.array(texts, pa.large_string()), ids, keys.throwaway(mechanism.cfg()))
    cost = column.spends(mechanism, drawn.positions)["eps_approx"] / steps("eps_approx")
    discloses = tuple(sorted(item.value for item in mechanism.guarantee.disclosures))
    return [text or "" for text in drawn.text.to_pylist()], float(cost.mean()), float(cost.max()), discloses
