"""The choice of C for DP-BART from latents of public text (paper 003, appendix B).

The paper takes the values of the encoder's output for normally distributed, estimates mean and standard deviation, and
clips half a deviation from the mean, which is 0: C = 0.1 for bart-base. How much that costs differs between models, so
the loss of rebuilding public text is reported for other choices, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from dptext_etl.training import latent_path
from dptext_etl.training.base_model import Base

DEVIATIONS = 0.5
"""The paper's choice: half a standard deviation."""
_OTHERS = (0.25, 0.5, 1.0, 2.0, 3.0)
_ROWS = 64


@dataclass(frozen=True)
class Choice:
    """One value of C.

    Attributes:
        deviations: Standard deviations from the mean.
        clip: C.
        inside: Share of the values that it leaves as they are.
        loss: Mean cross-entropy per token of rebuilding public texts, no noise.
    """

    deviations: float
    clip: float
    inside: float
    loss: float


@dataclass(frozen=True)
class Found:
    """What the latents of public text say.

    Attributes:
        clip: C as chosen.
        mean: Of all values.
        deviation: Their standard deviation.
        values: How many were looked at: texts x length x width.
        choices: Other values of C and what they cost, the chosen one among them.
    """

    clip: float
    mean: float
    deviation: float
    values: int
    choices: tuple[Choice, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def choose(base: Base, texts: Sequence[str], *, length: int = 20, deviations: float = DEVIATIONS) -> Found:
    """Choose C: |mean| + `deviations` standard deviations of all values, those at padding among them.

    Args:
        base: The model; if it was pruned, the kept columns alone count.
        texts: Public texts.
        length: Tokens of a row.
        deviations: How far from the mean.
    """
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
