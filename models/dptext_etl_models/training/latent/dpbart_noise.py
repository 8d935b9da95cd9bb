"""Train DP-BART-PR+ under noise, so that the decoder learns to read latents at one epsilon (paper 003, section 3.5).

Training clips the latents as a release does, and adds Gaussian noise to the kept columns, of the size that a release at
(epsilon, delta) adds. The noise comes from torch and not from a keyed stream: the texts are public and nothing is
released. So no guarantee depends on this noise, and the trained model costs no budget
(docs/spec/privacy.md#dpbart-pruning).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dptext_etl.accounting.conversion import largest_mu
from dptext_etl.errors import PolicyError
from dptext_etl_models.inference.latent.kept_columns import write_kept
from dptext_etl_models.training import resumable
from dptext_etl_models.training.base_model import Base
from dptext_etl_models.training.latent import path as latent_path
from dptext_etl_models.training.token_rows import batch


@dataclass(frozen=True)
class Settings:
    """Hold the paper's settings at one epsilon; the learning rate is the one in the paper's code."""

    epsilon: float = 500.0  # epsilon of a release
    delta: float = 1e-6  # delta of a release
    length: int = 20  # tokens per row
    clip: float = 0.1  # C of a release
    epochs: int = 100  # number of epochs; the paper takes between 100 (epsilon 2500) and 500 (epsilon 10)
    steps: int = 500  # steps per epoch
    rows: int = 32  # rows per batch
    rate: float = 1e-5  # learning rate
    warmup: int = 0  # steps until that rate
    constant: bool = True  # keep the rate; otherwise it falls to zero along a cosine
    minutes: float | None = None  # time limit in minutes
    seed: int = 5  # seed of batches, noise and dropout


SMALL = Settings(epochs=3, steps=500, rate=1e-3, warmup=50, constant=False)
"""Settings for models of a few million weights on a small machine."""


def sigma(settings: Settings, columns: int) -> float:
    """Return the standard deviation of the noise on every coordinate: 2 C sqrt(n) / mu, n = length x columns."""
    if not (0 < settings.epsilon < math.inf and 0 < settings.delta < 1):
        raise PolicyError(f"epsilon {settings.epsilon} and delta {settings.delta} are no budget; both are above 0")
    return 2 * settings.clip * math.sqrt(settings.length * columns) / largest_mu(settings.epsilon, settings.delta)


def train(
    base: Base,
    texts: Sequence[str],
    settings: Settings,
    folder: Path,
    *,
    facts: Mapping[str, Any] | None = None,
    every: int = 500,
    listener: resumable.Listener | None = None,
) -> int:
    """Train a pruned model under noise and write it with the same kept columns; resume a training that was stopped."""
    rows = base.rows(texts, settings.length)
    width = base.model.config.d_model
    columns = list(range(width)) if base.kept is None else list(base.kept.columns)
    path = latent_path.Path(settings.clip, kept=columns, sigma=sigma(settings, len(columns)))

    def loss_at(step: int) -> Tensor:
        torch.manual_seed(settings.seed * 1_000_003 + step)  # noise and dropout depend on the step alone
        return latent_path.loss(base.model, batch(rows, settings.rows, settings.seed, step), path)

    schedule = resumable.Schedule(
        settings.epochs * settings.steps,
        settings.rate,
        warmup=settings.warmup,
        constant=settings.constant,
        minutes=settings.minutes,
    )
    identity = resumable.identity({**asdict(settings), "minutes": None}, rows, base.sha256)
    checkpoint = resumable.Checkpoint(folder / resumable.FOLDER / "noise.safetensors", identity)
    done = resumable.run(
        base.model, loss_at, schedule, checkpoint, resumable.Reports("noise", every=every, listener=listener)
    )
    made = {**(facts or {}), "training": "dpbart-noise", "steps": done, "base": base.sha256}
    base.write(folder, {**made, "settings": asdict(settings)})
    noise = {"noise": "gaussian", "epsilon": settings.epsilon, "delta": settings.delta, "sigma": path.sigma}
    write_kept(folder, columns, width, 0 if base.kept is None else base.kept.stage, noise=noise, **made)
    return done
