"""Divide one budget of a record among draws of words, in one pass or in two.

What a family brings: how words with given epsilons are drawn, and the range of their losses. Draws from integer weights
have a floor of every probability, so the text itself may divide their budget (Theorem A). Noise has none: what divides
its budget is public, or was released before (docs/spec/privacy.md#allocation-by-mechanism).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl import _kernel, scoring
from dptext_etl.accounting import Draws as Charged
from dptext_etl.allocation import Allocation, Epsilons, Marked, draw_in_passes
from dptext_etl.errors import PolicyError
from dptext_etl.families.allocated import Allocated
from dptext_etl.families.parts import parts
from dptext_etl.families.reading import read_strict
from dptext_etl.families.spends import spend_of_allocation, spend_of_division
from dptext_etl.families.words import Exact, MetricClaim, WordMechanism
from dptext_etl.guarantee import MICRO, Spend, exact, micro
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD, Released
from dptext_etl.scoring import Slots, WordSampler

AT_ONCE = 2**18
"""Draws that are processed at once."""

NOISE = (
    "its noise has no least probability, so two scales of one word can be distinguished without a bound; divide by "
    "what is no private text: template = [3, 2, 1] by position, templates and choosing, or first, a first release "
    'whose words are scored; or take santext, or diffractor with variant "tem", which the text itself may divide'
)
"""Why the words of a text do not divide the budget of noise, and what is sound."""

Indices = npt.NDArray[np.uint32]


class DividedWords(Allocated, WordMechanism):
    """A mechanism that draws words, and can divide one budget among the words of a record."""

    @abstractmethod
    def draw_divided(
        self,
        words: Indices,
        slots: Slots,
        sampler: WordSampler,
        epsilons: Sequence[Epsilons],
        purpose: int = scoring.TOKEN,
    ) -> Indices:
        """Draw an output for every word at its epsilon, and return their numbers, shape (n,)."""

    @property
    @abstractmethod
    def loss_range(self) -> Exact:
        """Return the loss of a draw between the two farthest words, per unit of `unit_epsilon`."""

    @property
    @abstractmethod
    def largest_set(self) -> int:
        """Return the size of the largest output set."""

    @property
    @abstractmethod
    def reader(self) -> _kernel.Vocabulary:
        """Return the reader of texts as numbers of words."""

    @property
    @abstractmethod
    def output_names(self) -> Sequence[str]:
        """Return the words by their numbers, `PAD` included."""

    @property
    def kept_in_clear(self) -> frozenset[str]:
        """Return the words that are released in clear."""
        return frozenset()

    @property
    def unit_epsilon(self) -> float:
        """Return `epsilon` of the dearest draw as tables take it: per unit of the scores or of the distances."""
        return (
            self.epsilon if self.allocation is None else float(exact(self.allocation.largest) / exact(self.loss_range))
        )

    def refuses(self, allocation: Allocation) -> str | None:
        """Return why the budget cannot be divided; None in strict mode, if every word is drawn over one fixed set."""
        if self.mode == "faithful":
            return "faithful mode keeps words in clear, and no budget is divided in it"
        return None if self.bounded_range or allocation.source != "text" else NOISE

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
        """Return the claim of one draw; none if a budget is divided: its charge says what holds for a whole text."""
        return None if self.allocation is not None else super().metric_claim

    def metric_of(self, allocation: Allocation) -> MetricClaim | None:  # noqa: ARG002
        """Return the claim per distance of a draw of epsilon 1 between the farthest words; None without one."""
        return None

    def draws(self, positions: int) -> Charged | None:
        """Return one draw per position; None if one budget is divided among them."""
        return None if self.allocation is not None else super().draws(positions)

    def spend(self, positions: int) -> Spend:
        """Return the spend of n draws, or of one budget for all of them."""
        if self.allocation is None:
            return super().spend(positions)
        beside = self._length_cost if positions else Fraction(0)
        if self.bounded_range:
            whole = self.guarantee, self.allocation, positions, self.largest_set
            return spend_of_allocation(*whole, positions=positions, beside=beside)
        cost = spend_of_division(self.guarantee, self.allocation, positions, beside=beside)
        claim = self.metric_of(self.allocation) if positions and self.length != "noisy" else None
        if claim is None:
            return cost
        most = Fraction(self.allocation.bounds(positions)[1] + self.allocation.even(positions), MICRO)
        per_distance, diameter = micro(most * exact(claim.epsilon)), micro(exact(claim.diameter))
        return replace(cost, metric_id=claim.metric, eps_metric=per_distance, diameter=diameter)

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one word, if every draw has the same epsilon."""
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
        """Return (an upper bound of) the probability that `word` comes back as itself: it grows with epsilon."""
        return super().survival(word) if self.allocation is None else self._dearest.survival(word)

    def collision(self, word: str) -> float:
        """Return an upper bound of the probability that two independent draws of `word` agree.

        That of weights grows with epsilon. Much noise, however, piles up words at the ends, so for noise the largest
        probability of any word is taken.
        """
        if self.allocation is None:
            return super().collision(word)
        return self._dearest.collision(word) if self.bounded_range else self.largest_probability()

    def release(self, texts: pa.Array, keys: RecordKeys) -> Released:
        """Draw every word of every text, each at its own position of its record's stream."""
        if self.allocation is None:
            return super().release(texts, keys)  # type: ignore[safe-super]
        return self.release_divided(self.allocation, texts, keys.of(texts))

    def release_divided(
        self, allocation: Allocation, texts: pa.Array, record_keys: pa.Array, sampler: WordSampler = scoring
    ) -> Released:
        """Release with given record keys and another sampler, for tests; everything else calls `release`."""
        policy = self._input_policy_json
        numbers, offsets = (pa.array(side).to_numpy() for side in self.reader.encode(texts, policy, record_keys))
        chosen, ends = np.empty(len(numbers), np.uint32), offsets.astype(np.int64)
        charged = pa.array(self.reader.positions(texts, policy)).to_pylist()
        for first, last in parts(offsets, AT_ONCE):
            some, bounds = slice(int(ends[first]), int(ends[last])), ends[first : last + 1]
            values, keys = texts.slice(first, last - first).to_pylist(), record_keys.slice(first, last - first)
            counts = np.diff(bounds).tolist()
            each = np.split(numbers[some], bounds[1:-1] - bounds[0])
            marks = [self._marked(*one) for one in zip(values, each, charged[first:last], strict=True)]
            once = partial(self.draw_divided, numbers[some], _slots(counts, keys), sampler)
            again = partial(self._marked_again, marks, counts)
            chosen[some] = draw_in_passes(allocation, marks, keys, sampler, once=once, words=again)[-1]
        out = pa.array(self.reader.assemble(texts, pa.array(offsets), pa.array(chosen), policy))
        return Released(out.field("text"), out.field("positions"))

    def units(self, text: str) -> tuple[list[str], Marked]:
        """Return the words of a public text; those that vanish before words are counted take no share."""
        if self.unknown != "drop":
            return super().units(text)
        read = self.reader.encode(pa.array([text], pa.large_string()), self._input_policy_json)[0]
        marks = self._marked(text, pa.array(read).to_numpy(), max(1, len(read)))
        return [PAD if place is None else word for word, place in zip(*marks[:2], strict=True)], marks

    def _marked(self, text: str | None, numbers: Indices, most: int) -> Marked:
        """Read a text as words, and say which word each draw stands for; the draws of padding stand for none.

        Where unknown words vanish, they vanish from this reading, too.
        """
        count = len(numbers)
        if self.unknown == "drop":
            words = [self.output_names[number] for number in numbers.tolist()]
            told = [None if word == PAD else place for place, word in enumerate(words)]
            return Marked(["" if word == PAD else word for word in words], told, most)
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
                here = place if isinstance(place, int) else len(words)
                words[here : here + 1] = [word]
                at.append(None if word == PAD else here)
            found.append(Marked(["" if word == PAD else word for word in words], at, most))
        return found


def _slots(counts: Sequence[int], keys: pa.Array) -> Slots:
    records = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
    positions = np.concatenate([np.zeros(0, np.uint64), *(np.arange(count, dtype=np.uint64) for count in counts)])
    return Slots(keys, records, positions)
