"""Fine-tune a causal model on public pairs of sentences for DP-Paraphrase.

Paper 000 (after Mattern et al. 2022, section 4) trains GPT-2 for three epochs on pairs of sentences, one of which
follows from the other. A pair is written as text, " >>>>> ", paraphrase and the end. The loss counts only the
paraphrase and its end, because only these are drawn. Any causal model can be trained, with the prompt that the
mechanism will use.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dptext_etl import device
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import InputError, PolicyError
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.clipping import CLIP_FILE, write_clip
from dptext_etl_models.inference.generative.prompts import Prompts
from dptext_etl_models.training.sentence_pairs import Pair, SentencePairs

if TYPE_CHECKING:
    from torch import Tensor

    from dptext_etl_models.training.resumable import Listener

FACTS = "training.json"
"""File in the output folder that says how the model was made."""
_NOTHING = -100  # label of a position that the loss does not count
_EXAMINED = 512  # held-out pairs that are scored before and after the training
_CLIPPED = 500  # texts for the estimate of the range of scores


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a fine-tuning."""

    template: str = "{text} >>>>> "  # prompt that DP-Paraphrase will use
    epochs: int = 3  # number of passes over the pairs
    steps: int | None = None  # largest number of steps; None takes as many as the epochs need
    minutes: float | None = None  # time limit in minutes; None for no limit
    rows: int = 32  # pairs per batch
    # largest number of tokens of a prompt, and of a paraphrase. Longer prompts are cut, longer paraphrases are left out
    longest: int = 128
    rate: float = 5e-5  # learning rate at its peak
    warmup: int = 100  # steps until the peak
    decay: float = 0.01  # weight decay
    seed: int = 7  # seed of the order and of dropout


class Examples:
    """Turn pairs into rows of tokens: prompt, paraphrase, end."""

    def __init__(self, pairs: Sequence[Pair], prompts: Prompts, answers: Prompts, end: int, longest: int) -> None:
        read = zip(
            prompts.encode([one for one, _ in pairs]), answers.encode([other for _, other in pairs]), strict=True
        )
        self._rows = [
            (prompt, [*answer, end]) for prompt, answer in read if prompt and answer and len(answer) < longest
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, chosen: Sequence[int]) -> tuple[np.ndarray[Any, np.dtype[np.int64]], ...]:
        """Return token ids, labels (`_NOTHING` where the loss does not count) and the attention mask of some pairs."""
        rows = [self._rows[number] for number in chosen]
        width = max(len(prompt) + len(answer) for prompt, answer in rows)
        ids, labels = np.zeros((len(rows), width), np.int64), np.full((len(rows), width), _NOTHING, np.int64)
        attended = np.zeros((len(rows), width), np.int64)
        for row, (prompt, answer) in enumerate(rows):
            end = len(prompt) + len(answer)
            ids[row, :end], attended[row, :end] = [*prompt, *answer], 1
            labels[row, len(prompt) : end] = answer
        return ids, labels, attended

    def at(self, step: int, rows: int, seed: int) -> list[int]:
        """Return the indices of a step's pairs; every epoch has an order of its own."""
        per_epoch = math.ceil(len(self._rows) / rows)
        epoch, place = divmod(step, per_epoch)
        chosen: list[int] = _order(seed, epoch, len(self._rows))[place * rows : (place + 1) * rows].tolist()
        return chosen


