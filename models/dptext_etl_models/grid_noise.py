"""Add noise on a grid to latents, the vectors that a model makes of whole texts (docs/spec/privacy.md#grid-noise).

A latent is clipped and rounded toward zero to multiples of 2**-16. Every coordinate gets noise of its own from the
record's stream, and the sum is rounded to the grid again. Only this sum leaves the module: it goes to the decoder,
which is post-processing.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.errors import PolicyError

LATENT = 4
"""Purpose number of latent noise (docs/spec/stream.md#purposes)."""

STEPS = 2**16
"""Grid steps per unit."""

_LARGEST = 2**48

Norm = Literal["value", "l1", "l2"]


def noisy_latents(
    latents: npt.NDArray[np.floating],
    keys: pa.Array,
    *,
    clip: float,
    norm: Norm = "value",
    sigma: float | None = None,
    rate: Fraction | None = None,
    purpose: int = LATENT,
) -> npt.NDArray[np.float32]:
    """Clip latents and add noise to every coordinate."""
    rows, n = latents.shape
    wide = latents.dtype.itemsize > 4
    flat = pa.array(np.ascontiguousarray(latents, np.float64 if wide else np.float32).reshape(-1))
    fraction = None if rate is None else rate.as_integer_ratio()
    noisy = _kernel.noisy_latents(flat, n, keys, clip, norm, sigma, fraction, purpose)
    return np.asarray(pa.array(noisy).to_numpy()).reshape(rows, n)


def clipped_steps(clip: float) -> int:
    """Return C in whole grid steps, which is the real bound of the clip, for the sensitivity.

    >>> clipped_steps(0.1)
    6553
    """
    steps = math.floor(clip * STEPS)
    if steps < 1:
        msg = f"a clip is at least one step of the grid, 2**-16; got {clip}"
        raise PolicyError(msg)
    return steps


def laplace_rate(epsilon: float, sensitivity: int | Fraction) -> Fraction:
    """Return the rate per grid step of discrete Laplace noise.

    The rate is exactly epsilon / sensitivity if numerator and denominator are below 2**48. Otherwise it is a smaller
    fraction that can be drawn, which means more noise.

    Args:
        epsilon: Epsilon of the whole vector.
        sensitivity: Largest l1 distance of two clipped latents, in grid steps. If C bounds each of n coordinates, this
            is 2 n times `clipped_steps(C)`, or 2 n times 2**16 C.

    >>> laplace_rate(500.0, 2 * 20 * 768 * clipped_steps(0.1))
    Fraction(25, 10065408)
    """
    exact = Fraction(repr(float(epsilon))) / sensitivity
    if max(exact.numerator, exact.denominator) <= _LARGEST:
        return exact
    for bits in range(48, 0, -1):
        den = min(_LARGEST, 2**bits)
        num = math.floor(exact * den)
        if 1 <= num <= _LARGEST:
            return Fraction(num, den)
    msg = "noise of this size cannot be drawn exactly: epsilon per grid step is out of reach"
    raise PolicyError(msg, "give epsilon with fewer decimals, or a smaller clip")
