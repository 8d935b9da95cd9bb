"""What generation does on this machine's device: rows by memory, texts that leave batches, tokens that stay, one GPU.

The model is the random one in BART's shape; a list of few allowed tokens makes answers end early.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gpu_models
import numpy as np
import pyarrow as pa
from gpu_checks import Recorder, keys, memory_filled
from gpu_models import Size
from measuring import Row, amount

LONGEST, ALLOWED, SOME = 24, 12, 512


class OnHost:
    """The sampler of releases, whose draws are copied to the host at once."""

    def __init__(self) -> None:
        from dptext_etl_models.inference import device_draws

        self.choose_uniform = device_draws.choose_uniform

    def choose(self, scores: Any, slots: Any, **law: Any) -> Any:
        """Draw on the device, and return the outputs on the host."""
        from dptext_etl_models.inference import device_draws

        return device_draws.choose(scores, slots, **{**law, "on_device": True, "stay": False})


class OnDevice(OnHost):
    """The sampler of releases, whose draws stay on the device."""

    def choose(self, scores: Any, slots: Any, **law: Any) -> Any:
        """Draw on the device."""
        from dptext_etl_models.inference import device_draws

        return device_draws.choose(scores, slots, **{**law, "on_device": True, "stay": True})


def mechanism(folder: Path) -> Any:
    """Return DP-Prompt over the random model, whose answers end after about `ALLOWED` tokens or at `LONGEST`."""
    from dptext_etl_models.mechanisms.dp_prompt import DPPrompt

    allowed = folder / "allowed.json"
    allowed.write_text(json.dumps(list(range(10, 10 + ALLOWED))))
    model = {"model": str(folder / "bart"), "allow_list": str(allowed)}
    return DPPrompt(epsilon=1.0, clip=gpu_models.CLIP, l_max=LONGEST, **model)


def released(made: Any, given: list[str], **how: Any) -> tuple[Any, float]:
    """Release texts, and return what came out and the seconds."""
    began = time.perf_counter()
    record_keys = how.pop("record_keys", keys(len(given)))
    out = made.release_with(made.generator, pa.array(given), pa.array(record_keys, pa.binary(32)), **how)
    return out, time.perf_counter() - began


def generation(folder: Path, device: str, size: Size) -> list[Row]:
    """Return the rows of all checks, those that measure time last."""
    made = mechanism(folder)
    given = gpu_models.texts(size.generated, size, seed=8)
    released(made, given[:2])
    return [
        rows_by_memory(made, device),
        equal_bits(made, device, size),
        short_of_memory(made, device, given[:SOME]),
        leaving(made, device, given),
        staying(made, device, given),
        other_gpu(made, device, given[:SOME]),
    ]


def rows_by_memory(made: Any, device: str) -> Row:
    """A full batch needs no more than half of the memory that was free, next to all batches that wait."""
    import torch

    generator, bucket = made.generator, 64
    waiting = generator.waiting(bucket)
    rows, work = generator.rows(bucket), f"rows of a batch of {bucket} tokens and {LONGEST} drawn ones, {device}"
    if device == "cpu":
        return Row(work, f"{rows}, whatever memory is free; {waiting} batches may wait")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    batch = generator.begin([], bucket, rows, LONGEST)
    batch.append(np.zeros(rows, np.int64))
    peak = torch.cuda.max_memory_allocated() - before
    taken = peak + waiting * (torch.cuda.memory_allocated() - before)
    free, measured = generator._free, generator._row_bytes(bucket) * rows  # noqa: SLF001
    return Row(
        work,
        f"{rows}: {taken / 2**20:,.0f} MiB with {waiting} batches that wait, {peak / 2**20:,.0f} at the peak of one",
        f"free: {free / 2**20:,.0f} MiB; foreseen from dummies: {measured / 2**20:,.0f} MiB",
        taken / free,
        "<= 0.5",
        taken <= free / 2,
    )


def equal_bits(made: Any, device: str, size: Size) -> Row:
    """Two texts separately and among others, which can move to other batches: the same bits of every score."""
    mine, record_keys, seen = ["the music of a good film", "again and again"], keys(2, 5_000), []
    for crowd in ([], gpu_models.texts(3, size), gpu_models.texts(8 * size.crowd, size, seed=9)):
        for place in {0, len(crowd) // 2, len(crowd)}:
            others, sampler = keys(len(crowd)), Recorder()
            given = [*crowd[:place], *mine, *crowd[place:]]
            released(made, given, sampler=sampler, record_keys=[*others[:place], *record_keys, *others[place:]])
            seen.append({where: bits for where, bits in sampler.scores.items() if where[0] in record_keys})
    same = sum(other == seen[0] for other in seen)
    work = f"DP-Prompt: scores of two texts among others that end, {device}, {made.computing.dtype}"
    return Row(work, f"the same bits in {same} of {len(seen)} releases", goal="all", met=same == len(seen))


def short_of_memory(made: Any, device: str, given: list[str]) -> Row:
    """Memory runs out: batches have fewer rows, and no draw is lost."""
    rows, begin = [], made.generator.begin

    def counted(prompts: Any, bucket: int, count: int, longest: int) -> Any:
        import torch

        rows.append(count)
        if device == "cpu" and count > 4:
            raise torch.OutOfMemoryError("out of memory")
        return begin(prompts, bucket, count, longest)

    with ExitStack() as stack:
        stack.enter_context(patch.object(made.generator, "begin", counted))
        if device == "cuda":
            stack.enter_context(memory_filled(2**28))
        out, _ = released(made, given)
    failed = int(np.asarray(out.failed).sum())
    work = f"DP-Prompt on {device} with too little memory, {len(given):,} texts"
    done = f"batches of {max(rows)} and then {min(rows)} rows, {failed} draws without scores"
    return Row(work, done, goal="fewer rows, none lost", met=min(rows) < max(rows) and not failed)


@contextmanager
def stepping(generator: Any, stride: int) -> Iterator[list[int]]:
    """Let batches adopt rows after this number of steps, and count the rows of all steps."""
    counted, begin = [0], generator.begin

    def counting(prompts: Any, bucket: int, rows: int, longest: int) -> Any:
        batch = begin(prompts, bucket, rows, longest)
        append = batch.append
        counted[0] += rows

        def appended(chosen: Any) -> None:
            counted[0] += rows
            append(chosen)

        batch.append = appended
        return batch

    with patch.object(generator, "begin", counting), patch.object(generator, "stride", stride):
        yield counted


def leaving(made: Any, device: str, given: list[str]) -> Row:
    """Texts that have ended leave their batch: the same texts as where they stay, from fewer computed rows."""
    lines = []
    for stride in (LONGEST, made.generator.stride):
        with stepping(made.generator, stride) as counted:
            out, seconds = released(made, given)
            lines.append((out.text.to_pylist(), seconds, int(np.asarray(out.steps).sum()) / counted[0]))
    (stayed, slow, before), (left, fast, after) = lines
    return Row(
        f"DP-Prompt, {len(given):,} texts of which each leaves its batch when it ends, {device}",
        f"{amount(len(given) / fast * 60)} texts/min; {after:.0%} of the computed rows draw",
        f"all stay to the end: {amount(len(given) / slow * 60)} texts/min; {before:.0%}",
        slow / fast,
        "the same texts",
        stayed == left,
    )


def staying(made: Any, device: str, given: list[str]) -> Row:
    """Drawn tokens stay on the device: the same texts as from copies on the host."""
    releases = [released(made, given, sampler=sampler()) for sampler in (OnHost, OnDevice)]
    (there, slow), (here, fast) = releases
    return Row(
        f"DP-Prompt, {len(given):,} texts, drawn tokens stay on {device}",
        f"{amount(len(given) / fast * 60)} texts/min",
        f"tokens go over the host: {amount(len(given) / slow * 60)} texts/min",
        slow / fast,
        "the same texts",
        there.text == here.text,
    )


def other_gpu(made: Any, device: str, given: list[str]) -> Row:
    """A process that changes to another GPU drops its models; back on the first one, it releases the same texts."""
    import torch

    from dptext_etl import device as devices
    from dptext_etl_models.inference import language_model

    first, _ = released(made, given)
    count = torch.cuda.device_count() if device == "cuda" else 0
    with ExitStack() as stack:
        if device == "cpu":
            stack.enter_context(patch.object(torch.cuda, "is_initialized", lambda: True))
            stack.enter_context(patch.object(torch.cuda, "empty_cache", lambda: None))
        stack.enter_context(patch.dict(os.environ, CUDA_VISIBLE_DEVICES="0,1"))  # torch has read the real one
        made.__dict__.pop("generator")
        devices.take_gpu("1")
        left = torch.cuda.memory_allocated(0) if device == "cuda" else 0
        models_left = len(language_model._LOADED)  # noqa: SLF001
        there = released(made, given)[0] if count > 1 else None
        made.__dict__.pop("generator", None)
        devices.take_gpu("0")
        again, _ = released(made, given)
    where = "there the same texts" if there is not None and there.text == first.text else "no second GPU to compute on"
    return Row(
        f"a process changes to another GPU, {device}",
        f"{models_left} models and {left / 2**20:,.1f} MiB are left on the first one; {where}",
        goal="0 models; back on the first one, the same texts",
        met=not models_left and again.text == first.text,
    )
