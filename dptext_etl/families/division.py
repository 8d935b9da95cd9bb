"""Divide one budget of a record among draws of words, in one pass or in two.

What a mechanism brings is its `Division`: how words with given epsilons are drawn. Draws from integer weights have a
floor of every probability, so the text itself may divide their budget (Theorem A). Noise has none: what divides its
budget is public, or was released before. A bound per distance does not survive: two texts may give one word two
epsilons (docs/spec/privacy.md#allocation-by-mechanism).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel, scoring
from dptext_etl.allocation import Allocation, Epsilons, Marked, draw_in_passes
from dptext_etl.mechanism import PAD, Released
from dptext_etl.scoring import TOKEN, Slots, WordSampler

if TYPE_CHECKING:
    from dptext_etl.families.words import WordMechanism


class Read(NamedTuple):
    """The words of a text."""

    words: list[str]  # words that the model reads, in faithful mode also marks of punctuation
    kept: list[bool]  # True for each that is released in clear


def read_strict(text: str, kept: Collection[str], n_max: int) -> Read:
    """Read the first `n_max` words of a text in the form of lookups."""
    words = [segment for segment, is_word in _kernel.split(text) if is_word][:n_max]
    if not words:
        return Read([], [])
    words = _form("\n".join(words)).split("\n")  # no word holds a line end, and a letter's form does not depend on it
    return Read(words, [word in kept for word in words] if kept else [False] * len(words))


def read_faithful(text: str, kept: Collection[str], n_max: int) -> Read:
    """Read up to `n_max` words and the punctuation between them unchanged; keep punctuation and stopwords."""
    words, in_clear, seen = [], [], 0
    for segment, is_word in _kernel.split(text):
        seen += is_word
        if seen > n_max:
            break
        if segment.strip():
            words.append(segment.strip())
            in_clear.append(not is_word or _form(segment) in kept)
    return Read(words, in_clear)


def _form(word: str) -> str:
    """Return a word in the form of the kernel's lookups."""
    return word.lower().replace("\u2019", "'")


def parts(offsets: npt.NDArray[np.integer[Any]], most: int) -> Iterator[tuple[int, int]]:
    """Cut rows into parts of at most `most` draws or cells; a longer row is a part of its own."""
    ends = offsets.astype(np.int64)
    first, rows = 0, len(ends) - 1
    while first < rows:
        last = int(np.searchsorted(ends, ends[first] + most, side="right")) - 1
        last = max(first + 1, min(last, rows))
        yield first, last
        first = last


AT_ONCE = 2**18  # draws that are processed at once
UNKNOWN = 2**32 - 1  # number of every word outside the vocabulary
NOISE = (
    "its noise has no least probability, so two scales of one word can be distinguished without a bound; divide by "
    "what is no private text: template = [3, 2, 1] by position, templates and choosing, or first, a first release "
    'whose words are scored; or take santext, or diffractor with variant "tem", which the text itself may divide'
)
"""Why the words of a text do not divide the budget of noise, and what is sound."""

Indices = npt.NDArray[np.uint32]
Draw = Callable[[Indices, Slots, WordSampler, Sequence[Epsilons], int], Indices]


class Scored(NamedTuple):
    """Draws over output sets of one size.

    Attributes:
        places: Indices of the draws, shape (n,).
        scores: Scores of their outputs, shape (n, m).
        outputs: Numbers of the outputs, shape (n, m) or (m,).
    """

    places: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    outputs: npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Division:
    """How a mechanism reads texts as words, and draws words that have epsilons of their own.

    Attributes:
        reader: Reads texts as numbers of words.
        names: The words by their numbers, `PAD` included.
        draw: Draws an output for every word at its epsilon: from the numbers of the words, shape (n,), their slots, a
            sampler, the epsilons of each text, and the purpose number of the draws; returns numbers, shape (n,).
        largest_set: Size of the largest output set.
        kept: Words that are released in clear.
    """

    reader: _kernel.Vocabulary
    names: Sequence[str]
    draw: Draw
    largest_set: int
    kept: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ScoredDraw:
    """The `draw` of a mechanism that makes weights from scores, each at its own epsilon; unknown words are uniform.

    Attributes:
        scored: Scores the outputs of known words, in groups of one size: of words, their slots, and the difference of
            the purpose number from that of a first pass.
        low: Least score.
        high: Largest score.
        uniform: Numbers of the outputs of an unknown word.
        largest_set: Size of the largest output set.
    """

    scored: Callable[[Indices, Slots, int], Iterator[Scored]]
    low: float
    high: float
    uniform: npt.NDArray[np.integer[Any]]
    largest_set: int

    def __call__(
        self, words: Indices, slots: Slots, sampler: WordSampler, epsilons: Sequence[Epsilons], purpose: int
    ) -> Indices:
        """Draw an output for every word at its epsilon."""
        each, chosen, known = np.concatenate([[], *epsilons]), np.empty_like(words), words != UNKNOWN
        width = scoring.slot_width(self.largest_set)
        drawn = _kernel.uniform_choices(*slots.take(~known).arrays(), purpose, width, len(self.uniform))
        chosen[~known] = self.uniform[pa.array(drawn).to_numpy()]
        at = np.flatnonzero(known)
        for places, scores, outputs in self.scored(words[at], slots.take(at), purpose - TOKEN):
            some = at[places]
            mine, one = slots.take(some), each[some]
            index = sampler.choose(scores, mine, epsilon=one, low=self.low, high=self.high, purpose=purpose)
            chosen[some] = outputs[index] if outputs.ndim == 1 else outputs[np.arange(len(some)), index]
        return chosen


