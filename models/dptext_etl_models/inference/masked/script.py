"""Describe the positions of a text: which words are drawn, kept, added, or deleted, and how the drawn text is written.

The plan of algorithm 3 (corrected) says which words are deleted, and after which words another word is added. It
consists of Bernoulli trials that do not depend on any text, is drawn before anything is scored, from a stream of its
own, and so discloses nothing about the text. Given the plan, a release costs only the draws that it makes, at most two
per word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.allocation import Marked
from dptext_etl.guarantee import exact
from dptext_etl.mechanism import PAD
from dptext_etl.sampling import Choices, Slots, bernoulli

Numbers = npt.NDArray[np.int64]

INSERTED = -1
"""Instead of a word's index: the draw replaces no word."""
PADDED = -2
"""Instead of a word's index: the draw is after the end of the text, because its length is hidden."""


class Item(NamedTuple):
    """One position of a script: a draw, or a word that is kept."""

    word: int  # index of the word in its text, `INSERTED` or `PADDED`
    drawn: bool  # True for a draw, False for a word that is kept
    tail: int  # index of the first word of the text that still follows when this position is drawn


@dataclass(frozen=True, eq=False)
class Script:
    """A text and its positions, for the model: each field of `Item` as one array, shape (items,)."""

    words: Sequence[str]  # the words in the form that the model reads
    word: npt.NDArray[np.int64]
    drawn: npt.NDArray[np.bool_]
    tail: npt.NDArray[np.int64]

    @classmethod
    def of(cls, words: Sequence[str], items: Sequence[Item]) -> Script:
        """Make the script of some positions in order."""
        word, drawn, tail = zip(*items, strict=True) if items else ((), (), ())
        return cls(words, np.array(word, np.int64), np.array(drawn, bool), np.array(tail, np.int64))

    @classmethod
    def plain(cls, words: Sequence[str], kept: Sequence[bool] | None = None, padding: int = 0) -> Script:
        """Make the script that draws every word that is not kept, and then the padding."""
        count = len(words)
        word = np.arange(count + padding)
        tail, drawn = np.minimum(word + 1, count), np.ones(count + padding, bool)
        word[count:] = PADDED
        if kept:
            drawn[:count] = ~np.array(kept, bool)
        return cls(words, word, drawn, tail)

    @property
    def items(self) -> Iterator[Item]:
        """Return the positions in order."""
        return map(Item, self.word.tolist(), self.drawn.tolist(), self.tail.tolist())

    @cached_property
    def draws(self) -> int:
        """Return the number of draws."""
        return int(np.count_nonzero(self.drawn))


