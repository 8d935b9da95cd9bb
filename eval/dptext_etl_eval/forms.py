"""Release public rows in every form that the library has, at an equal epsilon per person, and report a person's loss.

Row-wise forms protect each text by its own draw. Table-wide forms have a central guarantee: it trusts the curator.
No ledger is opened; keys are thrown away.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from dptext_etl import catalog, column, keys
from dptext_etl.accounting.shuffling import Shuffled
from dptext_etl.corpora import Corpus
from dptext_etl.families.aggregate import Noisy, Statistic, describe, linear_discriminant, noisy, partial_sum, table
from dptext_etl.families.aggregate.statistic import epsilon_of, grid_of
from dptext_etl.guarantee import exact, steps
from dptext_etl.mechanisms.surrogate import Surrogate
from dptext_etl.policy.synthetic import CLAIM
from dptext_etl_eval.baselines import CORPUS
from dptext_etl_eval.pairs import Values
from dptext_etl_eval.readers import SCORES, VECTOR_SCORES, VECTORS, WORDS, Readers
from dptext_etl_eval.stand_in import StandIn

LARGEST_DRAW = 16.0
"""Largest epsilon of a draw of a shuffled release."""
STEP = 0.25
"""Draws of shuffled releases have epsilons that are multiples of it."""


@dataclass(frozen=True)
class Released:
    """The output of a form, and its cost."""

    texts: Sequence[str]  # released texts
    labels: Values  # their labels, shape (texts,)
    epsilon: float  # mean epsilon per record that the ledger would charge
    person: float  # the most that all records of a person are charged
    delta: float = 0.0  # delta that goes with `person`
    discloses: tuple[str, ...] = ()  # facts that are released exactly; the bound holds between tables that agree on it
    # the classifier that comes with the release; None where one must learn from `texts` and `labels`
    predict: Callable[[Sequence[str]], Sequence[str]] | None = None
    entries: tuple[str, ...] = ()  # lines of a policy that publishes this release


@dataclass(frozen=True)
class Form:
    """A form of release."""

    # releases rows at an epsilon per record, with a number of records per person, and a delta of each where there is
    # one; a person loses at most the product
    release: Callable[[StandIn, float, int, float], Released]
    model: str  # "local" or "central"
    says: str  # its output, whom it trusts, and its limits
    title: str  # its name in a sentence
    use: str  # the work that readers can do with it
    not_for: str  # the work that they cannot do


def _surrogate(rows: StandIn, epsilon: float, per_person: int, delta: float) -> Released:  # noqa: ARG001
    return _linked({"name": "surrogate", "epsilon": epsilon, "corpus": rows.corpus}, rows, per_person)


def _custext(rows: StandIn, epsilon: float, per_person: int, delta: float) -> Released:  # noqa: ARG001
    most = _drawn({"name": "custext", "epsilon": 1.0}, rows.texts)[1].max()  # epsilon of the text of most words
    return _linked({"name": "custext", "epsilon": epsilon / most * (1 - 1e-5)}, rows, per_person)


def _linked(given: Mapping[str, Any], rows: StandIn, per_person: int) -> Released:
    texts, cost, discloses = _drawn(given, rows.texts)
    spent = (float(cost.mean()), float(cost.max()) * per_person, 0.0)
    return Released(texts, rows.labels, *spent, discloses, entries=("[[column]]", _mechanism(given)))


def _mechanism(given: Mapping[str, Any]) -> str:
    """Write the entry `mechanism` of a policy."""
    return f"mechanism = {{ {', '.join(f'{name} = {json.dumps(value)}' for name, value in given.items())} }}"


def _drawn(given: Mapping[str, Any], texts: Sequence[str]) -> tuple[list[str], Any, tuple[str, ...]]:
    """Return drawn texts, the epsilon of each, and the mechanism's disclosures."""
    mechanism = catalog.build(dict(given))
    ids = pa.array([str(row) for row in range(len(texts))])
    drawn = column.draw(mechanism, pa.array(texts, pa.large_string()), ids, keys.throwaway(mechanism.cfg()))
    cost = column.spends(mechanism, drawn.positions)["eps_approx"] / steps("eps_approx")
    discloses = tuple(sorted(item.value for item in mechanism.guarantee.disclosures))
    return [text or "" for text in drawn.text.to_pylist()], cost, discloses


