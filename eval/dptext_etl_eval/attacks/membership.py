"""Test guesses without a key: say whether a text is among the texts behind a release.

Anyone who has the key can test a guess with certainty (docs/spec/privacy.md#key-sensitivity). This attacker has none.
Half of the rows are released, the attacker sees all of these releases without ids, and guesses about the raw texts of
both halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.errors import InputError, seam
from dptext_etl.keys import RecordKeys, throwaway
from dptext_etl_eval.classifier import counted
from dptext_etl_eval.measure import Attack, Score, library
from dptext_etl_eval.pairs import Pairs
from dptext_etl_eval.statistics import RESAMPLES, wilson

REDRAWS = 4
FALSE_ALARMS = 0.01
_AT_ONCE = 500

Reals = npt.NDArray[np.float64]


class Membership(Attack):
    """How well likeness to the nearest release separates texts behind a release from other texts of the same column."""

    title: ClassVar[str] = "Testing whether a text is behind the release"
    says: ClassVar[str] = (
        "Half of the rows count as released. The attacker holds raw texts of both halves and picks those that are"
        f" most similar to some release (cosine of TF-IDF). If the mechanism is known and cheap, {REDRAWS} draws of "
        "each text under keys of the attacker's own stand for the text. Area under the ROC curve; 0.5 is a coin flip."
    )
    knows: ClassVar[str] = "the raw texts in question, all releases without ids, and the mechanism, but not the key"
    order: ClassVar[int] = 50
    weight: ClassVar[float] = 3.0

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the area and the share of members caught at 1% false alarms, by the text and by draws of it."""
        raw = _likeness(pairs.raw, pairs.raw)
        ways = [("by the text itself", _likeness(pairs.raw, pairs.released))]
        if pairs.mechanism is not None and pairs.mechanism.reproducible:
            ways.append((f"by {REDRAWS} draws of it", _likeness(redrawn(pairs), pairs.released)))
        return [score for how, figures in ways for score in _scores(how, figures, raw)]


def redrawn(pairs: Pairs) -> tuple[str, ...]:
    """Return draws of every raw text under keys that are thrown away, joined to one text each."""
    assert pairs.mechanism is not None  # noqa: S101  (the caller looked)
    texts = pa.array(pairs.raw, pa.large_string())
    ids = pa.array([str(number) for number in range(len(pairs))])
    drawn: list[list[str | None]] = []
    for _ in range(REDRAWS):
        key = throwaway(pairs.mechanism.cfg())
        drawn.append(pairs.mechanism.release(texts, RecordKeys(key, ids)).text.to_pylist())
    return tuple(" ".join(text or "" for text in of_one) for of_one in zip(*drawn, strict=True))


def _likeness(guesses: Sequence[str], released: Sequence[str]) -> tuple[Reals, Reals]:
    """Return the likeness of guesses to the nearest release: of members, and of others. Even rows are members."""
    transformer = library("sklearn.feature_extraction.text").TfidfTransformer
    with seam("comparing guesses with releases", InputError):
        weighting: Any = transformer(sublinear_tf=True)
        seen = weighting.fit_transform(counted(released))[::2].T
        queries = weighting.transform(counted(guesses))
        most = np.concatenate(
            [
                (queries[first : first + _AT_ONCE] @ seen).max(axis=1).toarray().ravel()
                for first in range(0, queries.shape[0], _AT_ONCE)
            ]
        )
    return most[::2], most[1::2]


def area(members: Reals, others: Reals) -> float:
    """Return the probability that a member looks more like one than another text; ties count half.

    >>> area(np.array([3.0, 2.0]), np.array([2.0, 1.0]))
    0.875
    """
    ordered = np.sort(others)
    below, up_to = (np.searchsorted(ordered, members, side=side) for side in ("left", "right"))
    return float((below + up_to).mean() / 2 / len(others))


def _scores(how: str, figures: tuple[Reals, Reals], raw: tuple[Reals, Reals]) -> list[Score]:
    members, others = figures
    random = np.random.default_rng(0)
    drawn = [
        area(*(part[random.integers(0, len(part), len(part))] for part in (members, others))) for _ in range(RESAMPLES)
    ]
    low, high = (float(end) for end in np.quantile(drawn, [0.025, 0.975]))
    hits = _caught(members, others)
    return [
        Score(f"area under the curve, {how}", area(members, others), (low, high), blind=0.5, raw=area(*raw)),
        Score(
            f"members caught at {FALSE_ALARMS:.0%} false alarms, {how}",
            hits / len(members),
            wilson(hits, len(members)),
            blind=FALSE_ALARMS,
            raw=_caught(*raw) / len(members),
        ),
    ]


def _caught(members: Reals, others: Reals) -> int:
    """Count the members above all but 1% of the others."""
    allowed = int(FALSE_ALARMS * len(others))
    return int((members > np.sort(others)[len(others) - 1 - allowed]).sum())
