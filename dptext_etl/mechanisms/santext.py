"""SanText replaces every word by a word of a public vocabulary, and draws near words more likely than far ones.

Paper: Yue et al. 2021, "Differential Privacy for Text Analytics via Natural Text Sanitization" (sections 3.2 and 3.3).
P(y | x) is proportional to exp(-epsilon d(x, y) / 2), where d is the Euclidean distance in the vectors' own units. The
published code has defects, which this mechanism avoids (docs/spec/privacy.md#santext):

* The code reads its vocabulary and its sensitive words from the private texts; here both are public.
* The code forks one public seed to all workers, so documents share draws; here every draw has its own key.
* The metric guarantee holds for the real numbers of the formula. For the integers of the sampler it is claimed only
  under a certificate (docs/spec/privacy.md#metric-certificate), and never between an unknown word and another word,
  since unknown words are drawn uniformly.
* epsilon is per unit of distance. Between any two words the cost is epsilon times the diameter of the vocabulary, and
  the ledger charges this product; `SanText.aligned` has the product as its parameter.
* SanText+ shows words that are not sensitive unchanged with probability 1 - p, so it has no finite epsilon (class
  UMLDP). With p = 1 it is SanText onto the sensitive words, and has a finite epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from dptext_etl.accounting import Event, Unbounded
from dptext_etl.allocation import Allocation
from dptext_etl.artifacts import Artifact
from dptext_etl.embeddings import stopwords
from dptext_etl.families.distance import DistanceMechanism, Draws
from dptext_etl.families.words import Division, Indices, Scored, ScoredDraw
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, exact
from dptext_etl.sampling import Slots, bernoulli

PLAN = 3  # purpose number of SanText+'s Bernoulli trials (docs/spec/stream.md#purposes)

PAPER_EPSILON = 15.0
_ROWS = 256  # words whose outputs are scored at once, where a budget is divided


class SanText(DistanceMechanism):
    """SanText and SanText+ (Yue et al. 2021).

    Attributes:
        epsilon: Epsilon per word and unit of distance; a draw costs at most epsilon times the vocabulary's diameter.
        variant: "plain" draws from the vocabulary; "plus" draws from the sensitive words only, and keeps other words
            with probability 1 - p.
        sensitive_share: For "plus": the share of sensitive words, which are the last (usually rarest) ones of the
            vocabulary.
        sensitive: For "plus": path of a public list of sensitive words, instead of a share.
        p: For "plus": the probability of drawing a word that is not sensitive. With 1, the class is COND_PURE. Below 1,
            words are shown: set disclosure "sens_class" in `allow`, and `accept_unbounded = ["UMLDP"]`.

    Example:
        >>> mechanism = SanText.example()
        >>> words, probabilities = mechanism.transition("good")
        >>> words[max(range(len(words)), key=probabilities.__getitem__)], sum(probabilities) == 1
        ('good', True)
    """

    artifact_fields: ClassVar[frozenset[str]] = frozenset({"vectors", "sensitive"})
    cannot_divide: ClassVar[None] = None

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
        changed = self.model_fields_set & {"sensitive_share", "sensitive", "p"}
        if self.variant == "plain" and any(
            getattr(self, name) != type(self).model_fields[name].default for name in changed
        ):
            raise ValueError(f'{", ".join(sorted(changed))}: only for variant "plus"')
        if self.sensitive is not None and "sensitive_share" in self.model_fields_set and self.sensitive_share != 0.5:
            raise ValueError("give sensitive words by a list or by a share of the vocabulary, not by both")
        if Fraction(repr(self.p)).denominator >= 2**64:
            raise ValueError("p is finer than a draw of 64 bits: write it with at most 18 decimals")
        return self

    @property
    def shows_words(self) -> bool:
        return self.variant == "plus" and self.p < 1

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Return the disclosures of words: which words are sensitive, if the others can be kept."""
        return frozenset({Disclosure.SENS_CLASS} if self.shows_words else ())

    def artifacts(self) -> dict[str, Artifact]:
        listed = {} if self.sensitive is None else {"sensitive": stopwords(self.sensitive).artifact}
        return {**super().artifacts(), **listed}

    @property
    def _draws_from_all(self) -> bool:
        """Return True if every word of the vocabulary can be drawn; "plus" draws only sensitive words."""
        return self.variant == "plain"

    def _drawn_words(self) -> npt.NDArray[np.int64]:
        """Return the ids of the words that can be drawn: all, the words of a public list, or the rarest ones."""
        index, n = self.words.index, len(self.input_words())
        if self.variant == "plain":
            return super()._drawn_words()
        if self.sensitive is not None:
            return np.array(sorted(index[word] for word in stopwords(self.sensitive).words if word in index), int)
        return np.arange(n - math.ceil(n * exact(self.sensitive_share)), n)

    @cached_property
    def _sensitive_mask(self) -> npt.NDArray[np.bool_]:
        mask = np.zeros(len(self.words), dtype=bool)
        mask[self._output_ids] = True
        return mask

    def _unchanged_chance(self, number: int) -> Fraction:
        """Return the probability that a word is shown unchanged: 1 - p for "plus" if it is not sensitive."""
        return 1 - exact(self.p) if self.shows_words and not self._sensitive_mask[number] else Fraction(0)

    def _draw_known(self, draws: Draws, order: npt.NDArray[np.int64], chosen: Indices) -> None:
        """Draw an output for words of the vocabulary; for "plus" some words stay."""
        if self.shows_words:
            ordered = draws.take(order)
            chosen[order] = ordered.words
            drawn = self._sensitive_mask[ordered.words]  # others by a Bernoulli trial of probability p
            drawn[~drawn] = bernoulli(ordered.take(~drawn), exact(self.p), purpose=PLAN)
            order = order[drawn]
        super()._draw_known(draws, order, chosen)

    def refuses_allocation(self, allocation: Allocation) -> str | None:
        """Return why the budget cannot be divided: words are shown, or as for other words."""
        if self.shows_words:
            return 'words that are not sensitive may be shown, which no budget bounds: use p = 1, or variant "plain"'
        return super().refuses_allocation(allocation)

    @property
    def loss_range(self) -> float:
        return self.diameter

    @cached_property
    def division(self) -> Division:
        """Return how words with given epsilons are drawn: by minus their distances."""
        draw = ScoredDraw(self._scored, -self.diameter, 0.0, self._output_ids, len(self._output_ids))
        return Division(self._vocabulary, self.words.words, draw, draw.largest_set)

    def _scored(self, words: Indices, slots: Slots, offset: int) -> Iterator[Scored]:  # noqa: ARG002
        """Score the words that can be drawn by minus their distance."""
        vectors, outputs = self.words, self._output_ids
        for at in np.split(np.arange(len(words)), range(_ROWS, len(words), _ROWS)):
            squared = vectors.squared_distances(words[at].astype(np.int64), outputs)
            yield Scored(at, -np.sqrt(squared.astype(np.float64)) * vectors.scale, outputs)

    @property
    def guarantee(self) -> Guarantee:
        stated = super().guarantee
        if not self.shows_words:
            return stated
        neighbors = (
            "two texts of one record that agree on everything disclosed and differ in sensitive words alone; a word "
            "that is not sensitive is shown with probability 1 - p"
        )
        return replace(stated, guarantee_class=GuaranteeClass.UMLDP, neighbors=neighbors)

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """Return the factors of n draws between the two farthest words; infinite if words are shown."""
        return {"∞": math.inf} if self.shows_words else super().cost_factors(positions)

    def event(self, positions: int) -> Event:
        """Return n draws; they are unbounded if words are shown (docs/spec/privacy.md#santext-plus)."""
        return Unbounded() if self.shows_words and positions else super().event(positions)

    def described(self) -> dict[str, dict[str, Any]]:
        """Return the bits that kept words disclose about a uniform vocabulary word; nothing if every word is drawn."""
        if not self.shows_words:
            return {}
        n, sensitive = len(self.words), len(self._output_ids)
        chances = np.array([1 / n, self.p / n])
        drawn = float(chances @ [sensitive, n - sensitive])
        shares = chances / drawn
        left = -float((np.array([sensitive, n - sensitive]) * shares * np.log2(shares)).sum())
        return {"table": {"disclosed_bits_per_token": math.log2(n) - drawn * left}}

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=4.0, limit=400)
