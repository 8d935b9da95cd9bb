"""Divide one budget of a record among draws of words from integer weights (CusText, SanText, TEM).

Weights are made from scores draw by draw, each at its own epsilon, from the slots that a table's draws take. The
theorem needs a floor of every probability, so it holds for these families and for no mechanism without one. A bound per
distance does not survive: two texts may give one word two epsilons (docs/spec/privacy.md#allocation-by-mechanism).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel, scoring
from dptext_etl.accounting import Draws as Charged
from dptext_etl.allocation import Allocation, Epsilons, Marked, draw_in_passes
from dptext_etl.errors import PolicyError
from dptext_etl.families.allocated import Allocated
from dptext_etl.families.parts import parts
from dptext_etl.families.spends import spend_of_allocation
from dptext_etl.families.words import MetricClaim, WordMechanism
from dptext_etl.guarantee import Spend, exact
from dptext_etl.inference.masked.texts import read_strict
from dptext_etl.inference.sampler import Sampler
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD, Released
from dptext_etl.scoring import Slots

AT_ONCE = 2**18
"""Draws that are processed at once."""
UNKNOWN = 2**32 - 1
"""Number of every word outside the vocabulary."""

Indices = npt.NDArray[np.uint32]


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


class AllocatedWords(Allocated, WordMechanism):
    """A mechanism that draws words from weights, and can divide one budget among the words of a record."""

    @abstractmethod
    def scored(self, words: Indices, slots: Slots, offset: int) -> Iterator[Scored]:
        """Score the outputs of known words, in groups of one size.

        Args:
            words: Numbers of the words, shape (n,).
            slots: Their places in the streams, for draws that come before theirs.
            offset: What the pass adds to purpose numbers.
        """

    @property
    @abstractmethod
    def score_bounds(self) -> tuple[float, float]:
        """Return the public bounds of scores, low and high."""

    @property
    @abstractmethod
    def largest_set(self) -> int:
        """Return the size of the largest output set."""

    @property
    @abstractmethod
    def uniform_ids(self) -> npt.NDArray[np.integer[Any]]:
        """Return the outputs of an unknown word, which are drawn uniformly."""

    @property
    @abstractmethod
    def reader(self) -> _kernel.Vocabulary:
        """Return the reader of texts as numbers of words."""

    @property
    def unit_epsilon(self) -> float:
        """Return `epsilon` of the dearest draw as tables take it: per unit of the scores."""
        if self.allocation is None:
            return self.epsilon
        low, high = self.score_bounds
        return float(exact(self.allocation.largest) / exact(high - low))

    def refuses(self, allocation: Allocation) -> str | None:  # noqa: ARG002
        """Return why the budget cannot be divided; None in strict mode, if every word is drawn over one fixed set."""
        return "faithful mode keeps words in clear, and no budget is divided in it" if self.mode == "faithful" else None

    @property
    def runs_in_kernel(self) -> bool:
        """Return True unless a budget is divided: tools score the words."""
        return self.allocation is None

    @property
    def contextual(self) -> bool:  # type: ignore[override]
        """Return True if a budget is divided: the law of a word depends on its text."""
        return self.allocation is not None

    @property
    def metric_claim(self) -> MetricClaim | None:
        """Return the claim of one draw; none if a budget is divided, for one word may get two epsilons in two texts."""
        return None if self.allocation is not None else super().metric_claim

    def draws(self, positions: int) -> Charged | None:
        """Return one draw per position; None if one budget is divided among them."""
        return None if self.allocation is not None else super().draws(positions)

    def spend(self, positions: int) -> Spend:
        """Return the spend of n draws, or of one budget for all of them."""
        if self.allocation is None:
            return super().spend(positions)
        beside = self._length_cost if positions else Fraction(0)
        whole = self.guarantee, self.allocation, positions, self.largest_set
        return spend_of_allocation(*whole, positions=positions, beside=beside)

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one word, if every draw has the same epsilon.

        Raises:
            PolicyError: A budget is divided, or as for other mechanisms of words.
        """
        if self.allocation is not None:
            raise PolicyError("a budget is divided by whole texts, so a word alone has no distribution")
        return super().transition(word)  # type: ignore[safe-super]

    def sample_many(self, word: str, n: int, *, secret: _kernel.Secret | None = None) -> list[str]:
        """Draw n outputs of one word independently; each at the largest epsilon, if a budget is divided."""
        if self.allocation is None:
            return super().sample_many(word, n, secret=secret)
        return self._dearest.sample_many(word, n, secret=secret)

    @cached_property
    def _dearest(self) -> Self:
        """Return the mechanism whose every draw has the largest epsilon: no word is likelier to come back."""
        return self.model_copy(update={"allocation": None, "epsilon": self.unit_epsilon})

    def survival(self, word: str) -> Fraction:
        """Return (an upper bound of) the probability that `word` comes back as itself: it grows with epsilon.

        Raises:
            PolicyError: `word` is not a single word.
        """
        return super().survival(word) if self.allocation is None else self._dearest.survival(word)

    def collision(self, word: str) -> float:
        """Return an upper bound of the probability that two independent draws of `word` agree: it grows with epsilon.

        Raises:
            PolicyError: `word` is not a single word.
        """
        return super().collision(word) if self.allocation is None else self._dearest.collision(word)

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Draw every word of every text, each at its own position of its record's stream."""
        if self.allocation is None:
            return super().release(texts, keys)  # type: ignore[safe-super]
        return self.release_divided(self.allocation, texts, keys.of(texts))

    def release_divided(
        self, allocation: Allocation, texts: pa.Array, record_keys: pa.Array, sampler: Sampler = scoring
    ) -> Released:
        """Release with given record keys and another sampler, for tests; everything else calls `release`.

        Args:
            allocation: How the budget is divided.
            texts: Strings, nulls allowed.
            record_keys: Fixed-size binary of 32 bytes, one per text.
            sampler: Sampler of outputs.
        """
        policy = self._input_policy_json
        numbers, offsets = (pa.array(side).to_numpy() for side in self.reader.encode(texts, policy, record_keys))
        chosen, ends = np.empty(len(numbers), np.uint32), offsets.astype(np.int64)
        charged = pa.array(self.reader.positions(texts, policy)).to_pylist()
        for first, last in parts(offsets, AT_ONCE):
            some, bounds = slice(int(ends[first]), int(ends[last])), ends[first : last + 1]
            values, keys = texts.slice(first, last - first).to_pylist(), record_keys.slice(first, last - first)
            counts = np.diff(bounds).tolist()
            marks = [self._marked(*each) for each in zip(values, counts, charged[first:last], strict=True)]
            once = partial(self._draw_once, numbers[some], _slots(counts, keys), sampler)
            again = partial(self._marked_again, marks, counts)
            chosen[some] = draw_in_passes(allocation, marks, keys, sampler, once=once, words=again)[-1]
        out = pa.array(self.reader.assemble(texts, pa.array(offsets), pa.array(chosen), policy))
        return Released(out.field("text"), out.field("positions"))

    def _marked(self, text: str | None, count: int, most: int) -> Marked:
        """Read a text as words, and say which word each draw stands for; the draws of padding stand for none."""
        read = read_strict(text or "", self.kept_in_clear, self.n_max)
        places = [place for place, kept in enumerate(read.kept) if not kept][:count]
        if not self.hides_length and len(places) != count:
            return Marked([], [None] * count, most)
        return Marked(read.words, [*places, *[None] * (count - len(places))], most)

    def _marked_again(self, marks: Sequence[Marked], counts: Sequence[int], chosen: Indices) -> list[Marked]:
        """Put what was drawn into the places of the words; padding stands for no word."""
        outputs, found = iter(chosen.tolist()), []
        for (tokens, places, most), count in zip(marks, counts, strict=True):
            words, drawn = list(tokens), [self.output_names[next(outputs)] for _ in range(count)]
            at: list[int | None] = []
            for place, word in zip(places, drawn, strict=True):
                if place is None:
                    words.append(word)
                else:
                    words[place] = word
                at.append(None if word == PAD else len(words) - 1 if place is None else place)
            found.append(Marked(["" if word == PAD else word for word in words], at, most))
        return found

    @property
    def kept_in_clear(self) -> frozenset[str]:
        """Return the words that are released in clear."""
        return frozenset()

    @property
    @abstractmethod
    def output_names(self) -> Sequence[str]:
        """Return the words by their numbers, `PAD` included."""

    def _draw_once(
        self, words: Indices, slots: Slots, sampler: Sampler, epsilons: Sequence[Epsilons], purpose: int = scoring.TOKEN
    ) -> Indices:
        """Draw an output for every word at its epsilon; unknown ones uniformly."""
        each, chosen, known = np.concatenate([[], *epsilons]), np.empty_like(words), words != UNKNOWN
        width, ids, offset = scoring.slot_width(self.largest_set), self.uniform_ids, purpose - scoring.TOKEN
        drawn = _kernel.uniform_choices(*slots.take(~known).arrays(), purpose, width, len(ids))
        chosen[~known] = ids[pa.array(drawn).to_numpy()]
        at, (low, high) = np.flatnonzero(known), self.score_bounds
        for places, scores, outputs in self.scored(words[at], slots.take(at), offset):
            some = at[places]
            mine, one = slots.take(some), each[some]
            index = sampler.choose(scores, mine, epsilon=one, low=low, high=high, purpose=purpose)
            chosen[some] = outputs[index] if outputs.ndim == 1 else outputs[np.arange(len(some)), index]
        return chosen


def _slots(counts: Sequence[int], keys: pa.Array) -> Slots:
    records = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
    positions = np.concatenate([np.zeros(0, np.uint64), *(np.arange(count, dtype=np.uint64) for count in counts)])
    return Slots(keys, records, positions)
