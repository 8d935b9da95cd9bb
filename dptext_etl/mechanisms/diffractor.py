"""1-Diffractor moves every word by a random number of places along a list of neighboring words.

Paper: Meisenbacher et al. 2024, "1-Diffractor: Efficient and Utility-Preserving Text Obfuscation Leveraging
Word-Level Metric Differential Privacy" (section 3). What holds here (docs/spec/privacy.md#diffractor):

* Between words at most d places apart in every list, the guarantee is epsilon times d. This is a metric claim, whose
  epsilon is not comparable with other mechanisms' epsilon. Between any two words the cost per word is epsilon * gamma
  for "tem" (5 epsilon by default), and epsilon * (N - 1) for "geometric", with N words on a list. Prefer "tem".
* All lists hold the same words. The published code draws among the lists that hold a word, so a word that one list
  misses can be recognized with certainty. Here the vocabulary consists of the words that all embeddings have. Lists
  from a file that hold different words are refused, except in faithful mode (class NONE).
* A mixture of lists costs as much as one list: for every word, the list is drawn independently of the word.
* "geometric" draws exactly from the discrete Laplace distribution; a table of rounded weights would break its tails.
  Unknown words are drawn as if they were the first word of the vocabulary, since a uniform draw lies outside its
  bounds. Under "tem", unknown words are drawn uniformly, within epsilon * gamma; they have no place on a list and
  therefore no metric claim.
* The published code's Gaussian scores for the weights have no proof and are excluded.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from dptext_etl import _kernel
from dptext_etl.accounting import Event, MetricClaim, Unbounded
from dptext_etl.allocation import Allocation, Epsilons
from dptext_etl.artifacts import save_tensors
from dptext_etl.embeddings import DEFAULT_VECTORS, Metric, stopwords
from dptext_etl.embeddings.neighbor_lists import NeighborLists
from dptext_etl.embeddings.vectors import stored_words, written
from dptext_etl.errors import PolicyError
from dptext_etl.families.lists import (
    LISTS_FORMAT,
    GeometricDistribution,
    Order,
    PlaceDistribution,
    TemDistribution,
    loss_in_lists,
    rates_of,
    read_orders,
)
from dptext_etl.families.stored_distributions import MappedMechanism
from dptext_etl.families.words import Division, Indices, Scored, ScoredDraw
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, exact
from dptext_etl.mechanism import PAD, Loss
from dptext_etl.sampling import TOKEN, Slots, WordSampler, choose_uniform

LIST = 2  # purpose number of the choice of a list (docs/spec/stream.md#purposes)
SCORED = 2**22  # scores that are drawn from at once, where a budget is divided
_RATE = 2**48  # largest numerator and denominator of a discrete Laplace rate in the kernel
_FINE = 200.0  # largest epsilon of a draw whose rate is written with 12 decimals: its numerator stays below 2**48
_SLACK = 1 + 1e-12  # above the rounding error of the logarithms in a computed loss
_FROM_FILE = ("vectors", "walks", "metric", "limit")


class Diffractor(MappedMechanism):
    """1-Diffractor (Meisenbacher et al. 2024) with the truncated exponential or the geometric mechanism.

    Attributes:
        epsilon: Epsilon per place between two words of a list. A word costs epsilon * gamma ("tem") or epsilon * (N -
            1) ("geometric").
        variant: "tem" weighs places within gamma by distance, and all others equally; "geometric" adds a two-sided
            geometric number to the place, up to the ends of the list.
        gamma: Distance from which "tem" treats all places alike.
        vectors: Public word vectors, "english-20k" or paths, each once; the vocabulary is their common words, in the
            order of the first.
        walks: Lists per embedding; more lists give a word more neighbors.
        metric: Distance for building the lists: "euclidean" (the paper) or "cosine".
        lists: Path of saved lists (`NeighborLists.save`) instead of `vectors`, `walks`, `metric` and `limit`.
        unknown_words: "first" draws as for the first word of the vocabulary; "drop" leaves the word out, which
            discloses the number of known words (oov_flag).
        stopwords: Public list that faithful mode keeps: "english" or a path.

    Example:
        >>> mechanism = Diffractor.example()
        >>> words, probabilities = mechanism.transition("good")
        >>> sum(probabilities) == 1, mechanism.spend(10).epsilon
        (True, 100.0)
    """

    artifact_fields: ClassVar[frozenset[str]] = frozenset({"vectors", "lists", "stopwords"})
    cannot_divide: ClassVar[None] = None
    _format: ClassVar[str] = LISTS_FORMAT
    _pads: ClassVar[bool] = True

    variant: Literal["tem", "geometric"] = "tem"
    gamma: Annotated[int, Field(ge=1, le=4_096)] = 5
    vectors: Annotated[tuple[str, ...], Field(min_length=1)] = (DEFAULT_VECTORS,)
    walks: Annotated[int, Field(ge=1, le=64)] = 1
    metric: Metric = "euclidean"
    lists: str | None = None
    stopwords: str = "english"
    unknown_words: Literal["first", "drop"] = "first"

    @field_validator("vectors", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_distribution(self) -> Self:
        if (self.variant == "tem" or self.mode == "faithful") and self.unknown_words != "first":
            raise ValueError('unknown_words is for variant "geometric" in strict mode')
        if self.variant == "tem":
            return self
        if self.gamma != type(self).model_fields["gamma"].default:
            raise ValueError('gamma belongs to variant "tem"; the geometric variant covers the whole list')
        if self.allocation is None and max(self._rate.numerator, self._rate.denominator) > _RATE:
            msg = 'epsilon of variant "geometric" is the exact rate of a discrete Laplace: write at most 14 digits'
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _even_lists(self) -> Self:
        if self.lists is None:
            return self
        changed = [name for name in _FROM_FILE if getattr(self, name) != type(self).model_fields[name].default]
        if changed:
            raise ValueError(f"lists come from a file or from embeddings: give lists, or {', '.join(changed)}")
        if self.mode == "strict" and Path(self.lists).is_file() and not NeighborLists.open(self.lists).even:
            raise ValueError(_UNEVEN)
        return self

    @property
    def _unknown(self) -> Literal["uniform", "first", "drop"]:
        """Return how unknown words are drawn (docs/spec/privacy.md#unknown-words): "tem" bounds a uniform draw, too."""
        return "uniform" if self.variant == "tem" or self.mode == "faithful" else self.unknown_words

    @property
    def bounded_range(self) -> bool:
        return self.variant == "tem"

    def refuses_allocation(self, allocation: Allocation) -> str | None:
        """Return why the budget cannot be divided; faithful lists hold one vocabulary if they come from one file."""
        if self.mode == "faithful" and (self.lists is not None or len(self.vectors) > 1):
            return "lists of several vocabularies share no range of places: a divided budget needs one set of vectors"
        return super().refuses_allocation(allocation)

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Return the disclosures of words: none in strict mode; faithful mode keeps stopwords."""
        return frozenset({Disclosure.STOPWORDS} if self.mode == "faithful" else ())

    @property
    def guarantee(self) -> Guarantee:
        claim = super().guarantee
        return claim if self._even else replace(claim, guarantee_class=GuaranteeClass.NONE)

    @property
    def _rate(self) -> Fraction:
        return Fraction(repr(self.unit_epsilon))

    @property
    def _even(self) -> bool:
        return self.mode == "strict" or bool(self._facts["even"])

    @property
    def epsilon_per_word(self) -> Fraction:
        """Return the cost between any two words: epsilon * gamma ("tem"), epsilon * (N - 1) ("geometric")."""
        return self._rate * (self.gamma if self.variant == "tem" else self.places - 1)

    @property
    def metric_claim(self) -> MetricClaim | None:
        """Return the claim of epsilon per place; the distance of two words is the largest over the lists.

        For "tem", distances end at gamma. The claim is made only if the stored integers keep it for every pair of
        places (docs/spec/privacy.md#metric-certificate). It holds between words on the lists (under "tem", an unknown
        word has distance gamma from every word), and is not made for a noisy length.
        """
        if not self._even or self.length == "noisy" or self.allocation is not None:
            return None
        reach = self.places - 1
        if self.variant == "geometric":
            return MetricClaim(self._rate, "listidx-max", Fraction(reach))
        if float(self._facts["epsilon_metric"]) * _SLACK > self.epsilon:
            return None
        return MetricClaim(self._rate, f"min(listidx-max,{self.gamma})", Fraction(min(self.gamma, reach)))

    def event(self, positions: int) -> Event:
        """Return the draws of word mechanisms; they are unbounded if the lists hold different words."""
        return super().event(positions) if self._even or not positions else Unbounded()

    @cached_property
    def loss_range(self) -> Fraction:
        """Return the largest distance of two places: gamma, or N - 1 for "geometric"."""
        if self.variant == "tem":
            return Fraction(self.gamma)
        return Fraction(len(self.neighbor_lists().words) - (0 if self.length != "disclose" else 1))

    @property
    def unit_epsilon(self) -> float:
        """Return `epsilon` of the dearest draw per place; for "geometric" it is a rate that is not rounded down."""
        if self.variant == "tem" or self.allocation is None:
            return super().unit_epsilon
        decimals = 10 ** (12 if self.allocation.largest <= _FINE else 6)
        return float(Fraction(math.ceil(exact(self.allocation.largest) / self.loss_range * decimals), decimals))

    def _metric_of(self, allocation: Allocation) -> MetricClaim | None:
        """Return the claim per place of a draw of epsilon 1; none where the words of the text choose a template."""
        if self.variant == "tem" or not self._even or allocation.source == "chosen":
            return None
        return MetricClaim(1 / self.loss_range, "listidx-max", self.loss_range)

    @cached_property
    def division(self) -> Division:
        """Return how words with given epsilons are drawn: from weights, or by steps at their own rates."""
        names, kept = tuple(self._mapped.input_words()), frozenset(self._mapped.kept_words())
        weights = ScoredDraw(self._scored, -float(self.gamma), 0.0, np.arange(self.places), self.places)
        draw = weights if self.variant == "tem" else self.moved
        return Division(_kernel.Vocabulary(names, sorted(kept)), names, draw, self.places, kept)

    def moved(
        self, words: Indices, slots: Slots, sampler: WordSampler, epsilons: Sequence[Epsilons], purpose: int
    ) -> Indices:
        """Move every word along its list by a step at its own rate."""
        lists, rates = self._listed(slots, purpose - TOKEN), rates_of(epsilons, self.loss_range)
        chosen = np.empty_like(words)
        for number, (order, place) in enumerate(zip(self.orders, self._places_of_words, strict=True)):
            at = np.flatnonzero(lists == number)
            list_rates = [rates[draw] for draw in at.tolist()]
            chosen[at] = order[sampler.move(place[words[at]], self.places, list_rates, slots.take(at), purpose=purpose)]
        return chosen

    def _listed(self, slots: Slots, offset: int) -> Indices:
        if len(self.orders) > 1:
            return choose_uniform(slots, len(self.orders), purpose=LIST + offset)
        return np.zeros(len(slots), np.uint32)

    def _scored(self, words: Indices, slots: Slots, offset: int) -> Iterator[Scored]:
        """Score the places of a list by minus their distance, at most gamma; the list of each draw is uniform."""
        lists, step = self._listed(slots, offset), max(1, SCORED // self.places)
        for number, (order, place) in enumerate(zip(self.orders, self._places_of_words, strict=True)):
            draws = np.flatnonzero(lists == number)
            for at in (draws[first : first + step] for first in range(0, len(draws), step)):
                gaps = np.abs(np.arange(self.places) - place[words[at]][:, None])
                yield Scored(at, -np.minimum(gaps, self.gamma).astype(np.float64), order)

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        if not self._even:
            return {"∞": math.inf}
        if self.allocation is not None:
            return super().cost_factors(positions)
        apart = {"gamma": self.gamma} if self.variant == "tem" else {"(N-1)": self.places - 1}
        return super().cost_factors(positions) | apart

    def neighbor_lists(self) -> NeighborLists:
        if self.lists is None:
            vocabulary: Literal["common", "own"] = "common" if self.mode == "strict" else "own"
            return NeighborLists.build(
                self.vectors, metric=self.metric, walks=self.walks, limit=self.limit, vocabulary=vocabulary
            )
        lists = NeighborLists.open(self.lists)
        if self.mode == "strict" and not lists.even:
            raise PolicyError(
                _UNEVEN, 'build the lists with NeighborLists.build, or use mode "faithful" for experiments'
            )
        return lists

    def table_description(self) -> dict[str, Any]:
        return {
            "mechanism": self.name,
            "version": self.version,
            "variant": self.variant,
            "epsilon": repr(self.unit_epsilon),
            "gamma": self.gamma if self.variant == "tem" else None,
            "lists": self.neighbor_lists().content,
            "pad": self.length != "disclose",
            "kept": stopwords(self.stopwords).artifact.sha256 if self.mode == "faithful" else None,
        }

    def _place_distribution(self, places: int) -> PlaceDistribution:
        if self.variant == "geometric":
            return GeometricDistribution(self._rate)
        return TemDistribution.of(self.unit_epsilon, self.gamma, places)

    def _build(self, path: Path, description: dict[str, Any]) -> None:
        """Write the lists, the distribution and its loss; `PAD` ends every list if the length is hidden."""
        lists = self.neighbor_lists()
        words, orders = lists.words, lists.lists
        if self.length != "disclose":
            words = (*words, PAD)
            orders = tuple(np.append(order, np.uint32(len(words) - 1)) for order in orders)
        places = max(map(len, orders))
        distribution = self._place_distribution(places)
        facts = {"even": lists.even, "places": places, **(distribution.realized(orders) if lists.even else {})}
        tensors: dict[str, npt.NDArray[Any]] = {"inputs": stored_words(words), "lists": np.concatenate(orders)}
        if self.mode == "faithful" and (kept := sorted(stopwords(self.stopwords).words)):
            tensors["kept"] = stored_words(kept)
        if not lists.even:
            tensors["list_offsets"] = np.cumsum([0, *map(len, orders)]).astype(np.uint64)
        described = json.dumps({**description, **facts}, sort_keys=True)
        save_tensors(
            path, tensors, {"format": self._format, "description": described, "law": json.dumps(distribution.written())}
        )

    def _loss(self, law: _kernel.Table, path: Path, sha256: str) -> tuple[Loss, dict[str, Any]]:
        """Return the loss of one draw by the weights or the rate of a file, and facts that follow from them."""
        loss, facts = loss_in_lists(path, sha256, law.metadata()["law"])
        if self.allocation is not None and law.law == "geometric" and facts["even"]:  # see `rates_of`
            loss = Loss.of(exact(self.allocation.largest) * (facts["places"] - 1) / exact(self.loss_range))
        return loss, facts

    @property
    def places(self) -> int:
        """Return the number of words of the longest list, `PAD` included."""
        return int(self._facts["places"])

    @cached_property
    def orders(self) -> tuple[Order, ...]:
        return read_orders(self.table.path)

    @cached_property
    def _places_of_words(self) -> tuple[npt.NDArray[np.int64], ...]:
        """Return the place of each word on each list, of lists that hold the same words."""
        places = tuple(np.empty(self.places, np.int64) for _ in self.orders)
        for place, order in zip(places, self.orders, strict=True):
            place[order] = np.arange(self.places)
        return places

    @cached_property
    def _ids(self) -> dict[str, int]:
        kept = set(self._mapped.kept_words())
        return {word: at for at, word in enumerate(self._mapped.input_words()) if word not in kept}

    @cached_property
    def _stored_distribution(self) -> PlaceDistribution:
        return self._place_distribution(self.places)

    def _at(self, word: str) -> list[tuple[int, int]]:
        """Return the list and place of a word for each list that holds it; empty for words without a place."""
        number_of = self._ids.get(word if word == PAD else written(word) or "")
        if number_of is None:
            return []
        places = [(number, np.flatnonzero(order == number_of)) for number, order in enumerate(self.orders)]
        return [(number, int(at[0])) for number, at in places if len(at)]

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the output distribution of one word, which is the mean over the lists and sums to 1."""
        self._undivided()
        at = self._at(word)
        if not at and self._unknown == "first" and _kernel.split(word) == [(word, True)]:
            return self.transition(self._mapped.input_words()[0])
        if not at:
            return super().transition(word)
        outputs = self._mapped.output_words()
        chances = [Fraction(0)] * len(outputs)
        for number, place in at:
            order = self.orders[number]
            for output, chance in zip(
                order.tolist(), self._stored_distribution.chances(place, len(order)), strict=True
            ):
                chances[output] += chance
        return outputs, [chance / len(at) for chance in chances]

    def survival(self, word: str) -> Fraction:
        at = self._at(word)
        if not at or self.allocation is not None:
            return super().survival(word)
        return statistics.mean(self._stored_distribution.stays(place, len(self.orders[number])) for number, place in at)

    def collision(self, word: str) -> float:
        """Return an upper bound of the probability that two draws agree; for a mixture, the mean over the lists."""
        at = self._at(word)
        if not at or self.allocation is not None:
            return super().collision(word)
        return sum(self._stored_distribution.agrees(place, len(self.orders[number])) for number, place in at) / len(at)

    def largest_probability(self) -> float:
        if self.mode == "faithful":
            return 1.0
        return max(float(self._stored_distribution.stays(0, len(order))) for order in self.orders) * (1 + 1e-12)

    @classmethod
    def aligned(cls, epsilon: float, **parameters: Any) -> Self:
        """Return the mechanism whose draw costs at most `epsilon` between any two words: epsilon / gamma or / (N - 1).

        Comparisons of mechanisms use such an epsilon. The quotient is rounded down to 12 decimals, so that it is an
        exact rate.
        """
        probe = cls(**{"epsilon": 1.0, **parameters})
        shared = math.floor(Fraction(repr(epsilon)) / probe.loss_range * 10**12)
        return cls(**{**parameters, "epsilon": float(Fraction(shared, 10**12))})

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0, limit=500)


_UNEVEN = """the lists hold different words, so a word that a list misses could be recognized with certainty; \
allowed in strict mode: lists of one vocabulary, as NeighborLists.build makes them from embeddings"""