def _shuffled(rows: StandIn, epsilon: float, per_person: int, delta: float) -> Released:
    """Publish one shuffled release with labels: draws of `surrogate` without ids or order.

    The least number of texts of a label bounds how well a record hides. A label with one text is excluded.
    """
    delta *= math.exp(-(per_person - 1) * epsilon) * (1 - 1e-9)
    labels, counts = np.unique(rows.labels, return_counts=True)
    kept = labels[counts >= 2]  # a shuffled release holds two records or more
    least = two_digits(int(counts[counts >= 2].min()))
    draw, central, charged = cheapest_draw(least, delta, per_person, epsilon, rows.corpus)
    chosen = np.flatnonzero(np.isin(rows.labels, kept))
    given = {"name": "surrogate", "epsilon": draw, "corpus": rows.corpus}
    drawn = sorted(
        zip(rows.labels[chosen].tolist(), _drawn(given, [rows.texts[row] for row in chosen])[0], strict=True)
    )
    spent = (float(central), float(central * per_person), float(charged * per_person))
    entries = ("[[column]]", _mechanism(given), "[shuffled]", f"rows = {least}", f"delta = {delta:.3g}")
    texts, published = [text for _, text in drawn], np.array([label for label, _ in drawn])
    return Released(texts, published, *spent, ("nullness",), entries=(*entries, *_of_person(per_person)))


def _of_person(per_person: int) -> tuple[str, ...]:
    return () if per_person == 1 else (f"per_subject = {per_person}",)


