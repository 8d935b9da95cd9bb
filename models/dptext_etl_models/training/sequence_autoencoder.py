"""Train a small BART model from scratch on public text, so that it rebuilds short English texts.

DP-BART (Igamberdiev and Habernal 2023, section 3.3) needs a checkpoint whose decoder rebuilds the input from clipped
latents. This module trains a small one with the steps of the mechanism: rows have constant length, the encoder has its
own mask, the latents are clipped by value and get a little noise, and the decoder attends to every position. A part of
every batch consists of rows of random tokens, so that the model learns to copy unknown names as well.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dptext_etl_models.inference.sequence_model import SequenceModel
from dptext_etl_models.training.bart import Channel, loss
from dptext_etl_models.training.corpus import Rows, batch, random_rows, token_rows
from dptext_etl_models.training.initial_weights import Sizes, copying_bart
from dptext_etl_models.training.resumable import (
    FOLDER,
    Checkpoint,
    Listener,
    Schedule,
    identity,
    run,
    save_half,
    write_facts,
)
from dptext_etl_models.training.vocabulary import END, PADDING, SPECIAL, stored_tokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a training; the model that ships was made with the defaults."""

    vocabulary: int = 6144  # number of tokens, the tokenizer's alphabet of bytes included
    length: int = 20  # tokens per row, the end included; the latent has this many rows
    width: int = 128  # columns of the latent
    layers: int = 2  # layers of the encoder, and of the decoder
    heads: int = 4  # attention heads per layer
    inner: int = 384  # width of the feed-forward layers
    clip: float = 0.1  # bound of the latents: they are clipped to [-clip, clip]
    noise: float = 0.3  # largest standard deviation of the noise on the latents, in units of `clip`
    random: float = 0.3  # share of rows of random tokens in a batch, from 0 to 1
    rows: int = 64  # rows per batch
    steps: int = 8000  # largest number of steps
    rate: float = 2.5e-3  # learning rate at its peak
    warmup: int = 100  # steps until the peak
    minutes: float | None = None  # time limit in minutes
    seed: int = 11  # seed of weights, batches, noise and dropout


def tokenizer_in(folder: Path, texts: Iterable[str], size: int) -> Any:
    """Return the folder's tokenizer, or train and save one: byte-level BPE, lower case, without unknown tokens."""
    return stored_tokenizer(folder, lambda: _byte_pairs(texts, size))


def _byte_pairs(texts: Iterable[str], size: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(content=" ", left=1, right=0)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False, min_frequency=3
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", END)]
    )
    return tokenizer


def new_model(tokenizer: Any, settings: Settings) -> Any:
    """Return an untrained model whose positions are sinusoids and whose latents have unit size."""
    torch.manual_seed(settings.seed)
    return copying_bart(
        len(tokenizer),
        Sizes(settings.width, settings.layers, settings.heads, settings.inner, places=settings.length + 4),
    )


def scale_latents(model: Any, factor: float) -> None:
    """Multiply the latents by `factor`, and the weights that read them by its inverse; the output stays the same."""
    with torch.no_grad():
        norm = model.model.encoder.layers[-1].final_layer_norm
        norm.weight.mul_(factor)
        norm.bias.mul_(factor)
        for layer in model.model.decoder.layers:
            layer.encoder_attn.k_proj.weight.div_(factor)
            layer.encoder_attn.v_proj.weight.div_(factor)


def train(
    tokenizer: Any,
    texts: Sequence[str],
    settings: Settings,
    folder: Path,
    *,
    facts: Mapping[str, Any] | None = None,
    every: int = 500,
    listener: Listener | None = None,
) -> int:
    """Train a model and write it to `folder`; resume a training that was stopped."""
    model = new_model(tokenizer, settings)
    read = SequenceModel(model, tokenizer, length=settings.length)
    rows = token_rows(lambda batch: read.ids(batch).ids.numpy(), texts, settings.length)
    channel = Channel(1.0, sigma=settings.noise, spread=True)

    def loss_at(step: int) -> Tensor:
        noise = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
        return loss(model, _mixed(rows, settings, len(tokenizer), step), channel, noise)

    def saved(step: int) -> None:
        scaled = copy.deepcopy(model)
        scale_latents(scaled, settings.clip)
        save_half(scaled, tokenizer, folder)
        write_facts(folder, {**(facts or {}), "steps": step, "settings": asdict(settings)})

    schedule = Schedule.of(settings, decay=0.01)
    checkpoint = Checkpoint(folder / FOLDER / "bart.safetensors", identity(settings, rows))
    return run(model, loss_at, schedule, checkpoint, every=every, listener=listener, saved=saved)


def _mixed(rows: Rows, settings: Settings, vocabulary: int, step: int) -> Rows:
    at_random = round(settings.random * settings.rows)
    draw = np.random.default_rng((settings.seed, step, 1))
    ids = range(len(SPECIAL), vocabulary)
    return np.concatenate(
        [
            batch(rows, settings.rows - at_random, settings.seed, step),
            random_rows((at_random, settings.length), ids, (END, PADDING), draw),
        ]
    )
