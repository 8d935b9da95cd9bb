"""Measure how well a masked language model finds words on held-out texts, and compare it with a guess without context.

There are three settings, each in the form of strict releases (words in lower case, no punctuation). In the first, a
text stands alone with 15 % of its words masked. In the second, the model sees the pair of DP-MLM: the plain text, then
the text with masks, so that finding a word is mostly copying. In the third, every word of the second copy is masked, as
in parallel decoding. All masked words count; words outside the vocabulary count as missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl_models.training.corpus import clean, sentences, words
from dptext_etl_models.training.masked.examples import (
    Example,
    Ids,
    Masked,
    Words,
    alone,
    drawable,
    masking,
    padded,
    pair,
    segment,
)
from dptext_etl_models.training.words.vocabulary import MASK

SETTINGS = ("alone", "pair", "pair, all masked")
_SHARE = 0.15
_PIECES = 300  # pieces per corpus, about
_WORDS = (8, 40)  # smallest and largest number of words of a piece
_ROWS = 16
_TEN = 10


@dataclass
class Score:
    """Count the masked words of one setting, and how many of them were found."""

    words: int = 0  # masked words
    first: int = 0  # words with the highest score
    ten: int = 0  # words among the ten highest scores
    guess: int = 0  # words that equal the most frequent word
    guess_ten: int = 0  # words among the ten most frequent words

    def shares(self) -> dict[str, float]:
        """Return the shares of found words."""
        return {name: getattr(self, name) / max(1, self.words) for name in ("first", "ten", "guess", "guess_ten")}


def figures(
    folder: Path, examined: Mapping[str, Sequence[str]], unigrams: Sequence[str], pieces: int = _PIECES
) -> dict[str, dict[str, Score]]:
    """Evaluate the model in a folder."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForMaskedLM

    model = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    known = tokenizer.get_vocab()
    guesses = np.array([known[word] for word in unigrams])
    found: dict[str, dict[str, Score]] = {"all": {name: Score() for name in SETTINGS}}
    for corpus, texts in examined.items():
        found[corpus] = {name: Score() for name in SETTINGS}
        rng = np.random.default_rng(0)
        for group in _grouped(segment(list(_runs(texts, pieces)), tokenizer, drawable(tokenizer))):
            for name, examples in _examples(group, rng).items():
                batch = padded([example for example, _ in examples])
                asked = batch.ids == MASK
                truth = np.concatenate([labels for _, labels in examples])
                best = _best(model, batch, asked)
                for score in (found[corpus][name], found["all"][name]):
                    _count(score, truth, best, guesses)
    return found


def _best(model: Any, batch: Masked, asked: npt.NDArray[np.bool_]) -> Ids:
    """Return the ten ids with the highest scores at every mask, shape (masks, 10)."""
    import torch

    ids, attended, types = (torch.from_numpy(part) for part in (batch.ids, batch.attended, batch.types))
    with torch.inference_mode():
        hidden = model.base_model(input_ids=ids, attention_mask=attended, token_type_ids=types).last_hidden_state
        scores = model.lm_head(hidden[torch.from_numpy(asked)])
        best: Ids = scores.topk(_TEN).indices.numpy()
    return best


def _count(score: Score, truth: Ids, best: Ids, guesses: Ids) -> None:
    score.words += len(truth)
    score.first += int((best[:, 0] == truth).sum())
    score.ten += int((best == truth[:, None]).any(axis=1).sum())
    score.guess += int((truth == guesses[0]).sum())
    score.guess_ten += int(np.isin(truth, guesses).sum())


def _runs(texts: Sequence[str], pieces: int) -> Iterator[str]:
    """Yield one sequence of sentences per text, of texts spread evenly over a corpus."""
    least, most = _WORDS
    step = max(1, len(texts) // pieces)
    left = pieces
    for text in texts[::step]:
        run: list[str] = []
        for sentence in sentences(clean(text)):
            run += words(sentence)
            if len(run) >= least:
                break
        if len(run) >= 2 and left:
            left -= 1
            yield " ".join(run[:most])


def _grouped(texts: Sequence[Words]) -> Iterator[list[Words]]:
    some = [text.cut(60) for text in texts if text.asked.any()]
    for start in range(0, len(some), _ROWS):
        yield some[start : start + _ROWS]


def _examples(group: Sequence[Words], rng: np.random.Generator) -> dict[str, list[tuple[Example, Ids]]]:
    """Return the examples of some texts by setting, and the masked ids in order."""
    made: dict[str, list[tuple[Example, Ids]]] = {name: [] for name in SETTINGS}
    for text in group:
        possible = np.flatnonzero(text.masked)
        number = max(1, round(_SHARE * len(possible)))
        some = np.sort(rng.choice(possible, size=number, replace=False))
        plain = masking(text, some[:0])
        made["alone"].append((alone(masking(text, some)), _truth(text, some)))
        made["pair"].append((pair(plain, masking(text, some)), _truth(text, some)))
        made["pair, all masked"].append((pair(plain, masking(text, possible)), _truth(text, possible)))
    return made


def _truth(text: Words, chosen: Ids) -> Ids:
    """Return the ids of words; -1 for a word that is no single id."""
    return np.where(text.asked[chosen], text.ids[text.starts[:-1][chosen]], -1)
