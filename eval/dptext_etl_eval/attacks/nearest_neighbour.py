"""Find the raw text of a release among all raw texts.

Specification: docs/spec/privacy.md#nn-attack. Paper 001 counts a rank above 1,000 as 1,000; both figures are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import InputError, seam
from dptext_etl_eval.classifier import counted
from dptext_etl_eval.measure import Attack, Score, library
from dptext_etl_eval.pairs import Pairs
from dptext_etl_eval.statistics import wilson

CAP = 1_000
_AT_ONCE = 500


class NearestNeighbour(Attack):
    """The rank of the own raw text by cosine of TF-IDF, among the raw texts of all rows."""

    title: ClassVar[str] = "Finding the raw text again"
    says: ClassVar[str] = (
        "The attacker holds the raw texts of all rows that are measured, and ranks them by similarity to a release "
        "(cosine of TF-IDF of words). Rank 1 is a hit. Ties count half."
    )
    knows: ClassVar[str] = "the raw texts of all rows, but not which row is whose"
    order: ClassVar[int] = 40

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the share of hits, and the mean rank without a cap and with the cap of paper 001."""
        ranks, n = ranks_of(pairs.raw, pairs.released), len(pairs)
        hits = int((ranks == 1).sum())
        every = np.arange(1, n + 1)
        return [
            Score("own raw text found first", hits / n, wilson(hits, n), blind=1 / n, raw=_found_itself(pairs)),
            Score("mean rank of the own raw text", float(ranks.mean()), blind=(n + 1) / 2, unit="number"),
            Score(
                f"mean rank, capped@{CAP}",
                float(np.minimum(ranks, CAP).mean()),
                blind=float(np.minimum(every, CAP).mean()),
                unit="number",
            ),
        ]


def ranks_of(raw: Sequence[str], released: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the rank of every release's own raw text among all raw texts, from 1, shape (n,).

    >>> ranks_of(["red apples", "green pears"], ["apples", "pears"]).tolist()
    [1.0, 1.0]
    """
    transformer = library("sklearn.feature_extraction.text").TfidfTransformer
    with seam("comparing releases with raw texts", InputError):
        known = transformer(sublinear_tf=True)
        before = known.fit_transform(counted(raw))
        after = known.transform(counted(released))
        ranks = np.empty(len(raw))
        for first in range(0, len(raw), _AT_ONCE):
            likeness = (after[first : first + _AT_ONCE] @ before.T).toarray()
            own = likeness[np.arange(len(likeness)), first + np.arange(len(likeness))][:, None]
            better, equal = (likeness > own).sum(axis=1), (likeness == own).sum(axis=1)
            ranks[first : first + _AT_ONCE] = 1 + better + (equal - 1) / 2
    return ranks


def _found_itself(pairs: Pairs) -> float:
    return float((ranks_of(pairs.raw, pairs.raw) == 1).mean())
