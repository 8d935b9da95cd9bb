"""Make the initial weights of a small masked language model, which save about an hour of training on a CPU.

A transformer with small random weights ignores the context of a mask at first. It learns the words' frequencies for
thousands of steps. This model starts with known things: frequencies as the head's bias, the embedded word vectors as
embeddings, positions as sinusoids, and attention that averages over the positions it attends to (the value matrix and
the output matrix are transposes of each other). Training then changes all of these weights.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dptext_etl.embeddings import WordVectors

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from transformers import RobertaConfig, RobertaForMaskedLM

_LENGTH = 2.0  # length of an embedding; much longer than a step of the optimizer
_SHARP = 0.5  # approximate standard deviation of the initial scores
_RARE = 0.5  # count of an entry that never occurs


def started(config: RobertaConfig, tokenizer: Tokenizer, counts: Counter[str], seed: int) -> RobertaForMaskedLM:
    """Make the initial model; the state of torch's generators does not change."""
    import torch
    from transformers import RobertaForMaskedLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = RobertaForMaskedLM(config)
        with torch.no_grad():
            for layer in model.roberta.encoder.layer:
                _averaging(layer.attention)
                torch.nn.init.normal_(layer.intermediate.dense.weight, std=1 / math.sqrt(config.hidden_size))
            embeddings = model.roberta.embeddings
            each = _LENGTH / math.sqrt(config.hidden_size)
            torch.nn.init.normal_(embeddings.word_embeddings.weight, std=each)
            torch.nn.init.normal_(embeddings.token_type_embeddings.weight, std=each / 2)
            _sinusoids(embeddings.position_embeddings.weight, config.pad_token_id + 1, each / 2)
            write_vectors(embeddings.word_embeddings.weight, tokenizer, _LENGTH)
            torch.nn.init.eye_(model.lm_head.dense.weight)
            model.lm_head.layer_norm.weight.fill_(_SHARP / _LENGTH)
            model.lm_head.bias.copy_(torch.from_numpy(_log_shares(tokenizer, counts)))
    return model


def _averaging(attention: torch.nn.Module) -> None:
    """Set attention to average over positions, with another pattern in each head."""
    import torch

    inside, out = attention.self, attention.output.dense
    width = out.weight.shape[0]
    for part in (inside.query, inside.key):
        torch.nn.init.normal_(part.weight, std=1 / math.sqrt(width))
    torch.nn.init.orthogonal_(inside.value.weight)
    out.weight.copy_(inside.value.weight.T)


def _sinusoids(weight: torch.Tensor, first: int, size: float) -> None:
    """Write positions as sinusoids of falling frequency; `size` is their root mean square."""
    import torch

    rows, width = weight.shape
    place = np.arange(rows - first)[:, None]
    wave = place / 10_000 ** (np.arange((width + 1) // 2) * 2 / width)
    both = np.stack([np.sin(wave), np.cos(wave)], axis=2).reshape(len(place), -1)[:, :width]
    weight[first:] = torch.from_numpy(both * size * math.sqrt(2)).to(weight.dtype)


def write_vectors(weight: torch.Tensor, tokenizer: Tokenizer, length: float) -> None:
    """Write centered word vectors of equal length into the embeddings of the words that have a vector."""
    import torch

    vectors, entries = WordVectors.load(), tokenizer.get_vocab()
    shared = sorted(set(vectors.words) & set(entries))
    if not shared:
        return
    known = vectors.take(shared).vectors.astype(np.float32)
    known -= known.mean(axis=0)
    known *= length / np.maximum(np.linalg.norm(known, axis=1, keepdims=True), 1e-6)
    width = min(known.shape[1], weight.shape[1])
    weight[torch.tensor([entries[word] for word in shared]), :width] = torch.from_numpy(known[:, :width])


def _log_shares(tokenizer: Tokenizer, counts: Counter[str]) -> npt.NDArray[np.float32]:
    """Return the logarithm of the relative frequency of every entry."""
    share = np.full(tokenizer.get_vocab_size(), _RARE)
    for entry, number in tokenizer.get_vocab().items():
        share[number] = max(_RARE, counts[entry])
    shares: npt.NDArray[np.float32] = np.log(share / share.sum()).astype(np.float32)
    return shares
