"""Guess a secret of the person from several releases of one person: what averages out over records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dptext_etl_eval.classifier import Guesses, counted, guess, require_classes
from dptext_etl_eval.measure import Attack, Score
from dptext_etl_eval.pairs import ATTRIBUTE, RAW, RELEASED, SUBJECT, Pairs, Values
from dptext_etl_eval.statistics import bootstrapped, macro_f1, unseen

COUNTS = (1, 2, 5, 10)
FEWEST = 40
"""Number of persons below which a count is excluded."""


class SeveralRecords(Attack):
    """The adaptive attacker on the joined releases of one person, by the number of records."""

    title: ClassVar[str] = "Guessing the attribute from several records"
    says: ClassVar[str] = (
        "The adaptive attacker reads k releases of one person as one text. Noise averages out over records: what one "
        "release hides, ten may show. The bound for a person is the sum over records."
    )
    knows: ClassVar[str] = "which releases are of one person, and other people's with their attributes"
    needs: ClassVar[frozenset[str]] = frozenset({ATTRIBUTE, SUBJECT})
    order: ClassVar[int] = 20
    weight: ClassVar[float] = 15.0

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return macro-F1 over persons, for each number of records that enough persons have."""
        assert pairs.subject is not None and pairs.attribute is not None  # noqa: S101, PT018  (`needs` says so)
        codes = np.unique(pairs.subject, return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        rows = np.split(order, np.cumsum(np.bincount(codes))[:-1])
        scores = []
        for count in COUNTS:
            enough = [of_one[:count] for of_one in rows if len(of_one) >= count]
            truth = np.array([pairs.attribute[of_one[0]] for of_one in enough])
            if len(enough) < FEWEST or len(np.unique(truth)) < 2:
                break
            require_classes(truth, ATTRIBUTE)
            guesses, raw = (_guessed(pairs.texts(which), enough, truth) for which in (RELEASED, RAW))
            scores.append(
                Score(
                    f"{count} of each of {len(enough)} persons, macro-F1",
                    macro_f1(truth, guesses.guessed),
                    bootstrapped(macro_f1, truth, guesses.guessed),
                    blind=unseen(macro_f1, truth, guesses.blind),
                    raw=macro_f1(truth, raw.guessed),
                )
            )
        return scores or [Score("macro-F1", None, note=f"fewer than {FEWEST} persons, or one value for all")]


def _guessed(texts: tuple[str, ...], rows: Sequence[npt.NDArray[np.intp]], truth: Values) -> Guesses:
    joined = counted([" ".join(texts[row] for row in of_one) for of_one in rows])
    return guess(joined, joined, truth)
