"""Define mechanisms that release word i for word i, the probabilities that gates use, and the ways to hide lengths."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

from pydantic import model_validator

from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, exact
from dptext_etl.mechanism import Mechanism
from dptext_etl.parameters import Epsilon

LONGEST_PADDED = 100_000
"""Largest public length: every text takes as many draws, and as much time and memory, as one of that length."""
STRICT_INPUT = {"case": "lower", "punctuation": "drop", "numbers": "uniform", "oov": "uniform", "null": "pass"}
FAITHFUL_INPUT = {"case": "keep", "punctuation": "keep", "numbers": "keep", "oov": "keep", "null": "pass"}


class WordByWord(Mechanism):
    """A mechanism whose released words are drawn one by one, each in the place of one word of the text.

    Chances are upper bounds that hold for every text, word and history of draws.

    Specification: docs/spec/privacy.md#length-options.

    Attributes:
        length: "disclose" shows the number of words; "fixed" cuts and pads every text to `n_max` words; "noisy" pads to
            a noisy number of words up to `n_max`. The last two need `n_max`.
        epsilon_length: Cost of the noisy length per text; only for length "noisy".
    """

    _faithful_disclosures: ClassVar[frozenset[Disclosure]] = frozenset(
        {Disclosure.PUNCT, Disclosure.NUMBERS, Disclosure.OOV, Disclosure.CASE}
    )

    length: Literal["disclose", "fixed", "noisy"] = "disclose"
    epsilon_length: Epsilon | None = None

    @model_validator(mode="after")
    def _length_can_be_hidden(self) -> Self:
        if (self.epsilon_length is not None) != (self.length == "noisy"):
            raise ValueError('epsilon_length is the price of length "noisy": give both or neither')
        if not self.hides_length:
            return self
        reason = self._length_is_shown_by
        if reason is not None:
            msg = f'length "{self.length}" would hide nothing: {reason}; use length "disclose", or a '
            msg += "mechanism whose words disclose nothing: `dptext explain NAME` lists what each can hide"
            raise ValueError(msg)
        least = 2 if self.length == "noisy" else 1
        if "n_max" not in self.model_fields_set or not least <= self.n_max <= LONGEST_PADDED:
            msg = f'length "{self.length}" needs n_max, the public length to pad to, from {least} to {LONGEST_PADDED}'
            raise ValueError(msg)
        return self

    @property
    def _in_place(self) -> bool:
        """Return True if word i of a release is drawn for word i; False if words are inserted or deleted."""
        return True

    @property
    def _unknown(self) -> Literal["uniform", "first", "drop"]:
        """Return how words outside `input_words` are drawn in strict mode: uniformly, as the first word, or never."""
        return "uniform"

    @property
    def hides_length(self) -> bool:
        """Return True if a release hides the number of words."""
        return self.length != "disclose"

    @property
    def _length_is_shown_by(self) -> str | None:
        """Return the reason why the number of words shows whatever `length` says; None if it can be hidden."""
        shown = sorted(self.word_disclosures)
        if shown:
            return f"its words disclose {', '.join(shown)}"
        return "faithful mode keeps it" if self.mode == "faithful" else None

    @property
    def _length_cost(self) -> Fraction:
        """Return the pure epsilon of the draw of a noisy length."""
        return Fraction(0) if self.epsilon_length is None else exact(self.epsilon_length)

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Return the disclosures of a released word next to its draw, in strict mode."""
        return frozenset()

    @property
    def guarantee(self) -> Guarantee:
        """Return the claim between any two texts if the length is hidden, otherwise if disclosures are equal."""
        shown = {Disclosure.NULLNESS} | self.word_disclosures
        if self.hides_length:
            return Guarantee(
                GuaranteeClass.PURE_LDP, frozenset(shown), "any two texts of one record", self._unit("word")
            )
        shown |= {Disclosure.LENGTH} | (self._faithful_disclosures if self.mode == "faithful" else frozenset())
        return Guarantee(
            guarantee_class=GuaranteeClass.COND_PURE,
            disclosures=frozenset(shown),
            neighbours="two texts of one record that agree on everything disclosed and differ in any words",
            unit=self._unit("word"),
        )

    def input_policy(self) -> dict[str, Any]:
        """Return the treatment of case, punctuation, numbers, unknown words, nulls and long texts, as data."""
        if self.mode == "faithful":
            return {**FAITHFUL_INPUT, **self._length_policy()}
        return {**STRICT_INPUT, "numbers": self._unknown, "oov": self._unknown, **self._length_policy()}

    def _length_policy(self) -> dict[str, Any]:
        """Return the part of the input policy about the length of texts."""
        if self.length == "fixed":
            return {"n_max": self.n_max, "length": "fixed"}
        if self.length == "noisy":
            rate = self._length_cost / (self.n_max - 1)
            return {"n_max": self.n_max, "length": {"noisy": [rate.numerator, rate.denominator]}}
        return {"n_max": self.n_max}

    @property
    def _input_policy_json(self) -> str:
        return json.dumps(self.input_policy(), sort_keys=True)

    @abstractmethod
    def input_words(self) -> tuple[str, ...]:
        """Return the words that the mechanism knows, in public order; every other word counts as unknown."""

    @abstractmethod
    def largest_probability(self) -> float:
        """Return an upper bound of the probability of any single output word; 1 if no bound is known."""

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:  # noqa: ARG002
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1."""
        raise PolicyError(f"{self.name} draws a word by its whole text, so a word alone has no distribution")

    def survival(self, word: str) -> Fraction:  # noqa: ARG002
        """Return (an upper bound of) the probability that `word` comes back as itself."""
        return Fraction(self.largest_probability())

    def collision(self, word: str) -> float:  # noqa: ARG002
        """Return an upper bound of the probability that two independent draws for `word` agree."""
        return self.largest_probability()


@runtime_checkable
class Simulated(Protocol):
    """A mechanism that can be simulated without the code that releases.

    This is for distributions without exact fractions, which `survival` and `collision` bound only loosely.
    """

    def simulated_survivals(self, word: str, trials: int) -> int:
        """Simulate `trials` draws, and return how often the word comes back."""

    def simulated_collisions(self, words: Sequence[str], pairs: int) -> int:
        """Simulate pairs of independent draws, which take the words in turn, and return how many pairs agree."""


def by_word(mechanism: Mechanism) -> WordByWord | None:
    """Return the mechanism if it releases word i for word i, otherwise None."""
    return mechanism if isinstance(mechanism, WordByWord) and mechanism._in_place else None  # noqa: SLF001
