"""Say what an audit of whole public texts compares: texts of the corpus, unknown words, and texts without any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dptext_etl import _kernel
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl_eval.auditing import bound
from dptext_etl_eval.auditing.result import ROUNDING, Audit, Trial
from dptext_etl_eval.auditing.trials import REPEATED, Counts, Pair, Subject, trials_of

UNKNOWN = ("qzxvkj", "90417735")
"""Two texts that no public corpus holds a word of."""
_PAIRS = 5
MOST_TRIALS = 2 * (2 * _PAIRS + REPEATED)
"""Largest number of trials: of two levels, each with some pairs both ways, and those of repeated draws."""


def of_one_draw(mechanism: ChoiceMechanism) -> ChoiceMechanism:
    """Return the mechanism that draws once for a text, at epsilon of one draw."""
    return mechanism.model_copy(update={"epsilon": float(mechanism.epsilon_per_draw), "parts": 1, "surrogates": 1})


def trials_of_choice(
    mechanism: ChoiceMechanism, draws: int, alarm: float, secrets: tuple[Any, Any]
) -> Iterator[tuple[ChoiceMechanism, Counts]]:
    """Yield trials of one draw: the mechanism, at its epsilon or a small one, and the counts."""
    reach = bound.largest(draws, alarm / MOST_TRIALS)
    levels = [mechanism]
    if mechanism.epsilon > reach / 2:
        levels.append(mechanism.model_copy(update={"epsilon": float(f"{reach / 2:.3g}")}))
    for level in levels:
        text, other = level.far_texts()
        pairs: list[Pair] = [(text, other), (text, ""), UNKNOWN, (text, UNKNOWN[0])]
        if level.null_as_empty:
            pairs.append((text, None))
        for counts in trials_of(Subject(level, None), pairs, draws, secrets):
            yield level, counts


def of_choice(  # noqa: PLR0917
    mechanism: ChoiceMechanism,
    begun: Audit,
    draws: int,
    alarms: tuple[float, float],
    secrets: tuple[_kernel.Secret, _kernel.Secret],
    progress: Callable[[str], object],
) -> Audit:
    """Audit one draw of a mechanism that draws whole public texts."""
    alarm, error = alarms
    progress("the exact certificate")
    single, done = of_one_draw(mechanism), []
    for level, counts in trials_of_choice(single, draws, alarm, secrets):
        progress(f"trials at epsilon {level.epsilon:g}")
        sure, least = counts.bound(alarm / MOST_TRIALS), counts.bound(error / MOST_TRIALS)
        done.append(Trial(counts, level.epsilon, level.epsilon, least, sure > level.epsilon * (1 + ROUNDING)))
    return replace(
        begun,
        unit="draw",
        claim=single.epsilon,
        charged=float(single.epsilon_tight),
        certificate=single.certificate(),
        trials=tuple(done),
        largest=bound.largest(draws, alarm / MOST_TRIALS),
        note="" if mechanism.most_positions == 1 else f"a text has {mechanism.most_positions} such draws",
    )
