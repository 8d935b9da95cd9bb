"""Draw ids from scores that are on a GPU: a sampler like `dptext_etl.sampling`, which draws from all others.

Weights and their sums are made on the device; only totals, drawn integers, and ids are copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel, sampling
from dptext_etl.sampling import TOKEN, Choices, Law, Slots, slot_width, smallest_weight, weight_bits
from dptext_etl_models.inference.running import to_device

if TYPE_CHECKING:
    import torch

_BLOCK = 256
CELLS_AT_ONCE = 2**24  # needs about 400 MB of intermediate numbers on a device
_CELL_BYTES = 24
_SHARE = 16
"""Bytes of intermediate numbers per cell, about, and the part of a GPU's memory that they may use (1 / 16)."""

choose_uniform = sampling.choose_uniform


def choose(
    scores: Any,
    slots: Slots,
    *,
    epsilon: float | npt.NDArray[np.float64],
    low: float,
    high: float,
    purpose: int = TOKEN,
    on_device: bool | None = None,
    stay: bool = False,
) -> Any:
    """Draw one id per row of scores, shape (n, m), as `scoring.choose` does; by default on the device of the scores.

    The weights of a tensor may differ in their last unit between devices, as scores do; the bounds do not.
    The ids are `Choices`; with `stay`, those that were drawn on a device are a tensor of int64 there.
    """
    if on_device is None:
        on_device = not isinstance(scores, np.ndarray) and scores.is_cuda
    if not on_device:
        return sampling.choose(scores, slots, epsilon=epsilon, low=low, high=high, purpose=purpose)
    law = (epsilon, low, high)
    sampling.require_law(scores, slots, law)
    drawn = _drawn(scores, slots, law, purpose)
    return drawn if stay else np.asarray(drawn.cpu().numpy(), np.uint32)


class Undrawn:
    """Sample without drawing: a probe releases nothing and uses no integer of any stream."""

    def choose(self, scores: Any, slots: Slots, **law: Any) -> Choices:  # noqa: ARG002
        return np.zeros(len(slots), np.uint32)

    def choose_uniform(self, slots: Slots, m: int, **stream: Any) -> Choices:  # noqa: ARG002
        return np.zeros(len(slots), np.uint32)


def _drawn(scores: torch.Tensor, slots: Slots, law: Law, purpose: int) -> torch.Tensor:
    """Draw as the kernel does: with the same integers, two levels, and weights that differ at most in the last unit."""
    import torch

    rows = max(1, _cells_at_once(scores.device) // scores.shape[1])
    epsilon, low, high = law
    with torch.no_grad():
        parts = [torch.zeros(0, dtype=torch.int64, device=scores.device)]
        for rows_drawn in (slice(at, at + rows) for at in range(0, len(slots), rows)):
            epsilons = epsilon[rows_drawn] if isinstance(epsilon, np.ndarray) else epsilon
            padded = weigh_on_device(scores[rows_drawn], (epsilons, low, high))
            parts.append(draw_on_device(padded, slots.take(rows_drawn), purpose))
        return torch.cat(parts)


def _cells_at_once(device: torch.device) -> int:
    """Return how many cells are weighed together: each time, the host waits for totals to draw integers below them."""
    import torch

    if device.type != "cuda":
        return CELLS_AT_ONCE
    memory: int = torch.cuda.get_device_properties(device).total_memory
    return max(CELLS_AT_ONCE, memory // _SHARE // _CELL_BYTES)


def weigh_on_device(scores: torch.Tensor, law: Law) -> torch.Tensor:
    """Return integer weights, int64, padded with ids of weight 0 to whole blocks of 256.

    Each step is a pass over the device's memory, so steps that others imply are excluded: `fmax` drops NaN, too, and
    whole numbers need no `floor` before they become int64.
    """
    import torch

    (n, m), (epsilon, low, high) = scores.shape, law
    top, device = float(2 ** weight_bits(m)), scores.device
    half: Any
    least: Any
    if isinstance(epsilon, np.ndarray):
        kinds, kind = np.unique(epsilon, return_inverse=True)
        laws = np.array([[amount / 2, float(smallest_weight(amount, m))] for amount in kinds.tolist()]).reshape(-1, 2)
        half, least = to_device(laws[kind], device).split(1, dim=1)
    else:
        half, least = float(epsilon) / 2, float(smallest_weight(float(epsilon), m))  # numbers are not copied there
    exact = scores.to(torch.float64, copy=True)
    torch.fmax(exact, exact.new_full((), low), out=exact).clamp_(max=high)
    torch.sub(exact.amax(dim=1, keepdim=True), exact, out=exact)
    exact.mul_(-half).div_(high - low).exp_().mul_(top)
    exact = torch.maximum(exact, least, out=exact) if isinstance(least, torch.Tensor) else exact.clamp_(min=least)
    padded = torch.empty((n, m + -m % _BLOCK), dtype=torch.int64, device=device)
    padded[:, :m] = exact.clamp_(max=top)
    padded[:, m:] = 0
    return padded


def draw_on_device(padded: torch.Tensor, slots: Slots, purpose: int) -> torch.Tensor:
    """Draw one id per row from int64 weights, by integers below their totals, which the host's keyed stream gives."""
    import torch

    n, m = padded.shape
    width, arrays = slot_width(m), slots.arrays()

    def on_host(integers: torch.Tensor) -> pa.Array:
        return pa.array(integers.cpu().numpy().astype(np.uint64))

    def below(totals: pa.Array, before: pa.Array | None = None) -> torch.Tensor:
        drawn = pa.array(_kernel.bounded(*arrays, purpose, width, totals, before)).to_numpy()
        return to_device(drawn.astype(np.int64), padded.device)[:, None]

    blocks = padded.view(n, -1, _BLOCK)
    ends = blocks.sum(dim=2).cumsum(dim=1)
    totals = on_host(ends[:, -1])
    chosen = below(totals)
    block = (ends <= chosen).sum(dim=1)
    inside = blocks[torch.arange(n, device=padded.device), block].cumsum(dim=1)
    if width == 1:
        rest = chosen - (ends.gather(1, block[:, None]) - inside[:, -1:])
    else:
        rest = below(on_host(inside[:, -1]), totals)
    at = (inside <= rest).sum(dim=1)
    return block * _BLOCK + at
