"""Release a public stand-in under several forms and budgets, and compare the learned labels with free guesses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dptext_etl.guarantee import MICRO, Disclosure
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import Policy
from dptext_etl.runner.shard.charging import VACUOUS, at_most
from dptext_etl_eval.baselines import BETTER, BLIND, guesses
from dptext_etl_eval.candidates import Candidate, in_policy
from dptext_etl_eval.classifier import counted, fit
from dptext_etl_eval.forms import DISCRIMINANT, FORMS, READERS, USUAL
from dptext_etl_eval.pairs import Free, Values
from dptext_etl_eval.readers import LINES
from dptext_etl_eval.stand_in import StandIn
from dptext_etl_eval.statistics import macro_f1, unseen

_UNCONDITIONAL = frozenset({Disclosure.NULLNESS.value})
"""Disclosures with which a release still bounds the odds between any two texts that are not null."""
EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA = 1e-8
"""Of a record, where no policy names another."""


@dataclass(frozen=True)
class Terms:
    """The terms of a rehearsal, as a policy has them."""

    text: str | None = None  # the text column
    label: str | None = None  # the column of labels
    values: tuple[str, ...] = ()  # the public labels; () for all
    corpus: str | None = None  # the corpus that is drawn from
    delta: float = DELTA  # of a record
    per_person: int = 1  # the most records of one person
    epsilons: tuple[float, ...] = EPSILONS  # per record: the policy's charge, and others within its cap

    @classmethod
    def of(cls, policy: Policy) -> Terms:
        column, *_ = policy.charged_columns()
        most = policy.records_per_subject or 1
        synthetic, shuffled = policy.synthetic, policy.shuffled
        labels = policy.labels if synthetic is None else synthetic.labels
        corpus = getattr(column.mechanism, "corpus", None) if synthetic is None else synthetic.mechanism.corpus
        of_table = synthetic.mechanism.delta if synthetic is not None else None
        delta = shuffled.delta if shuffled is not None else of_table or DELTA
        charged = worst_spend(column.mechanism).eps_approx / MICRO
        within = math.inf if policy.cap is None or policy.cap.epsilon is None else policy.cap.epsilon / most
        usual = [epsilon for epsilon in EPSILONS if epsilon <= within]
        epsilons = sorted({*usual, *([charged] if charged <= min(within, VACUOUS) else [])}) or [charged]
        named = None if labels is None else labels.column
        values = () if labels is None or named is None else tuple(map(str, labels.values))
        return cls(column.column, named, values, corpus, delta, most, tuple(epsilons))


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
    entries: tuple[str, ...] = ()  # lines of a policy that publishes the release
    corpus: str = ""  # another corpus than the one of all forms
    commands: tuple[str, ...] = ()  # commands that make this corpus

    @property
    def title(self) -> str:
        """Return the form, and the corpus if it is another one."""
        return f"{self.form} over {self.corpus}" if self.corpus else self.form


def rehearse(
    rows: StandIn,
    epsilons: Sequence[float],
    *,
    forms: Sequence[str] = USUAL,
    per_person: int = 1,
    delta: float = DELTA,
    given: Free | None = None,
    others: Sequence[Candidate] = (),
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Return figures, baselines, and one verdict, as JSON can hold them; no ledger is opened.

    `others` are corpora that are compared with the one of `rows` by the linear discriminant, in seconds.
    """
    judged = counted(rows.test_texts)

    def score(texts: Sequence[str], labels: Values) -> float:
        return float(macro_f1(rows.test_labels, fit(counted(texts), labels)(judged)))

    cells: list[tuple[str, float, Candidate | None]] = [(form, epsilon, None) for form in forms for epsilon in epsilons]
    if DISCRIMINANT in forms:
        cells += [(DISCRIMINANT, epsilon, other) for other in others for epsilon in epsilons]
    figures: list[Figure] = []
    for form, epsilon, other in cells:
        if progress is not None:
            over = "" if other is None else f" over {other.name}"
            progress(f"{len(figures) + 1} of {len(cells)}: {form}{over} at epsilon {epsilon:g}")
        private = rows if other is None else replace(rows, corpus=other.reference)
        released = FORMS[form].release(private, epsilon, per_person, delta)
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
                released.entries if other is None else in_policy(released.entries, other),
                "" if other is None else other.name,
                () if other is None else other.commands,
            )
        )
    baselines = free(rows, given or Free())
    facts = {
        "rows": len(rows.texts),
        "tested": len(rows.test_texts),
        "labels": len(np.unique(rows.labels)),
        "mean_words": float(np.mean([len(text.split()) for text in rows.texts])),
        "per_person": per_person,
        "delta": delta,
        "raw": score(rows.texts, rows.labels),
        "baselines": baselines,
        "figures": [asdict(figure) for figure in figures],
        "forms": {form: f"{FORMS[form].model}: {FORMS[form].says}" for form in forms},
        "answers": answers(figures, baselines),
    }
    return {**facts, **recommendation(figures, baselines)}


