"""Audit a policy: test the claims of its mechanisms per word on their integers and on their releases.

An audit gives two independent answers. The certificate (`auditing.certificate`) is computed exactly from the sampler's
integers, for every pair of words; it does not test the code around them. The trials release public words through the
same code as texts, under their own keys, and count outputs. They bound the loss from below, so they can refute a
claim but never prove one. n draws cannot show a loss above ln n - 3. A claim near or above this limit is tested on the
same mechanism at a small epsilon, through the same code (docs/spec/privacy.md#audit-bound,
docs/spec/privacy.md#audit-planted).

An audit reads no data of a user and charges nothing: its inputs are words of the public vocabulary and strings outside
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from dptext_etl import _kernel
from dptext_etl.accounting import is_finite
from dptext_etl.errors import InputError, bare
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.families.distance import VectorMechanism
from dptext_etl.families.words import WordMechanism
from dptext_etl.guarantee import Disclosure
from dptext_etl.mechanism import PAD, Mechanism
from dptext_etl.mechanisms.diffractor import Diffractor
from dptext_etl.policy import PolicyLike, resolve
from dptext_etl.policy.synthetic import no_rows
from dptext_etl_eval.auditing.certificate import Certificate, certificate_of, far_texts, far_words, list_distances
from dptext_etl_eval.auditing.results import ALARM, Audit, judge, largest_loss
from dptext_etl_eval.auditing.trials import REPEATED, UNKNOWN, Pair, Subject, at_small, limit_of, trials, trials_of

if TYPE_CHECKING:
    from dptext_etl_models.families.model import ModelMechanism

DRAWS = 100_000
CONFIDENCE = 0.95
NEAR = 3.0
"""Loss between the two words that the audit chooses to test a metric claim."""

_PER_PAIR = 2
_LEAST_DRAWS = 1_000


@bare
def audit(
    policy: PolicyLike,
    *,
    draws: int = DRAWS,
    confidence: float = CONFIDENCE,
    secrets: tuple[_kernel.Secret, _kernel.Secret] | None = None,
    progress: Callable[[str], object] = lambda _: None,
) -> tuple[Audit, ...]:
    """Audit every column of a policy.

    Args:
        policy: The policy, or the path of its file; the audit does not use its key or read its source.
        draws: Number of records to release per input and trial.
        confidence: Joint confidence of all lower bounds of a column, between 0 and 1.
        secrets: Two noise keys, for tests; None uses new random ones.
        progress: Called with a sentence about the present step.

    Returns:
        One audit per column, in the order of the policy.

    Raises:
        InputError: There are too few draws, or the confidence is not between 0 and 1.
        PolicyError: The policy publishes a synthetic table, and no mechanism releases a text.
    """
    audits, policy = [], resolve(policy)
    if policy.synthetic is not None:
        raise no_rows(policy.dataset)
    for column in policy.columns:
        progress(f"column {column.name}")
        audited = audit_mechanism(
            column.mechanism, draws=draws, confidence=confidence, secrets=secrets, progress=progress
        )
        audits.append(replace(audited, column=column.name))
    return tuple(audits)


def audit_mechanism(
    mechanism: Mechanism,
    *,
    draws: int = DRAWS,
    confidence: float = CONFIDENCE,
    secrets: tuple[_kernel.Secret, _kernel.Secret] | None = None,
    progress: Callable[[str], object] = lambda _: None,
) -> Audit:
    """Audit one mechanism, as `audit` does.

    Args:
        mechanism: The mechanism.
        draws: Number of records to release per input and trial.
        confidence: Joint confidence of all lower bounds, between 0 and 1.
        secrets: Two noise keys, for tests; None uses new random ones.
        progress: Called with a sentence about the present step.

    Returns:
        The claim, the exact certificate, and the lower bounds from the trials.

    Raises:
        InputError: There are too few draws, or the confidence is not between 0 and 1.

    Example:
        >>> from dptext_etl.mechanisms.custext import CusText
        >>> found = audit_mechanism(CusText.example(), draws=1_000)
        >>> found.refuted, found.by_table
        (False, 'holds')
    """
    if draws < _LEAST_DRAWS or not 0 < confidence < 1:
        raise InputError(
            f"an audit needs {_LEAST_DRAWS:,} draws or more and a confidence between 0 and 1", f"try {DRAWS:,} and 0.95"
        )
    begun = Audit("", mechanism.name, mechanism.epsilon)
    secrets = secrets or (_kernel.Secret(), _kernel.Secret())
    if hasattr(mechanism, "audit"):
        result: Audit = mechanism.audit(draws=draws, confidence=confidence, secrets=secrets, progress=progress)
        return result
    if _has_model(mechanism):
        from dptext_etl_eval.auditing.models import audit_model

        return audit_model(mechanism, draws=draws, confidence=confidence, secrets=secrets, progress=progress)
    if isinstance(mechanism, ChoiceMechanism):
        return _of_choice(mechanism, begun, draws, confidence, secrets, progress)
    if not isinstance(mechanism, WordMechanism):
        return replace(begun, note="audits are of mechanisms that draw word by word or have a model; this one is none")
    claim = float(mechanism.epsilon_per_word)
    if not math.isfinite(claim) or not is_finite(mechanism.spend(1), "pure"):
        return replace(begun, note=f"class {mechanism.guarantee.guarantee_class}: no finite epsilon is claimed")
    progress("the exact certificate")
    table, stored, tight = certificate_of(mechanism), mechanism.epsilon_table, mechanism.epsilon_tight
    charged = min(claim, claim if tight is None else tight)
    pairs = _pairs(mechanism, table)
    levels = list(_levels(mechanism, claim, draws, pairs))
    many = sum(_PER_PAIR * len(chosen) + REPEATED for _, chosen in levels)
    done = []
    for level, chosen in levels:
        progress(f"trials at epsilon {level.epsilon:g}")
        limits = {frozenset(pair[:2]): limit for pair, limit in chosen}
        for counts in trials(level, [pair[:2] for pair, _ in chosen], draws, secrets):
            limit = limit_of(level, counts.trial, limits[frozenset(counts.words)])
            odds = {"alarm": ALARM / many, "error": (1 - confidence) / many}
            done.append(judge(counts, level.epsilon, limit, **odds))
    largest = largest_loss(draws, ALARM / many)
    note = "" if table else "the distribution of a word has no finite table: only trials"
    if claim >= largest:
        note += (
            f"{'; ' if note else ''}{claim:,.6g} per word is beyond what {draws:,} draws can refute: the trials are of"
        )
        note += f" the same mechanism at epsilon {levels[-1][0].epsilon:g}"
    return replace(
        begun,
        claim=claim,
        charged=charged,
        stored=stored,
        certificate=table,
        trials=tuple(done),
        largest=largest,
        note=note,
    )


def _has_model(mechanism: Mechanism) -> TypeGuard[ModelMechanism]:
    """Return whether a mechanism needs a neural model; none does where dptext-etl-models is not installed."""
    if find_spec("dptext_etl_models") is None:
        return False
    from dptext_etl_models.families.model import ModelMechanism

    return isinstance(mechanism, ModelMechanism)


class _Pair(NamedTuple):
    """Two inputs that the guarantee compares, and their distance if the trial tests the metric claim."""

    word: str
    other: str
    distance: float | None = None


def _levels(
    mechanism: WordMechanism, claim: float, draws: int, pairs: list[_Pair]
) -> Iterator[tuple[WordMechanism, list[tuple[_Pair, float]]]]:
    """Yield the configured mechanism, and the mechanism at a small epsilon if draws could hardly refute its claim.

    The configured mechanism gets the first pair, to show its loss as far as possible, and all other pairs whose claim
    can be refuted.
    """
    reach = largest_loss(draws, ALARM / (2 * (_PER_PAIR * len(pairs) + REPEATED)))
    limits = [(pair, _limit(mechanism, pair)) for pair in pairs]
    yield mechanism, [limits[0], *(item for item in limits[1:] if item[1] < reach)]
    if claim > reach / 2:
        small = at_small(mechanism, mechanism.epsilon * reach / 2 / claim)
        yield small, [(pair, _limit(small, pair)) for pair in pairs if pair.distance is None]


def _limit(mechanism: WordMechanism, pair: _Pair) -> float:
    """Return the claimed loss between two words: by their distance, or between any two words."""
    claim, metric = float(mechanism.epsilon_per_word), mechanism.metric_claim if pair.distance else None
    return claim if metric is None or pair.distance is None else min(claim, float(metric.epsilon) * pair.distance)


def _pairs(mechanism: WordMechanism, table: Certificate | None) -> list[_Pair]:
    """Choose pairs of inputs that the guarantee compares, without looking at any text."""
    word, other = table.words if table else _far_words(mechanism)
    pairs = [_Pair(word, other)]
    policy, disclosed = mechanism.input_policy(), mechanism.guarantee.disclosures
    letters, digits = _unknown_words(mechanism)
    if policy["oov"] == policy["numbers"] != "keep":
        pairs += [_Pair(letters, digits), _Pair(f"{word} {letters}", f"{word} {digits}")]
    if policy["oov"] in ("uniform", "first") and not disclosed & {
        Disclosure.CLUSTER,
        Disclosure.OOV_FLAG,
        Disclosure.SENS_CLASS,
    }:
        pairs.append(_Pair(word, letters))
    if mechanism.length != "disclose":
        pairs.append(_Pair(word, ""))
    if mechanism.length != "disclose" or policy["oov"] == "drop":
        pairs.append(_Pair(letters, ""))
    if policy["punctuation"] == "drop":
        pairs.append(_Pair("?!", ""))
    if near := _near(mechanism, word):
        pairs.append(near)
    return pairs


def _near(mechanism: WordMechanism, word: str) -> _Pair | None:
    """Find a word at such a distance from `word` that trials can test the metric claim; None if there is none."""
    metric = mechanism.metric_claim
    distances = None if metric is None or mechanism.mode == "faithful" else _distances_from(mechanism, word)
    if metric is None or distances is None:
        return None
    losses = {other: float(metric.epsilon) * far for other, far in distances.items() if far and other != word}
    if not losses:
        return None
    nearest = min(losses, key=lambda other: abs(losses[other] - NEAR))
    return _Pair(word, nearest, distances[nearest])


def _far_words(mechanism: WordMechanism) -> tuple[str, str]:
    """Return two words that are probably easiest to distinguish, chosen only from public inputs."""
    if isinstance(mechanism, VectorMechanism):
        return far_words(mechanism.words)
    words = [word for word in mechanism.input_words() if word != PAD]
    return words[0], words[-1]


def _distances_from(mechanism: WordMechanism, word: str) -> dict[str, float] | None:
    """Return the distance of every known word from one, in units of the metric claim; None if it is not known."""
    if isinstance(mechanism, VectorMechanism):
        words = mechanism.words
        squared = words.squared_distances([words.index[word]], slice(None))[0].tolist()
        far = (math.sqrt(amount) * words.scale for amount in squared)
        return {other: apart for other, apart in zip(words.words, far, strict=True) if other != PAD}
    return list_distances(mechanism.table.path, word) if isinstance(mechanism, Diffractor) else None


def _unknown_words(mechanism: WordMechanism) -> tuple[str, str]:
    """Return a word of letters and one of digits that the vocabulary does not hold."""
    vocabulary = set(mechanism.input_words())
    letters, digits = "qzxvkj", "90417735"
    while letters in vocabulary or digits in vocabulary:
        letters, digits = letters + "q", digits + "9"
    return letters, digits


_PAIRS = 5
MOST_TRIALS = 2 * (2 * _PAIRS + REPEATED)
"""Largest number of trials: of two levels, each with some pairs both ways, and trials of repeated draws."""


def _of_choice(  # noqa: PLR0917
    mechanism: ChoiceMechanism,
    begun: Audit,
    draws: int,
    confidence: float,
    secrets: tuple[_kernel.Secret, _kernel.Secret],
    progress: Callable[[str], object],
) -> Audit:
    """Audit one draw of a mechanism that draws whole public texts."""
    progress("the exact certificate")
    one_draw = {"epsilon": float(mechanism.epsilon_per_draw), "parts": 1, "surrogates": 1}
    single, largest = mechanism.model_copy(update=one_draw), largest_loss(draws, ALARM / MOST_TRIALS)
    odds = {"alarm": ALARM / MOST_TRIALS, "error": (1 - confidence) / MOST_TRIALS}
    done = []
    for level in (single, at_small(single, largest / 2)) if single.epsilon > largest / 2 else (single,):
        text, other = far_texts(level)
        pairs: list[Pair] = [(text, other), (text, ""), UNKNOWN, (text, UNKNOWN[0])]
        if level.null_as_empty:
            pairs.append((text, None))
        for counts in trials_of(Subject(level, None), pairs, draws, secrets):
            progress(f"trials at epsilon {level.epsilon:g}")
            done.append(judge(counts, level.epsilon, level.epsilon, **odds))
    return replace(
        begun,
        unit="draw",
        claim=single.epsilon,
        charged=float(single.epsilon_tight),
        certificate=certificate_of(single),
        trials=tuple(done),
        largest=largest,
        note="" if mechanism.most_positions == 1 else f"a text has {mechanism.most_positions} such draws",
    )
