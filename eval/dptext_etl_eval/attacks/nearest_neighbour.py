"""Find the release of a raw text among all releases.

Specification: docs/spec/privacy.md#nn-attack. As in paper 001, a raw text is the query, and the releases are the
corpus. The paper counts a rank above 1,000 as 1,000; both figures are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import InputError, seam
from dptext_etl_eval.classifier import counted
from dptext_etl_eval.measure import Attack, Score, library
from dptext_etl_eval.metrics.cosine import by_encoder
from dptext_etl_eval.pairs import RAW, RELEASED, Pairs
from dptext_etl_eval.statistics import wilson

CAP = 1_000
_AT_ONCE = 500
Ranks = npt.NDArray[np.float64]


class NearestNeighbour(Attack):
    """The rank of the own release by cosine to a raw text, among the releases of all rows."""

    title: ClassVar[str] = "Finding the release of a raw text"
    says: ClassVar[str] = (
        "The attacker holds a raw text, and ranks the releases of all rows that are measured by similarity to it: by "
        "cosine of TF-IDF of words, and with --encoder by a sentence encoder, as paper 001 does. Rank 1 is a hit. Ties "
        "count half."
    )
    knows: ClassVar[str] = "a raw text, and all releases, but not which release is whose"
    order: ClassVar[int] = 40

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the share of hits, and the mean rank without a cap and with the cap of paper 001."""
        found = [("", ranks_of(pairs.raw, pairs.released), ranks_of(pairs.raw, pairs.raw))]
        if pairs.evaluators.encoder is not None:
            raw, released = (by_encoder(pairs, which) for which in (RAW, RELEASED))
            found.append((", by the sentence encoder", ranks_of_vectors(raw, released), ranks_of_vectors(raw, raw)))
        return [score for how, ranks, of_raw in found for score in _scores(how, ranks, of_raw)]


def _scores(how: str, ranks: Ranks, of_raw: Ranks) -> list[Score]:
    n, hits = len(ranks), int((ranks == 1).sum())
    every = np.arange(1, n + 1)
    found_itself = float((of_raw == 1).mean())
    return [
        Score(f"own release found first{how}", hits / n, wilson(hits, n), blind=1 / n, raw=found_itself),
        Score(f"mean rank of the own release{how}", float(ranks.mean()), blind=(n + 1) / 2, unit="number"),
        Score(
            f"mean rank, capped@{CAP}{how}",
            float(np.minimum(ranks, CAP).mean()),
            blind=float(np.minimum(every, CAP).mean()),
            unit="number",
        ),
    ]


def ranks_of(raw: Sequence[str], released: Sequence[str]) -> Ranks:
    """Return the rank of every raw text's own release among all releases by TF-IDF, from 1, shape (n,).

    >>> ranks_of(["red apples", "green pears"], ["apples", "pears"]).tolist()
    [1.0, 1.0]
    """
    transformer = library("sklearn.feature_extraction.text").TfidfTransformer
    with seam("comparing raw texts with releases", InputError):
        known = transformer(sublinear_tf=True)
        after = known.fit_transform(counted(released))
        return ranks_of_vectors(known.transform(counted(raw)), after)


def ranks_of_vectors(raw: Any, released: Any) -> Ranks:
    """Return the rank of every raw text's own release by inner products of vectors, dense or sparse, shape (n,)."""
    ranks = np.empty(raw.shape[0])
    for first in range(0, len(ranks), _AT_ONCE):
        likeness: Any = raw[first : first + _AT_ONCE] @ released.T
        likeness = likeness.round(6) if isinstance(likeness, np.ndarray) else likeness.toarray()  # ties of equal texts
        own = likeness[np.arange(len(likeness)), first + np.arange(len(likeness))][:, None]
        better, equal = (likeness > own).sum(axis=1), (likeness == own).sum(axis=1)
        ranks[first : first + _AT_ONCE] = 1 + better + (equal - 1) / 2
    return ranks
