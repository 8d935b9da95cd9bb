"""Turn epsilon and a hit rate into the number of near texts, and back (docs/spec/surrogate.md#hit-rate).

These are floats for choosing and for estimating. What decides a draw are the integer weights of the mechanism.
"""

from __future__ import annotations

import math

from dptext_etl.errors import PolicyError


def near_texts(texts: int, epsilon: float, hit: float) -> int:
    """Return d: how many near texts get the large weight, so that one of them is drawn with about the wanted chance.

    Args:
        texts: Number m of texts of the corpus, at least 2.
        epsilon: Of one draw.
        hit: Wanted chance, above 0 and below 1.

    >>> near_texts(20_000, 4.0, 0.7), near_texts(20_000, 8.0, 0.9)
    (820, 60)
    """
    if texts < 2 or not 0.0 < hit < 1.0 or not 0.0 < epsilon < math.inf:
        raise PolicyError(
            f"{texts} texts, epsilon {epsilon}, hit rate {hit}; allowed: 2 texts or more, epsilon > 0, 0 < hit < 1"
        )
    wanted = texts * hit / (math.exp(min(epsilon, 700.0)) * (1.0 - hit) + hit)
    return min(texts - 1, max(1, round(wanted)))


def hit_rate(texts: int, epsilon: float, near: int) -> float:
    """Return the chance h that the released text is one of the d near ones.

    >>> round(hit_rate(20_000, 4.0, 820), 3)
    0.7
    """
    odds = near * math.exp(min(epsilon, 700.0))
    return odds / (odds + texts - near)


def near_share(texts: int, epsilon: float, near: int) -> float:
    """Return the chance that a draw comes from the near part of the mixture; otherwise it is uniform over all texts.

    It is h less the uniform part's own hits: (h - d/m) / (1 - d/m).
    """
    even = near / texts
    return (hit_rate(texts, epsilon, near) - even) / (1.0 - even)
