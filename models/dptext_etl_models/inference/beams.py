"""Run beam search over a batch of records with fixed shapes, without work per record in Python, and without randomness.

Decoding is post-processing: it sees only a noisy vector, so it may be repeated or replaced at no cost. The output of a
record does not depend on the other rows of its batch: rows are never compared, and a finished record stays unchanged
while others continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

_CHUNK = 64  # ids per chunk; the search compares the maxima of chunks before single ids
_AT_ONCE = 32  # rows whose exponentials are in memory together


class Decoder(Protocol):
    """A batch of decodings that all continue by one word per step."""

    def first(self) -> torch.Tensor:
        """Return scores of the first id, shape (rows, ids), from the constant start."""

    def spread(self, beams: int) -> None:
        """Continue with `beams` equal copies of every row, next to each other."""

    def following(self, ids: torch.Tensor, origins: torch.Tensor) -> torch.Tensor:
        """Return scores after one more id, shape (rows * beams, ids)."""


class Search(NamedTuple):
    """Parameters of a search."""

    beams: int  # number of partial outputs that are kept
    steps: int  # largest number of ids of an output
    end: int  # id that ends an output
    never: Sequence[int] = ()  # ids that the search never chooses


@torch.inference_mode()
def beam_search(decoder: Decoder, search: Search) -> torch.Tensor:
    """Return the likeliest output of every row by mean log-probability, among finished and cut outputs."""
    logits = decoder.first()
    rows, ids = logits.shape
    beams, wide = min(search.beams, ids // 2), 2 * min(search.beams, ids // 2)
    banned = torch.tensor(list(search.never), dtype=torch.int64, device=logits.device)
    scores = logits.new_zeros((rows, 1), dtype=torch.float32)
    written = torch.full((rows, 1, search.steps), search.end, dtype=torch.int64, device=logits.device)
    best = torch.full((rows,), -torch.inf, device=logits.device)
    tokens = written[:, 0].clone()
    first_of_row = torch.arange(rows, device=logits.device)[:, None]
    for step in range(search.steps):
        allowed = logits.index_fill(1, banned, -torch.inf) if search.never else logits
        values, likeliest = find_likeliest(allowed.float(), wide)
        total = (scores[:, :, None] + values.view(rows, -1, wide)).flatten(1)
        ranked, place = total.topk(wide, dim=1)
        origin, chosen = place // wide, likeliest.view(rows, -1).gather(1, place)
        ends = chosen == search.end
        ended, which = torch.where(ends[:, :beams], ranked[:, :beams], -torch.inf).max(dim=1)
        better = ended / (step + 1) > best
        best = torch.where(better, ended / (step + 1), best)
        tokens = torch.where(
            better[:, None], written[first_of_row[:, 0], origin.gather(1, which[:, None])[:, 0]], tokens
        )
        scores, going = torch.where(ends, -torch.inf, ranked).topk(beams, dim=1)
        origin, chosen = origin.gather(1, going), chosen.gather(1, going)
        written = written[first_of_row, origin]
        written[:, :, step] = chosen
        if step + 1 == search.steps or bool((best >= scores[:, 0] / search.steps).all()):
            break
        if step == 0:
            decoder.spread(beams)
            origin = torch.arange(beams, device=logits.device).expand(rows, beams)
        logits = decoder.following(chosen.flatten(), (first_of_row * beams + origin).flatten())
    cut_off = scores[:, 0] / search.steps > best
    return torch.where(cut_off[:, None], written[:, 0], tokens)


def find_likeliest(scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest log-probabilities of every row and their ids, shape (rows, count) each.

    The `count` largest are in the `count` chunks with the largest maxima, so only these chunks are sorted.
    """
    normal = torch.cat([block.logsumexp(dim=1, keepdim=True) for block in scores.split(_AT_ONCE)])
    whole = scores.shape[1] // _CHUNK
    if whole <= 2 * count:
        values, ids = scores.topk(count, dim=1)
        return values - normal, ids
    chunks = scores[:, : whole * _CHUNK].unflatten(1, (whole, _CHUNK))
    picked = chunks.amax(dim=2).topk(count, dim=1).indices
    inside = chunks.gather(1, picked[:, :, None].expand(-1, -1, _CHUNK)).flatten(1)
    ids = (picked[:, :, None] * _CHUNK + torch.arange(_CHUNK, device=scores.device)).flatten(1)
    rest = torch.arange(whole * _CHUNK, scores.shape[1], device=scores.device).expand(len(scores), -1)
    inside, ids = torch.cat([inside, scores[:, whole * _CHUNK :]], 1), torch.cat([ids, rest], 1)
    values, place = inside.topk(count, dim=1)
    return values - normal, ids.gather(1, place)
