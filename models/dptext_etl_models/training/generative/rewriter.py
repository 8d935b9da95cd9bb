"""Fine-tune an encoder-decoder on pairs (M(c), c) of public texts c, so that it writes released texts anew.

Paper 002 (section 3) tunes Flan-T5-large for one epoch at rate 5e-5 on 100,000 texts of C4 that a mechanism has
privatized: T. Further pairs of public texts of the data's own field make T++. What T does to a released text is
post-processing, and costs nothing, exactly if nothing of T depends on a protected record
(docs/spec/privacy.md#rewrite-again); `training.json` therefore says whose texts T was trained on.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dptext_etl import device
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import PolicyError
from dptext_etl.mechanism import Mechanism
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.clipping import CLIP_FILE
from dptext_etl_models.inference.generative.prompts import Prompts
from dptext_etl_models.training.calibration import TEMPLATES
from dptext_etl_models.training.corpus import Corpus
from dptext_etl_models.training.generative import paraphraser, privatized_pairs
from dptext_etl_models.training.token_rows import stacked

if TYPE_CHECKING:
    from torch import Tensor

    from dptext_etl_models.training.resumable import Listener

Provenance = Literal["public", "disjoint-records"]
FACTS = paraphraser.FACTS
_NOTHING = -100  # label of a position that the loss does not count


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a fine-tuning; paper 002's where it states them."""

    template: str = TEMPLATES["seq2seq"]  # prompt around the released text
    words: int = 60  # largest number of words of a public text
    texts: int = 100_000  # pairs of every stage: those of the corpora, and those of in-domain texts
    epochs: int = 1  # number of passes over the pairs
    steps: int | None = None  # largest number of steps of a stage; None takes as many as the epochs need
    minutes: float | None = None  # time limit of a stage in minutes; None for no limit
    rows: int = 32  # pairs per batch
    # largest number of tokens of a prompt, and of a text. Longer prompts are cut, longer texts left out
    longest: int = 128
    rate: float = 5e-5  # learning rate at its peak
    warmup: int = 100  # steps until the peak
    decay: float = 0.01  # weight decay
    seed: int = 7  # seed of the choice of texts, of the order and of dropout


@dataclass(frozen=True)
class InDomain:
    """Hold the further texts that make T++ of T."""

    corpora: Sequence[Corpus] = ()  # texts of the data's own field
    # whose they are: "public", or "disjoint-records" for other records of the same source
    provenance: Provenance = "public"


class Examples(paraphraser.Examples):
    """Turn pairs into what an encoder reads and a decoder writes."""

    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        prompts: Prompts,
        answers: Prompts,
        marks: tuple[int, int, int],
        longest: int,
    ) -> None:
        self._start, end, self._padding = marks
        super().__init__(pairs, prompts, answers, end, longest)

    def batch(self, chosen: Sequence[int]) -> tuple[np.ndarray[Any, np.dtype[np.int64]], ...]:
        """Return what the encoder reads, its mask, what the decoder reads, and labels (`_NOTHING` past the end)."""
        rows = [self._rows[number] for number in chosen]
        read = stacked([prompt for prompt, _ in rows], self._padding)
        mask = stacked([[1] * len(prompt) for prompt, _ in rows], 0)
        written = stacked([[self._start, *answer[:-1]] for _, answer in rows], self._padding)
        return read, mask, written, stacked([answer for _, answer in rows], _NOTHING)


