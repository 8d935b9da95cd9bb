"""Measurements of DP-MLM, each in a separate process as in `tasks.py`; models come from `random_models.py`."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tasks import clocked, data

EPSILON = 100.0
CLIP = (-3.2093127, 16.304797887802124)  # the paper's, of roberta-base
LONG = 19  # words and more
EVEN = 20  # words


def texts(rows: int, least: int = 1) -> list[str]:
    """Return sentences of SST-2's test and validation splits, cut to their words in lower case: every word is drawn."""
    import polars as pl

    from dptext_etl import _kernel

    frame = pl.read_parquet(data("sst2/sst2.parquet")).filter(pl.col("split") != "train")
    picked = (
        " ".join(word.lower() for word, is_word in _kernel.split(text) if is_word)
        for text in frame["text"].sample(frame.height, seed=1, shuffle=True)
    )
    return [text for text in picked if len(text.split()) >= least][:rows]


def even_texts(folder: str, rows: int) -> list[str]:
    """Return sentences of 20 words that have one token each: as few texts of one length as fill every batch.

    A column of thousands of texts fills its batches whatever their lengths; a few of all lengths would not.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    some = [text for text in texts(3_000, EVEN) if len(text.split()) == EVEN]
    return [text for text in some if len(tokenizer(f" {text}")["input_ids"]) == EVEN + 2][:rows]


def long_texts(rows: int, words: int) -> list[str]:
    """Return texts of exactly this number of words, made of sentences one after the other."""
    every = " ".join(texts(3_000)).split()
    return [" ".join(every[row * words : (row + 1) * words]) for row in range(rows)]


def alike(rows: int, words: int) -> list[str]:
    """Return texts of the same words in other orders: equal lengths in tokens, so that batches are full."""
    (one,) = (text.split() for text in long_texts(1, words))
    return [" ".join(random.Random(row).sample(one, words)) for row in range(rows)]


def chosen(folder: str, sample: str, rows: int) -> list[str]:
    """Return a sample: "even" or "long" sentences."""
    return even_texts(folder, rows) if sample == "even" else texts(rows, LONG)


def spread(given: list[str], rows: int) -> list[str]:
    """Return a few texts from the shortest to the longest, as many words on average as all have."""
    ordered = sorted(given, key=lambda text: len(text.split()))
    return [ordered[(2 * number + 1) * len(ordered) // (2 * rows)] for number in range(rows)]


def plain_dpmlm(folder: str, sample: str, of: int, rows: int) -> dict[str, float]:
    """The frozen loop over a few texts of a sample, stopwords kept as the published script does.

    Returns words, how many of them were drawn, and the CPU-seconds of a sequence in a batch of 16 by 50 tokens.
    """
    import torch
    from plain_loops import dpmlm_text

    from dptext_etl.embeddings import stopwords

    model, tokenizer = loaded(folder)
    kept = frozenset(stopwords("english").words)
    dpmlm_text("a film", model, tokenizer, EPSILON, CLIP, frozenset())
    given = spread(chosen(folder, sample, of), rows)
    result = clocked(lambda: [dpmlm_text(text, model, tokenizer, EPSILON, CLIP, kept) for text in given])
    words = [word for text in given for word in text.split()]
    ids = torch.randint(5, model.config.vocab_size, (16, 50), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        batch = min(clocked(lambda: model(input_ids=ids))["cpu"] for _ in range(3))
    return {**result, "words": len(words), "drawn": sum(word not in kept for word in words), "sequence": batch / 16}


def loaded(folder: str) -> tuple[Any, Any]:
    """Return model and tokenizer as a script loads them."""
    import torch
    from transformers import AutoTokenizer, RobertaForMaskedLM

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return RobertaForMaskedLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def dpmlm(folder: str, jobs: list[dict[str, Any]], dtype: str = "float32") -> dict[str, Any]:
    """The column, one job after the other: a sample of some texts, or texts of an exact number of words.

    Every job gives `rows`, `sample` or `words` (with `alike`, texts of the same words in another order each), and the
    mechanism's settings.
    """
    results: dict[str, Any] = {"jobs": []}
    for job in jobs:
        rows, sample, words = job.pop("rows"), job.pop("sample", None), job.pop("words", None)
        given = alike(rows, words) if job.pop("alike", False) else None
        given = given or (chosen(folder, sample, rows) if sample else long_texts(rows, words))
        release = releasing(folder, dtype, **job)
        release([given[0][:30]])
        taken = clocked(partial(release, given))
        results["jobs"].append({**taken, "words": sum(len(text.split()) for text in given)})
    return results


def one_draw(folder: str, lengths: list[int], draws: int = 2) -> dict[str, float]:
    """Sequential decoding: CPU-seconds of one draw in the middle of texts of this number of words, in full batches.

    A whole text of 400 words would run for minutes; every draw of a text costs as much as one in its middle.
    """
    import numpy as np
    import pyarrow as pa

    from dptext_etl import sampling
    from dptext_etl_models.inference.masked.scorer import Shape
    from dptext_etl_models.inference.masked.script import Script

    mechanism = made(folder, "float32", decoding="sequential")
    scorer = mechanism.scorer()
    low, high = mechanism.score_range
    results = {}
    for words in (lengths[0], *lengths):  # the first one twice: warm
        script = Script.plain(long_texts(1, words)[0].split())
        tokens = 2 * sum(map(len, scorer.lexicon.encode(script.words))) + 4
        length, masks = scorer.shapes(np.array([min(tokens, scorer.frame.window - 1)]), np.array([1]))[0].tolist()
        rows = scorer.rows(Shape(length, masks))
        session = scorer.open([script] * rows)
        began = time.process_time()
        for place in range(words // 2, words // 2 + draws):
            session.ask(np.array([(row, place, place + 1) for row in range(rows)]))
            answered = 0
            while answered < rows:
                answer = session.answer()
                records, places = answer.records.astype(np.uint32), answer.draws.astype(np.uint64)
                slots = sampling.Slots(pa.array([bytes(32)] * rows, pa.binary(32)), records, places)
                sampling.choose(answer.scores, slots, epsilon=EPSILON, low=low, high=high)
                answered += len(records)
        results[str(words)] = (time.process_time() - began) / (draws * rows)
    return results


def made(folder: str, dtype: str, **settings: Any) -> Any:
    """Return the mechanism, in whose process torch has as many threads as the task."""
    import torch

    from dptext_etl_models.mechanisms.dpmlm import DPMLM

    os.environ |= {"DPTEXT_DEVICE": "cpu", "DPTEXT_DTYPE": dtype}
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return DPMLM(epsilon=EPSILON, model=folder, clip=CLIP, **settings)


def releasing(folder: str, dtype: str, **settings: Any) -> Callable[[list[str]], Any]:
    """Return what releases a list of texts through the column path, under a key that is thrown away."""
    import pyarrow as pa

    from dptext_etl.column import draw
    from dptext_etl.keys import throwaway

    mechanism = made(folder, dtype, **settings)
    key = throwaway(mechanism.cfg())

    def released(given: list[str]) -> Any:
        ids = pa.array([str(row) for row in range(len(given))])
        return draw(mechanism, pa.array(given, pa.large_string()), ids, key)

    return released


TASKS: dict[str, Callable[..., dict[str, float]]] = {task.__name__: task for task in (plain_dpmlm, dpmlm, one_draw)}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
