"""Infer words of the raw text from a release by masking its words one by one (masked token inference, MTI).

Specification: docs/spec/privacy.md#mti. Meisenbacher et al. 2025 define it; its published code compares with the wrong
position and uses another model than the paper says. Here position j is compared with word j, and nothing is skipped
in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from dptext_etl.device import device
from dptext_etl_eval.evaluators import SMALL, positions
from dptext_etl_eval.measure import Attack, Score
from dptext_etl_eval.pairs import MASKED_MODEL, RAW, RELEASED, Pairs
from dptext_etl_eval.statistics import wilson

POSITIONS = 1_000
"""Words that are masked, in whole texts."""
TOP = 3
LONGEST = 128
"""Tokens of a text that the model reads."""
_ROWS = 64


class Masked(NamedTuple):
    """A word that was masked."""

    row: int  # row of its text
    place: int  # its place among the words of the text, from 0
    tokens: list[int]  # tokens of the text with one mask in the place of the word


class MaskedTokens(Attack):
    """Share of masked words of a release whose prediction is the raw word there, or any raw word of the text."""

    title: ClassVar[str] = "Masked token inference"
    says: ClassVar[str] = (
        f"A masked language model ({SMALL}, or the one of --masked-model) predicts every word of a release from the "
        "others. By position: the prediction is the raw word in that place, where a release is as long as its text. "
        "By bag: it is any word of the raw text. The baseline always guesses the most common words of the raw texts."
        " Privacy by Meisenbacher et al. 2025 is 1 minus the share."
    )
    knows: ClassVar[str] = "the release and a public language model"
    needs: ClassVar[frozenset[str]] = frozenset({MASKED_MODEL})
    order: ClassVar[int] = 57
    weight: ClassVar[float] = 40.0

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the shares by position and by bag, for the first prediction and for the first three."""
        model = Predictor(pairs.masked_model)
        words = pairs.words(RAW)
        every, counts = np.unique([word for text in words for word in text] or [""], return_counts=True)
        common = [str(word) for word in every[np.argsort(-counts, kind="stable")[:TOP]]]
        key = ("masked", RAW, pairs.masked_model)
        if key not in pairs.memory:
            pairs.memory[key] = _shares(model, pairs, RAW)
        released, raw = _shares(model, pairs, RELEASED), pairs.memory[key]
        blind = _shares(model, pairs, RELEASED, always=common)
        return [
            Score(
                f"{kind}, {'first prediction' if top == 1 else f'first {top} predictions'}",
                hits / total if total else None,
                wilson(hits, total) if total else None,
                blind=blind[kind, top][0] / total if total else None,
                raw=raw[kind, top][0] / raw[kind, top][1] if raw[kind, top][1] else None,
                note="" if total else "no release is as long as its raw text",
            )
            for (kind, top), (hits, total) in released.items()
        ]


class Predictor:
    """Predict masked words by a masked language model, which reads `longest` tokens of a text at most."""

    def __init__(self, name: str, longest: int = LONGEST) -> None:
        from dptext_etl_models.inference import language_model
        from dptext_etl_models.inference.masked.model import MaskedModel

        files = language_model.model_files(name)
        self._tokenizer = language_model.tokenizer(files)
        vocabulary = len(self._tokenizer)
        model = language_model.masked_model(files, device())
        self._longest = min(longest, positions(model))
        self._model = MaskedModel(model, np.arange(vocabulary), self._longest + 1)
        self._around = self._tokenizer.encode("")  # the start and the end of a text, as its models have them

    def masked(self, row: int, words: Sequence[str]) -> Iterator[Masked]:
        """Yield every word of a text as it is masked, as far as the model reads."""
        pieces = [self._tokenizer.encode(f" {word}", add_special_tokens=False) for word in words]
        mask = [self._tokenizer.mask_token_id]
        for place in range(len(words)):
            parts = [mask if at == place else piece for at, piece in enumerate(pieces)]
            inner = [token for part in parts for token in part][: self._longest - 2]
            if mask[0] in inner:
                yield Masked(row, place, [*self._around[:1], *inner, *self._around[1:]])

    def predict(self, rows: Sequence[Masked]) -> list[list[str]]:
        """Return the three likeliest words at every mask, in lower case."""
        from dptext_etl_models.training.corpus import stacked

        out: list[list[str]] = []
        order = sorted(range(len(rows)), key=lambda number: len(rows[number].tokens))
        for first in range(0, len(order), _ROWS):
            batch = [rows[number].tokens for number in order[first : first + _ROWS]]
            totals = np.array([len(tokens) for tokens in batch])
            padding = self._tokenizer.pad_token_id
            ids = stacked([[*tokens, padding] for tokens in batch], padding)
            masks = (ids == self._tokenizer.mask_token_id).argmax(axis=1)[:, None]
            scores = self._model.forward(ids, totals, np.zeros_like(ids), masks)[:, 0]
            best = scores.topk(TOP).indices.tolist()
            out += [[self._tokenizer.decode([token]).strip().lower() for token in row] for row in best]
        placed: list[list[str]] = [[]] * len(rows)
        for number, words in zip(order, out, strict=True):
            placed[number] = words
        return placed


def _shares(
    model: Predictor, pairs: Pairs, which: str, always: list[str] | None = None
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return hits and masked positions, by kind and number of predictions."""
    before, after = pairs.words(RAW), pairs.words(which)
    rows: list[Masked] = []
    for row, words in enumerate(after):
        if len(rows) >= POSITIONS:
            break
        rows += model.masked(row, words)
    guessed = [always] * len(rows) if always is not None else model.predict(rows)
    aligned = [len(before[item.row]) == len(after[item.row]) for item in rows]
    hits_of: dict[tuple[str, int], tuple[int, int]] = {}
    for top in (1, TOP):
        placed = [
            before[item.row][item.place] in words[:top]
            for item, words, fits in zip(rows, guessed, aligned, strict=True)
            if fits
        ]
        inside = [bool(set(before[item.row]) & set(words[:top])) for item, words in zip(rows, guessed, strict=True)]
        hits_of["by position", top] = sum(placed), len(placed)
        hits_of["by bag", top] = sum(inside), len(inside)
    return hits_of
