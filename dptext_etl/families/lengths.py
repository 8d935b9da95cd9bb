"""Disclose the number of words of a text, or hide it behind a public or a noisy number of draws.

Specification: docs/spec/privacy.md#length-options.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from dptext_etl.families.by_word import WordByWord
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, exact
from dptext_etl.mechanism import Epsilon

LONGEST_PADDED = 100_000
"""Largest public length: every text takes as many draws, and as much time and memory, as one of that length."""


class HideableLength(WordByWord):
    """A mechanism that draws word by word and can hide how many words a text has.

    Attributes:
        length: "disclose" shows the number of words; "fixed" cuts and pads every text to `n_max` words; "noisy" pads to
            a noisy number of words up to `n_max`. The last two need `n_max`.
        epsilon_length: Cost of the noisy length per text; only for length "noisy".
    """

    faithful_disclosures: ClassVar[frozenset[Disclosure]]
    """Disclosures of faithful mode in addition to the draws."""

    length: Literal["disclose", "fixed", "noisy"] = "disclose"
    epsilon_length: Epsilon | None = None

    @model_validator(mode="after")
    def _length_can_be_hidden(self) -> Self:
        if (self.epsilon_length is not None) != (self.length == "noisy"):
            msg = 'epsilon_length is the price of length "noisy": give both or neither'
            raise ValueError(msg)
        if not self.hides_length:
            return self
        reason = self._length_is_told_by
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
    def hides_length(self) -> bool:
        """Return True if a release hides the number of words."""
        return self.length != "disclose"

    @property
    def _length_is_told_by(self) -> str | None:
        """Return the reason why the number of words shows whatever `length` says; None if it can be hidden."""
        told = sorted(self.word_disclosures)
        if told:
            return f"its words disclose {', '.join(told)}"
        return "faithful mode keeps it" if self.mode == "faithful" else None

    @property
    def _length_cost(self) -> Fraction:
        """Return the pure epsilon of the draw of a noisy length."""
        return Fraction(0) if self.epsilon_length is None else exact(self.epsilon_length)

    @abstractmethod
    def input_policy(self) -> dict[str, Any]:
        """Return the treatment of case, punctuation, numbers, unknown words, nulls and long texts, as data.

        Specification: docs/spec/privacy.md#input-policy.
        """

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

    @property
    def guarantee(self) -> Guarantee:
        """Return the claim between any two texts if the length is hidden, otherwise if disclosures are equal."""
        told = {Disclosure.NULLNESS} | self.word_disclosures
        if self.hides_length:
            return Guarantee(
                GuaranteeClass.PURE_LDP, frozenset(told), "any two texts of one record", self.unit_of("word")
            )
        told |= {Disclosure.LENGTH} | (self.faithful_disclosures if self.mode == "faithful" else frozenset())
        return Guarantee(
            guarantee_class=GuaranteeClass.COND_PURE,
            disclosures=frozenset(told),
            neighbours="two texts of one record that agree on everything disclosed and differ in any words",
            unit=self.unit_of("word"),
        )
