"""Choose labels with a causal language model that sees no labeled text, to measure its knowledge without a release.

A text gets the label under whose name the model finds it most probable, after the prompt of `dptext corpus write`. The
probability under the topic "any" is not needed: it is the same for all labels.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl_models.training.corpus import stacked
from dptext_etl_models.writing import opened, prompt

LONGEST = 64
"""Tokens of a text that are read."""
_BATCH = 16
_REPORT = 15.0
"""Seconds between two lines of progress."""
Progress = Callable[[str], None]


def choose(
    model: str, about: str, topics: Mapping[str, str], texts: Sequence[str], progress: Progress = lambda _: None
) -> list[str]:
    """Return the most probable label of every text.

    Args:
        model: Folder of a causal model, a name on the hub, or a .gguf file.
        about: One public sentence about the texts.
        topics: Public words that describe a label, by label.
        texts: Any texts; they leave no trace.
        progress: Called with lines that say how far it is, and the time left.

    Raises:
        PolicyError: The model cannot be loaded.
    """
    model_and_files, tokenizer = opened(model)
    labels, distinct = list(topics), list(dict.fromkeys(texts))
    tokens = [tokenizer(f" {text[:2_000]}\n", add_special_tokens=False)["input_ids"][:LONGEST] for text in distinct]
    prompts = [list(tokenizer(prompt(about, topics[label], _order()))["input_ids"]) for label in labels]
    shared = prompts[0][: _shared(prompts)]
    done, of = 0, len(labels) * -(-len(distinct) // _BATCH)
    began = reported = time.monotonic()

    def tell() -> None:
        nonlocal done, reported
        done, now = done + 1, time.monotonic()
        if done in {1, of} or now - reported >= _REPORT:
            left, reported = (now - began) / done * (of - done), now
            progress(f"zero-shot labels: {done:,} of {of:,} batches; about {left:.0f} s are left")

    read = _read(model_and_files, shared)
    logs = np.stack(
        [_logs(model_and_files, _read(model_and_files, ids[len(shared) :], read), tokens, tell) for ids in prompts]
    )
    chosen = {text: labels[place] for text, place in zip(distinct, logs.argmax(axis=0), strict=True)}
    return [chosen[text] for text in texts]


def _order() -> random.Random:
    return random.Random(0)  # noqa: S311  (nothing is secret)


def _shared(prompts: Sequence[Sequence[int]]) -> int:
    """Return how many tokens at the beginning all prompts share; each prompt has one token more at least."""
    most = min(map(len, prompts)) - 1
    return next((at for at in range(most) if len({ids[at] for ids in prompts}) > 1), most)


def _read(model: Any, ids: Sequence[int], before: Any = None) -> Any:
    """Return a model's output for tokens that follow an earlier output, which stays as it is."""
    import torch

    earlier = None if before is None else copy.deepcopy(before.past_key_values)
    with torch.inference_mode():
        return model(torch.tensor([list(ids)]), past_key_values=earlier, use_cache=True) if ids else None


def _logs(model: Any, read: Any, tokens: Sequence[Sequence[int]], tell: Callable[[], None]) -> npt.NDArray[np.float64]:
    """Return the logarithm of the probability of every text after a prompt that was read, batch by batch."""
    import torch

    length = read.past_key_values.get_seq_length()
    logs = np.zeros(len(tokens))
    order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
    with torch.inference_mode():
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            chosen = [tokens[row] for row in rows]  # a mask hides tokens after the end
            texts, real = (
                torch.from_numpy(stacked(part, 0)) for part in (chosen, [[1] * len(text) for text in chosen])
            )
            cache = copy.deepcopy(read.past_key_values)
            cache.batch_repeat_interleave(len(rows))
            seen = torch.cat([torch.ones((len(rows), length), dtype=torch.long), real], dim=1)
            scores = model(texts, past_key_values=cache, attention_mask=seen).logits
            scores = torch.cat([read.logits[:, -1:].expand(len(rows), -1, -1), scores[:, :-1]], dim=1)
            of_tokens = scores.float().log_softmax(-1).gather(2, texts[:, :, None])[:, :, 0]
            logs[rows] = (of_tokens * real).sum(dim=1).numpy()
            tell()
    return logs
