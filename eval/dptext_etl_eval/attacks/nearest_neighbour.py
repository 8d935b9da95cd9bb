"""Find the release of a raw text among all releases, and the raw text of a release among all raw texts.

Specification: docs/spec/privacy.md#nn-attack. In Meisenbacher et al. 2025, a raw text is the query, and the releases
are the corpus: these figures come first. The paper counts a rank above 1,000 as 1,000; both figures are given.
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
    """The rank of the own release by cosine to a raw text, among the releases of all rows; and the other way round."""

    title: ClassVar[str] = "Finding releases and raw texts again"
    says: ClassVar[str] = (
        "First as in Meisenbacher et al. 2025: the attacker holds a raw text, and ranks the releases of all rows that"
        " are measured by similarity to it. Then the other way round: the attacker holds all raw texts, and ranks "
        "them by similarity to a release. Similarity is the cosine of TF-IDF of words, and with --encoder also of a "
        "sentence encoder, as in the paper. Rank 1 is a hit. Ties count half."
    )
    knows: ClassVar[str] = "raw texts, and all releases, but not which release is whose"
    order: ClassVar[int] = 40

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the share of hits, and the mean rank without a cap and with the cap of Meisenbacher et al. 2025."""
        raw, released = pairs.raw, pairs.released
        ranks_of_kinds = {"": (ranks_of(raw, released), ranks_of(released, raw), ranks_of(raw, raw))}
        if pairs.evaluators.encoder is not None:
            before, after = (by_encoder(pairs, which) for which in (RAW, RELEASED))
            forth, back, same = (ranks_of_vectors(*two) for two in ((before, after), (after, before), (before, before)))
            ranks_of_kinds[", by the sentence encoder"] = forth, back, same
        return [
            score
            for how, (forth, back, same) in ranks_of_kinds.items()
            for what, ranks in (("release", forth), ("raw text", back))
            for score in _scores(what, how, ranks, float((same == 1).mean()))
        ]


def _scores(what: str, how: str, ranks: Ranks, found_itself: float) -> list[Score]:
    n, hits = len(ranks), int((ranks == 1).sum())
    every = np.arange(1, n + 1)
    return [
        Score(f"own {what} found first{how}", hits / n, wilson(hits, n), blind=1 / n, raw=found_itself),
        Score(f"mean rank of the own {what}{how}", float(ranks.mean()), blind=(n + 1) / 2, unit="number"),
        Score(
            f"mean rank of the own {what}, capped@{CAP}{how}",
            float(np.minimum(ranks, CAP).mean()),
            blind=float(np.minimum(every, CAP).mean()),
            unit="number",
        ),
    ]


def ranks_of(queries: Sequence[str], corpus: Sequence[str]) -> Ranks:
    """Return the rank of every query's own text among all texts of a corpus by TF-IDF, from 1, shape (n,).

    >>> ranks_of(["red apples", "green pears"], ["apples", "pears"]).tolist()
    [1.0, 1.0]
    """
    transformer = library("sklearn.feature_extraction.text").TfidfTransformer
    with seam("comparing raw texts with releases", InputError):
        weighting = transformer(sublinear_tf=True)
        weighted = weighting.fit_transform(counted(corpus))
        return ranks_of_vectors(weighting.transform(counted(queries)), weighted)


def ranks_of_vectors(queries: Any, corpus: Any) -> Ranks:
    """Return the same by inner products of vectors, dense or sparse, shape (n,)."""
    ranks = np.empty(queries.shape[0])
    for first in range(0, len(ranks), _AT_ONCE):
        likeness: Any = queries[first : first + _AT_ONCE] @ corpus.T
        likeness = likeness.round(6) if isinstance(likeness, np.ndarray) else likeness.toarray()  # ties of equal texts
        own_likeness = likeness[np.arange(len(likeness)), first + np.arange(len(likeness))][:, None]
        better, equal = (likeness > own_likeness).sum(axis=1), (likeness == own_likeness).sum(axis=1)
        ranks[first : first + _AT_ONCE] = 1 + better + (equal - 1) / 2
    return ranks