def free(rows: StandIn, given: Free) -> dict[str, float]:
    """Return macro-F1 of guesses that need no private text; a guess by names is excluded if no name has a vector."""
    names, counts = np.unique(rows.labels, return_counts=True)
    scores = {BLIND: unseen(macro_f1, rows.test_labels, np.repeat(names[counts.argmax()], len(rows.test_labels)))}
    for title, guessed in guesses(given, names, rows.test_texts).items():
        if guessed is not None:
            scores[title] = float(macro_f1(rows.test_labels, guessed))
    return scores


def answers(figures: Sequence[Figure], baselines: Mapping[str, float]) -> list[str]:
    """Return a line per epsilon with each form's result at the same loss of a person, and the best guess."""
    name = max(baselines, key=lambda item: baselines[item])
    lines = []
    for epsilon in dict.fromkeys(figure.asked for figure in figures):
        here = sorted((item for item in figures if item.asked == epsilon), key=lambda item: -item.macro_f1)
        sentence = ", ".join(f"{item.title} {item.macro_f1:.2f} ({_bound(item)})" for item in here)
        most = at_most(max(item.person for item in here), 4)
        lines.append(f"A person loses epsilon {most} at most: {sentence}; {name} {baselines[name]:.2f} at no loss.")
    return lines


def _bound(figure: Figure) -> str:
    facts = ", ".join(sorted({*figure.discloses} - _UNCONDITIONAL))
    return f"{figure.model}; reveals {facts} exactly" if facts else figure.model


def recommendation(figures: Sequence[Figure], baselines: Mapping[str, float]) -> dict[str, Any]:
    """Return the `verdict` in one line, the lines of a `policy`, and `reasons`.

    The recommended release has the smallest epsilon at which any form beats every baseline by more than `BETTER`; the
    best form there. A bound that holds only between tables that agree on something is proposed if no other release
    beats the baselines. Where a form with a central guarantee is proposed, the best row-wise release follows.
    """
    name = max(baselines, key=lambda item: baselines[item])
    take = _least(figures, baselines[name])
    if take is None:
        verdict = f"Do not publish. Use {name}: macro-F1 {baselines[name]:.2f}."
        return {"verdict": verdict, "policy": [], "reasons": [f"No release beats it by more than {BETTER}."]}
    form = FORMS[take.form]
    over = f" over {take.corpus}" if take.corpus else ""
    verdict = (
        f"Use {form.title}{over} at epsilon {take.asked:g} per record to {form.use}; do not use it to {form.not_for}."
    )
    reasons = [_reason(take, name, baselines[name])]
    local = [item for item in figures if item.model == "local"]
    if take.model == "central" and local:
        rows = _least(local, baselines[name])
        instead = "no row-wise release is good enough" if rows is None else _reason(rows, name, baselines[name])
        reasons.append(f"If readers need a text per row, or do not trust the curator: {instead}")
    if take.commands:
        reasons.append(f"Make its corpus first: {'; '.join(take.commands)}")
    if reader := READERS.get(take.form):
        reasons.append(f"Read it in scikit-learn: {'; '.join(LINES[reader])}")
    return {"verdict": verdict, "policy": list(take.entries), "reasons": reasons}


def _least(figures: Sequence[Figure], baseline: float) -> Figure | None:
    """Return the best release at the smallest epsilon that beats the baseline; None if there is none.

    Another corpus than the one of all forms is worth its work if it wins by more than `BETTER`.
    """
    better = [item for item in figures if item.macro_f1 > baseline + BETTER]
    better = [item for item in better if _UNCONDITIONAL.issuperset(item.discloses)] or better
    return min(better, key=lambda figure: (figure.asked, BETTER * bool(figure.corpus) - figure.macro_f1), default=None)


def _reason(take: Figure, name: str, baseline: float) -> str:
    delta = f" and delta {at_most(take.delta, 2)}" if take.delta else ""
    exact = f" It releases exactly: {', '.join(take.discloses)}." if take.discloses else ""
    return (
        f"{take.title} at epsilon {take.asked:g} per record ({take.model}) reaches macro-F1 {take.macro_f1:.2f},"
        f" {name} {baseline:.2f}. A person spends {at_most(take.person, 4)}{delta} at most on texts like these:"
        f" odds move by a factor of at most 10^{at_most(take.log10_odds, 3)}{' except delta' if delta else ''}.{exact}"
    )
