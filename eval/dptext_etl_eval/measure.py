"""Define what metrics and attacks have in common, and find them by their files."""

from __future__ import annotations

import importlib
import statistics
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, Literal, TypeVar

from dptext_etl import extensions
from dptext_etl.errors import InputError
from dptext_etl.extensions import pip_install
from dptext_etl_eval.pairs import CLASSES, CLASSIFIER, MASKED_MODEL, ROW_LINKS, WORD_MECHANISM, Pairs

Kind = Literal["kept", "learnt"]

DISCRIMINANT = "linear discriminant of the statistic"
"""The classifier that a synthetic table's statistic gives."""

WAYS = {
    "label": "name --label",
    "attribute": "name --attribute",
    "subject": "name --subject",
    WORD_MECHANISM: "give the policy of a mechanism that draws word by word",
    CLASSES: "name --label, a column of classes",
    CLASSIFIER: "add --models, or name --classifier",
    MASKED_MODEL: "add --models, or name --masked-model",
    ROW_LINKS: "no row of the release belongs to a record",
}
"""How a user provides the inputs of measures."""


@dataclass(frozen=True)
class Score:
    """One figure.

    Attributes:
        what: The measured quantity, in words.
        value: The figure; None where it is not defined, and `note` says why.
        interval: Its 95% interval.
        blind: The same figure for the random baseline, which does not use the texts.
        raw: The same figure with raw texts in the place of released ones.
        unit: "share" for figures from 0 to 1, which the page draws; else "number".
        note: A remark for readers.
        deviation: The standard deviation of `value` over seeds; None if there is one seed, or no seed matters.
    """

    what: str
    value: float | None
    interval: tuple[float, float] | None = None
    blind: float | None = None
    raw: float | None = None
    unit: Literal["share", "number"] = "share"
    note: str = ""
    deviation: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the figure as JSON can hold it."""
        return asdict(self)


def averaged(runs: Sequence[Sequence[Score]]) -> tuple[Score, ...]:
    """Return the means of the figures of several seeds, with the standard deviations of the values.

    An interval is the mean one: it is of rows, and the deviation is of seeds.
    """
    return tuple(map(_mean, zip(*runs, strict=True)))


def _mean(scores: Sequence[Score]) -> Score:
    def mean(values: Sequence[float | None]) -> float | None:
        numbers = [value for value in values if value is not None]
        return statistics.fmean(numbers) if len(numbers) == len(values) else None

    values = [score.value for score in scores]
    ends = [mean([score.interval and score.interval[end] for score in scores]) for end in (0, 1)]
    numbers = [value for value in values if value is not None]
    return replace(
        next((score for score in scores if score.value is None), scores[0]),
        value=mean(values),
        interval=None if ends[0] is None or ends[1] is None else (ends[0], ends[1]),
        blind=mean([score.blind for score in scores]),
        raw=mean([score.raw for score in scores]),
        deviation=statistics.stdev(numbers) if len(numbers) == len(values) > 1 else None,
    )


class Measure(ABC):
    """Base of metrics and attacks; each is the one subclass in its own module, named by an entry point.

    Attributes:
        title: The name of the measure.
        says: A description, in one or two sentences.
        needs: Inputs without which it is excluded: "label", "attribute", "subject", and other names in `WAYS`.
        order: Place on the page; small numbers first.
        weight: Its duration, relative to others; the remaining time is estimated from it.
        seeded: Whether its figures depend on `Pairs.seed`.
    """

    title: ClassVar[str]
    says: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[int] = 100
    weight: ClassVar[float] = 1.0
    seeded: ClassVar[bool] = False

    @abstractmethod
    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Measure."""


class Metric(Measure):
    """A figure of the use that a release keeps."""


class Attack(Measure):
    """A figure of what someone learns from a release.

    Attributes:
        knows: The attacker's knowledge in addition to the release.
    """

    knows: ClassVar[str]


Found = TypeVar("Found", bound=Measure)


def metrics() -> tuple[Metric, ...]:
    """Return one of every metric, in the order of the page."""
    return _found("metrics", Metric)


def attacks() -> tuple[Attack, ...]:
    """Return one of every attack, in the order of the page."""
    return _found("attacks", Attack)


@cache
def _found(group: Literal["metrics", "attacks"], base: type[Found]) -> tuple[Found, ...]:
    measures = [extensions.load(group, name, base)() for name in extensions.names(group)]
    return tuple(sorted(measures, key=lambda measure: (measure.order, measure.title)))


_LIBRARIES = ("sklearn", "sacrebleu")


def require_libraries() -> None:
    """Refuse to measure, before the first measure, where a library of the extra "eval" is not installed."""
    for name in _LIBRARIES:
        library(name)


def library(name: str) -> ModuleType:
    """Import a library of the extra "eval"."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"a measure needs {name.partition('.')[0]}", pip_install("eval")) from None
