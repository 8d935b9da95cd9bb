"""Choose C for DP-BART from latents of public text (paper 003, appendix B).

The paper assumes that the values of the encoder's output are normally distributed. It estimates their mean and standard
deviation, and clips half a deviation from the mean, which is 0: C = 0.1 for bart-base. The cost of clipping differs
between models, so this module also reports the loss of rebuilding public text for other values of C.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from dptext_etl_models.training.base_model import Base
from dptext_etl_models.training.latent import path as latent_path

DEVIATIONS = 0.5
"""Distance of C from the mean, in standard deviations, as the paper chooses it."""
_OTHERS = (0.25, 0.5, 1.0, 2.0, 3.0)
_ROWS = 64


@dataclass(frozen=True)
class Choice:
    """Describe one value of C."""

    deviations: float  # distance from the mean in standard deviations
    clip: float  # C
    inside: float  # share of the values that clipping leaves unchanged
    loss: float  # mean cross-entropy per token of rebuilding public texts without noise


@dataclass(frozen=True)
class Found:
    """Hold the chosen C and the statistics of the latents of public text."""

    clip: float  # the chosen C
    mean: float  # mean of all values
    deviation: float  # standard deviation of all values
    values: int  # number of values: texts x length x width
    choices: tuple[Choice, ...]  # several values of C with their losses, the chosen one among them

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def choose(base: Base, texts: Sequence[str], *, length: int = 20, deviations: float = DEVIATIONS) -> Found:
    """Choose C as |mean| + `deviations` standard deviations of all values, those at padding included."""
    rows = base.rows(texts, length)
    model, kept = base.model.eval(), None if base.kept is None else base.kept.columns
    batches = [torch.from_numpy(rows[start : start + _ROWS]).long() for start in range(0, len(rows), _ROWS)]
    with torch.inference_mode():
        values = torch.cat([latent_path.encode(model, some).double() for some in batches])
    if kept is not None:
        values = values[:, :, list(kept)]
    mean, deviation = float(values.mean()), float(values.std())

    def at(share: float) -> Choice:
        clip = abs(mean) + share * deviation
        path = latent_path.Path(clip, kept=kept)
        with torch.inference_mode():
            losses = [(float(latent_path.loss(model, some.numpy(), path)), len(some)) for some in batches]
        mean_loss = math.fsum(loss * count for loss, count in losses) / len(rows)
        return Choice(share, clip, float((values.abs() <= clip).double().mean()), mean_loss)

    choices = tuple(at(share) for share in sorted({*_OTHERS, deviations}))
    return Found(abs(mean) + deviations * deviation, mean, deviation, values.numel(), choices)
