"""Fine-tune a causal model on public pairs of sentences for DP-Paraphrase.

Meisenbacher et al. 2024 (after Mattern et al. 2022, section 4) train GPT-2 for three epochs on pairs of sentences, one
of which follows from the other. A pair is written as text, " >>>>> ", paraphrase and the end. The loss counts only the
paraphrase and its end, because only these are drawn. Any causal model can be trained, with the prompt that the
mechanism will use.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers.utils import logging as library

from dptext_etl import device
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import InputError, PolicyError
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.clipping import CLIP_FILE, write_clip
from dptext_etl_models.inference.prompts import Prompts
from dptext_etl_models.training.calibration import estimate
from dptext_etl_models.training.corpus import NOTHING, Pair, SentencePairs, stacked
from dptext_etl_models.training.resumable import (
    FOLDER,
    Checkpoint,
    Listener,
    Schedule,
    identity,
    run,
    seed_step,
    write_facts,
)

Ids = npt.NDArray[np.int64]
_EVALUATED = 512  # held-out pairs that are scored before and after the training
_CALIBRATED = 500  # texts for the estimate of the range of scores
_ROWS = 16  # held-out pairs that are scored at once


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a fine-tuning."""

    template: str = "{text} >>>>> "  # prompt that the mechanism will use
    epochs: int = 3  # number of passes over the pairs
    steps: int | None = None  # largest number of steps; None uses as many as the epochs need
    minutes: float | None = None  # time limit in minutes; None for no limit
    rows: int = 32  # pairs per batch
    # largest number of tokens of a prompt, and of an answer; longer prompts are cut, longer answers are excluded
    longest: int = 128
    rate: float = 5e-5  # learning rate at its peak
    warmup: int = 100  # steps until the peak
    decay: float = 0.01  # weight decay
    seed: int = 7  # seed of the order and of dropout

    def total(self, examples: int) -> int:
        """Return the largest number of steps over that many examples."""
        return self.steps or self.epochs * math.ceil(examples / self.rows)


class Examples:
    """Turn pairs into rows of tokens: prompt, answer, end."""

    def __init__(self, pairs: Sequence[Pair], prompts: Prompts, answers: Prompts, end: int, longest: int) -> None:
        read, written = (
            prompts.encode([question for question, _ in pairs]),
            answers.encode([other for _, other in pairs]),
        )
        self._rows = [
            (prompt, [*answer, end])
            for prompt, answer in zip(read, written, strict=True)
            if prompt and answer and len(answer) < longest
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, chosen: Sequence[int]) -> tuple[Ids, ...]:
        """Return token ids, labels (`NOTHING` where the loss does not count) and the attention mask of some pairs."""
        rows = [self._rows[number] for number in chosen]
        ids = stacked([[*prompt, *answer] for prompt, answer in rows], 0)
        labels = stacked([[*[NOTHING] * len(prompt), *answer] for prompt, answer in rows], NOTHING)
        return ids, labels, stacked([[1] * (len(prompt) + len(answer)) for prompt, answer in rows], 0)

    def loss(self, model: Any, parts: Sequence[Tensor]) -> Tensor:
        """Return the mean cross-entropy of the labels of a batch."""
        ids, labels, attended = parts
        logits = model(input_ids=ids, attention_mask=attended).logits
        counted = labels[:, 1:] != NOTHING
        return torch.nn.functional.cross_entropy(logits[:, :-1][counted].float(), labels[:, 1:][counted])

    def at(self, step: int, rows: int, seed: int) -> list[int]:
        """Return the indices of a step's pairs; every epoch has its own order."""
        epoch, place = divmod(step, math.ceil(len(self._rows) / rows))
        chosen: list[int] = _order(seed, epoch, len(self._rows))[place * rows : (place + 1) * rows].tolist()
        return chosen


@lru_cache(maxsize=1)
def _order(seed: int, epoch: int, pairs: int) -> Ids:
    return np.random.default_rng([seed, epoch]).permutation(pairs)


