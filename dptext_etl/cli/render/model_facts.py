"""Facts about models: what one draw can tell at most, how large the noise is, and what amounts convert to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptext_etl.families.latent import LatentMechanism
    from dptext_etl.families.score import ScoreMechanism
    from dptext_etl.guarantee import Spend
    from dptext_etl.mechanism import Mechanism

DELTAS = (1e-6, 1e-9)
RECORDS = (1, 10)
"""Of one person, released together."""


def claims(mechanism: Mechanism, words: int) -> dict[str, Any]:
    """Return `draw` for mechanisms that draw by a model's scores, `noise` and `conversions` for noisy latents."""
    from dptext_etl.families.latent import LatentMechanism
    from dptext_etl.families.score import ScoreMechanism

    if isinstance(mechanism, ScoreMechanism):
        return {"draw": _draw(mechanism), "conversions": _converted(mechanism.worst_case(words))}
    if isinstance(mechanism, LatentMechanism):
        return {"noise": _noise(mechanism), "conversions": _converted(mechanism.worst_case())}
    return {}


def _draw(mechanism: ScoreMechanism) -> dict[str, Any]:
    low, high = mechanism.score_range
    half = mechanism.epsilon / 2
    largest = 1 / (1 + (mechanism.outputs - 1) * math.exp(-half)) if half < 700 else 1.0
    return {
        "epsilon": mechanism.epsilon,
        "epsilon, tight": mechanism.epsilon_tight,
        "outputs": mechanism.outputs,
        "scores are clipped to": f"{low:.6g} to {high:.6g}",
        "temperature": 2 * (high - low) / mechanism.epsilon,
        "most probable output, at most": largest,
    }


def _noise(mechanism: LatentMechanism) -> dict[str, Any]:
    size = mechanism.latent_model.size
    scale = mechanism.scale(size)
    facts = {
        "kind": f"{mechanism.noise}, one draw per coordinate",
        "coordinates": size,
        f"clipped by {mechanism.norm} to": mechanism.clip,
        "sensitivity": mechanism.sensitivity(size),
    }
    if scale.sigma is not None:
        return {**facts, "standard deviation": scale.sigma, "sensitivity in standard deviations (mu)": mechanism.mu}
    return {**facts, "scale": math.inf if scale.rate is None else float(1 / (scale.rate * 2**16))}


def _converted(spend: Spend) -> list[dict[str, Any]]:
    """Return the least epsilon known at a fixed delta, with its rule, for one record and for several of one person."""
    from dptext_etl.accounting import joint, least
    from dptext_etl.guarantee import MICRO

    found = []
    for records in RECORDS:
        for delta in DELTAS:
            bound = least(joint([spend] * records, delta))
            found.append({"records": records, "delta": delta, "epsilon": bound.epsilon / MICRO, "rule": bound.rule})
    return found
