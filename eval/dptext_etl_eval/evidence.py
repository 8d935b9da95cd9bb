"""Measure a release with every metric and attack that its columns allow.

The result is made of exact statistics of raw text: it stays inside the boundary and decides nothing
(docs/spec/privacy.md#no-row-decision).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dptext_etl.errors import InputError, bare, seam
from dptext_etl_eval.evaluators import Evaluators
from dptext_etl_eval.fine_tuning import require_training
from dptext_etl_eval.measure import Attack, Measure, Score, attacks, averaged, metrics, require_libraries
from dptext_etl_eval.pairs import CLASSIFIER, RAW, RELEASED, ROW_LINKS, Pairs

INSIDE = (
    "Inside the boundary: these figures are exact statistics of raw texts. They bound nothing, decide nothing, and are "
    "not for publication."
)

SHOWN = 10
"""Rows that a page shows where texts may be shown."""

Listener = Callable[[int, int, str, float | None], None]
"""Called before every measure: its number from 1, how many there are, its title, and the seconds that are left."""


@dataclass(frozen=True)
class Measured:
    """What one measure found."""

    measure: Measure  # the metric or attack
    scores: tuple[Score, ...]  # its figures
    seconds: float  # duration

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        knows = {"attacker_knows": self.measure.knows} if isinstance(self.measure, Attack) else {}
        return {
            "name": type(self.measure).__module__.rpartition(".")[2],
            "title": self.measure.title,
            "says": self.measure.says,
            **knows,
            "seconds": round(self.seconds, 3),
            "scores": [score.as_dict() for score in self.scores],
        }


@dataclass(frozen=True)
class Evidence:
    """Everything that was measured of one column.

    Attributes:
        column: Name of the text column.
        rows: Rows that were measured.
        of: Rows that both tables share.
        metrics: Figures of the use that the release keeps.
        attacks: Figures of attacks.
        excluded: Titles of measures that lack a column, with the columns that they need.
        cost: The cost of the release, in words, from the policy or the manifest; {} if not known.
        examples: Raw texts and releases that share most; () unless they may be shown.
    """

    column: str
    rows: int
    of: int
    metrics: tuple[Measured, ...]
    attacks: tuple[Measured, ...]
    excluded: Mapping[str, tuple[str, ...]]
    cost: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; it holds counts and shares, never a text or an id."""
        return {
            "warning": INSIDE,
            "column": self.column,
            "rows": self.rows,
            "of": self.of,
            "cost": dict(self.cost),
            "metrics": [item.as_dict() for item in self.metrics],
            "attacks": [item.as_dict() for item in self.attacks],
            "excluded": {title: list(needs) for title, needs in self.excluded.items()},
        }


@bare
def evaluate(
    pairs: Pairs,
    *,
    column: str = "text",
    cost: Mapping[str, Any] | None = None,
    progress: Listener | None = None,
    classifier: str | None = None,
    encoder: str | None = None,
    masked_model: str | None = None,
    perplexity_model: str | None = None,
    seeds: int = 1,
) -> Evidence:
    """Measure a release.

    A model is a folder, a name on a hub, or the name of a model of dptext-etl-models. One that is given here replaces
    the memory of `pairs`. `join` names the columns of splits and of second texts.

    Args:
        pairs: Raw texts and their releases.
        column: Name of the text column.
        cost: The cost of the release, in words.
        progress: Called before every measure.
        classifier: Model to fine-tune on labels and attributes.
        encoder: Sentence encoder.
        masked_model: Masked language model that infers words.
        perplexity_model: Causal language model.
        seeds: How often measures with something random are repeated; they give means and deviations.

    Returns:
        The figures of all measures, and the names of those that were excluded.

    Raises:
        InputError: The label or the attribute has one value only or too many, a library is missing, or a model cannot
            be loaded.
    """
    require_libraries()
    given = Evaluators(classifier, encoder, masked_model, perplexity_model).named()
    pairs = replace(pairs, evaluators=replace(pairs.evaluators, **dict[str, Any](given)))
    pairs.evaluators.require()
    if CLASSIFIER in pairs.has:
        require_training()
    every: Sequence[Measure] = (*metrics(), *attacks())
    fit = [measure for measure in every if measure.needs <= pairs.has]
    excluded = {measure.title: tuple(sorted(measure.needs - pairs.has)) for measure in every if measure not in fit}
    results, began = [], time.monotonic()
    for number, measure in enumerate(fit):
        started = time.monotonic()
        if progress is not None:
            done, ahead = (sum(item.weight for item in part) for part in (fit[:number], fit[number:]))
            left = (started - began) / done * ahead if number else None
            progress(number + 1, len(fit), measure.title, left)
        results.append(measured(measure, pairs, seeds))
    learnt = tuple(item for item in results if isinstance(item.measure, Attack))
    kept = tuple(item for item in results if not isinstance(item.measure, Attack))
    return Evidence(column, len(pairs), pairs.of or len(pairs), kept, learnt, excluded, cost or {}, _examples(pairs))


def measured(measure: Measure, pairs: Pairs, seeds: int = 1) -> Measured:
    """Compute the figures of one measure, as means over that many seeds."""
    started, repeats = time.monotonic(), range(seeds if measure.seeded else 1)
    with seam(f"measuring: {measure.title}", InputError):
        scores = averaged([measure.of(replace(pairs, seed=pairs.seed + seed)) for seed in repeats])
        return Measured(measure, scores, time.monotonic() - started)


def without_rows(
    column: str, measure: Measure, pairs: Pairs, cost: Mapping[str, Any], progress: Listener | None
) -> Evidence:
    """Measure a release whose rows belong to no record: all other measures compare rows, so they are excluded."""
    if progress is not None:
        progress(1, 1, measure.title, None)
    excluded = {item.title: (ROW_LINKS,) for item in (*metrics(), *attacks()) if item.title != measure.title}
    return Evidence(column, len(pairs), pairs.of, (measured(measure, pairs),), (), excluded, cost)


def _examples(pairs: Pairs) -> tuple[tuple[str, str], ...]:
    """Return the rows whose releases share the largest parts of their words with the raw text, if they may be shown."""
    if not pairs.show_texts:
        return ()
    shared = [
        len(set(raw) & set(out)) / max(1, len(set(raw)))
        for raw, out in zip(*map(pairs.words, (RAW, RELEASED)), strict=True)
    ]
    worst = sorted(range(len(pairs)), key=lambda row: (-shared[row], row))[:SHOWN]
    return tuple((pairs.raw[row], pairs.released[row]) for row in worst)
