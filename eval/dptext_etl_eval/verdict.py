"""Say in one line for which use a measured release is good, and for which it is not."""

from __future__ import annotations

from collections.abc import Sequence

from dptext_etl_eval.baselines import BETTER, BLIND, FREE
from dptext_etl_eval.evidence import Evidence
from dptext_etl_eval.measure import DISCRIMINANT, Score
from dptext_etl_eval.readers import LINES, SCORES, VECTOR_SCORES, VECTORS, WORDS

_MACRO_F1 = "macro-F1, "


def verdict(evidence: Evidence) -> str:
    """Return one line: use the release for X, and not for Y; or do not publish, and use a baseline."""
    for measured in evidence.metrics:
        match type(measured.measure).__module__.rpartition(".")[2]:
            case "synthetic":
                return _of_table(measured.scores)
            case "shuffled":
                return _of_shares(measured.scores)
            case "downstream":
                return _of_rows(measured.scores)
    return "No label was named, so no figure says whether the release is useful. Name one with --label."


def baselines(scores: Sequence[Score]) -> dict[str, float]:
    """Return macro-F1 of all baselines that were measured, by name."""
    by_name = {score.what.removeprefix(_MACRO_F1): score for score in scores}
    found = {name: score.value for name in FREE if (score := by_name.get(name)) and score.value is not None}
    blind = next((score.blind for score in scores if score.blind is not None), None)
    return found if blind is None else {**found, BLIND: blind}


def _best(scores: Sequence[Score]) -> tuple[str, float]:
    found = baselines(scores)
    return max(found.items(), key=lambda item: item[1])


def _instead(name: str, baseline: float, reached: str) -> str:
    return f"Do not publish. {_use(name, baseline)}: {reached} not better by more than {BETTER}."


def _use(name: str, baseline: float) -> str:
    return f"Use {name}, with macro-F1 {baseline:.2f}" if name != BLIND else "Guessing labels without texts is as good"


def _of_rows(scores: Sequence[Score]) -> str:
    first = scores[0]
    if first.value is None or not first.what.startswith(_MACRO_F1):
        return "Labels are numbers: the figures below say how well they can be predicted. No text keeps its details."
    name, baseline = _best(scores)
    if first.value <= baseline + BETTER:
        return _instead(name, baseline, f"a classifier of the release ({first.value:.2f}) is")
    return (
        f"Use the release to train classifiers and count labels (macro-F1 {first.value:.2f}; {name} {baseline:.2f}); "
        "do not use it to read details of a text."
    )


def _of_table(scores: Sequence[Score]) -> str:
    by_name = {score.what.removeprefix(_MACRO_F1): score.value or 0.0 for score in scores}
    name, baseline = _best(scores)
    reader = best_reader(scores)
    reached = {DISCRIMINANT: by_name[DISCRIMINANT], reader: by_name[reader]}
    called = {what: f"{_CALLED.get(what, f'the {what}')} (macro-F1 {value:.2f})" for what, value in reached.items()}
    good = {what: value for what, value in reached.items() if value > baseline + BETTER}
    poor = {called[what]: _differs(value - baseline, name) for what, value in reached.items() if what not in good}
    if not good:
        return f"Do not publish. {_use(name, baseline)}: {', and '.join(map(' '.join, poor.items()))}."
    trains = "train classifiers and count labels" if reader in good else "label texts"
    less = "".join(f" Do not use {what}: it {differs}." for what, differs in poor.items())
    take = f" Take {called[max(good, key=lambda what: good[what])].partition(' (')[0]}." if len(good) > 1 else ""
    return (
        f"Use {' or '.join(called[what] for what in good)} to {trains}; {name} reaches {baseline:.2f}.{take} Do not "
        f"use them to read texts of your records.{less}"
    )


def _differs(gain: float, name: str) -> str:
    """Say by how much something loses to a baseline, or that it wins by too little."""
    return f"loses to {name} by {-gain:.2f}" if gain < 0 else f"beats {name} by only {gain:.2f}"


_CALLED = {
    WORDS: "the synthetic table",
    VECTORS: "vectors of the synthetic table",
    SCORES: "scores of its texts",
    VECTOR_SCORES: "vectors and scores of its texts",
}


def best_reader(scores: Sequence[Score]) -> str:
    """Return the name of the reader of a synthetic table with the highest macro-F1; of equals, the first one."""
    by_name = {score.what.removeprefix(_MACRO_F1): score.value or 0.0 for score in scores}
    return max((name for name in LINES if name in by_name), key=lambda name: by_name[name])


def _of_shares(scores: Sequence[Score]) -> str:
    values = [score.value for score in scores if score.value is not None]
    if not values or scores[0].blind is None:
        return "No name of a label is a word with a vector, so no figure says whether the release is useful."
    least, blind = min(values), scores[0].blind
    if least >= blind - BETTER:
        return (
            f"Do not publish. Use the corpus by itself: shares of labels that are counted in it are off by "
            f"{blind:.2f}, and shares in the release by {least:.2f}."
        )
    return (
        f"Use the release to count shares of labels (off by {least:.2f}; the corpus by itself {blind:.2f}); do not use "
        "it to read texts of your records, or to count rare topics."
    )
