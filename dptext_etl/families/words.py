"""Word mechanisms: every word of a text is drawn anew, alone, from a law that only the word decides.

What the families below have in common: the input policy as data, the length of a text as a disclosure or as something
that is drawn, the guarantee and spend of n draws, and the exact law of one word where it can be written down.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple, Self

import pyarrow as pa
from pydantic import PositiveInt, model_validator

from dptext_etl import _kernel
from dptext_etl.accounting import Draws
from dptext_etl.errors import PolicyError
from dptext_etl.families import extremes
from dptext_etl.families.by_word import WordByWord
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, Spend, micro
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD, Epsilon

LONGEST_PADDED = 100_000
"""Longest public length: every text takes the draws, the time and the memory of one of that length."""

STRICT_INPUT = {"case": "lower", "punctuation": "drop", "numbers": "uniform", "oov": "uniform", "null": "pass"}
FAITHFUL_INPUT = {"case": "keep", "punctuation": "keep", "numbers": "keep", "oov": "keep", "null": "pass"}
FAITHFUL_DISCLOSURES = frozenset({Disclosure.PUNCT, Disclosure.NUMBERS, Disclosure.OOV, Disclosure.CASE})

Exact = float | Fraction


class MetricClaim(NamedTuple):
    """A guarantee that grows with the distance of two words (class METRIC, docs/spec/privacy.md#classes).

    Attributes:
        epsilon: Per unit of distance.
        metric: Name of the distance.
        diameter: Largest distance of two words.
    """

    epsilon: Exact
    metric: str
    diameter: Exact


class WordMechanism(WordByWord):
    """A mechanism that replaces every word by a draw, word by word.

    Attributes:
        length: The number of words is disclosed ("disclose"), or every text is cut and padded to `n_max` words
            ("fixed"), or to a noisy number of words up to `n_max` ("noisy"); the last two need `n_max` to be given.
        epsilon_length: What the noisy length costs per text; for length "noisy" alone.
        limit: How many words of the public vocabulary are used, the first ones; all where none is given.
    """

    output_set_disclosure: ClassVar[frozenset[Disclosure]] = frozenset()
    """What the choice of output sets discloses."""
    pads: ClassVar[bool] = False
    """Whether the mechanism can put `PAD` among its inputs and outputs, which hiding the length needs."""

    length: Literal["disclose", "fixed", "noisy"] = "disclose"
    epsilon_length: Epsilon | None = None
    limit: PositiveInt | None = None

    @model_validator(mode="after")
    def _length_can_be_hidden(self) -> Self:
        if (self.epsilon_length is not None) != (self.length == "noisy"):
            msg = 'epsilon_length is the price of length "noisy": give both or neither'
            raise ValueError(msg)
        if not self.hides_length:
            return self
        told = sorted(self.word_disclosures)
        if told or not self.pads or self.mode == "faithful":
            reason = f"its words disclose {', '.join(told)}" if told else "faithful mode and this mechanism keep it"
            msg = f'length "{self.length}" would hide nothing: {reason}; use length "disclose", or a '
            msg += "mechanism whose words disclose nothing: `dptext explain NAME` lists what each can hide"
            raise ValueError(msg)
        least = 2 if self.length == "noisy" else 1
        if "n_max" not in self.model_fields_set or not least <= self.n_max <= LONGEST_PADDED:
            msg = f'length "{self.length}" needs n_max, the public length to pad to, from {least} to {LONGEST_PADDED}'
            raise ValueError(msg)
        return self

    @property
    def unknown(self) -> Literal["uniform", "drop"]:
        """What strict mode does with words outside the vocabulary: a uniform draw, or they vanish before they count."""
        return "uniform"

    @property
    def bounded_range(self) -> bool:
        """Whether one draw is a range-bounded exponential mechanism (zCDP epsilon^2/8), or pure alone (epsilon^2/2)."""
        return True

    @property
    def hides_length(self) -> bool:
        """Whether the number of words is kept from the reader."""
        return self.length != "disclose"

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """What the release of a word discloses beside its draw, in strict mode."""
        return self.output_set_disclosure

    def input_policy(self) -> dict[str, Any]:
        """What happens to case, punctuation, numbers, unknown words, nulls and long texts, as data.

        Specification: docs/spec/privacy.md#input-policy.
        """
        policy: dict[str, Any] = {**(STRICT_INPUT if self.mode == "strict" else FAITHFUL_INPUT), "n_max": self.n_max}
        if self.mode == "strict":
            policy |= {"numbers": self.unknown, "oov": self.unknown}
        if self.length == "fixed":
            policy["length"] = "fixed"
        elif self.length == "noisy":
            rate = self._length_cost / (self.n_max - 1)
            policy["length"] = {"noisy": [rate.numerator, rate.denominator]}
        return policy

    @property
    def _input_policy_json(self) -> str:
        return json.dumps(self.input_policy(), sort_keys=True)

    @property
    def _length_cost(self) -> Fraction:
        return Fraction(0) if self.epsilon_length is None else Fraction(repr(self.epsilon_length))

    @property
    def guarantee(self) -> Guarantee:
        """Between texts that agree on the disclosures: n draws of `epsilon_per_word`; any two texts if none is left."""
        disclosures = {Disclosure.NULLNESS} | self.word_disclosures
        if self.hides_length:
            return Guarantee(GuaranteeClass.PURE_LDP, frozenset(disclosures), "any two texts of one record", "word")
        disclosures |= {Disclosure.LENGTH} | (FAITHFUL_DISCLOSURES if self.mode == "faithful" else frozenset())
        return Guarantee(
            guarantee_class=GuaranteeClass.COND_PURE,
            disclosures=frozenset(disclosures),
            neighbours="two texts of one record that agree on everything disclosed and differ in any words",
            unit="word",
        )

    @property
    def epsilon_per_word(self) -> Exact:
        """Pure parameter of one draw between any two words that are not told apart by a disclosure."""
        return Fraction(repr(self.epsilon))

    @property
    def epsilon_table(self) -> float | None:
        """Exact pure parameter of one draw, computed from what the sampler uses; None where unknown.

        Specification: docs/spec/privacy.md#epsilon-table.
        """
        return None

    @property
    def epsilon_table_is_exact(self) -> bool:
        """Whether `epsilon_table` is attained by two words, or an upper bound of what is."""
        return True

    @property
    def epsilon_tight(self) -> float | None:
        """What spends take as the exact parameter of a draw: `epsilon_table`, or a bound that is had at once."""
        return self.epsilon_table

    @property
    def disclosed_bits_per_token(self) -> float:
        """What the choice of output sets tells about a uniform vocabulary word, in bits."""
        return 0.0

    @property
    def metric_claim(self) -> MetricClaim | None:
        """The METRIC claim of one draw, under its certificate; None where there is none.

        Specification: docs/spec/privacy.md#metric-certificate.
        """
        return None

    def spend(self, positions: int) -> Spend:
        """N draws and, for a noisy length, the draw of the length.

        Specification: docs/spec/privacy.md#epsilon-star, docs/spec/privacy.md#length-noisy.
        """
        guarantee, drawn = self.guarantee, bool(positions)
        length = self._length_cost if drawn else Fraction(0)
        word = _exact(self.epsilon_per_word)
        pure = micro(positions * word + length)
        tight = self.epsilon_tight
        exact = pure if tight is None else micro(positions * (_exact(tight) + Fraction(1, 10**12)) + length)
        metric = self.metric_claim if drawn else None
        return Spend(
            guarantee_class=guarantee.guarantee_class,
            disclosures=guarantee.disclosures,
            eps_pure=pure,
            eps_tight=min(pure, exact),
            eps_approx=pure,
            delta=0,
            rho=micro(positions * word * word / (8 if self.bounded_range else 2) + length * length / 2),
            mu2=math.inf if drawn else 0,
            eps_metric=micro(_exact(metric.epsilon)) if metric else math.inf if drawn else 0,
            metric_id=metric.metric if metric else None,
            diameter=micro(_exact(metric.diameter)) if metric else math.inf,
            n_worst=positions,
            assumptions=guarantee.assumptions,
        )

    def draws(self, positions: int) -> Draws | None:
        """One draw per position, where draws are range-bounded, finite, and no length is drawn beside them."""
        if not self.bounded_range or self.length == "noisy" or not math.isfinite(self.spend(1).eps_pure):
            return None
        return Draws(float(self.epsilon_per_word), positions)

    def unit_micro(self) -> int:
        """Declared epsilon of one draw in millionths, for engines that multiply it by positions themselves.

        Raises:
            PolicyError: Spends are no exact multiples of it.
        """
        unit = self.spend(2).eps_approx - self.spend(1).eps_approx
        if not math.isfinite(unit) or self.spend(1_000_003).eps_approx != unit * 1_000_003 + self.base_micro():
            raise PolicyError("epsilon is finer than a millionth", "give epsilon with at most 6 decimals")
        return int(unit)

    def base_micro(self) -> int:
        """Declared epsilon of a text beside its draws, in millionths: that of the noisy length."""
        return int(micro(self._length_cost))

    @abstractmethod
    def input_words(self) -> tuple[str, ...]:
        """Return the words that the mechanism knows, in public order; every other word counts as unknown."""

    @abstractmethod
    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1.

        Raises:
            PolicyError: `word` is no single word, or its law cannot be written as fractions.
        """

    def survival(self, word: str) -> Fraction:
        """Return (an upper bound of) the probability that `word` comes back as itself.

        Raises:
            PolicyError: As `transition`.
        """
        outputs = zip(*self.transition(word), strict=True)
        return sum((chance for output, chance in outputs if output == word), Fraction(0))

    def collision(self, word: str) -> float:
        """Return an upper bound of the probability that two independent draws of `word` agree: sum P(y)^2.

        Raises:
            PolicyError: As `transition`.
        """
        return min(1.0, sum(float(chance) ** 2 for chance in self.transition(word)[1]) * (1 + 1e-12))

    def largest_probability(self) -> float:
        """Return an upper bound of the probability with which a draw gives any one word; 1 where none is known."""
        outputs = self.output_words()
        if not self.bounded_range or self.word_disclosures or not outputs:
            return 1.0
        return extremes.range_bounded(float(self.epsilon_per_word), len(outputs))

    def sample_many(self, word: str, n: int, *, secret: _kernel.Secret | None = None) -> list[str]:
        """Draw one word n times independently, on the path that releases texts (audits, query attack).

        Args:
            word: One public word, or `PAD` where the length is hidden.
            n: How many draws.
            secret: The noise key; a new random one where None.

        Returns:
            n outputs, `PAD` included where the mechanism pads.

        Raises:
            PolicyError: `word` is no single word, or one that vanishes before words are counted.
        """
        padding = word == PAD and self.hides_length
        if n < 1 or not (padding or _kernel.split(word) == [(word, True)]):
            raise PolicyError("sampling takes one word and at least one draw", "give a word without blanks")
        same: dict[str, Any] = {"n_max": n}
        if self.hides_length:
            same |= {"length": "fixed", "epsilon_length": None}
        drawing = self.model_copy(update=same)
        key = _kernel.ReleaseKey(secret or _kernel.Secret(), "samples", word, "samples", drawing.cfg())
        text = pa.array(["" if padding else " ".join([word] * n)], pa.large_string())
        released = drawing.release(text, RecordKeys(key, pa.array(["0"]), 0)).text[0].as_py()
        outputs = released.split(" ") if released else []
        if self.hides_length:
            return [*outputs, *[PAD] * (n - len(outputs))]
        if len(outputs) != n:
            raise PolicyError("the word is not in the vocabulary, and such words vanish", "take one of input_words()")
        return outputs


def _exact(amount: Exact) -> Fraction:
    """A float counts as the decimal that its repr prints, as everywhere in spends."""
    return amount if isinstance(amount, Fraction) else Fraction(repr(amount))
