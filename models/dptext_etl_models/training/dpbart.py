"""Train the models of DP-BART-PR and PR+ (Igamberdiev and Habernal 2023, sections 3.4 and 3.5, appendices E and F).

The importance of a column is the sum of its absolute weights in the key projection of the first decoder layer's
cross-attention. Each stage prunes the columns whose importance is below the 25% quantile of the remaining columns.
Then it trains encoder and decoder on public text, with the pruned columns at zero and the latents clipped at 0.2. A
release uses the weights after the last stage and the columns of the stage before it (768 x 0.75^5: 182 are kept).

PR+ continues under noise, so that the decoder learns to read latents at one epsilon: it clips latents as a release
does, and adds Gaussian noise to the kept columns, of the size that a release at (epsilon, delta) adds. This noise comes
from torch and not from a keyed stream: the texts are public and nothing is released
(docs/spec/privacy.md#dpbart-pruning).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from dptext_etl.accounting.conversion import largest_mu
from dptext_etl.errors import PolicyError
from dptext_etl_models.mechanisms.dpbart import write_kept
from dptext_etl_models.training.bart import Base, Channel, loss
from dptext_etl_models.training.corpus import batch
from dptext_etl_models.training.resumable import FOLDER, Checkpoint, Listener, Schedule, identity, run, seed_step


@dataclass(frozen=True)
class PruneSettings:
    """Hold the paper's settings; the learning rate is the one in the paper's code."""

    length: int = 20  # tokens per row
    stages: int = 6  # number of stages, each pruning and then training
    steps: int = 500  # steps per stage
    rows: int = 32  # rows per batch
    clip: float = 0.2  # training clips latents to [-clip, clip]; a release clips at half of it
    quantile: float = 0.25  # share of the remaining columns that a stage prunes, between 0 and 1
    rate: float = 1e-5  # constant learning rate
    seed: int = 3  # seed of batches and dropout


SMALL_PRUNE = PruneSettings(steps=40, rate=5e-4)
"""Settings for models of a few million weights on a small machine."""


def importance(model: Any) -> npt.NDArray[np.float64]:
    """Return the importance of every latent column, shape (width,)."""
    weight = model.get_decoder().layers[0].encoder_attn.k_proj.weight
    sums: npt.NDArray[np.float64] = weight.detach().double().abs().sum(dim=0).cpu().numpy()
    return sums


def prune(kept: Sequence[int], scores: npt.NDArray[np.float64], quantile: float) -> list[int]:
    """Return the columns of `kept` whose score is not below the quantile of the scores of `kept`."""
    left = scores[list(kept)]
    threshold = np.quantile(left, quantile)
    return [column for column, score in zip(kept, left.tolist(), strict=True) if score >= threshold]


def train_pruned(
    base: Base,
    texts: Sequence[str],
    settings: PruneSettings,
    folder: Path,
    *,
    facts: Mapping[str, Any] | None = None,
    every: int = 500,
    listener: Listener | None = None,
) -> list[list[int]]:
    """Prune and train in stages, and write the model with its kept columns; resume a training that was stopped."""
    rows, width = base.rows(texts, settings.length), base.model.config.d_model
    checkpoint = Checkpoint(folder / FOLDER / "prune.safetensors", identity(settings, rows, base.sha256))
    stages = folder / FOLDER / "stages.json"  # the kept columns of every stage, for a resumed training
    stored = json.loads(stages.read_bytes()) if stages.exists() else {}
    history: list[list[int]] = stored["kept"] if stored.get("identity") == checkpoint.identity else []

    def loss_at(step: int) -> Tensor:
        stage = step // settings.steps
        if step % settings.steps == 0:
            before = list(range(width)) if stage == 0 else history[stage - 1]
            history[stage:] = [prune(before, importance(base.model), settings.quantile)]
            stages.write_text(json.dumps({"identity": checkpoint.identity, "kept": history}), encoding="utf-8")
        seed_step(settings.seed, step)
        channel = Channel(settings.clip, kept=history[stage])
        return loss(base.model, batch(rows, settings.rows, settings.seed, step), channel)

    schedule = Schedule(settings.stages * settings.steps, settings.rate, constant=True)
    done = run(base.model, loss_at, schedule, checkpoint, every=every, listener=listener)
    content = {**(facts or {}), "training": "dpbart-prune", "steps": done, "base": base.sha256}
    base.write(folder, {**content, "settings": asdict(settings)})
    used = max(settings.stages - 1, 1)
    written = {name: repr(value) for name, value in asdict(settings).items()}  # text: a hash depends on no float format
    write_kept(folder, history[used - 1], width, used, settings=written, **content)
    return history


@dataclass(frozen=True)
class NoiseSettings:
    """Hold the paper's settings at one epsilon; the learning rate is the one in the paper's code."""

    epsilon: float = 500.0  # epsilon of a release
    delta: float = 1e-6  # delta of a release
    length: int = 20  # tokens per row
    clip: float = 0.1  # C of a release
    epochs: int = 100  # number of epochs; the paper uses between 100 (epsilon 2500) and 500 (epsilon 10)
    steps: int = 500  # steps per epoch
    rows: int = 32  # rows per batch
    rate: float = 1e-5  # learning rate
    warmup: int = 0  # steps until that rate
    constant: bool = True  # keep the rate; otherwise it falls to zero along a cosine
    minutes: float | None = None  # time limit in minutes
    seed: int = 5  # seed of batches, noise and dropout


SMALL_NOISE = NoiseSettings(epochs=3, steps=500, rate=1e-3, warmup=50, constant=False)
"""Settings for models of a few million weights on a small machine."""


def sigma(settings: NoiseSettings, columns: int) -> float:
    """Return the standard deviation of the noise on every coordinate: 2 C sqrt(n) / mu, n = length x columns."""
    if not (0 < settings.epsilon < math.inf and 0 < settings.delta < 1):
        raise PolicyError(
            f"epsilon {settings.epsilon} and delta {settings.delta} are not a budget; both are above 0",
            "pass a positive epsilon, and a delta such as 1e-6",
        )
    return 2 * settings.clip * math.sqrt(settings.length * columns) / largest_mu(settings.epsilon, settings.delta)


def train_noisy(
    base: Base,
    texts: Sequence[str],
    settings: NoiseSettings,
    folder: Path,
    *,
    facts: Mapping[str, Any] | None = None,
    every: int = 500,
    listener: Listener | None = None,
) -> int:
    """Train a pruned model under noise and write it with the same kept columns; resume a training that was stopped."""
    rows, width = base.rows(texts, settings.length), base.model.config.d_model
    columns = list(range(width)) if base.kept is None else list(base.kept.columns)
    channel = Channel(settings.clip, kept=columns, sigma=sigma(settings, len(columns)))

    def loss_at(step: int) -> Tensor:
        seed_step(settings.seed, step)
        return loss(base.model, batch(rows, settings.rows, settings.seed, step), channel)

    schedule = Schedule.of(settings, steps=settings.epochs * settings.steps)
    checkpoint = Checkpoint(folder / FOLDER / "noise.safetensors", identity(settings, rows, base.sha256))
    done = run(base.model, loss_at, schedule, checkpoint, every=every, listener=listener)
    content = {**(facts or {}), "training": "dpbart-noise", "steps": done, "base": base.sha256}
    base.write(folder, {**content, "settings": asdict(settings)})
    noise = {"noise": "gaussian", "epsilon": settings.epsilon, "delta": settings.delta, "sigma": channel.sigma}
    write_kept(folder, columns, width, 0 if base.kept is None else base.kept.stage, noise=noise, **content)
    return done
