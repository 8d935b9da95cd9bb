"""Choose labels with a causal language model that sees no labeled text, to measure its knowledge without a release.

A text gets the label under whose name the model finds it most probable, after the prompt of `dptext corpus write`. The
probability under the topic "any" is not needed: it is the same for all labels.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl_models.training.corpus import stacked
from dptext_etl_models.writing import opened, prompt

LONGEST = 64
"""Tokens of a text that are read."""
_BATCH = 16


def choose(model: str, about: str, topics: Mapping[str, str], texts: Sequence[str]) -> list[str]:
    """Return the most probable label of every text.

    Args:
        model: Folder of a causal model, a name on the hub, or a .gguf file.
        about: One public sentence about the texts.
        topics: Public words that describe a label, by label.
        texts: Any texts; they leave no trace.

    Raises:
        PolicyError: The model cannot be loaded.
    """
    model_and_files, tokenizer = opened(model)
    labels = list(topics)
    tokens = [tokenizer(f" {text[:2_000]}\n", add_special_tokens=False)["input_ids"][:LONGEST] for text in texts]
    logs = np.stack(
        [_logs(model_and_files, tokenizer, prompt(about, topics[label], _order()), tokens) for label in labels]
    )
    return [labels[place] for place in logs.argmax(axis=0)]


def _order() -> random.Random:
    return random.Random(0)  # noqa: S311  (nothing is secret)


def _logs(model: Any, tokenizer: Any, before: str, tokens: Sequence[Sequence[int]]) -> npt.NDArray[np.float64]:
    """Return the logarithm of the probability of every text after a prompt, which is read once."""
    import torch

    ids = tokenizer(before, return_tensors="pt")["input_ids"]
    logs = np.zeros(len(tokens))
    order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
    with torch.inference_mode():
        read = model(ids, use_cache=True)
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            some = [tokens[row] for row in rows]  # a mask hides tokens after the end
            texts, real = (torch.from_numpy(stacked(part, 0)) for part in (some, [[1] * len(text) for text in some]))
            cache = copy.deepcopy(read.past_key_values)
            cache.batch_repeat_interleave(len(rows))
            seen = torch.cat([torch.ones((len(rows), ids.shape[1]), dtype=torch.long), real], dim=1)
            scores = model(texts, past_key_values=cache, attention_mask=seen).logits
            scores = torch.cat([read.logits[:, -1:].expand(len(rows), -1, -1), scores[:, :-1]], dim=1)
            of_tokens = scores.float().log_softmax(-1).gather(2, texts[:, :, None])[:, :, 0]
            logs[rows] = (of_tokens * real).sum(dim=1).numpy()
    return logs
