"""Measure how well a classifier learns from a release, which is the use of most releases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dptext_etl_eval.baselines import NO_WORDS, guesses
from dptext_etl_eval.classifier import Guesses, crossed, scores
from dptext_etl_eval.fine_tuning import ways
from dptext_etl_eval.measure import Metric, Score
from dptext_etl_eval.pairs import LABEL, RAW, RELEASED, Pairs, Values
from dptext_etl_eval.statistics import bootstrapped, macro_f1, unseen


class Downstream(Metric):
    """Macro-F1 and accuracy of a classifier of the labels (or correlations), next to raw texts and a baseline."""

    title: ClassVar[str] = "Labels that a classifier gets right"
    says: ClassVar[str] = (
        "TF-IDF and logistic regression, five folds; the rows outside the sample are learned from, too, so that one "
        "classifier is enough for a small sample. It learns from released texts and is tested on raw texts, "
        "as a model is used that is trained on a release; then tested on released texts. The random baseline is the "
        "better of the most frequent label and of every label as often as it occurs. The label-name baseline needs no "
        "release: each raw text gets the label whose name has the largest inner product with it. Public data, "
        "written texts, public labeled texts, and zero-shot labels need no release either. A release that does "
        "no better than the best of them brings nothing. Labels that are numbers, some not whole, are regressed on "
        "(ridge regression). With --models or --classifier, the same by a fine-tuned language model."
    )
    needs: ClassVar[frozenset[str]] = frozenset({LABEL})
    order: ClassVar[int] = 10
    weight: ClassVar[float] = 20.0
    seeded: ClassVar[bool] = True

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return both figures, tested on raw and on released texts."""
        results = []
        for how, guess in ways(pairs):
            raw = guess(pairs, LABEL, train=RAW, test=RAW)
            for test in (RAW, RELEASED):
                given = guess(pairs, LABEL, train=RELEASED, test=test)
                what = f"{{figure}}, learned from released texts, tested on {test} texts{how}"
                results += scores(given, raw, what, given.groups)
        if pairs.numbers is None:
            raw = crossed(pairs, LABEL, train=RAW, test=RAW)
            free = guesses(pairs.free, np.unique(raw.truth), pairs.raw)
            results += [free_guess(what, guessed, pairs, raw) for what, guessed in free.items()]
        return results


def free_guess(title: str, guessed: Values | None, pairs: Pairs, raw: Guesses) -> Score:
    """Return macro-F1 of a guess that needs no private text."""
    what = f"macro-F1, {title}"
    if guessed is None:
        return Score(what, None, note=NO_WORDS)
    interval = bootstrapped(macro_f1, raw.truth, guessed, pairs.subject)
    return Score(what, macro_f1(raw.truth, guessed), interval, blind=unseen(macro_f1, raw.truth, raw.blind))