@lru_cache(maxsize=1)
def _order(seed: int, epoch: int, pairs: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng([seed, epoch]).permutation(pairs)


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
    """Fine-tune, or resume from the checkpoint in `out`; write a folder that `dp_paraphrase` takes as its model."""
    import torch
    from transformers.utils import logging as library

    from dptext_etl_models.training import resumable

    library.disable_progress_bar()
    place, numbers = device.device(), device.dtype()
    model = language_model.opened(base, _trainable).to(place)
    tokenizer = language_model.tokenizer(base)
    end = model.config.eos_token_id if isinstance(model.config.eos_token_id, int) else tokenizer.eos_token_id
    if end is None:
        raise PolicyError("the model names no token that ends an answer", "add eos_token_id to its config.json")
    prompts = Prompts(tokenizer, settings.template, settings.longest, 10_000, continued=True)
    answers = Prompts(tokenizer, "{text}", 4 * settings.longest, 10_000, continued=True)
    examples = Examples(pairs.train, prompts, answers, end, settings.longest)
    held = Examples(pairs.held[:_EXAMINED], prompts, answers, end, settings.longest)
    if not len(examples):
        raise InputError(f"no paraphrase has fewer than {settings.longest} tokens", "raise --longest")

    def loss_of(chosen: Sequence[int], rows: Examples) -> Tensor:
        ids, labels, attended = (torch.from_numpy(item).to(place) for item in rows.batch(chosen))
        with torch.autocast(place, torch.bfloat16, enabled=numbers == "bfloat16"):
            logits = model(input_ids=ids, attention_mask=attended).logits
        counted = labels[:, 1:] != _NOTHING
        return torch.nn.functional.cross_entropy(logits[:, :-1][counted].float(), labels[:, 1:][counted])

    def loss_at(step: int) -> Tensor:
        torch.manual_seed(settings.seed * 1_000_003 + step)  # dropout depends on the step alone
        return loss_of(examples.at(step, settings.rows, settings.seed), examples)

    def examined() -> float | None:
        if not len(held):
            return None
        with torch.inference_mode():
            parts = [range(len(held))[start : start + 16] for start in range(0, len(held), 16)]
            return float(np.mean([float(loss_of(part, held)) for part in parts]))

    about = {
        "settings": asdict(replace(settings, minutes=None)),
        "pairs": {"name": pairs.name, "sha256": pairs.sha256, "used": len(examples)},
        "base": dict(language_model.identity(base)),
    }
    steps = settings.steps or settings.epochs * math.ceil(len(examples) / settings.rows)
    schedule = resumable.Schedule(
        steps, settings.rate, min(settings.warmup, steps // 10), decay=settings.decay, minutes=settings.minutes
    )
    folder = out / resumable.FOLDER
    checkpoint = resumable.Checkpoint(folder / "paraphraser.safetensors", resumable.identity(about))
    with torch.random.fork_rng(devices=[] if place == "cpu" else None):
        before = examined()
        done = resumable.run(
            model, loss_at, schedule, checkpoint, resumable.Reports("paraphraser", every=every, listener=listener)
        )
        after = examined()
    write(out, model, base)
    facts: dict[str, Any] = {**about, "steps": done, "loss_before": before, "loss_after": after}
    if clip:
        facts["clip"] = _clip(out, settings.template, [one for one, _ in pairs.train[:_CLIPPED]], pairs)
    (out / FACTS).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if done >= steps:
        shutil.rmtree(folder, ignore_errors=True)
    return facts


def _trainable(folder: Path) -> Any:
    """Read a new copy of a causal model, whose weights may change."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False, use_safetensors=True
    )


def write(out: Path, model: Any, base: Mapping[str, Artifact]) -> None:
    """Write the model in the format of transformers, with the tokenizer of its base."""
    model.save_pretrained(out)
    for role, item in base.items():
        name = role.removeprefix(language_model.ROLE)
        if (
            not name.endswith(language_model.WEIGHTS)
            and "index" not in name
            and name
            not in (
                language_model.CONFIG,
                CLIP_FILE,
            )
        ):
            shutil.copyfile(item.path, out / name)


def _clip(out: Path, template: str, texts: Sequence[str], pairs: SentencePairs) -> list[float]:
    """Estimate the range of the trained model's scores on the pairs, and write it next to the model."""
    from dptext_etl_models.training.calibration import estimate

    files = language_model.model_files(str(out))
    found = estimate(files, texts, kind="causal", template=template)
    write_clip(out / CLIP_FILE, *found.clip, files, found.facts({pairs.name: pairs.sha256}))
    return list(found.clip)
