"""Audit one step of mechanisms with a model, under the worst possible model, through the code that releases.

The claim is per step (a masked word, a token of an answer, a record of a vector) and holds whatever a model computes.
So the certificate comes from the integers or the noise of a step: for scores, from the integer weights of the two most
different rows of clipped scores; for vectors, from the divergence of the noise at the largest distance under the clip,
computed from the sampler's rate or deviation and not from the formula that chose them
(docs/spec/privacy.md#epsilon-implemented, docs/spec/privacy.md#grid-noise).

Trials release public words with a substitute for the model (`worst_models`), which makes the loss as large as possible;
a real model has a smaller loss, and its weights are never loaded. Trials use the configured epsilon, and a small
epsilon if draws could hardly refute the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dptext_etl import _kernel, sampling
from dptext_etl.mechanism import Mechanism
from dptext_etl_eval.auditing.certificate import Certificate
from dptext_etl_eval.auditing.results import ALARM, Audit, Counts, judge, largest_loss
from dptext_etl_eval.auditing.trials import (
    POSITIONS,
    REPEATED,
    UNKNOWN,
    Pair,
    Subject,
    at_small,
    of_words,
    trials_of,
    watched,
    whole,
)
from dptext_etl_eval.auditing.worst_models import COORDINATES, WorstGenerator, WorstLatents, WorstScorer
from dptext_etl_models.families.generative import GenerativeMechanism
from dptext_etl_models.families.latent import LatentMechanism
from dptext_etl_models.families.latent_noise import STEPS, clipped_steps
from dptext_etl_models.families.masked import MaskedMechanism
from dptext_etl_models.families.model import ModelMechanism
from dptext_etl_models.families.score import ScoreMechanism

_POINTS = 200_001
_TAIL = 40.0
"""Standard deviations beyond which the mass of Gaussian noise is negligible."""


def of_scores(mechanism: ScoreMechanism, words: tuple[str, str]) -> Certificate:
    """Compute the certificate of one draw from two rows of scores: only one output is high, or only one is low.

    All weights are within the range of these two rows: the largest weight is always 2^B, and the smallest is at least
    theirs.
    """
    (low, high), outputs = mechanism.score_range, mechanism.outputs
    rows = np.full((2, outputs), low, np.float64)
    rows[0, 0], rows[1, 1:] = high, high
    top, bottom = (_chances(row) for row in sampling.weights(rows, mechanism.largest_epsilon, low, high).tolist())
    uniform = Fraction(1, outputs)
    laws = (top, bottom, [uniform] * 2)
    source = f"the integers of the most different scores of {outputs:,} outputs"
    if not all(chance for law in laws for chance in law):
        return Certificate(source, math.inf, exact=True, words=words)
    worst = max(most / least for own in laws for other in laws for most, least in zip(own, other, strict=True))
    realized = math.log(worst.numerator) - math.log(worst.denominator)
    return Certificate(source, realized, exact=True, words=words)


def _chances(weights: list[int]) -> list[Fraction]:
    """Return the probabilities of the first output and of the likeliest other one."""
    total = sum(weights)
    return [Fraction(weights[0], total), Fraction(max(weights[1:]), total)]


def of_latents(mechanism: LatentMechanism, size: int, words: tuple[str, str]) -> Certificate:
    """Compute the certificate of the noise on a vector of `size` numbers, or on the numbers of all sentences of a text.

    Discrete Laplace noise: the rate times the largest distance in grid steps. Gaussian noise: the least epsilon at
    which the divergence of two densities at the largest distance, integrated, is the declared delta.
    """
    scale, value, count = mechanism.scale(size), mechanism.norm == "value", mechanism.sentences
    if scale.rate is not None:
        steps = Fraction(2 * size * clipped_steps(mechanism.clip))
        if not value:  # the l1 norm of a vector is at most its l2 norm times the square root of its dimension
            steps = 2 * Fraction(mechanism.clip) * STEPS * Fraction(math.isqrt(size << 64) + 1, 1 << 32)
        return Certificate(
            "the stored rate of discrete noise", float(scale.rate * steps * count), exact=value, words=words
        )
    apart = 2 * clipped_steps(mechanism.clip) / STEPS * math.sqrt(size) if value else 2 * mechanism.clip
    apart *= math.sqrt(count)
    realized = math.inf if not scale.sigma else epsilon_at(apart / scale.sigma, mechanism.used_delta)
    source = f"the divergence of the noise at delta {mechanism.used_delta:g}, integrated"
    return Certificate(source, realized, exact=True, words=words)


def epsilon_at(mu: float, delta: float) -> float:
    """Return the smallest epsilon whose delta is at most `delta`, for two normal densities `mu` deviations apart."""
    low, high = 0.0, 1.0
    while divergence(high, mu) > delta:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(middle, mu) > delta else (low, middle)
    return high


def divergence(epsilon: float, mu: float) -> float:
    """Return the integral of (p - e^epsilon q) where it is positive, p and q normal densities `mu` deviations apart.

    >>> round(divergence(1.0, 1.0), 6)
    0.126937
    """
    start = epsilon / mu - mu / 2  # point at which both are equal, relative to the mean of p
    if start > _TAIL:
        return 0.0
    places = np.linspace(max(start, -_TAIL), _TAIL, _POINTS)
    inside = np.exp(-(places**2) / 2) * -np.expm1(np.minimum(0.0, mu * (start - places)))
    return float(np.trapezoid(inside, places) / math.sqrt(2 * math.pi))


WORDS = ("good", "film")
_WEIGHTS = 2**27
"""Largest number of weights per input and trial, so that large output sets get fewer draws."""
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
    many, done = (2 * 2 * _TRIALS if step.unit == "record" else 2 * _TRIALS), []
    odds = {"alarm": ALARM / many, "error": (1 - confidence) / many}
    for level, limit, counts in trials_of_step(mechanism, step, secrets):
        progress(f"trials at epsilon {level.epsilon:g}")
        done.append(judge(replace(counts, delta=step.delta), level.epsilon, limit, **odds))
    largest = largest_loss(step.draws, ALARM / many)
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
        draws_used = min(draws, max(_LEAST, _WEIGHTS // mechanism.outputs))
        note = (
            "" if draws_used == draws else f"{draws_used:,} draws, because each is among {mechanism.outputs:,} outputs"
        )
        claim = mechanism.largest_epsilon
        charged = min(claim, mechanism.epsilon_tight)
        return Step("draw", claim, charged, 0.0, of_scores(mechanism, WORDS), draws_used, note)
    if isinstance(mechanism, LatentMechanism):
        certificate = of_latents(mechanism, COORDINATES, ("a", "b"))
        return Step("record", mechanism.epsilon, mechanism.epsilon, mechanism.used_delta, certificate, draws)
    return None


def trials_of_step(
    mechanism: ModelMechanism, step: Step, secrets: tuple[Any, Any]
) -> Iterator[tuple[ModelMechanism, float, Counts]]:
    """Yield trials: the mechanism at its epsilon, the claimed upper bound of the loss, and the counts."""
    reach = largest_loss(step.draws, ALARM / (2 * _TRIALS * 2))
    most = whole(mechanism) or 2 * getattr(mechanism, "draws_per_position", 1) * step.claim  # of a text of two steps
    levels = [mechanism]
    if most > reach / 2:
        levels.append(at_small(mechanism, mechanism.epsilon * reach / 2 / most))
    for level in levels:
        for subject, pairs, steps in _subjects(level):
            for counts in trials_of(subject, pairs, step.draws, secrets):
                texts = 2 if counts.trial == POSITIONS else 1  # of as many steps
                yield level, whole(level) or texts * steps * level.epsilon, counts


def _subjects(mechanism: ModelMechanism) -> Iterator[tuple[Subject, list[Pair], int]]:
    """Yield the releasing subject, the inputs to compare, and the number of steps in which they differ."""
    strange: list[Pair] = [UNKNOWN] if mechanism.mode == "strict" else []
    if isinstance(mechanism, MaskedMechanism):
        scorer, masked = WorstScorer(mechanism.outputs, WORDS[0]), watched(mechanism)
        if strange:
            strange.append((WORDS[0], UNKNOWN[0]))
        if mechanism.length != "disclose":
            strange.append((WORDS[0], ""))
        single, double = (of_words(mechanism, count).with_model(scorer) for count in (1, 2))
        seen = masked and (of_words(masked[0], 1).with_model(scorer), masked[1])
        yield Subject(single, double, seen), [WORDS, *strange], mechanism.draws_per_position
    elif isinstance(mechanism, GenerativeMechanism):
        model, answers = WorstGenerator(mechanism.outputs), watched(mechanism)
        first, two = (_of_steps(mechanism, steps).with_model(model) for steps in (1, 2))
        answered = answers and (_of_steps(answers[0], 1).with_model(model), answers[1])
        yield Subject(first, two, answered, between=""), [("a", "b"), *strange, ("a", "")], 1
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
    """Return the mechanism for answers of that many steps."""
    return mechanism.model_copy(update={"l_max": steps, "mode": "strict"})
