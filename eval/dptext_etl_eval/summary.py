"""Summarize a report in a few sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dptext_etl_eval.baselines import GIVEN, NAMES, PUBLIC
from dptext_etl_eval.evidence import Evidence, Measured
from dptext_etl_eval.measure import MEAN, Score


def in_short(found: Evidence) -> list[str]:
    """Return what a reader must know, in sentences; each rests on figures of the page."""
    return [
        *_use(found.metrics),
        *_table(found),
        *_shares(found.metrics),
        *_secrets(found.attacks),
        *_words(found.metrics),
        *_found_again(found.attacks),
        *_read(found.attacks),
    ]


def _use(metrics: Sequence[Measured]) -> Iterator[str]:
    score = _first(metrics, "downstream")
    if score is None or score.value is None or score.blind is None or score.raw is None:
        return
    says = (
        f"A classifier that learns from the release reaches macro-F1 {score.value:.2f} on raw texts. It reaches "
        f"{score.raw:.2f} if it learns from raw texts, and a blind guess gets {score.blind:.2f}."
    )
    names = next(
        (one.value for item in _named(metrics, "downstream") for one in item.scores if NAMES in one.what), None
    )
    if names is not None:
        says += f" Label names alone, without any release, reach {names:.2f}."
    low = score.interval[0] if score.interval else score.value
    if low <= score.blind:
        says += " The release adds nothing for these labels."
    elif names is not None and score.value <= names:
        says += " The release adds nothing for these labels: publish nothing, and use their names."
    yield says


def _table(found: Evidence) -> Iterator[str]:
    """Say what a synthetic table teaches, what is free, and what the table costs."""
    for measured in _named(found.metrics, "synthetic"):
        by_name = {score.what.removeprefix("macro-F1, "): score for score in measured.scores}
        score = by_name["learned from the synthetic table"]
        if score.value is None or score.raw is None or score.blind is None:
            continue
        values = {name: one.value for name, one in by_name.items() if one.value is not None}
        free = {name: values[name] for name in (NAMES, PUBLIC, GIVEN) if name in values}
        yield (
            f"A classifier that learns from the synthetic table reaches macro-F1 {score.value:.2f} on raw texts, and "
            f"the {MEAN} {values[MEAN]:.2f}. From raw texts it reaches {score.raw:.2f}; a blind guess gets "
            f"{score.blind:.2f}."
        )
        if free:
            text = ", ".join(f"{name} {value:.2f}" for name, value in free.items())
            best = max(free, key=lambda name: free[name])
            brought = max(score.value, values[MEAN]) > free[best]
            then = "" if brought else f" The table adds nothing for these labels: publish nothing, and use {best}."
            yield f"Without any private text: {text}.{then}"
        cost = found.cost
        person = cost.get("epsilon of the whole table for a person")
        text = "a person with k records has k times the loss" if person is None else f"a person at most {person}"
        record = cost["epsilon of the whole table for one record"]
        yield f"The whole table costs a record epsilon {record} and {text}, at delta {cost['delta']:g}."


def _shares(metrics: Sequence[Measured]) -> Iterator[str]:
    """Say how near the shares of labels that readers of an unlinked release count come to the true ones."""
    for measured in _named(metrics, "unlinked"):
        seen, *more = measured.scores
        if not more or seen.value is None or more[0].value is None or seen.blind is None:
            continue
        by_rule = "" if seen.raw is None else f", and of those counted in raw texts by the same rule {seen.raw:.3f}"
        yield (
            f"The distance of counted shares of labels from the true ones is {seen.value:.3f}, of near shares "
            f"{more[0].value:.3f}, of the corpus alone {seen.blind:.3f}{by_rule}."
        )
        if min(seen.value, more[0].value) >= seen.blind:
            yield "The release adds nothing to these shares: the corpus alone is as near to them."


def _secrets(attacks: Sequence[Measured]) -> Iterator[str]:
    score = _first(attacks, "attribute")
    if score is None or score.value is None or score.blind is None or score.raw is None:
        return
    yield (
        f"An attacker who learns from releases guesses the attribute with macro-F1 {score.value:.2f}: {score.raw:.2f} "
        f"from raw texts, {score.blind:.2f} by a blind guess."
    )


def _words(metrics: Sequence[Measured]) -> Iterator[str]:
    for measured in _named(metrics, "words_kept"):
        everywhere, rare = measured.scores[1], measured.scores[-1]
        if everywhere.value is not None and rare.value is not None:
            yield (
                f"{everywhere.value:.0%} of the words of raw texts stand in their release; of the rare ones, "
                f"{rare.value:.0%}."
            )


def _found_again(attacks: Sequence[Measured]) -> Iterator[str]:
    score = _first(attacks, "nearest_neighbour")
    if score is not None and score.value is not None and score.blind is not None:
        yield (
            f"An attacker with all raw texts finds the one behind a release at the first try in {score.value:.1%} of "
            f"the rows ({score.blind:.1%} by chance)."
        )


def _read(attacks: Sequence[Measured]) -> Iterator[str]:
    for measured in _named(attacks, "reconstruction"):
        recovered = measured.scores[0]
        if recovered.value is not None and len(measured.scores) > 1:
            yield (
                f"An attacker who knows the mechanism but not the key reads {recovered.value:.0%} of the words by "
                f"weighing its odds with a small language model; {measured.scores[1].value:.0%} are correct as is."
            )


def _named(measured: Sequence[Measured], name: str) -> Iterator[Measured]:
    return (item for item in measured if type(item.measure).__module__.rpartition(".")[2] == name)


def _first(measured: Sequence[Measured], name: str) -> Score | None:
    return next((item.scores[0] for item in _named(measured, name)), None)
