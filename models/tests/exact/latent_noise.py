"""Keys, oracles and rows for tests of noise on latents."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from scipy import special

from dptext_etl_models.families.latent_noise import STEPS, noisy_latents

OVERFLOW = 1 << 31

RECORD = bytes.fromhex("e353bcaa494e7cd3361f12b7817fe00ddc0ba5328def9e8517aee79144a557b8")

INFLATION = 1 + 2.0**-20


def key_column(rows, first=RECORD):
    return pa.array([first, *(i.to_bytes(32, "little") for i in range(1, rows))][:rows], pa.binary(32))


def in_steps(noisy):
    steps = noisy.astype(np.float64) * STEPS
    assert (steps == np.rint(steps)).all()
    return steps


def oracle_normal(high, low):
    size = (high * 2**64 + (low | 1)) / 2**128  # rounded correctly: a quotient of two integers
    return -math.copysign(float(special.ndtri(size / 2)), 1 if low & 1 else -1)


# Clip and grid (docs/spec/privacy.md#grid-rounding, docs/spec/privacy.md#e14)

NO_NOISE = Fraction(2**48, 1)  # exp(-2**48) never happens: what is left is clip and grid

ROWS = st.lists(
    st.floats(-3, 3) | st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.1, -0.1, 1 / 3]),
    min_size=1,
    max_size=12,
)


def kept(row, clip, norm):
    return in_steps(noisy_latents(np.array([row], np.float64), key_column(1), clip=clip, norm=norm, rate=NO_NOISE))[0]
