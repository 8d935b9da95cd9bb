"""Collect facts about the output distribution of one word: worst case, metric claim, disclosures, worked example."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fractions import Fraction

    from dptext_etl.families.words import WordMechanism

COMPARED = 256
"""Largest number of outputs for which all words are compared with each other."""
LISTED = 300
"""Number of the likeliest outputs that a worked example shows."""
SAMPLES = 1_000
"""Number of draws for a worked example whose distribution has no exact fractions."""
LENGTHS = ("disclose", "fixed", "noisy")


def distribution(mechanism: WordMechanism) -> dict[str, Any]:
    """Return the privacy loss of one draw, exact if it is known, and the disclosures next to the draw.

    `epsilon_table` is the exact parameter of the sampler's integers, or None. `epsilon_worst` is that, or otherwise the
    smallest known upper bound; `is_exact` says which.
    """
    declared = float(mechanism.epsilon_per_word)
    exact, tight, outputs = mechanism.epsilon_table, mechanism.epsilon_tight, mechanism.output_words()
    worst = min(declared, *(amount for amount in (exact, tight) if amount is not None), math.inf)
    metric, facts = mechanism.metric_claim, mechanism.described().get("table", {})
    return {
        "epsilon_word": declared,
        "times_epsilon": declared / mechanism.epsilon,
        "epsilon_table": exact,
        "epsilon_worst": worst,
        "is_exact": exact is not None and facts.get("epsilon_table_is", "exact") == "exact",
        "worst_ratio": _power(worst),
        "log10_odds": worst / math.log(10),
        "metric": None
        if metric is None
        else {"name": metric.metric, "epsilon": float(metric.epsilon), "diameter": float(metric.diameter)},
        "disclosed_bits_per_token": float(facts.get("disclosed_bits_per_token", 0.0)),
        "unknown_words": _unknown(mechanism),
        "output_words": None if outputs is None else len(outputs),
        "artifacts": {role: artifact.sha256 for role, artifact in sorted(mechanism.artifacts().items())},
    }


def lengths(mechanism: WordMechanism) -> list[dict[str, Any]]:
    """Return for each option of `length` the class of the guarantee, or the reason for which it is refused."""
    from dptext_etl import catalog
    from dptext_etl.errors import PolicyError

    chosen = mechanism.model_dump(exclude_unset=True)
    found: list[dict[str, Any]] = []
    for length in LENGTHS:
        options: dict[str, Any] = {"length": length, "epsilon_length": None, "n_max": mechanism.n_max}
        if length == "noisy":
            options |= {"epsilon_length": mechanism.epsilon_length or 1.0}
        try:
            other = catalog.build({"name": mechanism.name, **chosen, **options})
        except PolicyError as refused:
            reason = str(refused).splitlines()[0].removeprefix(f"{mechanism.name}: ").partition("; use ")[0]
            found.append({"length": length, "class": None, "refused": reason})
        else:
            claim = other.guarantee
            found.append(
                {"length": length, "class": claim.guarantee_class.value, "disclosures": sorted(claim.disclosures)}
            )
    return found


def known(mechanism: WordMechanism, word: str) -> str:
    """Return `word` if the mechanism knows it, otherwise the first plain word that it knows."""
    words = mechanism.input_words()
    return word if word in words else next((other for other in words if other.isalpha()), word)


def worked(mechanism: WordMechanism, word: str) -> dict[str, Any]:
    """Return the output distribution of one word: exact fractions if there are any, otherwise frequencies of draws.

    If the output set is small, return with it the output that discloses most about the word against another word of the
    set.
    """
    from dptext_etl.errors import PolicyError

    try:
        chances = dict(zip(*mechanism.transition(word), strict=True))
    except PolicyError:
        return _sampled(mechanism, word)
    outputs = [
        {"word": seen, "probability": float(chance), "exact": f"{chance.numerator}/{chance.denominator}"}
        for seen, chance in sorted(chances.items(), key=lambda item: (-item[1], item[0]))
    ]
    if len(outputs) > LISTED:
        for item in outputs[:LISTED]:
            del item["exact"]
    return {
        "word": word,
        "samples": None,
        **_listed(outputs),
        "stays": float(chances.get(word, 0)),
        "most_telling": _most_telling(mechanism, chances) if word in chances and 1 < len(chances) <= COMPARED else None,
    }


def _sampled(mechanism: WordMechanism, word: str) -> dict[str, Any]:
    from dptext_etl.families.words import sample_many

    counts = Counter(sample_many(mechanism, word, SAMPLES))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    outputs = [{"word": seen, "probability": count / SAMPLES} for seen, count in ranked]
    stays = counts[word] / SAMPLES
    return {"word": word, "samples": SAMPLES, **_listed(outputs), "stays": stays, "most_telling": None}


def _listed(outputs: list[dict[str, Any]]) -> dict[str, Any]:
    rest = outputs[LISTED:]
    return {
        "outputs": outputs[:LISTED],
        "others": {"words": len(rest), "probability": math.fsum(item["probability"] for item in rest)},
    }


def _most_telling(mechanism: WordMechanism, chances: dict[str, Fraction]) -> dict[str, Any]:
    ratio, other, seen = max(
        (chances[seen] / chance, other, seen)
        for other in chances
        for seen, chance in zip(*mechanism.transition(other), strict=True)
        if seen in chances and chance
    )
    return {"seen": seen, "instead_of": other, "ratio": float(ratio), "log10_odds": math.log10(ratio)}


def _unknown(mechanism: WordMechanism) -> str:
    policy = mechanism.input_policy()
    told = {
        "uniform": "drawn uniformly from all output words",
        "first": "drawn as if they were the first word of the vocabulary",
        "drop": "vanish before words are counted",
        "keep": "released in clear",
    }
    return told[policy["oov"]]


def _power(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700 else math.inf
