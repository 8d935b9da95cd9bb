"""Run a training loop that can be stopped and resumed: steps, schedule, checkpoints, progress.

The loss of a step depends on the step's number alone, and checkpoints hold the weights and the optimizer's state. So a
resumed training ends with the same weights as one that was never stopped. Checkpoints are safetensors files; nothing is
unpickled.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from dptext_etl.artifacts import canon

log = logging.getLogger("dptext_etl_models.training")

FOLDER = "checkpoint"
"""Name of the folder of checkpoints inside a model's folder."""
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Schedule:
    """Set the duration and the learning rate of a training."""

    steps: int  # largest number of steps
    rate: float  # learning rate at its peak
    warmup: int = 0  # steps until the peak
    constant: bool = False  # keep the rate after the warm-up; otherwise it falls to zero along a cosine
    decay: float = 0.0  # weight decay
    minutes: float | None = None  # time limit in minutes, over which the rate falls as well; None for no limit

    def share(self, step: int, seconds: float) -> float:
        """Return the share of the training that is done, from 0 to 1."""
        used = 0.0 if self.minutes is None else seconds / (60 * self.minutes)
        return min(1.0, max(step / self.steps, used))

    def rate_at(self, step: int, seconds: float) -> float:
        """Return the learning rate of a step."""
        warm = min(1.0, (step + 1) / (self.warmup + 1))
        if self.constant:
            return self.rate * warm
        return self.rate * warm * 0.5 * (1 + math.cos(math.pi * self.share(step, seconds)))


@dataclass(frozen=True)
class TrainingProgress:
    """Report the progress of a training: counts and a loss on public text, nothing else."""

    name: str  # name of the training or its stage
    step: int  # steps done
    steps: int  # steps in total
    loss: float  # mean loss over the steps since the last report
    seconds: float  # seconds used so far, also before a stop
    eta: float  # estimate of the seconds left

    def __str__(self) -> str:
        return (
            f"{self.name}: step {self.step:,} of {self.steps:,}, loss {self.loss:.4f}, "
            f"{self.seconds / 60:.1f} min, {self.eta / 60:.1f} min left"
        )


Listener = Callable[[TrainingProgress], None]


@dataclass(frozen=True)
class Checkpoint:
    """Store and restore the state of a training."""

    path: Path  # the file
    identity: str  # hash of model, data and settings. A state with another identity is ignored

    def save(self, model: torch.nn.Module, optimiser: torch.optim.Optimizer, step: int, seconds: float) -> None:
        """Write the state; the file is replaced atomically."""
        tensors: dict[str, Tensor] = {}
        steps: dict[str, float] = {}
        for key, weight in model.named_parameters():
            tensors[f"weight/{key}"] = weight.detach()
            state: dict[str, Any] = optimiser.state.get(weight, {})
            if state:
                steps[key] = float(state["step"])
                tensors.update({f"{moment}/{key}": state[moment] for moment in _MOMENTS})
        facts = {"identity": self.identity, "step": str(step), "seconds": repr(seconds), "steps": json.dumps(steps)}
        aside = self.path.with_suffix(".new")
        save_file({key: value.contiguous() for key, value in tensors.items()}, aside, facts)
        aside.replace(self.path)

    def restore(self, model: torch.nn.Module, optimiser: torch.optim.Optimizer) -> tuple[int, float]:
        """Load the state if there is one; return the steps done and the seconds used."""
        if not self.path.exists():
            return 0, 0.0
        with safe_open(self.path, framework="pt") as file, torch.no_grad():
            facts = file.metadata()
            if facts["identity"] != self.identity:
                return 0, 0.0
            steps = json.loads(facts["steps"])
            for key, weight in model.named_parameters():
                weight.copy_(file.get_tensor(f"weight/{key}"))
                if key in steps:
                    moments = {moment: file.get_tensor(f"{moment}/{key}").to(weight.device) for moment in _MOMENTS}
                    optimiser.state[weight] = {"step": torch.tensor(steps[key]), **moments}
        return int(facts["step"]), float(facts["seconds"])


@dataclass(frozen=True)
class Reports:
    """Report the progress of a training to a log and a listener."""

    name: str  # name of the training or its stage
    every: int = 500  # steps between checkpoints
    report_every: int = 50  # steps between reports
    listener: Listener | None = None  # called with the progress; None to only log it
    saved: Callable[[int], None] | None = None  # called with the number of steps after every checkpoint

    def tell(self, step: int, schedule: Schedule, loss: float, seconds: float) -> None:
        """Log the progress and call the listener."""
        share = schedule.share(step, seconds)
        progress = TrainingProgress(self.name, step, schedule.steps, loss, seconds, seconds * (1 - share) / share)
        log.info("%s", progress)
        if self.listener is not None:
            self.listener(progress)


def run(
    model: torch.nn.Module,
    loss_at: Callable[[int], Tensor],
    schedule: Schedule,
    checkpoint: Checkpoint,
    reports: Reports,
) -> int:
    """Train until the schedule's end, starting from the checkpoint if there is one."""
    checkpoint.path.parent.mkdir(parents=True, exist_ok=True)
    optimiser = torch.optim.AdamW(model.parameters(), lr=schedule.rate, betas=(0.9, 0.98), weight_decay=schedule.decay)
    step, before = checkpoint.restore(model, optimiser)
    began, since, total = time.monotonic() - before, step, 0.0
    model.train()
    while schedule.share(step, time.monotonic() - began) < 1:
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate_at(step, time.monotonic() - began)
        loss = loss_at(step)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        step, total = step + 1, total + float(loss.detach())
        if step % reports.report_every == 0 or schedule.share(step, time.monotonic() - began) >= 1:
            reports.tell(step, schedule, total / (step - since), time.monotonic() - began)
            since, total = step, 0.0
        if step % reports.every == 0:
            _keep(model, optimiser, checkpoint, reports, step, time.monotonic() - began)
    if step % reports.every:
        _keep(model, optimiser, checkpoint, reports, step, time.monotonic() - began)
    model.eval()
    return step


def identity(*parts: Any) -> str:
    """Return a hash of plain data and arrays, for a checkpoint."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.tobytes() if hasattr(part, "tobytes") else canon(part))
    return digest.hexdigest()


def _keep(
    model: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
    checkpoint: Checkpoint,
    reports: Reports,
    *done: Any,
) -> None:
    checkpoint.save(model, optimiser, *done)
    if reports.saved is not None:
        reports.saved(done[0])