def release_divided(
    mechanism: WordMechanism,
    allocation: Allocation,
    texts: pa.Array,
    record_keys: pa.Array,
    sampler: WordSampler = scoring,
) -> Released:
    """Release texts whose budget is divided, with given record keys; tests give another sampler."""
    division, policy = mechanism.division, _policy(mechanism)
    reader = division.reader
    numbers, offsets = (pa.array(side).to_numpy() for side in reader.encode(texts, policy, record_keys))
    chosen, ends = np.empty(len(numbers), np.uint32), offsets.astype(np.int64)
    charged = pa.array(reader.positions(texts, policy)).to_pylist()
    for first, last in parts(offsets, AT_ONCE):
        some, bounds = slice(int(ends[first]), int(ends[last])), ends[first : last + 1]
        values, keys = texts.slice(first, last - first).to_pylist(), record_keys.slice(first, last - first)
        counts = np.diff(bounds).tolist()
        each = np.split(numbers[some], bounds[1:-1] - bounds[0])
        marks = [_marked(mechanism, *one) for one in zip(values, each, charged[first:last], strict=True)]
        once = partial(division.draw, numbers[some], _slots(counts, keys), sampler)
        again = partial(_marked_again, division.names, marks, counts)
        chosen[some] = draw_in_passes(allocation, marks, keys, sampler, once=once, words=again)[-1]
    out = pa.array(reader.assemble(texts, pa.array(offsets), pa.array(chosen), policy))
    return Released(out.field("text"), out.field("positions"))


def units_of_known_words(mechanism: WordMechanism, text: str) -> tuple[list[str], Marked]:
    """Return the words of a public text that take a share where unknown words vanish before words are counted."""
    read = mechanism.division.reader.encode(pa.array([text], pa.large_string()), _policy(mechanism))[0]
    marks = _marked(mechanism, text, pa.array(read).to_numpy(), max(1, len(read)))
    return [PAD if place is None else word for word, place in zip(*marks[:2], strict=True)], marks


def _policy(mechanism: WordMechanism) -> str:
    return json.dumps(mechanism.input_policy(), sort_keys=True)


def _marked(mechanism: WordMechanism, text: str | None, numbers: Indices, most: int) -> Marked:
    """Read a text as words, and say which word each draw stands for; the draws of padding stand for none."""
    division, count = mechanism.division, len(numbers)
    if mechanism.input_policy()["oov"] == "drop":
        words = [division.names[number] for number in numbers.tolist()]
        drawn = [None if word == PAD else place for place, word in enumerate(words)]
        return Marked(["" if word == PAD else word for word in words], drawn, most)
    read = read_strict(text or "", division.kept, mechanism.n_max)
    places = [place for place, kept in enumerate(read.kept) if not kept][:count]
    if not mechanism.hides_length and len(places) != count:
        return Marked([], [None] * count, most)
    return Marked(read.words, [*places, *[None] * (count - len(places))], most)


def _marked_again(
    names: Sequence[str], marks: Sequence[Marked], counts: Sequence[int], chosen: Indices
) -> list[Marked]:
    """Put what was drawn into the places of the words; padding stands for no word."""
    outputs, found = iter(chosen.tolist()), []
    for (tokens, places, most), count in zip(marks, counts, strict=True):
        words, drawn = list(tokens), [names[next(outputs)] for _ in range(count)]
        at: list[int | None] = []
        for place, word in zip(places, drawn, strict=True):
            here = place if isinstance(place, int) else len(words)
            words[here : here + 1] = [word]
            at.append(None if word == PAD else here)
        found.append(Marked(["" if word == PAD else word for word in words], at, most))
    return found


def _slots(counts: Sequence[int], keys: pa.Array) -> Slots:
    records = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
    positions = np.concatenate([np.zeros(0, np.uint64), *(np.arange(count, dtype=np.uint64) for count in counts)])
    return Slots(keys, records, positions)
