"""Audit one step of mechanisms with a model, under the worst possible model, through the code that releases.

The claim is per step (a masked word, a token of an answer, a record of a vector) and holds whatever a model computes.
So the certificate comes from the integers or the noise of a step (`step_law`). Trials release public words with a
substitute for the model (`worst_models`), which makes the loss as large as possible; a real model has a smaller loss,
and its weights are never loaded. Trials use the configured epsilon, and a small epsilon if draws could hardly refute
the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from dptext_etl import _kernel
from dptext_etl.families.certificate import Certificate
from dptext_etl.mechanism import Mechanism
from dptext_etl_eval.auditing import bound, step_law
from dptext_etl_eval.auditing.choice import UNKNOWN
from dptext_etl_eval.auditing.divided import POSITIONS, watched, whole
from dptext_etl_eval.auditing.result import ALARM, ROUNDING, Audit, Trial
from dptext_etl_eval.auditing.trials import REPEATED, Counts, Pair, Subject, trials_of
from dptext_etl_eval.auditing.worst_models import COORDINATES, WorstGenerator, WorstLatents, WorstScorer
from dptext_etl_models.families.latent import LatentMechanism
from dptext_etl_models.families.model import ModelMechanism
from dptext_etl_models.families.score.generative import GenerativeMechanism
from dptext_etl_models.families.score.masked import MaskedMechanism
from dptext_etl_models.grid_noise import STEPS

WORDS = ("good", "film")
_WEIGHTS = 2**27
"""Largest number of weights per input and trial, so that large output sets take fewer draws."""
_LEAST = 1_000
_PAIRS = 4
_TRIALS = 2 * _PAIRS + REPEATED


@dataclass(frozen=True)
class Step:
    """The audited step of a mechanism with a model."""

    unit: str  # unit of the claim
    claim: float  # declared loss of a step
    charged: float  # amount of the ledger's tight component for a step
    delta: float  # declared delta of a step
    certificate: Certificate  # the exact loss of a step
    draws: int  # number of records to release per input and trial
    note: str = ""  # reason why these are fewer than requested; empty if they are not


def audit_model(
    mechanism: ModelMechanism,
    *,
    draws: int,
    confidence: float,
    secrets: tuple[_kernel.Secret, _kernel.Secret],
    progress: Callable[[str], object],
) -> Audit:
    """Audit one step of a mechanism with a model, as `audit_mechanism` does."""
    begun = Audit("", mechanism.name, mechanism.epsilon)
    progress("the exact certificate")
    step = step_of(mechanism, draws)
    if step is None:
        return replace(begun, note="audits know no worst model of this kind")
    many, done = most_trials(step), []
    for level, limit, counts in trials_of_step(mechanism, step, ALARM, secrets):
        progress(f"trials at epsilon {level.epsilon:g}")
        counted = replace(counts, delta=step.delta)
        sure, least = counted.bound(ALARM / many), counted.bound((1 - confidence) / many)
        done.append(Trial(counted, level.epsilon, limit, least, sure > limit * (1 + ROUNDING)))
    largest = bound.largest(step.draws, ALARM / many)
    notes = ["trials are of the worst model there can be, in place of this one", *filter(None, [step.note])]
    if small := {trial.epsilon for trial in done} - {mechanism.epsilon}:
        notes.append(f"{step.claim:,.6g} is hardly refuted by these: so they are at epsilon {min(small):g}, too")
    return replace(
        begun,
        unit=step.unit,
        delta=step.delta,
        claim=step.claim,
        charged=step.charged,
        certificate=step.certificate,
        trials=tuple(done),
        largest=largest,
        note="; ".join(notes),
    )


def step_of(mechanism: Mechanism, draws: int) -> Step | None:
    """Return the step of a mechanism that can be audited; None if it has no model of a known kind."""
    if isinstance(mechanism, (MaskedMechanism, GenerativeMechanism)):
        held = min(draws, max(_LEAST, _WEIGHTS // mechanism.outputs))
        note = "" if held == draws else f"{held:,} draws, because each is among {mechanism.outputs:,} outputs"
        claim = mechanism.largest_epsilon
        charged = min(claim, mechanism.epsilon_tight)
        return Step("draw", claim, charged, 0.0, step_law.of_scores(mechanism, WORDS), held, note)
    if isinstance(mechanism, LatentMechanism):
        certificate = step_law.of_latents(mechanism, COORDINATES, ("a", "b"))
        return Step("record", mechanism.epsilon, mechanism.epsilon, mechanism.used_delta, certificate, draws)
    return None


def trials_of_step(
    mechanism: ModelMechanism, step: Step, alarm: float, secrets: tuple[Any, Any]
) -> Iterator[tuple[ModelMechanism, float, Counts]]:
    """Yield trials: the mechanism at its epsilon, the claimed upper bound of the loss, and the counts."""
    reach = bound.largest(step.draws, alarm / (2 * _TRIALS * 2))
    most = whole(mechanism) or 2 * getattr(mechanism, "draws_per_position", 1) * step.claim  # of a text of two steps
    levels = [mechanism]
    if most > reach / 2:
        levels.append(mechanism.model_copy(update={"epsilon": float(f"{mechanism.epsilon * reach / 2 / most:.3g}")}))
    for level in levels:
        for subject, pairs, steps in _subjects(level):
            for counts in trials_of(subject, pairs, step.draws, secrets):
                texts = 2 if counts.trial == POSITIONS else 1  # of as many steps
                yield level, whole(level) or texts * steps * level.epsilon, counts


def most_trials(step: Step) -> int:
    """Return the largest number of trials, which share the false-alarm probability."""
    return 2 * 2 * _TRIALS if step.unit == "record" else 2 * _TRIALS


def _subjects(mechanism: ModelMechanism) -> Iterator[tuple[Subject, list[Pair], int]]:
    """Yield the releasing subject, the inputs to compare, and the number of steps in which they differ."""
    strange: list[Pair] = [UNKNOWN] if mechanism.mode == "strict" else []
    if isinstance(mechanism, MaskedMechanism):
        scorer, masked = WorstScorer(mechanism.outputs, WORDS[0]), watched(mechanism)
        if strange:
            strange.append((WORDS[0], UNKNOWN[0]))
        if mechanism.hides_length:
            strange.append((WORDS[0], ""))
        single, double = (_of_words(mechanism, count).with_model(scorer) for count in (1, 2))
        seen = masked and (_of_words(masked[0], 1).with_model(scorer), masked[1])
        yield Subject(single, double, seen), [WORDS, *strange], mechanism.draws_per_position
    elif isinstance(mechanism, GenerativeMechanism):
        model, answers = WorstGenerator(mechanism.outputs), watched(mechanism)
        one, two = (_of_steps(mechanism, steps).with_model(model) for steps in (1, 2))
        answered = answers and (_of_steps(answers[0], 1).with_model(model), answers[1])
        yield Subject(one, two, answered, between=""), [("a", "b"), *strange, ("a", "")], 1
    elif isinstance(mechanism, LatentMechanism):
        latents = watched(mechanism)
        for other, more in (("b", [*strange, ("a", "")]), ("c", [])):
            noisy = latents and (_of_vectors(latents[0], other), latents[1])
            yield Subject(_of_vectors(mechanism, other), None, noisy), [("a", other), *more], 1


def _of_vectors(mechanism: LatentMechanism, other: str) -> LatentMechanism:
    """Return the mechanism with the worst model of two texts, "a" and another."""
    scale = mechanism.scale(COORDINATES)
    deviation = scale.sigma if scale.rate is None else math.sqrt(2) / float(scale.rate) / STEPS
    return mechanism.with_model(WorstLatents(deviation or 1.0, along=other))


def _of_steps(mechanism: GenerativeMechanism, steps: int) -> GenerativeMechanism:
    """Return the mechanism for answers of so many steps."""
    return mechanism.model_copy(update={"l_max": steps, "mode": "strict"})


def _of_words(mechanism: MaskedMechanism, words: int) -> MaskedMechanism:
    """Return the mechanism for texts of `words` words if the length is hidden, without the noise of the length."""
    hidden = {"length": "fixed", "epsilon_length": None, "n_max": words}
    return mechanism.model_copy(update=hidden if mechanism.hides_length else {})
