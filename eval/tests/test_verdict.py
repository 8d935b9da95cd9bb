"""One line says for which use a release is good: a release that beats no baseline by more than 0.02 is not proposed."""

import numpy as np
import pytest

from dptext_etl_eval.evidence import Evidence, Measured
from dptext_etl_eval.measure import DISCRIMINANT, Score
from dptext_etl_eval.metrics.downstream import Downstream
from dptext_etl_eval.readers import SCORES, VECTORS, WORDS
from dptext_etl_eval.shuffled import SharesOfLabels
from dptext_etl_eval.synthetic import LearnedFromTable
from dptext_etl_eval.verdict import verdict

ROWS, SHARES = Downstream(), SharesOfLabels({}, (), 1.0, 1)
OF_TABLE = LearnedFromTable((), np.array([]), None, {})


def scores(value, names, blind=0.1):
    tested = "macro-F1, learned from released texts, tested on raw texts"
    return [Score(tested, value, blind=blind), Score("macro-F1, label names", names, blind=blind)]


def table(learned, mean, names=0.5):
    given = {
        WORDS: learned,
        VECTORS: learned - 0.1,
        DISCRIMINANT: mean,
        "label names": names,
        "public data": 0.3,
    }
    return [Score(f"macro-F1, {what}", value, blind=0.1) for what, value in given.items()]


def shares(seen, near, blind=0.3):
    return [Score("distance of counted shares", seen, blind=blind), Score("of near", near, blind=blind)]


@pytest.mark.parametrize(
    ("measure", "given", "words"),
    [
        (ROWS, scores(0.53, 0.5), "Use the release to train classifiers and count labels (macro-F1 0.53; label names"),
        (ROWS, scores(0.519, 0.5), "Do not publish. Use label names, with macro-F1 0.50"),
        (ROWS, scores(0.4, None, 0.39), "Do not publish. Guessing labels without texts is as good"),
        (ROWS, [Score("pearson", 0.5)], "Labels are numbers"),
        (OF_TABLE, table(0.6, 0.7), f"Use the {DISCRIMINANT} (macro-F1 0.70) or the synthetic table (macro-F1 0.60)"),
        (OF_TABLE, table(0.51, 0.7), f"Use the {DISCRIMINANT} (macro-F1 0.70) to label texts; label names"),
        (OF_TABLE, table(0.51, 0.7), "table (macro-F1 0.51): it beats label names by only 0.01."),
        (OF_TABLE, table(0.6, 0.4), "statistic (macro-F1 0.40): it loses to label names by 0.10."),
        (OF_TABLE, [*table(0.4, 0.7), Score(f"macro-F1, {SCORES}", 0.66)], "or scores of its texts (macro-F1 0.66)"),
        (
            OF_TABLE,
            table(0.51, 0.4),
            f"macro-F1 0.50: the {DISCRIMINANT} (macro-F1 0.40) loses to label names by 0.10, and the synthetic",
        ),
        (OF_TABLE, table(0.51, 0.4), "table (macro-F1 0.51) beats label names by only 0.01."),
        (SHARES, shares(0.1, 0.2), "Use the release to count shares of labels (off by 0.10; the corpus by itself"),
        (SHARES, shares(0.29, 0.4), "Do not publish. Use the corpus by itself"),
        (None, [], "No label was named"),
    ],
)  # fmt: skip
def test_a_verdict(measure, given, words):
    measured = () if measure is None else (Measured(measure, tuple(given), 0.0),)
    found = verdict(Evidence("text", 1, 1, measured, (), {}))
    assert words in found
    assert "\n" not in found
    if "Use the release to" in words or words.startswith("Use the"):
        assert "ot use it" in found or "not use them" in found