@dataclass(frozen=True, eq=False)
class Scripts(Sequence[Script]):
    """Texts and their positions, in one array per field for all of them; an item is the script of one text.

    Attributes:
        distinct: The words in the form that the model reads, each once.
        numbers: Number of every word of every text among the distinct ones.
        words_of: Where the words of each text begin, shape (texts + 1,).
        word: What `Item` says of each position, shape (items,); so are `drawn` and `tail`.
        items_of: Where the positions of each text begin, shape (texts + 1,).
    """

    distinct: Sequence[str]
    numbers: Numbers
    words_of: Numbers
    word: Numbers
    drawn: npt.NDArray[np.bool_]
    tail: Numbers
    items_of: Numbers

    @classmethod
    def of(cls, scripts: Sequence[Script]) -> Scripts:
        """Put the scripts of single texts together."""
        if isinstance(scripts, Scripts):
            return scripts
        number_of: dict[str, int] = {}
        numbers = [number_of.setdefault(word, len(number_of)) for script in scripts for word in script.words]
        word, drawn, tail = (
            np.concatenate([np.zeros(0, np.int64), *(getattr(script, name) for script in scripts)])
            for name in ("word", "drawn", "tail")
        )
        words_of = bounds([len(script.words) for script in scripts])
        items_of = bounds([len(script.word) for script in scripts])
        return cls(tuple(number_of), np.array(numbers, np.int64), words_of, word, drawn.astype(bool), tail, items_of)

    @classmethod
    def plain(
        cls, distinct: Sequence[str], numbers: Numbers, counts: Numbers, drawn: npt.NDArray[np.bool_], padding: Numbers
    ) -> Scripts:
        """Make the scripts that draw the words for which `drawn`, shape (words,), is true, and then the padding.

        Texts have `counts` words and `padding` draws after these, shape (texts,) each.
        """
        items = counts + padding
        place, count = within(items), np.repeat(counts, items)
        inside = place < count
        draws = np.ones(len(place), bool)
        draws[inside] = drawn
        word = np.where(inside, place, PADDED)
        return cls(distinct, numbers, bounds(counts), word, draws, np.minimum(place + 1, count), bounds(items))

    def __len__(self) -> int:
        return len(self.words_of) - 1

    @overload
    def __getitem__(self, place: int) -> Script: ...
    @overload
    def __getitem__(self, place: slice) -> Scripts: ...
    def __getitem__(self, place: int | slice) -> Script | Scripts:
        if isinstance(place, slice):
            return self._part(*place.indices(len(self))[:2])
        first = range(len(self))[place]
        (here, there), (begin, end) = self.words_of[first : first + 2], self.items_of[first : first + 2]
        words = [self.distinct[number] for number in self.numbers[here:there].tolist()]
        return Script(words, self.word[begin:end], self.drawn[begin:end], self.tail[begin:end])

    def _part(self, first: int, last: int) -> Scripts:
        """Return consecutive texts, which know no words of the others."""
        if (first, last) == (0, len(self)):
            return self
        words_of, items_of = self.words_of[first : last + 1], self.items_of[first : last + 1]
        items = slice(items_of[0], items_of[-1])
        used, numbers = np.unique(self.numbers[words_of[0] : words_of[-1]], return_inverse=True)
        return Scripts(
            [self.distinct[number] for number in used.tolist()],
            numbers.ravel(),
            words_of - words_of[0],
            self.word[items],
            self.drawn[items],
            self.tail[items],
            items_of - items_of[0],
        )

    @cached_property
    def draws(self) -> Numbers:
        """Return the number of draws of each text."""
        return self.counted(self.drawn)

    def counted(self, selection: npt.NDArray[np.bool_]) -> Numbers:
        """Count some of the positions, in each text."""
        return np.diff(bounds(selection)[self.items_of])


def bounds(sizes: Sequence[int] | Numbers | npt.NDArray[np.bool_]) -> Numbers:
    """Return where parts of these sizes begin, and where the last one ends, shape (n + 1,)."""
    tails = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=tails[1:])
    return tails


def within(sizes: Numbers) -> Numbers:
    """Count from 0 within each part."""
    ends = np.cumsum(sizes)
    return np.asarray(np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - sizes, sizes))


PLAN = 3
"""Purpose number of the trials: word i uses positions 2i (deleted?) and 2i + 1 (followed by another word?)."""


def draw_plans(
    keys: pa.Array, counts: npt.NDArray[np.int64], deletion: float, addition: float
) -> list[npt.NDArray[np.bool_]]:
    """Draw the plans of some texts."""
    records = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    words = np.arange(len(records), dtype=np.uint64) - np.repeat(starts[:-1], counts).astype(np.uint64)
    drawn = np.zeros((len(records), 2), bool)
    for side, chance in enumerate((deletion, addition)):
        slots = Slots(keys, records, 2 * words + np.uint64(side))
        drawn[:, side] = bernoulli(slots, exact(chance), purpose=PLAN)
    return [drawn[first:last] for first, last in pairwise(starts.tolist())]


def planned(words: Sequence[str], kept: Sequence[bool], plan: npt.NDArray[np.bool_]) -> Script:
    """Return the script of a text under a plan: remaining words and added words have one draw each."""
    items: list[Item] = []
    of_words = iter(plan.tolist())
    for number, keep in enumerate(kept):
        if keep:
            items.append(Item(number, drawn=False, tail=number + 1))
            continue
        deleted, followed = next(of_words)
        if not deleted:
            items.append(Item(number, drawn=True, tail=number + 1))
        if followed:
            items.append(Item(INSERTED, drawn=True, tail=number + 1))
    return Script.of(words, items)


