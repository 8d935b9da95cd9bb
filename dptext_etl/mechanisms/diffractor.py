"""1-Diffractor: a word takes a step along a list in which neighbours stand beside each other.

Paper: Meisenbacher et al. 2024, "1-Diffractor: Efficient and Utility-Preserving Text Obfuscation Leveraging
Word-Level Metric Differential Privacy" (section 3). What holds here (docs/spec/privacy.md#diffractor):

* Between words at most d places apart in every list the guarantee is epsilon times d: a metric claim, whose epsilon
  compares with no other mechanism's. Between any two words it is epsilon * gamma per word for "tem" (5 epsilon by
  default) and epsilon * (N - 1) for "geometric", N words on a list. "tem" is the one to take.
* All lists hold the same words. The published code draws among the lists that hold a word, so that a word missing in
  one list is told apart with certainty; here the vocabulary is what the embeddings have in common, and lists from a
  file that differ are refused, but for faithful mode (class NONE).
* A mixture of lists costs what one list costs: the list is drawn without looking at the word, anew for every word.
* "geometric" draws exactly from the discrete Laplace distribution; a table of rounded weights would break its tails.
  Unknown words vanish before words are counted, since a uniform draw lies outside its bounds. Under "tem" unknown words
  are drawn uniformly, within epsilon * gamma; they have no place on a list, so no metric claim.
* The published code's Gaussian scores for the weights have no proof and are not here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from dptext_etl.embeddings import DEFAULT_VECTORS, Metric, NeighbourLists, stopwords
from dptext_etl.errors import PolicyError
from dptext_etl.families.lists.geometric import GeometricLaw
from dptext_etl.families.lists.listed import ListLaw, ListMechanism
from dptext_etl.families.lists.tem import TemLaw
from dptext_etl.families.spends import unbounded
from dptext_etl.families.words import MetricClaim
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, Spend

_RATE = 2**48  # of a discrete Laplace: the largest numerator and denominator that the kernel takes
_SLACK = 1 + 1e-12  # rounding of the logarithms behind a computed loss
_FROM_FILE = ("vectors", "walks", "metric", "limit")


class Diffractor(ListMechanism):
    """1-Diffractor (Meisenbacher et al. 2024) with the truncated exponential or the geometric mechanism.

    Attributes:
        epsilon: Per place of a list between two words; a word costs epsilon * gamma ("tem") or epsilon * (N - 1)
            ("geometric").
        variant: "tem" weighs the places within gamma by their distance and all others alike; "geometric" adds a
            two-sided geometric number to the place and stops at the ends of the list.
        gamma: Distance from which "tem" tells places no longer apart.
        vectors: Public word vectors, "english-20k" or paths, each once: the words that all have are the vocabulary, in
            the order of the first. The paper's five lists are those of five embeddings.
        walks: Lists of each embedding, from other starting words; more lists give a word more neighbours.
        metric: Distance that the lists are made with: "euclidean" (the paper) or "cosine".
        lists: Path of saved lists (`NeighbourLists.save`) instead of `vectors`, `walks`, `metric` and `limit`.
        stopwords: Public list that faithful mode keeps in clear: "english" or a path.

    Example:
        >>> mechanism = Diffractor.example()
        >>> words, probabilities = mechanism.transition("good")
        >>> sum(probabilities) == 1, mechanism.spend(10).eps_pure / 1e6
        (True, 100.0)
    """

    artifact_fields: ClassVar[frozenset[str]] = frozenset({"vectors", "lists", "stopwords"})

    variant: Literal["tem", "geometric"] = "tem"
    gamma: Annotated[int, Field(ge=1, le=4_096)] = 5
    vectors: Annotated[tuple[str, ...], Field(min_length=1)] = (DEFAULT_VECTORS,)
    walks: Annotated[int, Field(ge=1, le=64)] = 1
    metric: Metric = "euclidean"
    lists: str | None = None
    stopwords: str = "english"

    @field_validator("vectors", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        if self.variant == "tem":
            return self
        if self.gamma != type(self).model_fields["gamma"].default:
            msg = 'gamma belongs to variant "tem"; the geometric one reaches over the whole list'
            raise ValueError(msg)
        if max(self._rate.numerator, self._rate.denominator) > _RATE:
            msg = 'epsilon of variant "geometric" is the exact rate of a discrete Laplace: give at most 14 digits'
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _even_lists(self) -> Self:
        if self.lists is None:
            return self
        fields = type(self).model_fields
        given = [name for name in _FROM_FILE if getattr(self, name) != fields[name].default]
        if given:
            msg = f"lists come from a file or from embeddings: give lists, or {', '.join(given)}"
            raise ValueError(msg)
        if self.mode == "strict" and Path(self.lists).is_file() and not NeighbourLists.open(self.lists).even:
            raise ValueError(_UNEVEN)
        return self

    @property
    def unknown(self) -> Literal["uniform", "drop"]:
        """Uniform lies within the bounds of "tem", outside those of "geometric".

        Specification: docs/spec/privacy.md#unknown-words.
        """
        return "uniform" if self.variant == "tem" else "drop"

    @property
    def bounded_range(self) -> bool:
        """Only "tem" is an exponential mechanism."""
        return self.variant == "tem"

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Nothing in strict mode; faithful mode keeps stopwords."""
        return super().word_disclosures | ({Disclosure.STOPWORDS} if self.mode == "faithful" else frozenset())

    @property
    def guarantee(self) -> Guarantee:
        """As for all word mechanisms; none where the lists hold different words (faithful mode alone)."""
        claim = super().guarantee
        return claim if self._even else replace(claim, guarantee_class=GuaranteeClass.NONE)

    @property
    def _rate(self) -> Fraction:
        return Fraction(repr(self.epsilon))

    @property
    def _even(self) -> bool:
        return self.mode == "strict" or bool(self._facts["even"])

    @property
    def epsilon_per_word(self) -> Fraction:
        """Between any two words: epsilon * gamma ("tem"), epsilon * (N - 1) ("geometric")."""
        return self._rate * (self.gamma if self.variant == "tem" else self.places - 1)

    @property
    def epsilon_table(self) -> float | None:
        """What the stored weights realise between any two words; None for lists that hold different words.

        "tem": computed from the integers for every pair of words, unknown ones included, and every output; for several
        lists exact for their mixture or, where lists times gamma are many, the value of one list, which bounds it.
        "geometric": epsilon * (N - 1), attained at the ends of a single list, a bound for several.
        """
        return super().epsilon_table

    @property
    def metric_claim(self) -> MetricClaim | None:
        """Epsilon per place, the largest distance over the lists counting; for "tem" cut off at gamma.

        Claimed only where the stored integers keep it for every pair of places
        (docs/spec/privacy.md#metric-certificate), between words on the lists (under "tem" an unknown word counts as
        gamma away from every word), and not for a noisy length.
        """
        if not self._even or self.length == "noisy":
            return None
        reach = self.places - 1
        if self.variant == "geometric":
            return MetricClaim(self._rate, "listidx-max", Fraction(reach))
        if float(self._facts["epsilon_metric"]) * _SLACK > self.epsilon:
            return None
        return MetricClaim(self._rate, f"min(listidx-max,{self.gamma})", Fraction(min(self.gamma, reach)))

    def spend(self, positions: int) -> Spend:
        """As for all word mechanisms; nothing is bounded where the lists hold different words."""
        return super().spend(positions) if self._even else unbounded(self.guarantee, positions)

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """N draws, each between the two places that the mechanism tells apart best."""
        if not self._even:
            return {"∞": math.inf}
        apart = {"gamma": self.gamma} if self.variant == "tem" else {"(N-1)": self.places - 1}
        return super().cost_factors(positions) | apart

    def neighbour_lists(self) -> NeighbourLists:
        """Read or make the public lists.

        Raises:
            ArtifactError: A file that cannot be read, or embeddings without words in common.
            PolicyError: Lists that hold different words, in strict mode.
        """
        if self.lists is None:
            vocabulary: Literal["common", "own"] = "common" if self.mode == "strict" else "own"
            return NeighbourLists.build(
                self.vectors, metric=self.metric, walks=self.walks, limit=self.limit, vocabulary=vocabulary
            )
        found = NeighbourLists.open(self.lists)
        if self.mode == "strict" and not found.even:
            raise PolicyError(_UNEVEN)
        return found

    def table_description(self) -> dict[str, Any]:
        """Parameters and the hash of the lists' content."""
        return {
            "mechanism": self.name,
            "version": self.version,
            "variant": self.variant,
            "epsilon": repr(self.epsilon),
            "gamma": self.gamma if self.variant == "tem" else None,
            "lists": self.neighbour_lists().content,
            "pad": self.hides_length,
            "kept": stopwords(self.stopwords).artifact.sha256 if self.mode == "faithful" else None,
        }

    def law(self, places: int) -> ListLaw:
        """Integer weights by distance, or the rate of the steps.

        Raises:
            PolicyError: Weights that realise more than is declared (a defect of floating point, never seen).
        """
        if self.variant == "geometric":
            return GeometricLaw(self._rate)
        law = TemLaw.of(self.epsilon, self.gamma, places)
        if law.loss(places)[0] > float(self._rate * self.gamma) * _SLACK:
            raise PolicyError("the weights realise more than epsilon * gamma per word", "take another epsilon or gamma")
        return law

    def kept(self) -> Iterable[str]:
        """Faithful mode keeps stopwords."""
        return stopwords(self.stopwords).words if self.mode == "faithful" else ()

    def distance(self, word: str, other: str) -> int:
        """Return the distance that the metric claim speaks of: the largest over the lists; "tem" stops at gamma.

        Raises:
            PolicyError: A word that is not on every list.
        """
        places = super().distance(word, other)
        return min(places, self.gamma) if self.variant == "tem" else places

    @classmethod
    def aligned(cls, epsilon: float, **parameters: Any) -> Self:
        """Return the mechanism whose draw costs at most `epsilon` between any two words: epsilon / gamma or / (N - 1).

        Mechanisms are compared at such an epsilon; nothing else here ever divides by it. The quotient is rounded down
        to 12 decimals, so that it is an exact rate.

        Args:
            epsilon: Of one draw, over the largest distance.
            parameters: All others.
        """
        probe = cls(**{"epsilon": 1.0, **parameters})
        furthest = probe.gamma
        if probe.variant == "geometric":
            furthest = len(probe.neighbour_lists().words) - (0 if probe.hides_length else 1)
        shared = math.floor(Fraction(repr(epsilon)) / furthest * 10**12)
        return cls(**{**parameters, "epsilon": float(Fraction(shared, 10**12))})

    @classmethod
    def example(cls) -> Self:
        """Epsilon 2 per place, 500 words of the embedded vectors."""
        return cls(epsilon=2.0, limit=500)


_UNEVEN = (
    "the lists hold different words: a word that a list misses would be told apart with certainty; "
    "allowed in strict mode: lists of one vocabulary, as NeighbourLists.build makes them from embeddings"
)
