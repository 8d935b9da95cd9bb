"""The times of DP-MLM's host and device, each measured without the other."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from measuring import Row

TIMES = 3  # the first time also encodes each distinct word


def host(mechanism: Any, given: list[str]) -> float:
    """Return the least CPU-seconds of a word on the host: with batches of a GPU, but no model and no draw."""
    import torch

    from dptext_etl_models.inference.device_draws import Undrawn

    real = mechanism.scorer()
    scorer = copy.copy(real)
    scorer.model = SimpleNamespace(device=SimpleNamespace(type="none"), parameters=0)  # batches of no CPU
    scorer.batch_rows, zero = {}, torch.zeros(1, 1)
    scorer.forward = lambda batch: zero.expand(int(batch.real.sum()), len(real.lexicon.tokens))
    texts, keys = column(given)
    taken = []
    for _ in range(TIMES):
        began = time.process_time()
        mechanism.release_with(scorer, Undrawn(), texts, keys)
        taken.append(time.process_time() - began)
    return min(taken) / words(given)


def device(mechanism: Any, given: list[str], where: str) -> float:
    """Return the seconds of a word on the device: the model and the draws, from the first kernel to the last.

    Gaps in which the device waits for the host to start a kernel are part of it.
    """
    from dptext_etl_models.inference import device_draws

    scorer, clock = mechanism.scorer(), Clock(where)
    texts, keys = column(given)
    sampler = SimpleNamespace(
        choose=clock.timed(device_draws.choose), choose_uniform=clock.timed(device_draws.choose_uniform)
    )
    scorer.forward = clock.timed(scorer.forward)
    try:
        mechanism.release_with(scorer, sampler, texts, keys)
    finally:
        del scorer.forward
    return clock.seconds() / words(given)


def column(given: list[str]) -> tuple[pa.Array, pa.Array]:
    """Return texts as a column, and record keys that are thrown away."""
    return pa.array(given, pa.large_string()), pa.array([os.urandom(32) for _ in given], pa.binary(32))


def words(given: list[str]) -> int:
    """Count words."""
    return sum(len(text.split()) for text in given)


class Clock:
    """Add up the times of pieces of work on a device: by its events on a GPU, otherwise by the machine's clock."""

    def __init__(self, where: str) -> None:
        self._where, self._spans = where, list[tuple[Any, Any]]()

    def timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the work and measures it."""

        def measured(*given: Any, **named: Any) -> Any:
            with self._span():
                return work(*given, **named)

        return measured

    @contextmanager
    def _span(self) -> Iterator[None]:
        began = self._now()
        yield
        self._spans.append((began, self._now()))

    def _now(self) -> Any:
        if self._where != "cuda":
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self) -> float:
        """Return the sum, after the device has done all of its work."""
        if self._where != "cuda":
            return float(sum(end - began for began, end in self._spans))
        import torch

        torch.cuda.synchronize()
        return float(sum(began.elapsed_time(end) for began, end in self._spans)) / 1000


def rows(name: str, mechanism: Any, given: list[str], where: str) -> list[Row]:
    """Return both shares of one kind of decoding."""
    texts = f"{len(given):,} texts of 2 to 50 words"
    on_host, on_device = host(mechanism, given) * 1e6, device(mechanism, given, where) * 1e6
    return [
        Row(f"DP-MLM, {name}: work of the host, {texts}", f"{on_host:.3g} CPU-µs a word"),
        Row(
            f"DP-MLM, {name}: work of {where}, {texts}",
            f"{on_device:.3g} µs a word",
            "work of the host",
            on_device / on_host,
        ),
    ]