@lru_cache(maxsize=4096)
def likely_draws(words: int, deletion: float, addition: float, delta: float) -> int:
    """Return the smallest t such that a text has more than t draws with probability at most `delta`.

    >>> likely_draws(20, 0.05, 0.1, 1e-6), likely_draws(100, 0.05, 0.25, 1e-6)
    (30, 144)
    """
    stays = 1.0 - deletion
    single = np.array([deletion * (1 - addition), stays * (1 - addition) + deletion * addition, stays * addition])
    distribution = _power(single, words)
    tails = np.cumsum(distribution[::-1])[::-1] * (
        1 + 1e-9
    )  # tails[t]: probability of at least t draws, plus a margin above all rounding errors
    beyond = np.append(tails[1:], 0.0)
    return int(np.argmax(beyond <= delta))


def _power(chances: npt.NDArray[np.float64], times: int) -> npt.NDArray[np.float64]:
    """Return the distribution of a sum of equal draws; sums of positive products lose hardly any precision."""
    total, square = np.ones(1), chances
    while times:
        if times & 1:
            total = np.convolve(total, square)
        times >>= 1
        if times:
            square = np.convolve(square, square)
    return total


def write_strict(script: Script, chosen: Choices, outputs: Sequence[str]) -> str:
    """Join drawn outputs and kept words by single blanks; the padding of a hidden length gives nothing."""
    drawn = map(outputs.__getitem__, chosen.tolist())
    if script.draws == len(script.drawn):
        return " ".join([word for word in drawn if word != PAD])
    written = (next(drawn) if item.drawn else script.words[item.word] for item in script.items)
    return " ".join([word for word in written if word != PAD])


def write_faithful(text: str, n_max: int, script: Script, chosen: Choices, outputs: Sequence[str]) -> str:
    """Put drawn outputs in the places of words, capitalized if the word was (as the paper's code does)."""
    drawn, places, last = iter(chosen.tolist()), dict[int, list[str]](), 0
    for item in script.items:
        if not item.drawn:
            last = item.word
            places[last] = [script.words[last]]
            continue
        word = outputs[next(drawn)].lower()
        if item.word == INSERTED:
            last = item.tail - 1
        else:
            last = item.word
            word = word.capitalize() if script.words[last][:1].isupper() else word
        places.setdefault(last, []).append(word)
    written, number, seen = [], 0, 0
    for segment, is_word in _kernel.split(text):
        seen += is_word
        if seen > n_max:
            break
        if segment.strip():
            written.append(" ".join(places.get(number, [])))
            number += 1
        else:
            written.append(segment)
    return "".join(written)


def marked(script: Script, words: Sequence[str], most: int) -> Marked:
    """Mark the words of a text: a draw that adds a word, or pads the text, has none."""
    return Marked(words, [item.word if item.word >= 0 else None for item in script.items if item.drawn], most)


def marked_again(script: Script, drawn: Sequence[str], most: int) -> Marked:
    """Mark the drawn words as a text with the same positions; kept words stay, and padding has no word."""
    outputs, words = iter(drawn), list[str]()
    places: list[int | None] = []
    for item in script.items:
        word = next(outputs) if item.drawn else script.words[item.word]
        if item.drawn:
            places.append(None if word == PAD else len(words))
        if word != PAD:
            words.append(word)
    return Marked(words, places, most)


def marked_along(text: str, steps: int, n_max: int) -> Marked:
    """Mark a text whose answer is drawn step by step: a step represents the word as far along the text as itself."""
    words = [segment for segment, is_word in _kernel.split(text) if is_word][:n_max]
    places = [step * len(words) // steps if words else None for step in range(steps)]
    return Marked(words, places, steps)
