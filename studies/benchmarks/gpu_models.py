"""What `gpu.py` computes with, made on the spot: texts, models with random weights and vectors; nothing is read.

Tiny ones are for machines without a GPU, on which the script only has to run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

CLIP = (-3.2, 16.3)  # of roberta-base, rounded
EPSILON = 100.0


@dataclass(frozen=True)
class Size:
    """How large models, matrices and columns are.

    Attributes:
        tokens: Of the tokenizer.
        roberta: What differs from roberta-base's shape.
        bart: What differs from bart-base's shape.
        matrix: Rows and columns of the product that measures the device.
        vectors: Words and dimensions of the searched vocabulary.
        points: Points that are searched at once.
        longest: Most words of a text.
        crowd: Texts that surround others.
        generated: Texts that DP-Prompt rewrites to check generation.
        few: Texts whose batches do not find enough memory.
        texts: Texts of the first, small measurement, from which the number of the real one follows.
        seconds: Duration of the real one, for each measurement.
    """

    tokens: int
    roberta: dict[str, int]
    bart: dict[str, int]
    matrix: int
    vectors: tuple[int, int]
    points: int
    longest: int
    crowd: int
    generated: int
    few: int
    texts: int
    seconds: float


WHOLE = Size(50_265, {}, {}, 8192, (20_000, 300), 2**15, 50, 40, 4_096, 4_000, 1_024, 10.0)
TINY = Size(
    600,
    {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
    {
        "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    },
    64,
    (500, 20),
    64,
    8,
    5,
    32,
    8,
    3,
    0.0,
)  # fmt: skip


@cache
def words() -> tuple[str, ...]:
    """Return frequent words, the most frequent ones first."""
    from dptext_etl.embeddings import WordVectors

    return WordVectors.load(limit=10_000).words


def texts(count: int, size: Size, seed: int = 0) -> list[str]:
    """Return texts as long as SST-2's, 2 to 50 words and 19 on average, of words as frequent as in English."""
    random = np.random.default_rng(seed)
    lengths = np.clip(random.gamma(4.0, 4.8, count).astype(int), 2, size.longest)
    chances = 1 / (np.arange(len(words())) + 10)
    drawn = random.choice(np.array(words()), lengths.sum(), p=chances / chances.sum())
    return [" ".join(part) for part in np.split(drawn, np.cumsum(lengths)[:-1])]


def build(folder: Path, size: Size) -> None:
    """Write the models into `folder/roberta` and `folder/bart`, vectors into `folder/vectors.npz`."""
    import torch
    import transformers
    from random_models import bart, roberta, tokenizer

    transformers.utils.logging.disable_progress_bar()
    tokens = tokenizer((f" {text}" for text in texts(20_000 if size is WHOLE else 100, size, seed=1)), size.tokens)
    torch.manual_seed(0)
    for name, model in (
        ("roberta", roberta(size.tokens, **size.roberta)),
        ("bart", bart(size.tokens, **size.bart)),
    ):
        model.save_pretrained(folder / name)
        tokens.save_pretrained(folder / name)
    random = np.random.default_rng(2)
    words = np.array([f"word{number}" for number in range(size.vectors[0])])
    np.savez(folder / "vectors.npz", words=words, vectors=random.normal(size=size.vectors).astype(np.float32))


def dpmlm(folder: Path, **settings: Any) -> Any:
    """Return DP-MLM over the random model."""
    from dptext_etl_models.mechanisms.dpmlm import DPMLM

    return DPMLM(epsilon=EPSILON, model=str(folder / "roberta"), clip=CLIP, **settings)
