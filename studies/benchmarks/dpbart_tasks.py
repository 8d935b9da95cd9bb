"""Measurements of DP-BART, each in a separate process as in `tasks.py`; the model is `random_models.py`'s."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from dpmlm_tasks import long_texts, texts
from tasks import clocked

EPSILON, N_REC, CLIP, LENGTH, WIDTH = 500.0, 10_000, 0.1, 20, 768


def plain_dpbart(folder: str, documents: int, beams: int) -> dict[str, float]:
    """The frozen loop: one document after the other."""
    import torch
    from plain_loops import dpbart_text
    from transformers import AutoTokenizer, BartForConditionalGeneration

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    model, tokenizer = (
        BartForConditionalGeneration.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    sigma = mechanism(folder).scale(LENGTH * WIDTH).sigma
    given = texts(documents + 1, LENGTH)

    def rewritten(some: list[str]) -> list[str]:
        return [dpbart_text(text, model, tokenizer, LENGTH, CLIP, sigma, beams) for text in some]

    rewritten(given[:1])
    return {**clocked(lambda: rewritten(given[1:])), "documents": documents}


def dpbart(folder: str, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """The column, one job after the other: numbers of documents, beams, tokens per document, and rows of a batch."""
    results: dict[str, Any] = {"jobs": []}
    for job in jobs:
        documents, length = job["documents"], job.get("length", LENGTH)
        release = releasing(mechanism(folder, length=length, num_beams=job["beams"]), job.get("rows"))
        given = texts(documents, LENGTH) if length == LENGTH else long_texts(documents, length)
        if job.get("warm"):
            release(given[:1])
        results["jobs"].append({**clocked(partial(release, given)), "documents": documents})
    return results


def noise(rows: int = 400) -> dict[str, float]:
    """Only noise, on latents of 20 x 768 numbers: samples, and CPU-seconds of Gaussian and of discrete Laplace."""
    import numpy as np
    import pyarrow as pa

    latents = np.random.default_rng(0).normal(size=(rows, LENGTH * WIDTH)) * CLIP
    keys = pa.array([number.to_bytes(32, "big") for number in range(rows)], pa.binary(32))
    results = {"samples": float(latents.size)}
    for kind in ("gaussian", "laplace"):
        made = mechanism("", noise=kind)
        made.add_noise(latents[:2], keys[:2])
        results[kind] = clocked(partial(made.add_noise, latents, keys))["cpu"]
    return results


def mechanism(folder: str, **settings: Any) -> Any:
    """Return the mechanism, in whose process torch has as many threads as the task."""
    import torch

    from dptext_etl_models.mechanisms.dpbart import DPBart

    os.environ |= {"DPTEXT_DEVICE": "cpu", "DPTEXT_DTYPE": "float32"}
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    bound = {} if settings.get("noise") == "laplace" else {"n_rec": N_REC}
    return DPBart(**{"epsilon": EPSILON, "model": folder, "clip": CLIP, **bound, **settings})


def releasing(mechanism: Any, rows: int | None) -> Callable[[list[str]], Any]:
    """Return what releases a list of texts through the column path, under a key that is thrown away.

    Args:
        mechanism: The model behind it is loaded here.
        rows: Of a batch, where it is not the usual number.
    """
    import pyarrow as pa

    from dptext_etl.column import draw
    from dptext_etl.keys import throwaway

    mechanism.latent_model.rows = rows or mechanism.latent_model.rows
    key = throwaway(mechanism.cfg())

    def released(given: list[str]) -> Any:
        ids = pa.array([str(row) for row in range(len(given))])
        return draw(mechanism, pa.array(given, pa.large_string()), ids, key)

    return released


TASKS: dict[str, Callable[..., dict[str, float]]] = {task.__name__: task for task in (plain_dpbart, dpbart, noise)}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
