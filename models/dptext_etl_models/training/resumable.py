"""Run a training loop that can be stopped and resumed: steps, schedule, checkpoints, progress.

The loss of a step depends only on the step's number, and checkpoints hold the weights and the optimizer's state. So a
resumed training ends with the same weights as one that was never stopped. Checkpoints are safetensors files; nothing is
unpickled.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from dptext_etl.artifacts import canon

log = logging.getLogger("dptext_etl_models.training")

FOLDER = "checkpoint"
"""Name of the folder of checkpoints inside a model's folder."""
FACTS = "training.json"
"""File in a model's folder that says how the model was made."""
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

    @classmethod
    def of(cls, settings: Any, **changes: Any) -> Self:
        """Build settings from a training's settings; `changes` come first."""
        stated = {item.name: getattr(settings, item.name) for item in fields(cls) if hasattr(settings, item.name)}
        return cls(**(stated | changes))

    def share(self, step: int, seconds: float) -> float:
        """Return the share of the training that is done, from 0 to 1."""
        used = 0.0 if self.minutes is None else seconds / (60 * self.minutes)
        return min(1.0, max(step / self.steps, used))

    def rate_at(self, step: int, seconds: float) -> float:
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
    eta: float  # estimate of the remaining seconds

    def __str__(self) -> str:
        return (
            f"{self.name}: step {self.step:,} of {self.steps:,}, loss {self.loss:.4f}, "
            f"{self.seconds / 60:.1f} min, {self.eta / 60:.1f} min left"
        )


Listener = Callable[[TrainingProgress], None]


@dataclass(frozen=True)
class Checkpoint:
    """Store and restore the state of a training."""

    path: Path
    identity: str  # hash of model, data and settings; a state with another identity is ignored

    def save(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int, seconds: float) -> None:
        """Write the state; the file is replaced atomically."""
        tensors: dict[str, Tensor] = {}
        steps: dict[str, float] = {}
        for key, weight in model.named_parameters():
            tensors[f"weight/{key}"] = weight.detach()
            state: dict[str, Any] = optimizer.state.get(weight, {})
            if state:
                steps[key] = float(state["step"])
                tensors.update({f"{moment}/{key}": state[moment] for moment in _MOMENTS})
        facts = {"identity": self.identity, "step": str(step), "seconds": repr(seconds), "steps": json.dumps(steps)}
        draft = self.path.with_suffix(".new")
        save_file({key: value.contiguous() for key, value in tensors.items()}, draft, facts)
        draft.replace(self.path)

    def restore(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, float]:
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
                    optimizer.state[weight] = {"step": torch.tensor(steps[key]), **moments}
        return int(facts["step"]), float(facts["seconds"])


def run(
    model: torch.nn.Module,
    loss_at: Callable[[int], Tensor],
    schedule: Schedule,
    checkpoint: Checkpoint,
    *,
    name: str = "",
    every: int = 500,
    report_every: int = 50,
    listener: Listener | None = None,
    saved: Callable[[int], None] | None = None,
) -> int:
    """Train until the schedule's end, starting from the checkpoint if there is one; return the steps done.

    `every` is the number of steps between checkpoints, after which `saved` is called with the steps done. `listener`
    gets the progress every `report_every` steps.
    """
    checkpoint.path.parent.mkdir(parents=True, exist_ok=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=schedule.rate, betas=(0.9, 0.98), weight_decay=schedule.decay)
    step, before = checkpoint.restore(model, optimizer)
    began, since, total = time.monotonic() - before, step, 0.0

    def seconds() -> float:
        return time.monotonic() - began

    def report() -> None:
        used = seconds()
        share = schedule.share(step, used)
        label, mean = name or checkpoint.path.stem, total / (step - since)
        progress = TrainingProgress(label, step, schedule.steps, mean, used, used * (1 - share) / share)
        log.info("%s", progress)
        if listener is not None:
            listener(progress)

    def save() -> None:
        checkpoint.save(model, optimizer, step, seconds())
        if saved is not None:
            saved(step)

    model.train()
    while schedule.share(step, seconds()) < 1:
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate_at(step, seconds())
        loss = loss_at(step)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step, total = step + 1, total + float(loss.detach())
        if step % report_every == 0 or schedule.share(step, seconds()) >= 1:
            report()
            since, total = step, 0.0
        if step % every == 0:
            save()
    if step % every:
        save()
    model.eval()
    return step


def seed_step(seed: int, step: int) -> None:
    """Seed torch, so that dropout and noise depend only on the step."""
    torch.manual_seed(seed * 1_000_003 + step)


def identity(*parts: Any) -> str:
    """Return a hash of settings (without their time limit), plain data, and arrays, for a checkpoint."""
    digest = hashlib.sha256()
    for part in parts:
        plain = {**asdict(part), "minutes": None} if is_dataclass(part) and not isinstance(part, type) else part
        digest.update(plain.tobytes() if hasattr(plain, "tobytes") else canon(plain))
    return digest.hexdigest()


def save_half(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model in its present state, in half precision, with its tokenizer, as transformers does."""
    from transformers.utils import logging as library

    library.disable_progress_bar()
    copy.deepcopy(model).half().save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)  # mechanisms decode themselves
    tokenizer.save_pretrained(folder)


def write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write `training.json`, which says how the model was made."""
    (folder / FACTS).write_text(json.dumps(dict(facts), indent=1, sort_keys=True) + "\n", encoding="utf-8")
