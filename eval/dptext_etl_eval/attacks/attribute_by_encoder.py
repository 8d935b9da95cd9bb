"""Guess a secret of the writer by a fine-tuned encoder, as papers 000 and 001 do with larger ones."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dptext_etl_eval.classifier import Guesses, require_classes, scores
from dptext_etl_eval.measure import MODEL, Attack, Score
from dptext_etl_eval.pairs import ATTRIBUTE, MODELS, RAW, RELEASED, Pairs, Values


class AttributeByEncoder(Attack):
    """The static and the adaptive attacker with a small pretrained encoder in place of counts of words."""

    title: ClassVar[str] = "Guessing the attribute by a fine-tuned encoder"
    says: ClassVar[str] = (
        f"{MODEL} with a new head, fine-tuned on seven tenths of the rows and tested on the others; with subjects, no "
        "person is in both. It reads order and context, which counts of words do not."
    )
    knows: ClassVar[str] = "other people's texts (raw, or released) with their attributes, and a public language model"
    needs: ClassVar[frozenset[str]] = frozenset({ATTRIBUTE, MODELS})
    order: ClassVar[int] = 15
    weight: ClassVar[float] = 150.0

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return macro-F1 and accuracy of both attackers, with an attack on raw texts and the most frequent value."""
        assert pairs.attribute is not None  # noqa: S101  (`needs` says so)
        require_classes(pairs.attribute, ATTRIBUTE)
        names, codes = np.unique(pairs.attribute, return_inverse=True)
        learn, test = parted(pairs.subject, len(pairs))
        truth, most = codes[test], np.bincount(codes[learn]).argmax()

        def guesses(guess: object, which: str) -> Guesses:
            assert callable(guess)  # noqa: S101
            made = guess([pairs.texts(which)[row] for row in test])
            return Guesses(names[truth], names[made], np.full(len(truth), names[most]))

        static, adaptive = (
            tuned(MODEL, [pairs.texts(which)[row] for row in learn], codes[learn], len(names))
            for which in (RAW, RELEASED)
        )
        raw = guesses(static, RAW)
        groups = None if pairs.subject is None else pairs.subject[test]
        return [
            score
            for kind, guess in (("adaptive", adaptive), ("static", static))
            for score in scores(guesses(guess, RELEASED), raw, f"{kind} attacker, {{figure}}", groups)
        ]


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