def train(
    mechanism: Mechanism,
    base: Mapping[str, Artifact],
    corpora: Sequence[Corpus],
    out: Path,
    settings: Settings,
    *,
    also: InDomain | None = None,
    listener: Listener | None = None,
    drawn: Callable[[int, int], None] | None = None,
    every: int = 500,
) -> dict[str, Any]:
    """Fine-tune a rewriter for a mechanism, or resume from the checkpoint in `out`."""
    import torch
    from transformers.utils import logging as library

    from dptext_etl_models.training import resumable

    library.disable_progress_bar()
    also = also or InDomain()
    place, numbers = device.device(), device.dtype()
    model = language_model.opened(base, _trainable).to(place)
    weights = model.config.dtype or torch.float32
    model = model.float()
    read = _encoders(model, language_model.tokenizer(base), settings)
    about: dict[str, Any] = {
        "training": "rewriter",
        "training_provenance": "public" if not also.corpora else also.provenance,
        "mechanism": {"name": type(mechanism).__module__.rpartition(".")[2], "configuration": mechanism.cfg()},
        "base": dict(language_model.identity(base)),
        "settings": asdict(replace(settings, minutes=None)),
        "corpora": [_named(corpus) for corpus in corpora],
        "also": [_named(corpus) for corpus in also.corpora],
    }
    folder = out / resumable.FOLDER
    stages: list[dict[str, Any]] = []
    for name, texts in (("T", corpora), ("T++", also.corpora)):
        if not texts:
            continue
        identity = resumable.identity({**about, "settings": {**about["settings"], "steps": None}, "stage": name})
        pairs = privatized_pairs.made(
            mechanism, texts, folder / f"{len(stages)}.parquet", identity,
            words=settings.words, count=settings.texts, seed=settings.seed, progress=drawn,
        )  # fmt: skip
        examples, held = read(pairs.train), read(pairs.held)
        if not len(examples):
            raise PolicyError(f"no text has fewer than {settings.longest} tokens", "raise --longest")

        def loss_of(chosen: Sequence[int], rows: Examples) -> Tensor:
            ids, mask, written, labels = (torch.from_numpy(item).to(place) for item in rows.batch(chosen))
            with torch.autocast(place, torch.bfloat16, enabled=numbers == "bfloat16"):
                logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=written, use_cache=False).logits
            counted = labels != _NOTHING
            return torch.nn.functional.cross_entropy(logits[counted].float(), labels[counted])

        def loss_at(step: int, examples: Examples = examples) -> Tensor:
            torch.manual_seed(settings.seed * 1_000_003 + step)  # dropout depends on the step alone
            return loss_of(examples.at(step, settings.rows, settings.seed), examples)

        def examined(held: Examples = held) -> float | None:
            if not len(held):
                return None
            model.eval()
            with torch.inference_mode():
                parts = [range(len(held))[start : start + 16] for start in range(0, len(held), 16)]
                return float(np.mean([float(loss_of(part, held)) for part in parts]))

        steps = settings.steps or settings.epochs * math.ceil(len(examples) / settings.rows)
        schedule = resumable.Schedule(
            steps, settings.rate, min(settings.warmup, steps // 10), decay=settings.decay, minutes=settings.minutes
        )
        checkpoint = resumable.Checkpoint(
            folder / f"{len(stages)}.safetensors", resumable.identity(identity, {"steps": settings.steps})
        )
        with torch.random.fork_rng(devices=[] if place == "cpu" else None):
            before = examined()
            done = resumable.run(
                model, loss_at, schedule, checkpoint, resumable.Reports(name, every=every, listener=listener)
            )
            after = examined()
        stages.append(
            {"stage": name, "pairs": len(examples), "steps": done, "loss_before": before, "loss_after": after}
        )
    facts = {**about, "stages": stages}
    _write(out, model.to(weights), base, facts)
    shutil.rmtree(folder, ignore_errors=True)
    return facts


def _encoders(model: Any, tokenizer: Any, settings: Settings) -> Callable[[Sequence[tuple[str, str]]], Examples]:
    """Return what turns pairs into examples for a model."""
    start, end = model.config.decoder_start_token_id, model.config.eos_token_id
    if not isinstance(start, int) or not isinstance(end, int):
        raise PolicyError(
            "the model names no token that starts or ends an answer",
            "add decoder_start_token_id and eos_token_id to its config.json",
        )
    padding = model.config.pad_token_id if isinstance(model.config.pad_token_id, int) else 0
    prompts = Prompts(tokenizer, settings.template, settings.longest, 10_000, continued=False)
    answers = Prompts(tokenizer, "{text}", 4 * settings.longest, 10_000, continued=True)
    return lambda pairs: Examples(pairs, prompts, answers, (start, end, padding), settings.longest)


def _trainable(folder: Path) -> Any:
    """Read a new copy of an encoder-decoder, whose weights may change."""
    from transformers import AutoModelForSeq2SeqLM

    return AutoModelForSeq2SeqLM.from_pretrained(
        folder, dtype="auto", local_files_only=True, trust_remote_code=False, use_safetensors=True
    )


def _named(corpus: Corpus) -> dict[str, str]:
    return {"name": corpus.name, "sha256": corpus.sha256, "share": repr(corpus.share)}


def _write(out: Path, model: Any, base: Mapping[str, Artifact], facts: Mapping[str, Any]) -> None:
    """Write the model in the format of transformers with the tokenizer of its base; a range of scores is not copied."""
    paraphraser.write(out, model, base)
    (out / CLIP_FILE).unlink(missing_ok=True)
    (out / FACTS).write_text(json.dumps(dict(facts), indent=1, sort_keys=True) + "\n", encoding="utf-8")
