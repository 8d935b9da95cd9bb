"""Draw every word of a text independently, from a distribution that depends only on the word.

The mechanisms here share the input policy as data, the cost of n draws, and the exact output distribution of one word,
if it has exact fractions.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple

import pyarrow as pa
from pydantic import PositiveInt

from dptext_etl import _kernel
from dptext_etl.accounting import Draws
from dptext_etl.errors import PolicyError
from dptext_etl.families import extremes
from dptext_etl.families.certificate import Certificate, of_distributions
from dptext_etl.families.lengths import HideableLength
from dptext_etl.families.spends import spend_of_draws
from dptext_etl.guarantee import Disclosure, Guarantee, Spend, exact, micro
from dptext_etl.keys import RecordKeys
from dptext_etl.mechanism import PAD

STRICT_INPUT = {"case": "lower", "punctuation": "drop", "numbers": "uniform", "oov": "uniform", "null": "pass"}
FAITHFUL_INPUT = {"case": "keep", "punctuation": "keep", "numbers": "keep", "oov": "keep", "null": "pass"}

Exact = float | Fraction


class MetricClaim(NamedTuple):
    """A guarantee that grows with the distance of two words (class METRIC, docs/spec/privacy.md#classes).

    Attributes:
        epsilon: Epsilon per unit of distance.
        metric: Name of the distance.
        diameter: Largest distance of two words.
    """

    epsilon: Exact
    metric: str
    diameter: Exact


class WordMechanism(HideableLength):
    """A mechanism that replaces every word by a draw, word by word.

    Attributes:
        limit: Number of first words of the public vocabulary to use; None uses all.
    """

    faithful_disclosures: ClassVar[frozenset[Disclosure]] = frozenset(
        {Disclosure.PUNCT, Disclosure.NUMBERS, Disclosure.OOV, Disclosure.CASE}
    )
    output_set_disclosure: ClassVar[frozenset[Disclosure]] = frozenset()
    """Disclosures of the choice of output sets."""
    pads: ClassVar[bool] = False
    """True if the mechanism can put `PAD` among its inputs and outputs, which is needed to hide the length."""

    limit: PositiveInt | None = None

    @property
    def _length_is_told_by(self) -> str | None:
        told = super()._length_is_told_by
        return told if told or self.pads else "this mechanism cannot pad texts"

    @property
    def unknown(self) -> Literal["uniform", "first", "drop"]:
        """Return how unknown words are drawn in strict mode: uniformly, as the first word known, or not at all."""
        return "uniform"

    def configuration(self) -> dict[str, Any]:
        """Return the configuration; where unknown words are drawn as the first word, it is that of version 2."""
        found = {name: value for name, value in super().configuration().items() if name != "unknown_words"}
        return {**found, "mechanism_version": 2} if self.mode == "strict" and self.unknown == "first" else found

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee; where unknown words are dropped, the number of released words reveals which there were.

        Specification: docs/spec/privacy.md#unknown-words.
        """
        stated = super().guarantee
        told = {Disclosure.OOV_FLAG} if self.unknown == "drop" and not self.hides_length else set()
        return replace(stated, disclosures=stated.disclosures | told)

    @property
    def bounded_range(self) -> bool:
        """Return True if one draw is range-bounded (zCDP epsilon^2/8), False if it is only pure (epsilon^2/2)."""
        return True

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Return the disclosures of a released word next to its draw, in strict mode."""
        return self.output_set_disclosure

    def input_policy(self) -> dict[str, Any]:
        """Return the treatment of case, punctuation, numbers, unknown words, nulls and long texts, as data.

        Specification: docs/spec/privacy.md#input-policy.
        """
        if self.mode == "faithful":
            return {**FAITHFUL_INPUT, **self._length_policy()}
        return {**STRICT_INPUT, "numbers": self.unknown, "oov": self.unknown, **self._length_policy()}

    @property
    def unit_epsilon(self) -> float:
        """Return the parameter of one draw, in the unit of the mechanism's distances if it has any."""
        return self.epsilon

    @property
    def epsilon_per_word(self) -> Exact:
        """Return the pure parameter of one draw between any two words with equal disclosures."""
        return exact(self.unit_epsilon)

    @property
    def epsilon_table(self) -> float | None:
        """Return the exact pure parameter of one draw, from the sampler's own data; None if unknown.

        Specification: docs/spec/privacy.md#epsilon-table.
        """
        return None

    @property
    def epsilon_table_is_exact(self) -> bool:
        """Return True if two words attain `epsilon_table`, False if it is an upper bound."""
        return True

    @property
    def epsilon_tight(self) -> float | None:
        """Return the exact parameter of a draw for spends: `epsilon_table`, or a bound that needs no computation."""
        return self.epsilon_table

    @property
    def disclosed_bits_per_token(self) -> float:
        """Return the bits that the choice of output sets reveals about a uniform vocabulary word."""
        return 0.0

    @property
    def metric_claim(self) -> MetricClaim | None:
        """Return the METRIC claim of one draw, if its certificate holds; None if there is no such claim.

        Specification: docs/spec/privacy.md#metric-certificate.
        """
        return None

    def spend(self, positions: int) -> Spend:
        """Return the spend of n draws and, for a noisy length, of the draw of the length.

        Specification: docs/spec/privacy.md#epsilon-star, docs/spec/privacy.md#length-noisy.
        """
        tight, metric = self.epsilon_tight, self.metric_claim if positions else None
        cost = spend_of_draws(
            self.guarantee,
            positions,
            exact(self.epsilon_per_word),
            None if tight is None else exact(tight),
            positions=positions,
            beside=self._length_cost if positions else Fraction(0),
            bounded_range=self.bounded_range,
        )
        if metric is None:
            return cost
        per_distance, diameter = micro(exact(metric.epsilon)), micro(exact(metric.diameter))
        return replace(cost, metric_id=metric.metric, eps_metric=per_distance, diameter=diameter)

    def draws(self, positions: int) -> Draws | None:
        """Return one draw per position if draws are range-bounded and finite and no length is drawn; otherwise None."""
        if not self.bounded_range or self.length == "noisy" or not math.isfinite(self.spend(1).eps_pure):
            return None
        return Draws(float(self.epsilon_per_word), positions)

    def unit_micro(self) -> int:
        """Return the declared epsilon of one draw in millionths, for engines that multiply it by positions."""
        unit = self.spend(2).eps_approx - self.spend(1).eps_approx
        if not math.isfinite(unit) or self.spend(1_000_003).eps_approx != unit * 1_000_003 + self.base_micro():
            raise PolicyError("epsilon is finer than a millionth", "give epsilon with at most 6 decimals")
        return int(unit)

    def base_micro(self) -> int:
        """Return the declared epsilon of a text next to its draws, in millionths, which is that of the noisy length."""
        return int(micro(self._length_cost))

    @abstractmethod
    def input_words(self) -> tuple[str, ...]:
        """Return the words that the mechanism knows, in public order; every other word counts as unknown."""

    @abstractmethod
    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1."""

    def survival(self, word: str) -> Fraction:
        """Return (an upper bound of) the probability that `word` comes back as itself."""
        outputs = zip(*self.transition(word), strict=True)
        return sum((chance for output, chance in outputs if output == word), Fraction(0))

    def collision(self, word: str) -> float:
        """Return an upper bound of the probability that two independent draws of `word` agree: sum P(y)^2."""
        return min(1.0, sum(float(chance) ** 2 for chance in self.transition(word)[1]) * (1 + 1e-12))

    def largest_probability(self) -> float:
        """Return an upper bound of the probability of any single output word; 1 if no bound is known."""
        outputs = self.output_words()
        if not self.bounded_range or self.word_disclosures or not outputs:
            return 1.0
        return extremes.range_bounded(float(self.epsilon_per_word), len(outputs))

    def certificate(self) -> Certificate | None:
        """Compute the largest loss of one draw; None if the distribution of a word has no finite table."""
        return of_distributions(self)

    def far_words(self) -> tuple[str, str]:
        """Return two words that are probably easiest to distinguish, chosen from public inputs alone."""
        words = [word for word in self.input_words() if word != PAD]
        return words[0], words[-1]

    def distances_from(self, word: str) -> dict[str, float] | None:  # noqa: ARG002
        """Return the distance of every known word from one, in units of the metric claim; None without a claim."""
        return None

    def sample_many(self, word: str, n: int, *, secret: _kernel.Secret | None = None) -> list[str]:
        """Draw n outputs of one word independently, through the code that releases texts (audits, query attack)."""
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
            raise PolicyError("the word is not in the vocabulary, and is not drawn", "take one of input_words()")
        return outputs
