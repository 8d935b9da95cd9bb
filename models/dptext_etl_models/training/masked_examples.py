"""Make the training examples of a masked language model: texts with masked words, separate or after a plain copy.

DP-MLM gives the model a pair, `<s> original </s></s> original with a mask </s>`, and draws one id for the mask
(Meisenbacher et al. 2024, algorithms 1 and 2). Some of the examples are such pairs. In their second copy, random words
replace some of the other words, as earlier draws do. One mask replaces a word, whatever its number of pieces. A word
without a single id may be masked too, but the loss does not count it. All examples depend only on the seed and the
number of the pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import InputError
from dptext_etl_models.training.corpus import NOTHING, clean, sentences, stacked, words
from dptext_etl_models.training.vocabulary import END, MASK, PADDING, START, whole_words

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ids = npt.NDArray[np.int64]
Example = tuple[list[int], list[int]]
"""Token ids, and labels: the masked id at every mask, `NOTHING` elsewhere."""
_WORDS = 0.8  # words to draw per token id of a batch


@dataclass(frozen=True)
class Recipe:
    """Say how examples are made."""

    single: float = 0.25  # share of masked words in a text without a plain copy, and in the first copy of a pair
    first: float = 0.1  # share of masks in the first copy of a pair; the model must find these words from their context
    second: tuple[float, float] = (0.05, 0.6)  # smallest and largest share of masked words in a second copy
    noise: float = 0.1  # share of random words among the other words of the second copy
    pairs: float = 0.4  # share of examples that are pairs
    plain: float = 0.75  # share of examples without punctuation, as strict mechanisms read them
    short: int = 64  # largest number of ids of most examples
    long: int = 128  # largest number of ids of the other examples
    longs: float = 0.15  # share of examples with up to `long` ids


@dataclass(frozen=True)
class Masked:
    """Hold a batch: ids with masks, shape (rows, length), and the masked ids as labels (`NOTHING` elsewhere)."""

    ids: Ids
    labels: Ids

    @property
    def attended(self) -> npt.NDArray[np.bool_]:
        """Return True at every position that is not padding, shape (rows, length)."""
        mask: npt.NDArray[np.bool_] = self.ids != PADDING
        return mask

    @property
    def types(self) -> Ids:
        """Return the copy of each position, 0 or 1: the second copy begins after the second end."""
        ends = self.ids == END
        kinds: Ids = (np.cumsum(ends, axis=1) - ends >= 2).astype(np.int64)
        return kinds


@dataclass
class Words:
    """Hold the words of one text as ids: word i has the ids `ids[starts[i]:starts[i + 1]]`."""

    ids: Ids  # ids of pieces in order
    starts: Ids  # index of the first id of each word, and the number of ids
    asked: npt.NDArray[np.bool_] = field(repr=False)  # True for each word that is one id, which a mechanism could draw
    # True for each word that may be masked; it is False for punctuation
    masked: npt.NDArray[np.bool_] = field(repr=False)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def cut(self, limit: int) -> Words:
        """Return the longest run of first words that has at most `limit` ids."""
        kept = int(np.searchsorted(self.starts, limit, side="right")) - 1
        return Words(self.ids[: self.starts[kept]], self.starts[: kept + 1], self.asked[:kept], self.masked[:kept])


def drawable(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """Return True for each id that is a whole word, shape (ids,)."""
    usable = np.zeros(tokenizer.get_vocab_size(), dtype=bool)
    usable[whole_words(tokenizer)] = True
    return usable


def segment(texts: Sequence[str], tokenizer: Tokenizer, whole: npt.NDArray[np.bool_]) -> list[Words]:
    """Tokenize texts and find their words."""
    examples = []
    for encoded in tokenizer.encode_batch(list(texts), add_special_tokens=False):
        ids = np.array(encoded.ids, dtype=np.int64)
        of_word = np.array(encoded.word_ids, dtype=np.int64)
        begins = np.flatnonzero(np.diff(of_word, prepend=-1))
        starts = np.append(begins, len(ids)).astype(np.int64)
        alone = np.diff(starts) == 1
        maskable = whole[ids[begins]] & alone
        examples.append(Words(ids, starts, maskable, maskable | ~alone))
    return examples


def masking(text: Words, chosen: Ids, exchanged: Mapping[int, int] | None = None) -> Example:
    """Replace each chosen word by one mask; return ids and labels."""
    hidden = set(chosen.tolist())
    exchanged = exchanged or {}
    pieces = text.ids.tolist()
    starts = text.starts.tolist()
    ids: list[int] = []
    labels: list[int] = []
    for word, is_asked in enumerate(text.asked.tolist()):
        here = pieces[starts[word] : starts[word + 1]]
        if word in hidden:
            ids.append(MASK)
            labels.append(here[0] if is_asked else NOTHING)
        else:
            here = [exchanged[word]] if word in exchanged else here
            ids += here
            labels += [NOTHING] * len(here)
    return ids, labels


def pair(first: Example, second: Example) -> Example:
    """Join two copies as RoBERTa joins a pair."""
    ids = [START, *first[0], END, END, *second[0], END]
    return ids, [NOTHING, *first[1], NOTHING, NOTHING, *second[1], NOTHING]


def alone(text: Example) -> Example:
    """Frame one text as RoBERTa frames it."""
    return [START, *text[0], END], [NOTHING, *text[1], NOTHING]


def padded(examples: Sequence[Example]) -> Masked:
    """Stack examples, padded to the longest."""
    return Masked(stacked([ids for ids, _ in examples], PADDING), stacked([want for _, want in examples], NOTHING))


class Examples:
    """Make batches from public texts; batch number i depends only on the texts, the settings, and i."""

    def __init__(
        self,
        corpora: Sequence[tuple[Sequence[str], float]],
        tokenizer: Tokenizer,
        *,
        recipe: Recipe,
        tokens: int,
        seed: int,
        pool: int,
    ) -> None:
        self._corpora = corpora
        self._tokenizer = tokenizer
        self._drawable = drawable(tokenizer)
        self._words = np.flatnonzero(self._drawable)
        self._recipe = recipe
        self._tokens = tokens
        self._seed = seed
        self._pool = pool
        self._held: tuple[int, list[Masked]] = (-1, [])

    def __getitem__(self, number: int) -> Masked:
        pool, place = divmod(number, self._pool)
        if self._held[0] != pool:
            self._held = (pool, self._batches(np.random.default_rng([self._seed, pool])))
        return self._held[1][place]

    def _batches(self, rng: np.random.Generator) -> list[Masked]:
        """Make a pool of batches in random order; the examples of a batch have about one length."""
        batch: list[Example] = []
        total = sum(share for _, share in self._corpora)
        groups: list[list[Example]] = []
        while len(groups) < self._pool:
            for texts, share in self._corpora:
                pieces = list(self._draw(texts, _WORDS * self._pool * self._tokens * share / total, rng))
                examples = (self._example(text, rng) for text in segment(pieces, self._tokenizer, self._drawable))
                batch += [example for example in examples if example is not None]
            if not batch:
                raise InputError(
                    "no text of the corpora has a word of the vocabulary", "give more texts or more entries"
                )
            groups = list(self._groups(sorted(batch, key=lambda example: len(example[0]))))
        return [padded(groups[number]) for number in rng.permutation(len(groups))[: self._pool]]

    def _draw(self, texts: Sequence[str], least: float, rng: np.random.Generator) -> Iterator[str]:
        """Draw texts until they hold enough words; yield sequences of their sentences."""
        drawn = 0
        while drawn < least:
            for piece in self._cut(clean(texts[int(rng.integers(len(texts)))]), rng):
                drawn += piece.count(" ") + 1
                yield piece

    def _groups(self, examples: Sequence[Example]) -> Iterator[list[Example]]:
        group: list[Example] = []
        for example in examples:
            if group and len(example[0]) * (len(group) + 1) > self._tokens:
                yield group
                group = []
            group.append(example)
        if group:
            yield group

    def _cut(self, text: str, rng: np.random.Generator) -> Iterator[str]:
        """Cut a text into sequences of sentences of very different lengths."""
        plain = rng.random() < self._recipe.plain
        run: list[str] = []
        limit = rng.integers(1, self._recipe.short)
        for sentence in sentences(text):
            run += words(sentence) if plain else sentence.split()
            if len(run) >= limit:
                yield " ".join(run)
                run = []
                limit = rng.integers(1, self._recipe.short if rng.random() >= self._recipe.longs else self._recipe.long)
        if run:
            yield " ".join(run)

    def _example(self, text: Words, rng: np.random.Generator) -> Example | None:
        recipe = self._recipe
        doubled = rng.random() < recipe.pairs
        length = recipe.long if rng.random() < recipe.longs else recipe.short
        text = text.cut((length - 4) // 2 if doubled else length - 2)
        if len(text) < 2 or not text.asked.any():
            return None
        if not doubled:
            return alone(masking(text, self._some(text, recipe.single, rng)))
        first = masking(text, self._some(text, recipe.first, rng, least=0))
        hidden = self._some(text, rng.uniform(*recipe.second), rng)
        noisy = np.flatnonzero(text.masked & (rng.random(len(text)) < recipe.noise))
        drawn = rng.choice(self._words, size=len(noisy))
        return pair(first, masking(text, hidden, dict(zip(noisy.tolist(), drawn.tolist(), strict=True))))

    def _some(self, text: Words, share: float, rng: np.random.Generator, least: int = 1) -> Ids:
        possible = np.flatnonzero(text.masked)
        number = min(len(possible), max(least, int(share * len(possible) + rng.random())))
        return np.sort(rng.choice(possible, size=number, replace=False))
