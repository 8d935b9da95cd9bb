"""Draw every word of a text independently, from a distribution that depends only on the word."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import PositiveInt

from dptext_etl import _kernel
from dptext_etl.accounting import Composed, Event, MetricClaim, PureDraws, computed
from dptext_etl.allocation import Allocation, Marked
from dptext_etl.errors import PolicyError
from dptext_etl.families.by_word import WordByWord
from dptext_etl.families.division import NOISE, Division, units_of_known_words
from dptext_etl.guarantee import MICRO, Disclosure, Guarantee, exact
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD, count_words
from dptext_etl.sampling import largest_range_bounded

Exact = float | Fraction
Kind = TypeVar("Kind", bound="WordMechanism")


class WordMechanism(WordByWord):
    """A mechanism that replaces every word by a draw, word by word.

    Attributes:
        limit: Number of first words of the public vocabulary to use; None uses all.
    """

    _pads: ClassVar[bool] = False
    """True if the mechanism can put `PAD` among its inputs and outputs, which is needed to hide the length."""

    limit: PositiveInt | None = None

    @property
    def _length_is_shown_by(self) -> str | None:
        shown = super()._length_is_shown_by
        return shown if shown or self._pads else "this mechanism cannot pad texts"

    def _refuses(self, allocation: Allocation) -> str | None:
        """Return why the budget cannot be divided; None in strict mode, if every word is drawn over one fixed set."""
        if self.mode == "faithful":
            return "faithful mode keeps words in clear, and no budget is divided in it"
        return None if self._bounded_range or allocation.source != "text" else NOISE

    @property
    def division(self) -> Division:
        """Return how words with given epsilons are drawn; only where `cannot_divide` is None."""
        raise NotImplementedError

    @property
    def loss_range(self) -> Exact:
        """Return the loss of a draw between the two farthest words, per unit of its epsilon: the range of scores."""
        return 1

    @property
    def unit_epsilon(self) -> float:
        """Return the epsilon of the dearest draw as tables take it: per unit of the scores or of the distances."""
        if self.allocation is None:
            return self.epsilon
        return float(exact(self.allocation.largest) / exact(self.loss_range))

    @cached_property
    def _dearest(self) -> Self:
        """Return the mechanism whose every draw has the largest epsilon: no word is likelier to come back."""
        return dearest(self)

    def configuration(self) -> dict[str, Any]:
        """Return the configuration; where unknown words are drawn as the first word, it is that of version 2."""
        found = {name: value for name, value in super().configuration().items() if name != "unknown_words"}
        return {**found, "mechanism_version": 2} if self.mode == "strict" and self._unknown == "first" else found

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee; the number of released words reveals which unknown words were dropped."""
        stated = super().guarantee
        shown = {Disclosure.OOV_FLAG} if self._unknown == "drop" and not self.hides_length else set()
        return replace(stated, disclosures=stated.disclosures | shown)

    @property
    def _bounded_range(self) -> bool:
        """Return True if one draw is range-bounded (zCDP epsilon^2/8), False if it is only pure (epsilon^2/2)."""
        return True

    @property
    def epsilon_per_word(self) -> Exact:
        """Return the pure parameter of one draw between any two words with equal disclosures."""
        return exact(self.unit_epsilon)

    @property
    def epsilon_table(self) -> float | None:
        """Return the exact pure parameter of one draw, from the sampler's own data; None if unknown."""
        return None

    @property
    def epsilon_tight(self) -> float | None:
        """Return the exact parameter of a draw for spends: `epsilon_table`, or a bound that needs no computation."""
        return self.epsilon_table

    @property
    def metric_claim(self) -> MetricClaim | None:
        """Return the METRIC claim of one draw, if its certificate holds; None if there is no such claim."""
        return None

    def _metric_of(self, allocation: Allocation) -> MetricClaim | None:  # noqa: ARG002
        """Return the claim per distance of a draw of epsilon 1 between the farthest words; None without one."""
        return None

    def event(self, positions: int) -> Event:
        """Return n draws, or draws that divide one budget, and, for a noisy length, the draw of the length."""
        if self.allocation is not None:
            words: Event = self._divided_event(self.allocation, positions)
        else:
            tight = self.epsilon_tight
            words = PureDraws(
                epsilon=self.epsilon_per_word,
                count=positions,
                tight=None if tight is None else computed(tight),
                range_bounded=self._bounded_range,
                metric=self.metric_claim if positions else None,
            )
        if self.length != "noisy":
            return words
        return Composed((words, PureDraws(self._length_cost, min(positions, 1), range_bounded=False)))

    def _divided_event(self, allocation: Allocation, positions: int) -> Event:
        if self._bounded_range:
            return allocation.event(positions, self.division.largest_set)
        claim = self._metric_of(allocation) if positions and self.length != "noisy" else None
        if claim is not None:
            most = Fraction(allocation.bounds(positions)[1] + allocation.even(positions), MICRO)
            claim = claim._replace(epsilon=most * exact(claim.epsilon))
        return allocation.event(positions, None, claim)

    def units(self, text: str) -> tuple[list[str], Marked]:
        """Return the words of a public text; those that vanish before words are counted take no share."""
        return units_of_known_words(self, text) if self._unknown == "drop" else super().units(text)

    def words_known(self, texts: pa.Array) -> npt.NDArray[np.uint32]:
        """Count the words of the vocabulary among those read, and words that are kept in clear, shape (texts,)."""
        return count_words(texts, self.n_max, self._lexicon)

    @cached_property
    def _lexicon(self) -> _kernel.Vocabulary:
        return _kernel.Vocabulary(self.input_words())

    def _undivided(self) -> None:
        """Refuse to state the distribution of a word alone, where every text divides a budget among its words."""
        if self.allocation is not None:
            raise PolicyError("a budget is divided by whole texts, so a word alone has no distribution")

    @abstractmethod
    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1."""

    def survival(self, word: str) -> Fraction:
        """Return (an upper bound of) the probability that `word` comes back as itself: it grows with epsilon."""
        if self.allocation is not None:
            return self._dearest.survival(word)
        outputs = zip(*self.transition(word), strict=True)
        return sum((chance for output, chance in outputs if output == word), Fraction(0))

    def collision(self, word: str) -> float:
        """Return an upper bound of the probability that two independent draws of `word` agree: sum P(y)^2.

        That of weights grows with epsilon. Much noise, however, piles up words at the ends, so where a budget of noise
        is divided the largest probability of any word is taken.
        """
        if self.allocation is not None:
            return self._dearest.collision(word) if self._bounded_range else self.largest_probability()
        return min(1.0, sum(float(chance) ** 2 for chance in self.transition(word)[1]) * (1 + 1e-12))

    def largest_probability(self) -> float:
        """Return an upper bound of the probability of any single output word; 1 if no bound is known."""
        outputs = self.output_words()
        if not self._bounded_range or self.word_disclosures or not outputs:
            return 1.0
        return largest_range_bounded(float(self.epsilon_per_word), len(outputs))


def dearest(mechanism: Kind) -> Kind:
    """Return the mechanism that gives every draw the largest epsilon, undivided."""
    if mechanism.allocation is None:
        return mechanism
    return mechanism.model_copy(update={"allocation": None, "epsilon": mechanism.unit_epsilon})


def sample_many(mechanism: WordMechanism, word: str, n: int, *, secret: _kernel.Secret | None = None) -> list[str]:
    """Draw n outputs of one word independently, through the code that releases texts (audits, query attack).

    Where a budget is divided, every draw has the largest epsilon.
    """
    padding = word == PAD and mechanism.hides_length
    if n < 1 or not (padding or _kernel.split(word) == [(word, True)]):
        raise PolicyError("sampling takes one word and at least one draw", "give a word without blanks")
    same: dict[str, Any] = {"n_max": n}
    if mechanism.hides_length:
        same |= {"length": "fixed", "epsilon_length": None}
    drawing = dearest(mechanism).model_copy(update=same)
    key = _kernel.ReleaseKey(secret or _kernel.Secret(), "samples", word, "samples", drawing.cfg())
    text = pa.array(["" if padding else " ".join([word] * n)], pa.large_string())
    released = drawing.release(text, RecordKeys(key, pa.array(["0"]), 0)).text[0].as_py()
    outputs = released.split(" ") if released else []
    if mechanism.hides_length:
        return [*outputs, *[PAD] * (n - len(outputs))]
    if len(outputs) != n:
        raise PolicyError("the word is not in the vocabulary, and is not drawn", "take one of input_words()")
    return outputs
