"""Properties of models on every device, checked on this machine's device (docs/spec/privacy.md#batch-independence).

Each check returns rows of the table; a row that is not met fails the whole script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gpu_models
import numpy as np
import pyarrow as pa
from gpu_models import Size
from measuring import Row

MINE = ("the music of a good film", "again and again")
LAW: dict[str, Any] = {"epsilon": 100.0, "low": -3.2, "high": 16.3}


class Recorder:
    """A sampler that keeps the bits of all scores by record and draw, and counts draws without scores."""

    def __init__(self) -> None:
        self.scores: dict[tuple[bytes, int], bytes] = {}
        self.uniform = 0

    def choose(self, scores: Any, slots: Any, **law: Any) -> Any:
        """Keep the scores and draw."""

        keys = slots.keys.to_pylist()
        bits = [row.tobytes() for row in scores.float().cpu().numpy()]
        places = zip(slots.records.tolist(), slots.positions.tolist(), bits, strict=True)
        self.scores |= {(keys[record], position): row for record, position, row in places}
        from dptext_etl_models.inference import device_draws

        return device_draws.choose(scores, slots, **law)

    def choose_uniform(self, slots: Any, m: int, **law: Any) -> Any:
        """Count the draws and draw."""
        from dptext_etl import sampling

        self.uniform += len(slots)
        return sampling.choose_uniform(slots, m, **law)


def keys(count: int, first: int = 0) -> list[bytes]:
    """Return this number of record keys."""
    return [number.to_bytes(32, "big") for number in range(first, first + count)]


def released(made: Any, given: list[str], record_keys: list[bytes]) -> tuple[list[str], Recorder]:
    """Release texts under given keys with the mechanism's own model."""
    sampler = Recorder()
    column = pa.array(given, pa.large_string())
    out = made.release_with(made.scorer(), sampler, column, pa.array(record_keys, pa.binary(32)))
    return out.text.to_pylist(), sampler


def equal_bits(folder: Path, device: str, dtype: str, size: Size) -> list[Row]:
    """Two texts separately, first, in the middle and last among others: the same bits of every score."""
    made = gpu_models.dpmlm(folder, decoding="block", block=3)
    mine, seen = keys(2, 1_000), []
    for crowd in ([], gpu_models.texts(3, size), gpu_models.texts(size.crowd, size, seed=3)):
        for place in {0, len(crowd) // 2, len(crowd)}:
            others = keys(len(crowd))
            given = [*crowd[:place], *MINE, *crowd[place:]]
            sampler = released(made, given, [*others[:place], *mine, *others[place:]])[1]
            seen.append({where: bits for where, bits in sampler.scores.items() if where[0] in mine})
    same = sum(other == seen[0] for other in seen)
    expected = sum(len(text.split()) for text in MINE)
    met = same == len(seen) and len(seen[0]) == expected
    work = f"scores of two texts among others, {device}, {dtype}"
    return [Row(work, f"the same bits in {same} of {len(seen)} batches", goal="all", met=met)]


def exact_draws(device: str) -> list[Row]:
    """Draws from weights on the device: the host's draws, and weights within one of the exact integers."""
    import torch

    from dptext_etl import sampling
    from dptext_etl_models.inference import device_draws

    rows, lines = 64, []
    for m in (100, 4_096, 12_000):
        scores = np.random.default_rng(m).normal(4.0, 4.0, (rows, m)).astype(np.float32)
        numbers = np.arange(rows)
        slots = sampling.Slots(
            pa.array(keys(rows), pa.binary(32)), numbers.astype(np.uint32), numbers.astype(np.uint64)
        )
        bounds = (LAW["epsilon"], LAW["low"], LAW["high"])
        made = device_draws.weigh_on_device(torch.from_numpy(scores).to(device), bounds)
        here = device_draws.draw_on_device(made, slots, sampling.TOKEN).cpu()
        there = device_draws.draw_on_device(made.cpu(), slots, sampling.TOKEN)
        away = np.abs(made[:, :m].cpu().numpy() - sampling.weights(scores, *bounds).astype(np.int64)).max()
        whole = np.round(scores)
        on_device = device_draws.choose(torch.from_numpy(whole).to(device), slots, on_device=True, **LAW)
        alike = (sampling.choose(whole, slots, **LAW) == on_device).mean()
        lines.append(((here == there).all() and away <= 1, away, alike))
    return [
        Row(
            f"draws from integer weights on {device}, {rows} each over 100, 4,096 and 12,000 outputs",
            f"the host's draws from the same weights; weights off by at most {max(off for _, off, _ in lines)}",
            f"draws of the kernel from whole scores: {100 * min(alike for _, _, alike in lines):.0f} % are the same",
            goal="equal, at most 1",
            met=all(good for good, _, _ in lines),
        )
    ]


def short_of_memory(folder: Path, device: str, size: Size) -> list[Row]:
    """Memory runs out: batches are halved, no draw is lost."""
    made = gpu_models.dpmlm(folder, decoding="parallel")
    given = gpu_models.texts(size.few, size, seed=4)
    scorer, halved = made.scorer(), list[Any]()
    halve = scorer.halve

    def noted(shape: Any) -> Any:
        halved.append(shape)
        return halve(shape)

    scorer.halve = noted
    try:
        with little_memory(scorer, device):
            out, sampler = released(made, given, keys(len(given)))
    finally:
        scorer.halve = halve
        scorer.batch_rows.clear()
    whole = all(len(text.split()) == len(one.split()) for text, one in zip(out, given, strict=True))
    return [
        Row(
            f"DP-MLM on {device} with too little memory, {len(given)} texts",
            f"batches halved {len(halved)} times, {sampler.uniform} draws without scores",
            goal="halved, none lost",
            met=bool(halved) and not sampler.uniform and whole,
        )
    ]


@contextmanager
def little_memory(scorer: Any, device: str) -> Iterator[None]:
    """Leave too little memory for whole batches: a block fills a GPU's; on a CPU a model says that there is none."""
    import torch

    if device == "cuda":
        with memory_filled(2**28):
            yield
        return
    forward: Callable[..., Any] = scorer.model.forward

    def narrow(tokens: Any, *rest: Any) -> Any:
        if len(tokens) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return forward(tokens, *rest)

    scorer.model.forward = narrow
    try:
        yield
    finally:
        del scorer.model.forward


@contextmanager
def memory_filled(left: int) -> Iterator[None]:
    """Leave this number of bytes of a GPU's memory free."""
    import torch

    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    block = torch.empty(max(0, free - left), dtype=torch.uint8, device="cuda")
    try:
        yield
    finally:
        del block
        torch.cuda.empty_cache()
