"""Fine-tune a small encoder to guess a column from texts, on one part of the rows, and test it on the rest."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl_eval.pairs import Values

EPOCHS, RATE, ROWS, LONGEST = 3, 5e-4, 32, 64
TRAIN_SHARE = 0.7

Rows = npt.NDArray[np.intp]


def parted(groups: Values | None, rows: int) -> tuple[Rows, Rows]:
    """Return the rows to learn from and those to test on; no person is in both."""
    codes = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(int(codes.max()) + 1)
    learnt = np.isin(codes, order[: max(1, int(TRAIN_SHARE * len(order)))])
    return np.flatnonzero(learnt), np.flatnonzero(~learnt)


def tuned(name: str, texts: Sequence[str], truth: npt.NDArray[np.int64], classes: int) -> Any:
    """Fine-tune a copy of an encoder with a new head."""
    import torch

    from dptext_etl_models.inference import language_model

    files = language_model.model_files(name)
    tokenizer, source = language_model.tokenizer(files), language_model.masked_model(files).base_model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        base = copy.deepcopy(source).requires_grad_(True).train()
        head = torch.nn.Linear(source.config.hidden_size, classes)

        def scores(part: Sequence[str]) -> Any:
            held = tokenizer(list(part), padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
            given = {field: held[field] for field in ("input_ids", "attention_mask")}
            real = given["attention_mask"][..., None]
            return head((base(**given)[0] * real).sum(1) / real.sum(1))

        weights = [*base.parameters(), *head.parameters()]
        steps = EPOCHS * -(-len(texts) // ROWS)
        optimizer = torch.optim.AdamW(weights, lr=RATE, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
        for epoch in range(EPOCHS):
            order = np.random.default_rng(epoch).permutation(len(texts))
            for first in range(0, len(order), ROWS):
                rows = order[first : first + ROWS]
                loss = torch.nn.functional.cross_entropy(
                    scores([texts[row] for row in rows]), torch.as_tensor(truth[rows])
                )
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
                optimizer.step()
                schedule.step()
    base.eval()

    def guess(asked: Sequence[str]) -> npt.NDArray[np.int64]:
        with torch.inference_mode():
            found = [scores(asked[first : first + ROWS]).argmax(1).numpy() for first in range(0, len(asked), ROWS)]
        return np.concatenate(found)

    return guess
