"""Train the LSTM autoencoder of ADePT with clipped latents, as Igamberdiev and Habernal 2023 do.

The settings are in their sections 3.2 and 4.2, and in appendix I.

Training clips the latent z = [h; c] to Euclidean norm C, because a decoder that never saw clipped latents cannot read
them. The vocabulary consists of the most frequent words of the public texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dptext_etl_models.inference import lstm
from dptext_etl_models.inference.lstm import Autoencoder, AutoencoderModel, Sizes
from dptext_etl_models.training.corpus import batch, token_rows
from dptext_etl_models.training.resumable import FOLDER, Checkpoint, Listener, Schedule, identity, run, write_facts


@dataclass(frozen=True)
class Settings:
    """Hold the settings of Igamberdiev and Habernal 2023 where stated; embeddings are trained, and not from GloVe."""

    vocabulary: int = 20_000  # number of token ids, the special ones included
    embedding: int = 300  # coordinates per word
    hidden: int = 512  # coordinates of h, and of c
    length: int = 20  # positions of a text, its end included
    clip: float = 5.0  # C, the bound on the latent's Euclidean norm
    rows: int = 64  # rows per batch
    steps: int = 200_000  # largest number of steps
    rate: float = 1e-3  # learning rate at its peak; it falls along a cosine
    warmup: int = 500  # steps until the peak
    minutes: float | None = None  # time limit in minutes
    seed: int = 13  # seed of weights, batches and dropout


SMALL = Settings(vocabulary=4_000, embedding=96, hidden=192, steps=20_000, rate=3e-3, warmup=100)
"""Settings for small machines: a training needs some minutes on one core."""


def train(
    texts: Sequence[str],
    settings: Settings,
    folder: Path,
    *,
    facts: Mapping[str, Any] | None = None,
    every: int = 1000,
    listener: Listener | None = None,
) -> int:
    """Train an autoencoder and write it after every checkpoint; resume a training that was stopped."""
    tokenizer = lstm.word_tokenizer(common_words(texts, settings.vocabulary - len(lstm.SPECIAL)))
    torch.manual_seed(settings.seed)
    model = Autoencoder(Sizes(tokenizer.get_vocab_size(), settings.embedding, settings.hidden, settings.length))
    reader = AutoencoderModel(model, tokenizer)
    rows = token_rows(lambda ids: reader.targets(ids).numpy(), texts, settings.length)

    def loss_at(step: int) -> Tensor:
        return loss(model, batch(rows, settings.rows, settings.seed, step), settings.clip)

    def saved(step: int) -> None:
        content = {**(facts or {}), "training": "adept", "steps": step}
        lstm.save(folder, model, tokenizer, clip=settings.clip, settings=asdict(settings), **content)
        write_facts(folder, {**content, "training_provenance": "public", "settings": asdict(settings)})

    checkpoint = Checkpoint(folder / FOLDER / "adept.safetensors", identity(settings, rows))
    return run(model, loss_at, Schedule.of(settings), checkpoint, every=every, listener=listener, saved=saved)


def loss(model: Autoencoder, rows: np.ndarray[Any, np.dtype[np.int32]], clip: float) -> Tensor:
    """Return the mean cross-entropy of writing the rows from their clipped latents."""
    targets = torch.from_numpy(rows.astype(np.int64))
    latents = lstm.clipped(model.encode(in_front(targets)), clip)
    counted = targets != lstm.PAD
    return torch.nn.functional.cross_entropy(model.scores(model(latents, targets)[counted]), targets[counted])


def in_front(targets: Tensor) -> Tensor:
    """Move the padding of the rows to the front, as the encoder reads them."""
    padding = (targets == lstm.PAD).long()
    return targets.gather(1, padding.argsort(dim=1, descending=True, stable=True))


def common_words(texts: Sequence[str], count: int) -> list[str]:
    """Return the most frequent words and punctuation marks in lower case; ties are in alphabetical order."""
    plain = lstm.word_tokenizer(())
    counts: Counter[str] = Counter()
    for text in texts:
        words = plain.pre_tokenizer.pre_tokenize_str(plain.normalizer.normalize_str(text))
        counts.update(word for word, _ in words)
    return sorted(counts, key=lambda word: (-counts[word], word))[:count]