def two_digits(count: int) -> int:
    """Round down to two digits: a policy declares a public lower bound on the rows, at least 2."""
    unit = int(10 ** max(0, len(str(count)) - 2))
    return max(2, count // unit * unit)


@cache
def cheapest_draw(
    rows: int, delta: float, per_person: int, epsilon: float, corpus: str = CORPUS
) -> tuple[float, Fraction, Fraction]:
    """Return the largest epsilon of a draw whose charge is at most `epsilon`, with that charge and its delta.

    The local guarantee holds, too: a draw of `epsilon` itself is charged no more.
    """
    shuffled = Shuffled(rows=rows, delta=delta, per_subject=per_person)

    def charge(draw: float) -> tuple[float, Fraction, Fraction] | None:
        law = Surrogate(epsilon=draw, corpus=corpus).law
        central = shuffled.epsilon(law)
        return (draw, central, shuffled.charged_delta(law)) if central <= exact(epsilon) else None

    cheapest, low, high = None, math.floor(epsilon / STEP), max(1, round(LARGEST_DRAW / STEP)) + 1
    while high - low > 1:
        middle = (low + high) // 2
        tried = charge(middle * STEP)
        cheapest, low, high = (tried, middle, high) if tried else (cheapest, low, middle)
    return cheapest or (epsilon, exact(epsilon), exact(delta))


def _synthetic(rows: StandIn, epsilon: float, per_person: int, delta: float) -> Released:
    """Publish a synthetic table as large as the corpus, from one noisy statistic of texts and labels."""
    statistic, entries = _statistic(rows, epsilon, per_person, delta)
    drawn = table(statistic, len(statistic.statistic.corpus))
    texts, labels = drawn["text"].to_pylist(), np.array(drawn["label"].to_pylist())
    return Released(texts, labels, *_charged(statistic.statistic), entries=entries)


def _read(reader: str, more: tuple[str, ...] = ()) -> Callable[[StandIn, float, int, float], Released]:
    """Publish the same table, and learn from it as a reader of vectors or scores does."""

    def release(rows: StandIn, epsilon: float, per_person: int, delta: float) -> Released:
        statistic, (head, *entries) = _statistic(rows, epsilon, per_person, delta)
        drawn = table(statistic, len(statistic.statistic.corpus))
        readers = Readers(drawn["text"].to_pylist(), np.array(drawn["label"].to_pylist()), statistic, {})

        def predict(texts: Sequence[str]) -> list[str]:
            labels: list[str] = readers.guesses(texts, (reader,))[reader].tolist()
            return labels

        charged = _charged(statistic.statistic)
        return Released((), np.array([]), *charged, predict=predict, entries=(head, *more, *entries))

    return release


def _linear_discriminant(rows: StandIn, epsilon: float, per_person: int, delta: float) -> Released:
    """Publish the same statistic, and use the classifier that comes with it."""
    statistic, entries = _statistic(rows, epsilon, per_person, delta)
    learned = linear_discriminant(statistic)

    def predict(texts: Sequence[str]) -> list[str]:
        return learned.predict(learned.encode(texts, statistic.statistic.corpus))

    return Released((), np.array([]), *_charged(statistic.statistic), predict=predict, entries=entries)


def _statistic(rows: StandIn, epsilon: float, per_person: int, delta: float) -> tuple[Noisy, tuple[str, ...]]:
    """Return the noisy statistic, and the lines of a policy that publishes it."""
    corpus = Corpus.open(rows.corpus)
    labels = sorted({str(label) for label in rows.labels})
    of_release = epsilon
    if per_person > 1:  # all records of a person count together
        of_release = epsilon_of(*grid_of(epsilon * per_person, delta, per_person), delta)
    statistic = describe(corpus, epsilon=of_release, delta=delta, labels=labels, per_subject=per_person)
    key = keys.throwaway(statistic.cfg())
    ids = pa.array([str(row) for row in range(len(rows.texts))])
    columns = (pa.array([str(value) for value in given], pa.large_string()) for given in (rows.texts, rows.labels))
    maxent = {"name": "maxent", "epsilon": of_release, "delta": delta, "corpus": rows.corpus}
    entries = ("[synthetic]", *_of_person(per_person), _mechanism(maxent))
    return noisy(statistic, key, partial_sum(statistic, key, ids, *columns)), entries


def _charged(statistic: Statistic) -> tuple[float, float, float]:
    """Return epsilon of a record, and epsilon and delta of a person."""
    charged = statistic.charge(CLAIM).eps_approx / steps("eps_approx")
    k = statistic.per_subject
    return charged, charged * k, float(exact(statistic.delta) * k)


DISCRIMINANT = "linear_discriminant"
_TRAIN = "train classifiers and count labels"
FORMS: Mapping[str, Form] = {
    "surrogate": Form(
        _surrogate,
        "local",
        "each row keeps its id and label unchanged; its draw protects a text, even from readers who know all others",
        "rows of surrogate",
        _TRAIN,
        "read details, names, or numbers of a text",
    ),
    "custext": Form(
        _custext,
        "local",
        "each row keeps its id and label unchanged; its draws protect a text among those with equal disclosures",
        "rows of custext",
        _TRAIN,
        "protect facts that its disclosures show",
    ),
    "shuffled": Form(
        _shuffled,
        "central",
        "draws of surrogate without ids, with labels; it trusts the curator, whose drafts, key, and ledger "
        "show whose draw is whose; the number of rows per label is exact, and a record's label is not protected",
        "a shuffled release",
        _TRAIN,
        "link a text to a record, or read details",
    ),
    "synthetic": Form(
        _synthetic,
        "central",
        "public texts with labels that follow one noisy statistic (maxent); it trusts the curator, who computes the "
        "exact sums; text and label of a record are protected, and no row belongs to a record",
        "a synthetic table",
        _TRAIN,
        "read texts of your records",
    ),
    "synthetic_vectors": Form(
        _read(VECTORS),
        "central",
        "the same table, whose texts are read by their vectors under the encoder of the corpus",
        "a synthetic table, read by the vectors of its texts,",
        _TRAIN,
        "read texts of your records",
    ),
    "synthetic_scores": Form(
        _read(SCORES, ("scores = true",)),
        "central",
        "every text of the corpus with the scores of the classifier (scores = true), on which words are regressed",
        "a synthetic table with scores",
        _TRAIN,
        "read texts of your records",
    ),
    "synthetic_vector_scores": Form(
        _read(VECTOR_SCORES, ("scores = true",)),
        "central",
        "every text of the corpus with the scores of the classifier (scores = true), regressed on vectors",
        "a synthetic table with scores, read by the vectors of its texts,",
        _TRAIN,
        "read texts of your records",
    ),
    DISCRIMINANT: Form(
        _linear_discriminant,
        "central",
        "the same statistic, read by the classifier that comes with it, in the place of a learner on its table",
        "the linear discriminant released with a synthetic table",
        "label texts",
        "read texts of your records",
    ),
}
"""Forms by name."""
READERS = {
    "synthetic": WORDS,
    "synthetic_vectors": VECTORS,
    "synthetic_scores": SCORES,
    "synthetic_vector_scores": VECTOR_SCORES,
}
"""How labels are learned from forms of the synthetic table."""
USUAL = tuple(name for name in FORMS if name not in {"custext", "synthetic_vector_scores"})
"""Forms that are compared by default: the bound of custext holds only between texts with equal disclosures, and scores
regressed on vectors repeat the classifier."""
