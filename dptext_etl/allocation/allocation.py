"""Describe how the budget of a record is divided among its draws, and divide it.

Four ways are sound, and a policy uses one of them (docs/spec/privacy.md#allocation-allowed):

* `scores` only: by the words of the text itself, between texts with as many draws over one output set (Theorem A).
* `scores` and `first`: by the words of a first release of the text, which costs `first`.
* `template`: by the position of a draw, whatever the text.
* `scores`, `templates` and `choosing`: by one of several public templates, drawn near the shares of the scores.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from dptext_etl import extensions, sampling
from dptext_etl.accounting import Composed, DividedDraws, Event, MetricClaim, PureDraws, computed
from dptext_etl.allocation import score
from dptext_etl.allocation.score import FLOOR, Tools, spread
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import PolicyError, seam, without_panics
from dptext_etl.guarantee import MICRO, exact
from dptext_etl.parameters import Epsilon, parameters_alone
from dptext_etl.sampling import TOKEN, Sampler, Slots

log = logging.getLogger("dptext_etl.allocation")

_PUBLIC = ("Doctor", "Miller", "changed", "the", "medicine", "twice", "in", "2019")

Template = Annotated[tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], Field(min_length=1)]
"""Shares of the draws by their positions; the last one counts for all positions beyond."""


Place = int | range | None  # the word that a draw represents, its words, or none


class Allocation(Tools):
    """How the budget of a record is divided among its draws.

    Attributes:
        total: Epsilon of all draws of a record together: a public constant, never an average over private texts.
        scores: Names of the scores whose average divides the budget.
        first: Epsilon of a first release of the whole record, whose words are scored.
        template: Shares by position, the last of which counts for all positions beyond; "uniform" for equal ones.
        templates: Public templates, one of which is chosen.
        choosing: Epsilon of that choice.
        eps_lo: Least epsilon of a draw; None uses a tenth of an even share.
        eps_hi: Largest epsilon of a draw; None uses four even shares, which keeps rho small.
    """

    total: Epsilon
    scores: tuple[str, ...] = ()
    first: Epsilon | None = None
    template: Template | None = None
    templates: tuple[Template, ...] = ()
    choosing: Epsilon | None = None
    eps_lo: Epsilon | None = None
    eps_hi: Epsilon | None = None

    __getstate__ = parameters_alone

    @field_validator("template", mode="before")
    @classmethod
    def _uniform_is_one_share(cls, template: Any) -> Any:
        return (1.0,) if template == "uniform" else template

    @field_validator("scores")
    @classmethod
    def _scores_are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        available = score.available()
        for name in sorted(name for name in set(names) - set(available) if ("scores", name) in extensions.ELSEWHERE):
            score.load(name)  # its error names the package that brings the score
        if len(set(names)) < len(names) or not set(names) <= set(available):
            raise ValueError(f"scores are some of {', '.join(available)}, each once")
        return names

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.printed and "ic" in self.scores and self.information == "english":
            raise ValueError('the printed score ic is made of WordNet\'s counts: set information = "wordnet:FOLDER"')
        if (self.template is None) == (not self.scores):
            raise ValueError("the budget is divided by scores, or by a template: give one of them")
        if (self.choosing is not None) != (len(self.templates) > 1) or len(self.templates) == 1:
            raise ValueError("choosing is the price of a choice among two or more templates: give both or neither")
        if self.first is not None and (self.templates or self.template):
            raise ValueError("first is a first release whose words are scored, so it needs scores")
        if self.templates and self.template:
            raise ValueError("a template is given, or chosen among templates by scores")
        for shares in (self.template or (), *self.templates):
            if shares and min(shares) < FLOOR * max(shares):
                raise ValueError("the shares of a template differ by a factor of a million at most")
        low, high = self.eps_lo or 0.0, math.inf if self.eps_hi is None else self.eps_hi
        if not low <= min(high, self.total):
            raise ValueError("eps_lo is at most eps_hi and at most total")
        return self

    @property
    def source(self) -> Literal["text", "first", "template", "chosen"]:
        """Return what divides the budget: the text itself, its first release, a public template, or a chosen one."""
        if self.template is not None:
            return "template"
        if self.templates:
            return "chosen"
        return "text" if self.first is None else "first"

    @property
    def before(self) -> Fraction:
        """Return the epsilon of the draws before: a first release, or the choice of a template."""
        return exact(self.first or self.choosing or 0.0)

    @property
    def epsilon(self) -> float:
        return float(exact(self.total) + self.before)

    def parts(self) -> list[dict[str, Any]]:
        """Return the parts of a record's epsilon in the order of their draws, each with its use and its amount."""
        names = ", ".join(self.scores)
        how = {
            "text": f"all draws, divided by {names} of the text",
            "first": f"all draws of the second pass, divided by {names} of the text that the first released",
            "template": "all draws, divided by their positions",
            "chosen": "all draws, divided by the chosen template",
        }
        first = {
            "first": "all draws of the first pass, divided evenly",
            "chosen": f"a template near {names} of the text",
        }
        parts: list[dict[str, Any]] = [{"pays": how[self.source], "epsilon": self.total}]
        if self.source in first:
            parts.insert(0, {"pays": first[self.source], "epsilon": float(self.before)})
        return parts

    def scaled(self, epsilon: float) -> Self:
        """Return the same division of another budget: every epsilon in it grows alike, rounded down to millionths."""
        factor = exact(epsilon) / exact(self.epsilon)
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        for name in ("total", "first", "choosing", "eps_lo", "eps_hi"):
            if fields[name] is not None:
                fields[name] = int(exact(fields[name]) * factor * MICRO) / MICRO
        return type(self)(**fields)

    def bounds(self, draws: int) -> tuple[int, int]:
        """Return the least and the largest epsilon of a draw, in millionths, rounded down."""
        total = in_millionths(self.total)
        high = min(total, 4 * total // draws if self.eps_hi is None else in_millionths(self.eps_hi))
        low = total // (10 * draws) if self.eps_lo is None else in_millionths(self.eps_lo)
        return min(low, high), high

    def even(self, draws: int) -> int:
        """Return the epsilon of each draw of the first release, in millionths, rounded down; 0 without one."""
        return in_millionths(self.first or 0.0) // draws

    @property
    def largest(self) -> float:
        """Return the largest epsilon of any released draw, for any number of draws."""
        return self.total if self.eps_hi is None else min(self.eps_hi, self.total)

    def problem(self, draws: int) -> str | None:
        """Return the problem with the budget of that many draws; None if every draw gets a part of it."""
        low, _ = self.bounds(draws)
        if draws * low > in_millionths(self.total):
            return f"eps_lo times {draws} draws, the most of any text, exceeds total: lower eps_lo or the longest text"
        if low < 1 or (self.first is not None and self.even(draws) < 1):
            return f"a millionth is the least epsilon of a draw, and a text may have {draws} draws: raise the budget"
        return None

    def event(self, draws: int, outputs: int | None, metric: MetricClaim | None = None) -> Event:
        """Return draws that divide the budget, and the choice of a template, if there is one."""
        division = replace(self.division(draws, outputs), metric=metric)
        if self.choosing is None:
            return division
        tight = computed(sampling.epsilon_implemented(self.choosing, len(self.templates)))
        return Composed((division, PureDraws(self.choosing, min(draws, 1), tight)))

    def division(self, draws: int, outputs: int | None) -> DividedDraws:
        """Return draws that divide the budget over output sets of up to `outputs` members; None for noise."""
        return DividedDraws(
            total=self.total,
            count=draws,
            largest=Fraction(self.bounds(max(1, draws))[1], MICRO),
            outputs=outputs,
            first=self.first or 0.0,
            first_draw=Fraction(self.even(max(1, draws)), MICRO),
        )

    def over(
        self, tokens: Sequence[str], places: Sequence[Place] | None = None, *, draws: int | None = None
    ) -> list[int]:
        """Return the epsilon of each draw of a text by its words, in millionths; their sum is at most `total`."""
        wanted: Sequence[Place] = range(len(tokens)) if places is None else places
        if not len(wanted):
            return []
        rated = self.rated(tokens)
        scores = [_score(rated, place) for place in wanted]
        scored_words = [score for score in scores if score is not None]
        usual = sum(scored_words) / len(scored_words) if scored_words else 1.0
        return self._spread([usual if score is None else score for score in scores], draws)

    def scored(self, tokens: Sequence[str], places: Sequence[Place]) -> dict[str, list[float]]:
        """Return each score of each draw of a public text, by name; 1 for a draw without words."""
        columns = {name: scorer.of(tokens) for name, scorer in zip(self.scores, self.scorers, strict=True)}
        return {
            name: [1.0 if score is None else score for score in (_score(column.tolist(), place) for place in places)]
            for name, column in columns.items()
        }

    def by_position(self, shares: Template, count: int, *, draws: int | None = None) -> list[int]:
        """Return the epsilon of each draw by its position, in millionths; their sum is at most `total`."""
        least, last = min(shares), len(shares) - 1
        return self._spread([least / shares[min(at, last)] for at in range(count)], draws)

    def _spread(self, rated: Sequence[float], draws: int | None) -> list[int]:
        return spread(rated, in_millionths(self.total), *self.bounds(draws or len(rated))) if rated else []

    def rated(self, tokens: Sequence[str]) -> list[float]:
        """Return the average score of each token; equal ones where a score fails."""
        try:
            with without_panics():
                columns = [scorer.of(tokens) for scorer in self.scorers]
            return [_mean(scores) for _, *scores in zip(tokens, *columns, strict=True)]
        except Exception:  # noqa: BLE001  (tools fail in any way, and none may quote or drop a text)
            log.warning("the scores failed on a text: its budget is divided evenly, at the same spend")
            return [1.0] * len(tokens)

    def probe(self) -> None:
        """Score public words, and refuse to continue if a tool is missing or broken, which would split evenly."""
        for scorer in self.scorers:
            with seam(f"scoring public words by {scorer.name}", PolicyError, "its tools are named in the allocation"):
                scorer.of(_PUBLIC)

    @cached_property
    def scorers(self) -> tuple[score.Score, ...]:
        return tuple(score.load(name)(self) for name in self.scores)

    def artifacts(self) -> dict[str, Artifact]:
        """Return the public files that the scores depend on, by role."""
        return {role: item for scorer in self.scorers for role, item in scorer.artifacts().items()}


def in_millionths(amount: float) -> int:
    """Return an epsilon in millionths, rounded down."""
    return int(exact(amount) * MICRO)


def _score(rated: Sequence[float], place: Place) -> float | None:
    """Return the score of a draw: the score of its word, or the mean over its words."""
    if isinstance(place, range):
        return math.fsum(rated[place.start : place.stop]) / len(place)
    return None if place is None else rated[place]


def _mean(numbers: Sequence[Any]) -> float:
    usable = [1.0 if math.isnan(number) else min(1.0, max(0.0, number)) for number in numbers]
    return math.fsum(usable) / len(usable)


TEMPLATE = 7  # purpose number of the choice of a template, at position 0
PASS = 256  # added to purpose numbers by a pass

Epsilons = npt.NDArray[np.float64]
Found = TypeVar("Found")


class Marked(NamedTuple):
    """A text and its draws, for a division."""

    tokens: Sequence[str]  # the words of the text, in order
    places: Sequence[Place]  # index of each draw's word, or the indices of its words; None for a draw that has none
    most: int  # largest number of draws of a text with these disclosures, at least as many as there are


def draw_in_passes(
    allocation: Allocation,
    texts: Sequence[Marked],
    keys: pa.Array,
    sampler: Sampler,
    *,
    once: Callable[[list[Epsilons], int], Found],
    words: Callable[[Found], Sequence[Marked]],
) -> list[Found]:
    """Draw texts in one pass, or in two if the first release divides the budget of the second."""
    if allocation.first is None:
        return [once(divided(allocation, texts, keys, sampler), TOKEN)]
    before = once([_numbers([allocation.even(max(1, text.most))] * len(text.places)) for text in texts], TOKEN)
    return [
        before,
        once([_numbers(allocation.over(*text[:2], draws=text.most)) for text in words(before)], TOKEN + PASS),
    ]


def divided(allocation: Allocation, texts: Sequence[Marked], keys: pa.Array, sampler: Sampler) -> list[Epsilons]:
    """Return the epsilons of each text's draws, shape (draws,) each, as the allocation says."""
    if allocation.template is not None:
        shares = allocation.template
        return [_numbers(allocation.by_position(shares, len(text.places), draws=text.most)) for text in texts]
    wanted = [allocation.over(text.tokens, text.places, draws=text.most) for text in texts]
    if not allocation.templates:
        return [_numbers(parts) for parts in wanted]
    offered = [
        [allocation.by_position(shares, len(text.places), draws=text.most) for shares in allocation.templates]
        for text in texts
    ]
    taking = [number for number, text in enumerate(texts) if text.places]
    divisions: list[Sequence[int]] = list(wanted)
    if taking:
        fits = np.array([fit(wanted[number], offered[number]) for number in taking])
        slots = Slots(keys, np.array(taking, np.uint32), np.zeros(len(taking), np.uint64))
        chosen = sampler.choose(fits, slots, epsilon=allocation.choosing or 0.0, low=0.0, high=1.0, purpose=TEMPLATE)
        for number, template in zip(taking, chosen.tolist(), strict=True):
            divisions[number] = offered[number][template]
    return [_numbers(parts) for parts in divisions]


def fit(wanted: Sequence[int], offered: Sequence[Sequence[int]]) -> list[float]:
    """Return how close each offered division is to the wanted one, from 0 to 1: one less half the l1 distance."""
    shares = np.array([wanted, *offered], np.float64)
    shares /= shares.sum(axis=1, keepdims=True)
    away: list[float] = (np.abs(shares[1:] - shares[0]).sum(axis=1) / 2).tolist()
    return [1.0 - distance for distance in away]


def _numbers(parts: Sequence[int]) -> Epsilons:
    return np.array(parts, np.float64) / MICRO
