"""Fit distributions of maximum entropy over public points to noisy sums, under the penalty of the noise itself.

Specification: docs/spec/synthetic.md#table.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_GROUP = 64  # labels that are fitted together
_STEPS = 60
_MEMORY = 8
_ENOUGH = 1e-4  # of the first gradient's length


def fitted(points: Floats, sums: Floats, counts: Floats, variance: float) -> Floats:
    """Return the slopes theta of each label's distribution over points, p(t) in proportion to exp(theta . point_t).

    theta maximizes theta . S - n log mean_t exp(theta . point_t) - (variance / 2) |theta|^2, a concave function.
    The search ends after 60 steps, or when the gradient is 10,000 times shorter than at 0.

    Args:
        points: Coordinates of public texts, shape (m, d).
        sums: Noisy sums S of coordinates, shape (labels, d).
        counts: Noisy counts n, above 0, shape (labels,).
        variance: Variance of the noise of a coordinate of S.
    """
    spread, axes = np.linalg.eigh(np.cov(points.T, bias=True).reshape(points.shape[1], -1))
    turned = points @ axes
    parts = [
        _group(turned, np.maximum(spread, 0.0), sums[at : at + _GROUP] @ axes, counts[at : at + _GROUP], variance)
        for at in range(0, len(sums), _GROUP)
    ]
    slopes: Floats = np.concatenate(parts) @ axes.T
    return slopes


def _group(points: Floats, spread: Floats, sums: Floats, counts: Floats, variance: float) -> Floats:
    """Fit some labels, in variables whose second derivatives at 0 are 1."""
    scale = 1.0 / np.sqrt(counts[:, None] * spread + variance)

    def loss(x: Floats) -> tuple[float, Floats]:
        slopes = x.reshape(sums.shape) * scale
        logs = points @ slopes.T
        most = logs.max(axis=0)
        weights = np.exp(logs - most)
        total = weights.sum(axis=0)
        means = (weights / total).T @ points
        value = float(counts @ (most + np.log(total / len(points))))
        value += float((variance / 2 * slopes - sums).ravel() @ slopes.ravel())
        return value, ((counts[:, None] * means - sums + variance * slopes) * scale).ravel()

    found: Floats = _least(loss, np.zeros(sums.size)).reshape(sums.shape) * scale
    return found


def _least(loss: Callable[[Floats], tuple[float, Floats]], x: Floats) -> Floats:
    """Minimize a smooth convex function by L-BFGS with backtracking (Nocedal and Wright 2006, algorithm 7.5)."""
    value, slope = loss(x)
    enough = _ENOUGH * float(np.linalg.norm(slope))
    known: list[tuple[Floats, Floats]] = []
    for _ in range(_STEPS):
        if np.linalg.norm(slope) <= enough:
            break
        way = -_turned(slope, known)
        falling, step = float(slope @ way), 1.0
        while True:
            reached = x + step * way
            there, other = loss(reached)
            if there <= value + 1e-4 * step * falling or step < 1e-6:
                break
            step /= 2
        if there >= value:
            break
        moved, bent = reached - x, other - slope
        if moved @ bent > 0:
            known = [*known[-_MEMORY + 1 :], (moved, bent)]
        x, value, slope = reached, there, other
    return x


def _turned(slope: Floats, known: list[tuple[Floats, Floats]]) -> Floats:
    """Multiply a gradient by the inverse second derivatives that the last steps suggest."""
    way, shares = slope.copy(), []
    for moved, bent in reversed(known):
        shares.append(float(moved @ way) / float(moved @ bent))
        way -= shares[-1] * bent
    if known:
        moved, bent = known[-1]
        way *= float(moved @ bent) / float(bent @ bent)
    for (moved, bent), share in zip(known, reversed(shares), strict=True):
        way += (share - float(bent @ way) / float(moved @ bent)) * moved
    return way
