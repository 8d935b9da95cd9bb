"""How fast models and searches are on this machine's device."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_models
import gpu_shares
import numpy as np
import pyarrow as pa
from gpu_models import Size
from measuring import Row, amount

BLOCK = 4
LENGTH = 20  # tokens of a document
MOST = 200_000  # texts
WORDS_A_MINUTE, SHARE = 1_000_000, 0.3


def releasing(mechanism: Any) -> Callable[[list[str]], float]:
    """Return what releases texts through the column path under a key that is thrown away, and says the seconds."""
    from dptext_etl.column import draw
    from dptext_etl.keys import throwaway

    key = throwaway(mechanism.cfg())

    def seconds(given: list[str]) -> float:
        began = time.perf_counter()
        draw(mechanism, pa.array(given, pa.large_string()), pa.array([str(row) for row in range(len(given))]), key)
        return time.perf_counter() - began

    return seconds


def timed(mechanism: Any, size: Size) -> tuple[list[str], float]:
    """Release the number of texts that needs about `size.seconds`; return them and the seconds."""
    release, few = releasing(mechanism), gpu_models.texts(size.texts, size, seed=5)
    release(few[:2])
    first = release(few)
    count = int(min(MOST, max(size.texts, size.seconds / first * size.texts)))
    if count < 2 * size.texts:
        return few, first
    many = gpu_models.texts(count, size, seed=6)
    return many, release(many)


def peak(device: str, size: Size) -> float:
    """Return the device's highest rate in products of bfloat16 matrices, FLOP/s."""
    import torch

    left, right = (torch.randn(size.matrix, size.matrix, device=device).bfloat16() for _ in range(2))
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(4):
            product = left @ right
        float(product[0, 0])  # waits for the device
        best = min(best, (time.perf_counter() - began) / 4)
    return float(2 * size.matrix**3 / best)


def useful(mechanism: Any, given: list[str]) -> float:
    """Count the FLOPs of some texts without padding and dummies, per word.

    Two per weight and token in all layers, only at masks in the feed-forward part of the last one and in the head; and
    operations of attention, four per pair of tokens, number of the hidden state and layer.
    """
    scorer = mechanism.scorer()
    config = scorer.model._model.config  # noqa: SLF001
    layers, wide, inner = config.num_hidden_layers, config.hidden_size, config.intermediate_size
    attention, forward = 4 * wide**2, 2 * wide * inner
    total, real = 0.0, scorer.forward

    def counted(batch: Any) -> Any:
        nonlocal total
        tokens = batch.totals[: len(batch.asked.first)].astype(float)
        masks = float(batch.real.sum())
        total += 2 * tokens.sum() * (layers * attention + (layers - 1) * forward)
        total += 2 * masks * (forward + wide**2 + wide * scorer.outputs)
        total += 4 * layers * wide * (tokens**2).sum()
        return real(batch)

    scorer.forward = counted
    try:
        releasing(mechanism)(given)
    finally:
        del scorer.forward
    return total / sum(len(text.split()) for text in given)


def dpmlm(folder: Path, device: str, size: Size) -> list[Row]:
    """DP-MLM in the shape of roberta-base: sequential, in blocks, parallel."""
    from dptext_etl.device import computing

    most, where, lines = peak(device, size), str(computing()), []
    for name, settings in (
        ("sequential", {}),
        (f"blocks of {BLOCK}", {"decoding": "block", "block": BLOCK}),
        ("parallel", {"decoding": "parallel"}),
    ):
        made = gpu_models.dpmlm(folder, **settings)
        flops = useful(made, gpu_models.texts(size.texts, size, seed=5))
        given, seconds = timed(made, size)
        words = sum(len(text.split()) for text in given)
        share = flops * words / seconds / most
        enough = words / seconds * 60 >= WORDS_A_MINUTE and share >= SHARE
        judged = name == "parallel" and size is gpu_models.WHOLE
        lines.append(
            Row(
                f"DP-MLM, {name}, {len(given):,} texts of 2 to 50 words, {where}",
                f"{amount(words / seconds * 60)} words/min; {flops * words / seconds / 1e12:.3g} useful TFLOP/s",
                f"a product of {size.matrix:,} x {size.matrix:,} in bfloat16: {most / 1e12:.3g} TFLOP/s",
                share,
                f">= {WORDS_A_MINUTE:,} words/min and {SHARE:.0%} of it on an H200" if judged else "",
                enough if judged else None,
            )
        )
        lines += gpu_shares.rows(name, made, given, device)
    return lines


def documents(folder: Path, size: Size) -> list[Row]:
    """DP-BART and DP-Prompt in the shape of bart-base."""
    from dptext_etl.device import computing
    from dptext_etl_models.mechanisms.dp_prompt import DPPrompt
    from dptext_etl_models.mechanisms.dpbart import DPBart

    bart, where, lines = str(folder / "bart"), computing(), []
    for name, made in (
        ("DP-BART", DPBart(epsilon=500.0, n_rec=10_000, clip=0.1, model=bart, length=LENGTH, num_beams=1)),
        ("DP-Prompt", DPPrompt(epsilon=100.0, model=bart, clip=gpu_models.CLIP, l_max=LENGTH)),
    ):
        given, seconds = timed(made, size)
        work = f"{name}, bart-base shape, {LENGTH} tokens, {len(given):,} texts, {where}"
        lines.append(Row(work, f"{amount(len(given) / seconds * 60)} texts/min"))
    return lines


def search(folder: Path, device: str, size: Size) -> list[Row]:
    """MADLIB's search among all words: exact on the device, against the search on one machine's processor."""
    from dptext_etl.embeddings import WordVectors
    from dptext_etl.embeddings.search import NearestWords

    vectors = WordVectors.load(str(folder / "vectors.npz"))
    words, dimensions = vectors.vectors.shape
    longest = float(np.sqrt(vectors.norms.max()))
    near = NearestWords(vectors, 3 * longest)
    random = np.random.default_rng(7)
    noise = random.normal(size=(size.points, dimensions)) * longest / dimensions**0.5
    points = near.rounded(vectors.vectors[random.integers(words, size=size.points)] + noise)
    few = points[: max(1, size.points // 16)]
    near.by_torch(few, device)
    began = time.perf_counter()
    nearest = near.by_torch(points, device)
    seconds = time.perf_counter() - began
    near.nearest(few[:1], "cpu")
    began = time.perf_counter()
    expected = near.nearest(few, "cpu")
    host = time.perf_counter() - began
    return [
        Row(
            f"MADLIB's search, {words:,} words of {dimensions} dimensions, {device}",
            f"{amount(len(points) / seconds)} points/s",
            f"the processor: {amount(len(few) / host)} points/s",
            len(points) / seconds / (len(few) / host),
            "the same words",
            bool((nearest[: len(few)] == expected).all()),
        )
    ]
