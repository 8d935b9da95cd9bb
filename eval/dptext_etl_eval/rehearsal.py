"""Release a public stand-in under several forms and budgets, and compare the learned labels with free guesses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dptext_etl.guarantee import Disclosure
from dptext_etl.runner.shard.charging import at_most
from dptext_etl_eval.baselines import BLIND, guesses
from dptext_etl_eval.classifier import counted, fit
from dptext_etl_eval.forms import FORMS
from dptext_etl_eval.pairs import Free, Values
from dptext_etl_eval.stand_in import StandIn
from dptext_etl_eval.statistics import macro_f1, unseen

_UNCONDITIONAL = frozenset({Disclosure.NULLNESS.value})
"""Disclosures with which a release still bounds the odds between any two texts that are not null."""


@dataclass(frozen=True)
class Figure:
    """What one form kept at one budget."""

    form: str  # name of the form
    asked: float  # epsilon per record that was asked for
    epsilon: float  # mean epsilon per record that the ledger would charge
    # the most that all records of a person cost: the cost of the most expensive record of the stand-in, times their
    # number
    person: float
    log10_odds: float  # decimal logarithm of the most by which a person's odds move, except for `delta`
    macro_f1: float  # macro-F1 on raw texts that were not released
    discloses: tuple[str, ...] = ()  # facts that are released exactly; the odds hold between tables that agree on it
    delta: float = 0.0  # the most that all records of a person cost in delta
    model: str = "local"  # "local" if each text is protected by its own draw, "central" if the curator is trusted


def rehearse(
    rows: StandIn,
    epsilons: Sequence[float],
    *,
    forms: Sequence[str] = tuple(FORMS),
    per_person: int = 1,
    given: Free | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Return figures, baselines and a recommendation, as JSON can hold them; no ledger is opened."""
    judged = counted(rows.test_texts)

    def score(texts: Sequence[str], labels: Values) -> float:
        return float(macro_f1(rows.test_labels, fit(counted(texts), labels)(judged)))

    figures: list[Figure] = []
    for form in forms:
        for epsilon in epsilons:
            if progress is not None:
                progress(f"{len(figures) + 1} of {len(forms) * len(epsilons)}: {form} at epsilon {epsilon:g}")
            released = FORMS[form].release(rows, epsilon, per_person)
            if released.predict is None:
                reached = score(released.texts, released.labels)
            else:
                reached = float(macro_f1(rows.test_labels, np.array(released.predict(rows.test_texts))))
            figures.append(
                Figure(
                    form,
                    epsilon,
                    released.epsilon,
                    released.person,
                    float(released.person / np.log(10)),
                    reached,
                    released.discloses,
                    released.delta,
                    FORMS[form].model,
                )
            )
    baselines = free(rows, given or Free())
    facts = {
        "rows": len(rows.texts),
        "tested": len(rows.test_texts),
        "labels": len(np.unique(rows.labels)),
        "mean_words": float(np.mean([len(text.split()) for text in rows.texts])),
        "per_person": per_person,
        "raw": score(rows.texts, rows.labels),
        "baselines": baselines,
        "figures": [asdict(figure) for figure in figures],
        "forms": {form: f"{FORMS[form].model}: {FORMS[form].says}" for form in forms},
        "answers": answers(figures, baselines),
    }
    return {**facts, "recommendation": recommendation(figures, baselines)}


def free(rows: StandIn, given: Free) -> dict[str, float]:
    """Return macro-F1 of guesses that need no private text; a guess by names is left out if no name has a vector."""
    names, counts = np.unique(rows.labels, return_counts=True)
    scores = {BLIND: unseen(macro_f1, rows.test_labels, np.repeat(names[counts.argmax()], len(rows.test_labels)))}
    for title, guessed in guesses(given, names, rows.test_texts).items():
        if guessed is not None:
            scores[title] = float(macro_f1(rows.test_labels, guessed))
    return scores


def answers(figures: Sequence[Figure], baselines: Mapping[str, float]) -> list[str]:
    """Return a line per epsilon with each form's result at the same loss of a person, and the best guess."""
    name = max(baselines, key=lambda one: baselines[one])
    lines = []
    for epsilon in dict.fromkeys(figure.asked for figure in figures):
        here = sorted((one for one in figures if one.asked == epsilon), key=lambda one: -one.macro_f1)
        sentence = ", ".join(f"{one.form} {one.macro_f1:.2f} ({_bound(one)})" for one in here)
        most = at_most(max(one.person for one in here), 4)
        line = f"A person loses epsilon {most} at most: {sentence}; {name} {baselines[name]:.2f} at no loss."
        if here[0].macro_f1 <= baselines[name]:
            line += f" Publish nothing, do this instead: {name}."
        lines.append(line)
    return lines


def _bound(figure: Figure) -> str:
    facts = ", ".join(sorted({*figure.discloses} - _UNCONDITIONAL))
    return f"{figure.model}; reveals {facts} exactly" if facts else figure.model


def recommendation(figures: Sequence[Figure], baselines: Mapping[str, float]) -> str:
    """Return what to do: the cheapest release near the best, or nothing where a baseline does as well.

    A bound that holds only between tables that agree on something is proposed if no other release beats the baselines.
    Where a form with a central guarantee is proposed, the best row-wise release follows.
    """
    name = max(baselines, key=lambda one: baselines[one])
    take = _cheapest(figures, baselines[name])
    if take is None:
        best = baselines[name]
        return f"Publish nothing, do this instead: {name}. Macro-F1 {best:.2f}; no release does better."
    sentence = _sentence(take, name, baselines[name])
    local = [one for one in figures if one.model == "local"]
    if take.model == "local" or not local:
        return sentence
    rows = _cheapest(local, baselines[name])
    if rows is None:
        return (
            f"{sentence} If readers need a text per row, publish nothing: no row-wise release does better than {name}."
        )
    row_wise = _sentence(rows, name, baselines[name])
    return f"{sentence} If readers need a text per row, or do not trust the curator: {row_wise}"


def _cheapest(figures: Sequence[Figure], baseline: float) -> Figure | None:
    """Return the release that costs a person least of those near the best; None if none beats the baseline."""
    better = [one for one in figures if one.macro_f1 > baseline]
    better = [one for one in better if _UNCONDITIONAL.issuperset(one.discloses)] or better
    best = max((one.macro_f1 for one in better), default=0.0)
    return min((one for one in better if one.macro_f1 >= best - 0.02), key=lambda one: one.person, default=None)


def _sentence(take: Figure, name: str, baseline: float) -> str:
    delta = f" and delta {at_most(take.delta, 2)}" if take.delta else ""
    exact = f" It releases exactly: {', '.join(take.discloses)}." if take.discloses else ""
    return (
        f"Use {take.form} at epsilon {take.asked:g} per record ({take.model}): macro-F1 {take.macro_f1:.2f},"
        f" {name} {baseline:.2f}. A person spends {at_most(take.person, 4)}{delta} at most on texts like these:"
        f" odds move by a factor of at most 10^{at_most(take.log10_odds, 3)}{' except delta' if delta else ''}.{exact}"
    )
