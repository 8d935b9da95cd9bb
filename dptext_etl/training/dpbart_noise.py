"""Training under noise for DP-BART-PR+ (paper 003, section 3.5): the decoder learns to read latents at one epsilon.

The latents are clipped as a release clips them and get Gaussian noise of the size that a release at (epsilon, delta)
adds to the columns that are kept. The noise comes from torch and not from a keyed stream: the texts are public and
nothing is released, so no guarantee rests on it, and the trained model costs nothing
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

from dptext_etl.errors import PolicyError
from dptext_etl.gaussian import largest_mu
from dptext_etl.inference.latent.kept import write_kept
from dptext_etl.training import latent_path, resumable
from dptext_etl.training.base_model import Base
from dptext_etl.training.token_rows import batch


@dataclass(frozen=True)
class Settings:
    """The paper's settings at one epsilon; the learning rate is that of its code.

    Attributes:
        epsilon: Of a release.
        delta: Of a release.
        length: Tokens of a row.
        clip: C of a release.
        epochs: Of `steps` steps each; the paper takes 100 at epsilon 2500 to 500 at epsilon 10.
        steps: Of an epoch.
        rows: Of a batch.
        rate: Learning rate.
        warmup: Steps until that rate.
        constant: The rate stays; else it falls to zero along a cosine.
        minutes: Stop by then.
        seed: Of batches, noise and dropout.
    """

    epsilon: float = 500.0
    delta: float = 1e-6
    length: int = 20
    clip: float = 0.1
    epochs: int = 100
    steps: int = 500
    rows: int = 32
    rate: float = 1e-5
    warmup: int = 0
    constant: bool = True
    minutes: float | None = None
    seed: int = 5


SMALL = Settings(epochs=3, steps=500, rate=1e-3, warmup=50, constant=False)
"""For models of a few million weights on a small machine."""


def sigma(settings: Settings, columns: int) -> float:
    """Return the standard deviation of the noise on every number: 2 C sqrt(n) / mu, n = length x columns.

    Raises:
        PolicyError: No budget that Gaussian noise could keep.
    """
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
    """Train a pruned model under noise and write it with the same kept columns; a stopped training goes on.

    Args:
        base: Trained in place. Where no column was pruned, all are kept.
        texts: Public texts.
        settings: See there.
        folder: Gets the model and `dptext_kept.json`; checkpoints lie in it.
        facts: About the corpus, written beside the model.
        every: Steps between checkpoints.
        listener: Told of progress.

    Returns:
        The steps done.
    """
    rows = base.rows(texts, settings.length)
    width = base.model.config.d_model
    columns = list(range(width)) if base.kept is None else list(base.kept.columns)
    path = latent_path.Path(settings.clip, kept=columns, sigma=sigma(settings, len(columns)))

    def loss_at(step: int) -> Tensor:
        torch.manual_seed(settings.seed * 1_000_003 + step)  # of noise and dropout
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
