"""Make the initial weights of a small causal model, which copies what it reads from its first step on.

A causal model learns to copy late: one layer must first mark every place with the word before it, and the next layer
must look for the place that is marked with the present word (an induction head; Olsson et al. 2022, "In-context
Learning and Induction Heads"). Here both start in place. The coordinates of the model hold the word, its position, and
the mark; a first head attends one position back and writes the mark; three heads of the second layer find it, and add
the word that stands there. Training then changes all of these weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from dptext_etl_models.training.words.vocabulary import END, PADDING, START

if TYPE_CHECKING:
    from dptext_etl_models.training.generative.denoiser_model import Settings

HEAD = 32
"""Coordinates of a head, of positions, and of the mark."""
COPYING = 3
"""Heads that copy a word; their coordinates together are those of a word."""
WORD = COPYING * HEAD
WIDTH = WORD + 2 * HEAD
_BACK = 4.0  # factor of the scores that look one position back
_FOUND = 1.5  # factor of the scores that look for the mark
_COPIED = 3.0  # factor of the copied word, which must outweigh the present one
_SHARP = 0.25  # factor of the last numbers, which are otherwise too sure of themselves to be trained


def causal(entries: int, settings: Settings) -> Any:
    """Return a GPT-2 of width `WIDTH` that continues a text as it went on where the present word stood before."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=entries,
        n_positions=settings.places,
        n_embd=WIDTH,
        n_layer=max(2, settings.layers),
        n_head=WIDTH // HEAD,
        n_inner=settings.inner,
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
    body.wte.weight[:, WORD:] = 0.0
    body.wpe.weight.zero_()
    place, turns = torch.arange(settings.places)[:, None], _turns()
    body.wpe.weight[:, WORD : WORD + HEAD] = math.sqrt(2) * torch.cat([(place * turns).sin(), (place * turns).cos()], 1)
    mark = torch.linalg.qr(torch.randn(WORD, HEAD))[0] * math.sqrt(WORD / HEAD)
    _look_back(body.h[0].attn, mark)
    _copy(body.h[1].attn, mark)
    body.ln_f.weight.fill_(_SHARP)
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
    positions = slice(WORD, WORD + HEAD)
    for part in range(3):
        matrix[:, part * WIDTH : part * WIDTH + HEAD] = 0.0
    matrix[positions, :HEAD] = _BACK * back
    matrix[positions, WIDTH : WIDTH + HEAD] = torch.eye(HEAD)
    matrix[:WORD, 2 * WIDTH : 2 * WIDTH + HEAD] = mark
    out[:HEAD] = 0.0
    out[:HEAD, WORD + HEAD :] = torch.eye(HEAD)


def _copy(attention: Any, mark: torch.Tensor) -> None:
    """Let the first heads attend where the mark is that of the present word, and add the word that stands there."""
    matrix, out = attention.c_attn.weight, attention.c_proj.weight
    for head in range(COPYING):
        here = slice(head * HEAD, (head + 1) * HEAD)
        for part in range(3):
            matrix[:, part * WIDTH + here.start : part * WIDTH + here.stop] = 0.0
        matrix[:WORD, here] = _FOUND * mark
        matrix[WORD + HEAD :, WIDTH + here.start : WIDTH + here.stop] = torch.eye(HEAD)
        matrix[here, 2 * WIDTH + here.start : 2 * WIDTH + here.stop] = torch.eye(HEAD)
        out[here] = 0.0
        out[here, here] = _COPIED * torch.eye(HEAD)