def fine_tune(
    model: Any, examples: Examples, held_out: Examples, settings: Settings, checkpoint: Checkpoint, **reports: Any
) -> dict[str, Any]:
    """Train a model on examples; return the steps done, and the loss on held-out pairs before and after.

    `reports` are the keyword arguments of `resumable.run`.
    """
    place, half = model.device.type, device.dtype() == "bfloat16"

    def loss_of(rows: Examples, chosen: Sequence[int]) -> Tensor:
        parts = [torch.from_numpy(item).to(place) for item in rows.batch(chosen)]
        with torch.autocast(place, torch.bfloat16, enabled=half):
            return rows.loss(model, parts)

    def loss_at(step: int) -> Tensor:
        seed_step(settings.seed, step)
        return loss_of(examples, examples.at(step, settings.rows, settings.seed))

    def evaluated() -> float | None:
        if not len(held_out):
            return None
        model.eval()
        with torch.inference_mode():
            parts = [range(len(held_out))[start : start + _ROWS] for start in range(0, len(held_out), _ROWS)]
            return float(np.mean([float(loss_of(held_out, part)) for part in parts]))

    steps = settings.total(len(examples))
    schedule = Schedule.of(settings, steps=steps, warmup=min(settings.warmup, steps // 10))
    with torch.random.fork_rng(devices=[] if place == "cpu" else None):
        before = evaluated()
        done = run(model, loss_at, schedule, checkpoint, **reports)
        return {"steps": done, "loss_before": before, "loss_after": evaluated()}


def train(
    base: Mapping[str, Artifact],
    pairs: SentencePairs,
    out: Path,
    settings: Settings,
    *,
    clip: bool = True,
    listener: Listener | None = None,
    every: int = 500,
) -> dict[str, Any]:
    """Fine-tune, or resume from the checkpoint in `out`; write a folder that `dp_paraphrase` reads as its model."""
    model, tokenizer = trainable("AutoModelForCausalLM", base).float(), language_model.tokenizer(base)
    end = model.config.eos_token_id if isinstance(model.config.eos_token_id, int) else tokenizer.eos_token_id
    if end is None:
        raise PolicyError("the model names no token that ends an answer", "add eos_token_id to its config.json")
    prompts, answers = encoders(tokenizer, settings, continued=True)
    examples, held_out = (
        Examples(part, prompts, answers, end, settings.longest) for part in (pairs.train, pairs.held[:_EVALUATED])
    )
    if not len(examples):
        raise InputError(f"no paraphrase has fewer than {settings.longest} tokens", "raise --longest")
    about = {
        "settings": asdict(replace(settings, minutes=None)),
        "pairs": {"name": pairs.name, "sha256": pairs.sha256, "used": len(examples)},
        "base": dict(language_model.identity(base)),
    }
    checkpoint = Checkpoint(out / FOLDER / "paraphraser.safetensors", identity(about))
    facts: dict[str, Any] = {
        **about,
        **fine_tune(model, examples, held_out, settings, checkpoint, every=every, listener=listener),
    }
    write(out, model, base)
    if clip:
        files = language_model.model_files(str(out))
        texts = [question for question, _ in pairs.train[:_CALIBRATED]]
        clip_range = estimate(files, texts, kind="causal", template=settings.template)
        write_clip(out / CLIP_FILE, *clip_range.clip, files, clip_range.facts({pairs.name: pairs.sha256}))
        facts["clip"] = list(clip_range.clip)
    write_facts(out, facts)
    if facts["steps"] >= settings.total(len(examples)):
        shutil.rmtree(out / FOLDER, ignore_errors=True)
    return facts


def encoders(tokenizer: Any, settings: Settings, *, continued: bool) -> tuple[Prompts, Prompts]:
    """Return the encoders of prompts and of answers."""
    answers = Prompts(tokenizer, "{text}", 4 * settings.longest, 10_000, continued=True)
    return Prompts(tokenizer, settings.template, settings.longest, 10_000, continued=continued), answers


def trainable(kind: str, base: Mapping[str, Artifact]) -> Any:
    """Read a new copy of a model in its own number type, whose weights may change."""
    import transformers

    library.disable_progress_bar()
    load = getattr(transformers, kind).from_pretrained
    model = language_model.opened(base, lambda folder: load(folder, dtype="auto", **language_model.FROM_FOLDER))
    return model.to(device.device())


def write(out: Path, model: Any, base: Mapping[str, Artifact]) -> None:
    """Write the model in the format of transformers, with the tokenizer of its base, without a range of scores."""
    model.save_pretrained(out)
    for role, item in base.items():
        name = role.removeprefix(language_model.ROLE)
        if name not in (language_model.CONFIG, CLIP_FILE) and not name.endswith((language_model.WEIGHTS, "index.json")):
            shutil.copyfile(item.path, out / name)
    (out / CLIP_FILE).unlink(missing_ok=True)
