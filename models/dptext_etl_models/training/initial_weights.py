"""Make the initial weights of small models, which save most of their training on a CPU.

A transformer with small random weights needs thousands of steps until it copies a word or looks at the context of a
mask. Here much of that starts in place; training then changes all weights.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from dptext_etl.embeddings import WordVectors
from dptext_etl_models.training.vocabulary import END, PADDING, START

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import RobertaConfig, RobertaForMaskedLM


class Sizes(NamedTuple):
    """The sizes of a model."""

    width: int  # columns of its states
    layers: int  # layers of the encoder, and of the decoder
    heads: int  # attention heads of a layer
    inner: int  # width of the feed-forward part of a layer
    places: int  # largest number of tokens of a row


def copying_bart(entries: int, sizes: Sizes, before: int = 0) -> Any:
    """Return the model, whose weights follow from the state of torch's generator."""
    from transformers import BartConfig, BartForConditionalGeneration

    std = 0.7 / math.sqrt(sizes.width)
    layer = {"layers": sizes.layers, "attention_heads": sizes.heads, "ffn_dim": sizes.inner}
    config = BartConfig(
        vocab_size=entries,
        d_model=sizes.width,
        max_position_embeddings=sizes.places,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        init_std=std,
        bos_token_id=START,
        pad_token_id=PADDING,
        eos_token_id=END,
        decoder_start_token_id=END,
        forced_bos_token_id=None,
        forced_eos_token_id=None,
        tie_word_embeddings=True,
        **{f"{side}_{what}": value for side in ("encoder", "decoder") for what, value in layer.items()},
    )
    model = BartForConditionalGeneration(config)
    with torch.no_grad():
        waves = std * _position_waves(sizes.places + before, sizes.width)
        model.model.encoder.embed_positions.weight[2:].copy_(waves[: sizes.places])
        model.model.decoder.embed_positions.weight[2:].copy_(waves[before:])
        attention = model.model.decoder.layers[0].encoder_attn
        attention.k_proj.weight.copy_(attention.q_proj.weight)
    return model


def _position_waves(count: int, width: int) -> torch.Tensor:
    """Return positions as sinusoids whose root mean square is 1, shape (count, width)."""
    place = torch.arange(count)[:, None] / 10_000 ** (torch.arange(0, width, 2)[None, :] / width)
    return torch.stack([place.sin(), place.cos()], dim=-1).reshape(count, width) * 2**0.5


HEAD = 32
"""Coordinates of a head, of positions, and of the mark."""
COPYING = 3
"""Heads that copy a word; their coordinates together are the coordinates of a word."""
WORD_COLUMNS = COPYING * HEAD
WIDTH = WORD_COLUMNS + 2 * HEAD
_BACK = 4.0  # factor of the scores that look one position back
_FOUND = 1.5  # factor of the scores that look for the mark
_COPIED = 3.0  # factor of the copied word, which must outweigh the present one
_SCALE = 0.25  # factor of the last layer's output: larger logits are hard to train


