"""SanText: every word becomes any word of a public vocabulary, near ones more likely than far ones.

Paper: Yue et al. 2021, "Differential Privacy for Text Analytics via Natural Text Sanitization" (sections 3.2 and 3.3).
P(y | x) is proportional to exp(-epsilon d(x, y) / 2), d the Euclidean distance in the vectors' own units. Where the
published code is wrong, and what holds here (docs/spec/privacy.md#santext):

* Its vocabulary and its sensitive words come from the texts being privatised; here both are public.
* One public seed, forked to all workers, gives documents the same draws; here every draw has a key of its own.
* The metric guarantee holds for the real numbers of the formula; for the integers that are drawn from it is claimed
  only under a certificate (docs/spec/privacy.md#metric-certificate), and never between an unknown word and another:
  those are drawn uniformly.
* epsilon is per unit of distance. Between any two words the cost is epsilon times the diameter of the vocabulary, which
  is what the ledger charges; `SanText.aligned` takes that product instead.
* SanText+ shows words that are not sensitive as they are, with probability 1 - p: no finite epsilon (class UMLDP). With
  p = 1 it is SanText onto the sensitive words, and has one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from dptext_etl import _kernel
from dptext_etl.artifacts import Artifact
from dptext_etl.embeddings import stopwords
from dptext_etl.errors import PolicyError
from dptext_etl.families import extremes
from dptext_etl.families.certificate import Certificate
from dptext_etl.families.distance import DistanceLaw
from dptext_etl.families.spends import unbounded
from dptext_etl.families.vector import UNKNOWN, Draws, Indices, VectorMechanism, read_fact, stored_fact
from dptext_etl.families.words import MetricClaim
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, Spend, exact
from dptext_etl.mechanism import PAD
from dptext_etl.scoring import Slots, bernoulli

TOKEN, PLAN = 1, 3
"""Purposes of streams: what is drawn, and the Bernoulli trials of SanText+."""

PAPER_EPSILON = 15.0


class SanText(VectorMechanism):
    """SanText and SanText+ (Yue et al. 2021).

    Attributes:
        epsilon: Per word and unit of distance; a draw costs epsilon times the diameter of the vocabulary at most.
        variant: "plain" draws every word from the vocabulary; "plus" draws from the sensitive words only, and keeps
            other words with probability 1 - p.
        sensitive_share: For "plus": this share of the vocabulary is sensitive, the last words in public order, which
            are the rarest where the vectors are sorted by frequency.
        sensitive: For "plus": a public list of sensitive words by path, instead of a share.
        p: For "plus": probability that a word that is not sensitive is drawn. With 1 every word is; below 1 words are
            shown, which needs disclosure "sens_class" in `allow` and `accept = ["UMLDP"]`.

    Example:
        >>> mechanism = SanText.example()
        >>> words, probabilities = mechanism.transition("good")
        >>> words[max(range(len(words)), key=probabilities.__getitem__)], sum(probabilities) == 1
        ('good', True)
    """

    reproducible: ClassVar[bool] = True
    artifact_fields: ClassVar[frozenset[str]] = frozenset({"vectors", "sensitive"})

    variant: Literal["plain", "plus"] = "plain"
    sensitive_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    sensitive: str | None = None
    p: Annotated[float, Field(gt=0, le=1)] = 0.2

    @model_validator(mode="before")
    @classmethod
    def _code_defaults(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("mode") == "faithful":
            return {"epsilon": PAPER_EPSILON, **values}
        return values

    @model_validator(mode="after")
    def _plus_alone(self) -> Self:
        given = self.model_fields_set & {"sensitive_share", "sensitive", "p"}
        if self.variant == "plain" and any(
            getattr(self, name) != type(self).model_fields[name].default for name in given
        ):
            msg = f'{", ".join(sorted(given))}: for variant "plus" alone'
            raise ValueError(msg)
        if self.sensitive is not None and "sensitive_share" in self.model_fields_set and self.sensitive_share != 0.5:
            msg = "sensitive words are given by a list or by a share of the vocabulary, not by both"
            raise ValueError(msg)
        if Fraction(repr(self.p)).denominator >= 2**64:
            msg = "p is finer than a draw of 64 bits: give it with at most 18 decimals"
            raise ValueError(msg)
        return self

    @property
    def shows_words(self) -> bool:
        """Whether words that are not sensitive can be released as they are."""
        return self.variant == "plus" and self.p < 1

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Which words count as sensitive, where the others can be kept."""
        return super().word_disclosures | ({Disclosure.SENS_CLASS} if self.shows_words else frozenset())

    def input_policy(self) -> dict[str, Any]:
        """As for all word mechanisms; the published code, too, draws unknown words uniformly."""
        return {**super().input_policy(), "numbers": "uniform", "oov": "uniform"}

    def artifacts(self) -> dict[str, Artifact]:
        """The vectors, their diameter, and the list of sensitive words if there is one."""
        listed = {} if self.sensitive is None else {"sensitive": stopwords(self.sensitive).artifact}
        return {**super().artifacts(), "span": self.span, **listed}

    @cached_property
    def _output_ids(self) -> npt.NDArray[np.int64]:
        """Numbers of the words that are drawn, in public order."""
        words = self.words
        n = len(self.input_words())
        if self.variant == "plain":
            chosen = np.arange(n)
        elif self.sensitive is not None:
            chosen = np.array(sorted(words.index[w] for w in stopwords(self.sensitive).words if w in words.index), int)
        else:
            chosen = np.arange(n - math.ceil(n * Fraction(repr(self.sensitive_share))), n)
        if len(chosen) < 2:
            raise PolicyError(
                f"{len(chosen)} words could be drawn, at least 2 are needed",
                "use more vectors, or a larger share or list of sensitive words",
            )
        return np.append(chosen, n) if self.hides_length else chosen

    @cached_property
    def _sensitive_mask(self) -> npt.NDArray[np.bool_]:
        mask = np.zeros(len(self.words), dtype=bool)
        mask[self._output_ids] = True
        return mask

    @cached_property
    def law(self) -> DistanceLaw:
        """The integer weights of every word over the words that are drawn."""
        words, chosen = self.words, self._output_ids
        outputs = words if len(chosen) == len(words) else words.take(words.words[at] for at in chosen)
        return DistanceLaw(words, outputs, self.epsilon, self.diameter)

    def choose(self, draws: Draws) -> Indices:
        """Draw an output for every word; unknown ones uniformly, for SanText+ some words stay."""
        ordered, order = draws.by_word()
        known = int(np.searchsorted(ordered.words, UNKNOWN))
        kept = ordered.words.copy()
        kept[known:] = self._uniform(ordered.take(slice(known, None)))
        some = ordered.take(slice(known))
        if self.shows_words:
            drawn = self._drawn_again(some)
            kept[:known][drawn] = self._output_ids[self.law.draw(some.take(drawn))]
        else:
            kept[:known] = self._output_ids[self.law.draw(some)]
        chosen = np.empty_like(kept)
        chosen[order] = kept
        return chosen

    def _uniform(self, draws: Draws) -> npt.NDArray[np.int64]:
        drawn = _kernel.uniform_choices(*draws.arrays(), TOKEN, self.law.width, len(self._output_ids))
        outputs: npt.NDArray[np.int64] = self._output_ids[pa.array(drawn).to_numpy()]
        return outputs

    def _drawn_again(self, draws: Draws) -> npt.NDArray[np.bool_]:
        """Whether each known word is drawn: sensitive ones always, others by a Bernoulli trial of probability p."""
        drawn = self._sensitive_mask[draws.words]
        others = draws.take(~drawn)
        slots = Slots(others.keys, others.records, others.positions)
        drawn[~drawn] = bernoulli(slots, exact(self.p), purpose=PLAN)
        return drawn

    @property
    def epsilon_per_word(self) -> float:
        """Epsilon times the diameter; infinite where words are shown."""
        return math.inf if self.shows_words else self.law.exponent

    @property
    def epsilon_tight(self) -> float | None:
        """What integer weights realise at most at that epsilon, whatever the distances.

        Specification: docs/spec/privacy.md#epsilon-implemented.

        `epsilon_table`, which takes a pass over all pairs of words, is no larger, and is computed when it is asked for.
        """
        return None if self.shows_words else self.law.epsilon_implemented

    @property
    def epsilon_table(self) -> float | None:
        """Exact pure parameter of one draw from the realised integers of all pairs of words, unknown ones included.

        Found once per configuration and machine, in seconds for 20,000 words, minutes for 65,000: the log says how far.
        """
        if self.shows_words:
            return None
        return float(self._fact("worst ratio", lambda: repr(self.law.worst_log_ratio())))

    @property
    def metric_claim(self) -> MetricClaim | None:
        """Epsilon per unit of Euclidean distance, for "plain" under its certificate.

        Specification: docs/spec/privacy.md#metric-certificate.

        Between known words (and padding): an unknown word is drawn uniformly, and has no distance.
        """
        if self.variant == "plus" or self.mode == "faithful" or self.length == "noisy" or not self._certified:
            return None
        return MetricClaim(self.epsilon, "euclidean", self.diameter)

    @cached_property
    def _certified(self) -> bool:
        if self.law.settled is not None:
            return self.law.settled
        return bool(self._fact("certificate", self.law.is_metric))

    def _fact(self, fact: str, found: Any) -> Any:
        """A fact about the law's integers, stored once."""
        description = {
            "format": "dptext-santext-fact/1",
            "fact": fact,
            "version": self.version,
            "epsilon": repr(self.epsilon),
            "vectors": self.words.artifact.sha256,
            "padded": self.hides_length,
            "outputs": self._output_ids.tolist() if self.variant == "plus" else "all",
        }
        return read_fact(stored_fact(description, found))

    def certificate(self) -> Certificate:
        """Compute what one draw realises at worst from the integer weights of every word, made anew."""
        source = "the integer weights of every word, made anew"
        return Certificate(source, self.law.worst_log_ratio(), exact=True, words=self.far_words())

    @property
    def guarantee(self) -> Guarantee:
        """As for all word mechanisms, but no unknown word is ever kept; UMLDP where known ones are shown."""
        stated = super().guarantee
        stated = replace(stated, disclosures=stated.disclosures - {Disclosure.OOV, Disclosure.NUMBERS})
        if not self.shows_words:
            return stated
        neighbours = (
            "two texts of one record that agree on everything disclosed and differ in sensitive words alone; a word "
            "that is not sensitive is shown with probability 1 - p"
        )
        return replace(stated, guarantee_class=GuaranteeClass.UMLDP, neighbours=neighbours)

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """N draws between the farthest two words; infinite where words are shown."""
        return {"∞": math.inf} if self.shows_words else {**super().cost_factors(positions), "D": self.diameter}

    def spend(self, positions: int) -> Spend:
        """N draws; infinite in every component where words are shown.

        Specification: docs/spec/privacy.md#santext-plus, docs/spec/privacy.md#infinite-components.
        """
        return unbounded(self.guarantee, positions) if self.shows_words else super().spend(positions)

    @property
    def disclosed_bits_per_token(self) -> float:
        """What kept words tell about a uniform vocabulary word, in bits: 0 where every word is drawn."""
        if not self.shows_words:
            return 0.0
        n, sensitive = len(self.words), len(self._output_ids)
        chances = np.array([1 / n, self.p / n])
        drawn = float(chances @ [sensitive, n - sensitive])
        shares = chances / drawn
        left = -float((np.array([sensitive, n - sensitive]) * shares * np.log2(shares)).sum())
        return math.log2(n) - drawn * left

    def output_words(self) -> frozenset[str] | None:
        """The words that are drawn; all of the vocabulary where words are shown; None in faithful mode."""
        if self.mode == "faithful" or self.shows_words:
            return super().output_words()
        return frozenset(self.law.outputs.words) - {PAD}

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1.

        Raises:
            PolicyError: `word` is no single word that is drawn.
        """
        number, outputs = self.number_of(word), list(self.law.outputs.words)
        if number == UNKNOWN:
            return outputs, [Fraction(1, len(outputs))] * len(outputs)
        weights: list[int] = self.law.weights(np.array([number]))[0].tolist()
        total = sum(weights)
        chances = [Fraction(weight, total) for weight in weights]
        if self.shows_words and not self._sensitive_mask[number]:
            share = Fraction(repr(self.p))
            return [*outputs, self.words.words[number]], [*(share * chance for chance in chances), 1 - share]
        return outputs, chances

    def survival(self, word: str) -> Fraction:
        """Return the exact probability that `word` comes back as itself.

        Raises:
            PolicyError: As `transition`.
        """
        number = self.number_of(word)
        if number == UNKNOWN:
            return Fraction(0)
        at = np.flatnonzero(self._output_ids == number)
        if not len(at):
            return 1 - Fraction(repr(self.p)) if self.shows_words else Fraction(0)
        weights = self.law.weights(np.array([number]))[0]
        return Fraction(int(weights[at[0]]), int(weights.sum()))

    def collision(self, word: str) -> float:
        """Return the probability that two independent draws of `word` agree, rounded up.

        Raises:
            PolicyError: As `transition`.
        """
        number = self.number_of(word)
        if number == UNKNOWN or self.shows_words:
            return super().collision(word)
        weights = self.law.weights(np.array([number]))[0].astype(np.float64)
        return min(1.0, float(np.dot(weights, weights) / weights.sum() ** 2) * (1 + 1e-9))

    def largest_probability(self) -> float:
        """Return an upper bound of the probability with which a draw gives any one word."""
        return 1.0 if self.shows_words else extremes.range_bounded(self.law.exponent, len(self._output_ids))

    @classmethod
    def example(cls) -> Self:
        """Epsilon 4 per unit of distance over the first 400 words of the embedded vectors."""
        return cls(epsilon=4.0, limit=400)
