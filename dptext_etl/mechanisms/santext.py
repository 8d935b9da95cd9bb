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
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from dptext_etl import _kernel
from dptext_etl.accounting import Event, MetricClaim, Unbounded
from dptext_etl.allocation import Allocation
from dptext_etl.arrays import to_numpy
from dptext_etl.artifacts import Artifact
from dptext_etl.embeddings import stopwords
from dptext_etl.errors import PolicyError
from dptext_etl.families.distance import Draws, PairWeights, VectorMechanism, read_fact, stored_fact
from dptext_etl.families.words import UNKNOWN, Division, Indices, Scored, ScoredDraw
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, exact
from dptext_etl.mechanism import PAD, Loss, require_charge
from dptext_etl.sampling import TOKEN, Slots, bernoulli, largest_range_bounded

PLAN = 3  # purpose number of SanText+'s Bernoulli trials (docs/spec/stream.md#purposes)

PAPER_EPSILON = 15.0
_ROWS = 256  # words whose outputs are scored at once, where a budget is divided


class SanText(VectorMechanism):
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
        """Return True if some words can be released unchanged."""
        return self.variant == "plus" and self.p < 1

    @property
    def word_disclosures(self) -> frozenset[Disclosure]:
        """Return the disclosures of words: which words are sensitive, if the others can be kept."""
        return frozenset({Disclosure.SENS_CLASS} if self.shows_words else ())

    def input_policy(self) -> dict[str, Any]:
        """Return the input policy of word mechanisms; faithful mode draws unknown words uniformly as well."""
        return {**super().input_policy(), "numbers": "uniform", "oov": "uniform"}

    def artifacts(self) -> dict[str, Artifact]:
        listed = {} if self.sensitive is None else {"sensitive": stopwords(self.sensitive).artifact}
        return {**super().artifacts(), "span": self.span, **listed}

    @cached_property
    def _output_ids(self) -> npt.NDArray[np.int64]:
        """Return the ids of the outputs in public order, and last `PAD` if the length is hidden.

        The outputs are all words, or for "plus" the words of a public list or the rarest ones.
        """
        index, n = self.words.index, len(self.input_words())
        chosen = np.arange(n)
        if self.variant == "plus" and self.sensitive is not None:
            chosen = np.array(sorted(index[word] for word in stopwords(self.sensitive).words if word in index), int)
        elif self.variant == "plus":
            chosen = chosen[n - math.ceil(n * exact(self.sensitive_share)) :]
        if len(chosen) < 2:
            raise PolicyError(
                f"{len(chosen)} words could be drawn, at least 2 are needed",
                "use more vectors, or a larger share or list of sensitive words",
            )
        return np.append(chosen, n) if self.length != "disclose" else chosen

    @cached_property
    def _sensitive_mask(self) -> npt.NDArray[np.bool_]:
        mask = np.zeros(len(self.words), dtype=bool)
        mask[self._output_ids] = True
        return mask

    @cached_property
    def pair_weights(self) -> PairWeights:
        words, chosen = self.words, self._output_ids
        outputs = words if len(chosen) == len(words) else words.take(words.words[at] for at in chosen)
        return PairWeights(words, outputs, self.unit_epsilon, self.diameter)

    def choose(self, draws: Draws) -> Indices:
        """Draw an output for every word, unknown ones uniformly; for "plus" some words stay."""
        order, chosen = draws.by_word(), np.empty(len(draws.words), np.uint32)
        known_count = len(order) - int(np.count_nonzero(draws.words == UNKNOWN))
        drawn = _kernel.uniform_choices(
            *draws.take(order[known_count:]).arrays(), TOKEN, self.pair_weights.width, len(self._output_ids)
        )
        outputs: npt.NDArray[np.int64] = self._output_ids[to_numpy(pa.array(drawn))]
        chosen[order[known_count:]] = outputs
        order = order[:known_count]
        if self.shows_words:
            ordered = draws.take(order)
            chosen[order] = ordered.words
            changed = self._sensitive_mask[ordered.words]  # others by a Bernoulli trial of probability p
            changed[~changed] = bernoulli(ordered.take(~changed), exact(self.p), purpose=PLAN)
            order = order[changed]
        self.pair_weights.draw(draws, order, chosen)
        if len(self._output_ids) < len(self.words):  # otherwise every output's id is its index
            chosen[order] = self._output_ids[chosen[order]]
        return chosen

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

    def require_charge(self) -> None:
        _ = self._covered

    @cached_property
    def _covered(self) -> bool:
        """Whether the charge covers the loss: a bound for any distances, or else the integers of all pairs."""
        weights = self.pair_weights
        bound = Loss(weights.epsilon_implemented, weights.exponent)
        try:
            require_charge(self, bound, self._length_cost)
        except PolicyError:
            require_charge(self, bound._replace(pure=weights.worst_log_ratio()), self._length_cost)
        return True

    @property
    def epsilon_per_word(self) -> float:
        """Return epsilon times the diameter; infinite if words are shown."""
        return math.inf if self.shows_words else self.pair_weights.exponent

    @property
    def epsilon_tight(self) -> float | None:
        """Return the largest loss of integer weights at that epsilon, for any distances."""
        return None if self.shows_words else self.pair_weights.epsilon_implemented

    @property
    def epsilon_table(self) -> float | None:
        """Return the exact pure parameter of one draw, from the integers of all pairs of words, unknown ones too."""
        if self.shows_words:
            return None
        return float(self._fact("worst ratio", lambda: repr(self.pair_weights.worst_log_ratio())))

    @property
    def metric_claim(self) -> MetricClaim | None:
        """Return the claim of epsilon per unit of Euclidean distance, if its certificate holds; otherwise None."""
        if self.allocation is not None or self.variant == "plus" or self.mode == "faithful":
            return None
        if self.length == "noisy" or not self._certified:
            return None
        return MetricClaim(self.epsilon, "euclidean", self.diameter)

    @cached_property
    def _certified(self) -> bool:
        settled = self.pair_weights.settled
        return bool(self._fact("certificate", self.pair_weights.is_metric)) if settled is None else settled

    def _fact(self, fact: str, compute: Callable[[], Any]) -> Any:
        """Return a fact about the integer weights, which is computed and stored once."""
        description = {
            "format": "dptext-santext-fact/1",
            "fact": fact,
            "version": self.version,
            "epsilon": repr(self.unit_epsilon),
            "vectors": self.words.artifact.sha256,
            "padded": self.length != "disclose",
            "outputs": self._output_ids.tolist() if self.variant == "plus" else "all",
        }
        return read_fact(stored_fact(description, compute))

    @property
    def guarantee(self) -> Guarantee:
        stated = super().guarantee
        stated = replace(stated, disclosures=stated.disclosures - {Disclosure.OOV, Disclosure.NUMBERS})
        if not self.shows_words:
            return stated
        neighbors = (
            "two texts of one record that agree on everything disclosed and differ in sensitive words alone; a word "
            "that is not sensitive is shown with probability 1 - p"
        )
        return replace(stated, guarantee_class=GuaranteeClass.UMLDP, neighbors=neighbors)

    def cost_factors(self, positions: int) -> dict[str, float | Fraction]:
        """Return the factors of n draws between the two farthest words; infinite if words are shown."""
        if self.shows_words:
            return {"∞": math.inf}
        return super().cost_factors(positions) | ({"D": self.diameter} if self.allocation is None else {})

    def event(self, positions: int) -> Event:
        """Return n draws; they are unbounded if words are shown (docs/spec/privacy.md#santext-plus)."""
        return Unbounded() if self.shows_words and positions else super().event(positions)

    def output_words(self) -> frozenset[str] | None:
        """Return the words that can be drawn, or the whole vocabulary if words are shown; None in faithful mode."""
        if self.mode == "faithful" or self.shows_words:
            return super().output_words()
        return frozenset(self.pair_weights.outputs.words) - {PAD}

    def transition(self, word: str) -> tuple[list[str], list[Fraction]]:
        """Return the exact output distribution of one word: outputs and their probabilities, which sum to 1."""
        self._undivided()
        number, outputs = self._number_of(word), list(self.pair_weights.outputs.words)
        if number == UNKNOWN:
            return outputs, [Fraction(1, len(outputs))] * len(outputs)
        weights: list[int] = self.pair_weights.weights(np.array([number]))[0].tolist()
        total, unchanged = sum(weights), self._unchanged_chance(number)
        chances = [(1 - unchanged) * Fraction(weight, total) for weight in weights]
        return ([*outputs, self.words.words[number]], [*chances, unchanged]) if unchanged else (outputs, chances)

    def _unchanged_chance(self, number: int) -> Fraction:
        """Return the probability that a word is shown unchanged: 1 - p for "plus" if it is not sensitive."""
        return 1 - exact(self.p) if self.shows_words and not self._sensitive_mask[number] else Fraction(0)

    def survival(self, word: str) -> Fraction:
        if self.allocation is not None:
            return super().survival(word)
        number = self._number_of(word)
        if number == UNKNOWN:
            return Fraction(0)
        at = np.flatnonzero(self._output_ids == number)
        if not len(at):
            return self._unchanged_chance(number)
        weights = self.pair_weights.weights(np.array([number]))[0]
        return Fraction(int(weights[at[0]]), int(weights.sum()))

    def collision(self, word: str) -> float:
        number = self._number_of(word)
        if number == UNKNOWN or self.shows_words or self.allocation is not None:
            return super().collision(word)
        weights = self.pair_weights.weights(np.array([number]))[0].astype(np.float64)
        return min(1.0, float(np.dot(weights, weights) / weights.sum() ** 2) * (1 + 1e-9))

    def largest_probability(self) -> float:
        return 1.0 if self.shows_words else largest_range_bounded(self.pair_weights.exponent, len(self._output_ids))

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