def causal(entries: int, *, layers: int, inner: int, places: int) -> Any:
    """Return a GPT-2 of width `WIDTH` that continues a text as it continued where the present word was before.

    The other sizes are as in `Sizes`.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=entries,
        n_positions=places,
        n_embd=WIDTH,
        n_layer=max(2, layers),
        n_head=WIDTH // HEAD,
        n_inner=inner,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=START,
        pad_token_id=PADDING,
        eos_token_id=END,
    )
    model = GPT2LMHeadModel(config)
    body = model.transformer
    body.wte.weight.normal_()
    body.wte.weight[:, WORD_COLUMNS:] = 0.0
    body.wpe.weight.zero_()
    place, turns = torch.arange(places)[:, None], _turns()
    body.wpe.weight[:, WORD_COLUMNS : WORD_COLUMNS + HEAD] = math.sqrt(2) * torch.cat(
        [(place * turns).sin(), (place * turns).cos()], 1
    )
    mark = torch.linalg.qr(torch.randn(WORD_COLUMNS, HEAD))[0] * math.sqrt(WORD_COLUMNS / HEAD)
    _look_back(body.h[0].attn, mark)
    _copy(body.h[1].attn, mark)
    body.ln_f.weight.fill_(_SCALE)
    return model


def _turns() -> torch.Tensor:
    """Return how far each pair of coordinates turns per position: spread widely, so that only equal places agree."""
    pairs = HEAD // 2
    return math.pi * (torch.arange(pairs) + 0.5) / pairs


def _look_back(attention: Any, mark: torch.Tensor) -> None:
    """Let head 0 attend to the position before, and write the mark of its word."""
    sine, cosine = _turns().sin().diag(), _turns().cos().diag()
    back = torch.cat([torch.cat([cosine, sine], 1), torch.cat([-sine, cosine], 1)], 0)
    matrix, out = attention.c_attn.weight, attention.c_proj.weight
    positions = slice(WORD_COLUMNS, WORD_COLUMNS + HEAD)
    for part in range(3):
        matrix[:, part * WIDTH : part * WIDTH + HEAD] = 0.0
    matrix[positions, :HEAD] = _BACK * back
    matrix[positions, WIDTH : WIDTH + HEAD] = torch.eye(HEAD)
    matrix[:WORD_COLUMNS, 2 * WIDTH : 2 * WIDTH + HEAD] = mark
    out[:HEAD] = 0.0
    out[:HEAD, WORD_COLUMNS + HEAD :] = torch.eye(HEAD)


def _copy(attention: Any, mark: torch.Tensor) -> None:
    """Let the first heads attend where the mark is the mark of the present word, and add the word at that place."""
    matrix, out = attention.c_attn.weight, attention.c_proj.weight
    for head in range(COPYING):
        here = slice(head * HEAD, (head + 1) * HEAD)
        for part in range(3):
            matrix[:, part * WIDTH + here.start : part * WIDTH + here.stop] = 0.0
        matrix[:WORD_COLUMNS, here] = _FOUND * mark
        matrix[WORD_COLUMNS + HEAD :, WIDTH + here.start : WIDTH + here.stop] = torch.eye(HEAD)
        matrix[here, 2 * WIDTH + here.start : 2 * WIDTH + here.stop] = torch.eye(HEAD)
        out[here] = 0.0
        out[here, here] = _COPIED * torch.eye(HEAD)


_LENGTH = 2.0  # length of an embedding; much longer than a step of the optimizer
_SHARP = 0.5  # approximate standard deviation of the initial scores
_RARE = 0.5  # count of an entry that never occurs


def started(config: RobertaConfig, tokenizer: Tokenizer, counts: Counter[str], seed: int) -> RobertaForMaskedLM:
    """Make the initial model; the state of torch's generators does not change."""
    from transformers import RobertaForMaskedLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = RobertaForMaskedLM(config)
        with torch.no_grad():
            for layer in model.roberta.encoder.layer:
                # average over positions, with another pattern in each head
                inside, out = layer.attention.self, layer.attention.output.dense
                width = out.weight.shape[0]
                for part in (inside.query, inside.key):
                    torch.nn.init.normal_(part.weight, std=1 / math.sqrt(width))
                torch.nn.init.orthogonal_(inside.value.weight)
                out.weight.copy_(inside.value.weight.T)
                torch.nn.init.normal_(layer.intermediate.dense.weight, std=1 / math.sqrt(config.hidden_size))
            embeddings = model.roberta.embeddings
            scale = _LENGTH / math.sqrt(config.hidden_size)
            torch.nn.init.normal_(embeddings.word_embeddings.weight, std=scale)
            torch.nn.init.normal_(embeddings.token_type_embeddings.weight, std=scale / 2)
            positions = embeddings.position_embeddings.weight[config.pad_token_id + 1 :]
            positions.copy_(scale / 2 * _position_waves(*positions.shape))
            write_vectors(embeddings.word_embeddings.weight, tokenizer, _LENGTH)
            torch.nn.init.eye_(model.lm_head.dense.weight)
            model.lm_head.layer_norm.weight.fill_(_SHARP / _LENGTH)
            model.lm_head.bias.copy_(torch.from_numpy(_log_shares(tokenizer, counts)))
    return model


def write_vectors(weight: torch.Tensor, tokenizer: Tokenizer, length: float) -> None:
    """Write centered word vectors of equal length into the embeddings of the words that have a vector."""
    vectors, entries = WordVectors.load(), tokenizer.get_vocab()
    shared = sorted(set(vectors.words) & set(entries))
    if not shared:
        return
    start = vectors.take(shared).vectors.astype(np.float32)
    start -= start.mean(axis=0)
    start *= length / np.maximum(np.linalg.norm(start, axis=1, keepdims=True), 1e-6)
    width = min(start.shape[1], weight.shape[1])
    weight[torch.tensor([entries[word] for word in shared]), :width] = torch.from_numpy(start[:, :width])


def _log_shares(tokenizer: Tokenizer, counts: Counter[str]) -> npt.NDArray[np.float32]:
    """Return the logarithm of the relative frequency of every entry."""
    share = np.full(tokenizer.get_vocab_size(), _RARE)
    for entry, number in tokenizer.get_vocab().items():
        share[number] = max(_RARE, counts[entry])
    shares: npt.NDArray[np.float32] = np.log(share / share.sum()).astype(np.float32)
    return shares
