"""Train a small language model from nothing that writes spoilt texts anew, for DP-Prompt, DP-Paraphrase and rewriting.

The model answers a mechanism's own prompt: it reads a spoilt public text (`training.corruption`) and writes the
original. Of two kinds one is made: an encoder-decoder ("seq2seq", a BART) or a causal model ("causal", a GPT-2). It
learns within some thousand steps on one core, because texts are short, words are whole entries whose embeddings start
from word vectors, and attention of the encoder-decoder starts near the word to copy (`training.denoiser_model`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dptext_etl_models.inference.generative.prompts import Prompts
from dptext_etl_models.training import resumable
from dptext_etl_models.training.corpus import clean
from dptext_etl_models.training.generative.corruption import Corruption
from dptext_etl_models.training.generative.denoiser_model import Kind, Settings, new_model
from dptext_etl_models.training.token_rows import stacked
from dptext_etl_models.training.words.vocabulary import END, PADDING, SPECIAL, build, count_words

if TYPE_CHECKING:
    from torch import Tensor

FACTS = "training.json"
"""File in the output folder that says how the model was made."""
NOTHING = -100
"""Label of a position that the loss does not count."""
_TOKENIZER = "tokenizer.json"
_NEAR_LENGTH = 8  # texts of a step are drawn from this many steps' worth of texts of about one length


def tokenizer_in(folder: Path, texts: Sequence[str], settings: Settings) -> Any:
    """Return the tokenizer that an earlier training left in the folder, or make one and save it there."""
    from tokenizers import decoders, processors
    from transformers import PreTrainedTokenizerFast

    if (folder / _TOKENIZER).exists():
        return PreTrainedTokenizerFast.from_pretrained(folder)
    made = build(count_words(map(clean, texts)), settings.vocabulary, settings.pieces)
    made.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    end = SPECIAL[END]
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, END)]
    )
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, **names)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    return tokenizer


class Pairs:
    """Make batches of prompts with noisy texts and target tokens; batch i depends on texts, settings and i alone."""

    def __init__(self, tokenizer: Any, texts: Sequence[str], settings: Settings) -> None:
        self._texts = sorted((clean(text) for text in texts), key=lambda text: (text.count(" "), text))
        self._settings = settings
        self._corruption = Corruption(tokenizer.backend_tokenizer, settings.recipe)
        continued = settings.kind == "causal"
        limit = settings.places // 2
        self._prompts = Prompts(tokenizer, settings.template, limit, limit, continued=continued)
        self._answers = Prompts(tokenizer, "{text}", limit - 1, limit, continued=True)

    def at(self, step: int) -> list[tuple[list[int], list[int]]]:
        """Return prompts and answers, each answer with its end, of a step."""
        rows = self._settings.rows
        rng = np.random.default_rng((self._settings.seed, step))
        window = min(len(self._texts), rows * _NEAR_LENGTH)
        start = int(rng.integers(len(self._texts) - window + 1))
        drawn = [self._texts[start + at] for at in rng.integers(window, size=rows).tolist()]
        return self.encoded([self._corruption.pair(text, rng) for text in drawn])

    def encoded(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """Return the tokens of prompts and answers; pairs that have none are left out."""
        prompts = self._prompts.encode([read for read, _ in pairs])
        answers = self._answers.encode([written for _, written in pairs])
        return [
            (list(prompt), [*answer, END]) for prompt, answer in zip(prompts, answers, strict=True) if prompt and answer
        ]


def loss(model: Any, rows: Sequence[tuple[list[int], list[int]]], kind: Kind) -> Tensor:
    """Return the mean cross-entropy of the answers' tokens; the head runs at these alone."""
    if kind == "seq2seq":
        read, labels = _rows([prompt for prompt, _ in rows], PADDING), _rows([answer for _, answer in rows], NOTHING)
        written = _rows([[END, *answer[:-1]] for _, answer in rows], PADDING)
        hidden = model.model(input_ids=read, attention_mask=read != PADDING, decoder_input_ids=written)
    else:
        whole = _rows([[*prompt, *answer[:-1]] for prompt, answer in rows], PADDING)
        labels = _rows([[*[NOTHING] * (len(prompt) - 1), *answer] for prompt, answer in rows], NOTHING)
        hidden = model.transformer(input_ids=whole, attention_mask=whole != PADDING, use_cache=False)
    counted = labels != NOTHING
    return torch.nn.functional.cross_entropy(model.lm_head(hidden.last_hidden_state[counted]), labels[counted])


def train(
    tokenizer: Any,
    texts: Sequence[str],
    settings: Settings,
    folder: Path,
    *,
    facts: Mapping[str, Any] | None = None,
    every: int = 250,
    listener: Callable[[resumable.TrainingProgress], None] | None = None,
) -> int:
    """Train a model and write it to `folder`; resume a training that was stopped."""
    model, pairs = new_model(tokenizer, settings), Pairs(tokenizer, texts, settings)

    def loss_at(step: int) -> Tensor:
        return loss(model, pairs.at(step), settings.kind)

    def saved(step: int) -> None:
        write(model, tokenizer, settings, folder, {**(facts or {}), "steps": step})

    about = resumable.identity(asdict(replace(settings, minutes=None)), list(texts))
    schedule = resumable.Schedule(
        settings.steps, settings.rate, warmup=settings.warmup, decay=0.01, minutes=settings.minutes
    )
    checkpoint = resumable.Checkpoint(folder / resumable.FOLDER / "denoiser.safetensors", about)
    reports = resumable.Reports(f"denoiser, {settings.kind}", every=every, listener=listener, saved=saved)
    return resumable.run(model, loss_at, schedule, checkpoint, reports)


def write(model: Any, tokenizer: Any, settings: Settings, folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the model in its present state, in half precision, with its tokenizer and the facts of its training."""
    import copy

    copy.deepcopy(model).half().save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)  # mechanisms decode themselves
    tokenizer.save_pretrained(folder)
    used = {**asdict(settings), "template": settings.template}
    about = {**facts, "training_provenance": "public", "settings": used}
    (folder / FACTS).write_text(json.dumps(about, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _rows(rows: Sequence[Sequence[int]], padding: int) -> Tensor:
    return torch.from_numpy(stacked(rows, padding))
