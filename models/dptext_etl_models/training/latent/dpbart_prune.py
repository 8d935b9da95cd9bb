"""Prune latent columns for DP-BART-PR (paper 003, section 3.4, algorithm 1 of appendix E, appendix F).

The importance of a column is the sum of its absolute weights in the key projection of the first decoder layer's
cross-attention. Each stage prunes the columns whose importance is below the 25 % quantile of the remaining columns.
Then it trains encoder and decoder on public text, with the pruned columns at zero and the latents clipped at 0.2. A
release uses the weights after the last stage and the columns of the stage before it (768 x 0.75^5: 182 are kept).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dptext_etl_models.inference.latent.kept_columns import write_kept
from dptext_etl_models.training import resumable
from dptext_etl_models.training.base_model import Base
from dptext_etl_models.training.latent import path as latent_path
from dptext_etl_models.training.token_rows import batch

_STAGES = "stages.json"


@dataclass(frozen=True)
class Settings:
    """Hold the paper's settings; the learning rate is the one in the paper's code."""

    length: int = 20  # tokens per row
    stages: int = 6  # number of stages, each pruning and then training
    steps: int = 500  # steps per stage
    rows: int = 32  # rows per batch
    clip: float = 0.2  # training clips latents to [-clip, clip]; a release clips at half of it
    quantile: float = 0.25  # share of the remaining columns that a stage prunes, between 0 and 1
    rate: float = 1e-5  # constant learning rate
    seed: int = 3  # seed of batches and dropout


SMALL = Settings(steps=40, rate=5e-4)
"""Settings for models of a few million weights on a small machine."""


def importance(model: Any) -> npt.NDArray[np.float64]:
    """Return the importance of every latent column, shape (width,)."""
    weight = model.get_decoder().layers[0].encoder_attn.k_proj.weight
    sums: npt.NDArray[np.float64] = weight.detach().double().abs().sum(dim=0).numpy()
    return sums


def prune(kept: Sequence[int], scores: npt.NDArray[np.float64], quantile: float) -> list[int]:
    """Return the columns of `kept` whose score is not below the quantile of the scores of `kept`."""
    left = scores[list(kept)]
    threshold = np.quantile(left, quantile)
    return [column for column, score in zip(kept, left.tolist(), strict=True) if score >= threshold]


def train(
    base: Base,
    texts: Sequence[str],
    settings: Settings,
    folder: Path,
    *,
    facts: Mapping[str, Any] | None = None,
    every: int = 500,
    listener: resumable.Listener | None = None,
) -> list[list[int]]:
    """Prune and train in stages, and write the model with its kept columns; resume a training that was stopped."""
    rows = base.rows(texts, settings.length)
    identity = resumable.identity(asdict(settings), rows, base.sha256)
    history = _Stages(folder / resumable.FOLDER / _STAGES, identity, list(range(base.model.config.d_model)))

    def loss_at(step: int) -> Tensor:
        stage = step // settings.steps
        if step % settings.steps == 0:
            history.begin(stage, prune(history.before(stage), importance(base.model), settings.quantile))
        torch.manual_seed(settings.seed * 1_000_003 + step)  # dropout depends on the step alone
        path = latent_path.Path(settings.clip, kept=history.kept[stage])
        return latent_path.loss(base.model, batch(rows, settings.rows, settings.seed, step), path)

    schedule = resumable.Schedule(settings.stages * settings.steps, settings.rate, constant=True)
    checkpoint = resumable.Checkpoint(folder / resumable.FOLDER / "prune.safetensors", identity)
    done = resumable.run(
        base.model, loss_at, schedule, checkpoint, resumable.Reports("prune", every=every, listener=listener)
    )
    made = {**(facts or {}), "training": "dpbart-prune", "steps": done, "base": base.sha256}
    base.write(folder, {**made, "settings": asdict(settings)})
    used = max(settings.stages - 1, 1)
    write_kept(
        folder, history.kept[used - 1], base.model.config.d_model, used, settings=_plain(asdict(settings)), **made
    )
    return history.kept


class _Stages:
    """Store the kept columns of every stage on disk, so that a resumed training knows them."""

    def __init__(self, path: Path, identity: str, columns: list[int]) -> None:
        self._path, self._identity, self._columns = path, identity, columns
        self.kept: list[list[int]] = []
        if path.exists():
            written = json.loads(path.read_bytes())
            if written["identity"] == identity:
                self.kept = written["kept"]

    def before(self, stage: int) -> list[int]:
        """Return the columns that remain when a stage begins."""
        return self._columns if stage == 0 else self.kept[stage - 1]

    def begin(self, stage: int, kept: list[int]) -> None:
        """Store the columns of a stage and delete those of later stages."""
        self.kept = [*self.kept[:stage], kept]
        self._path.write_text(json.dumps({"identity": self._identity, "kept": self.kept}), encoding="utf-8")


def _plain(settings: Mapping[str, Any]) -> dict[str, str]:
    """Convert numbers to text, so that a hash does not depend on the format of floats."""
    return {name: repr(value) for name, value in settings.items()}
