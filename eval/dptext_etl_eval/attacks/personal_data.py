"""Count the e-mail addresses, telephone numbers and the like of raw texts that a release still holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import polars as pl

from dptext_etl_eval.measure import Attack, Score
from dptext_etl_eval.pairs import Pairs
from dptext_etl_eval.personal_data import SurvivorCount, count_survivors
from dptext_etl_eval.planted import planted
from dptext_etl_eval.statistics import wilson

PLANTED = "planted examples"


class PersonalData(Attack):
    """Share of the finds of `dptext_etl_eval.personal_data` that a release still holds."""

    title: ClassVar[str] = "Personal data that survives"
    says: ClassVar[str] = (
        "What patterns find in raw texts (addresses, numbers, links), and how much of it is in their own release. "
        "Then ten public examples of each kind (names, organizations, numbers, addresses), put through the mechanism "
        "under a new key: the share whose words all survive. They show what patterns cannot find."
    )
    knows: ClassVar[str] = "only the release"
    order: ClassVar[int] = 30
    weight: ClassVar[float] = 0.2

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the share by kind; what no pattern finds is not counted."""
        raw, released = (pl.Series(texts, dtype=pl.String) for texts in (pairs.raw, pairs.released))
        survivors = count_survivors(raw, released)
        by_kind = _shares(survivors) or [Score("all kinds", None, note="no pattern finds any in the raw texts")]
        return [*by_kind, *_planted(pairs)]


def _planted(pairs: Pairs) -> list[Score]:
    if pairs.mechanism is None:
        return [Score(PLANTED, None, note="give the policy, whose mechanism releases the examples")]
    if not pairs.mechanism.reproducible and not pairs.models:
        return [Score(PLANTED, None, note="the mechanism is a model: add --models")]
    return _shares(planted(pairs.mechanism), f"{PLANTED}, ")


def _shares(survivors: SurvivorCount, before: str = "") -> list[Score]:
    return [
        Score(
            before + kind,
            survivors.survived.get(kind, 0) / count,
            wilson(survivors.survived.get(kind, 0), count),
            blind=0.0,
        )
        for kind, count in sorted(survivors.found.items())
    ]
