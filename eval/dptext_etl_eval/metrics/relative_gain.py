"""Compute the relative gain: the share of use that a release keeps, less the share of success left to an attacker.

Specification: docs/spec/privacy.md#relative-gain. Meisenbacher et al. 2024 and 2025 define it differently; both are
given, by macro-F1. It is not defined where raw texts do not beat the random baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from dptext_etl_eval.classifier import Guesses
from dptext_etl_eval.fine_tuning import ways
from dptext_etl_eval.measure import Metric, Score
from dptext_etl_eval.pairs import ATTRIBUTE, CLASSES, LABEL, RAW, RELEASED, Pairs
from dptext_etl_eval.statistics import macro_f1, unseen


class Scored(NamedTuple):
    """One figure of the same metric three times: with raw texts, with released ones, and for the random baseline."""

    raw: float
    released: float
    blind: float


def relative_gain(useful: Scored, attacked: Scored) -> float | None:
    """Return U_r/U_o - P_r/P_o (Meisenbacher et al. 2024); None where raw texts do not beat the random baseline.

    >>> relative_gain(Scored(0.9, 0.8, 0.3), Scored(0.8, 0.4, 0.3))
    0.388...
    """
    if useful.raw <= useful.blind or attacked.raw <= attacked.blind:
        return None
    return useful.released / useful.raw - attacked.released / attacked.raw


def relative_gain_above_guessing(useful: Scored, attacked: Scored) -> float | None:
    """Return the same above the random baseline (Meisenbacher et al. 2025); None as for `relative_gain`."""
    if useful.raw <= useful.blind or attacked.raw <= attacked.blind:
        return None
    kept, learnt = (
        (figures.released - figures.blind) / (figures.raw - figures.blind) for figures in (useful, attacked)
    )
    return kept - learnt


class RelativeGain(Metric):
    """Relative gain of macro-F1 of the label over macro-F1 of the attribute, by an attacker who adapts."""

    title: ClassVar[str] = "Relative gain"
    says: ClassVar[str] = (
        "The share of the classifier's macro-F1 that is kept, less the share of the adaptive attacker's macro-F1 "
        "that is kept. Above 0, a release loses less use than it removes from the attacker. Use is tested on released "
        "texts, as the papers do, and on raw texts. Not looking is the better of the most frequent value and of every "
        "value as often as it occurs."
    )
    needs: ClassVar[frozenset[str]] = frozenset({CLASSES, ATTRIBUTE})
    order: ClassVar[int] = 20
    seeded: ClassVar[bool] = True

    def of(self, pairs: Pairs) -> Sequence[Score]:
        """Return the gain as Meisenbacher et al. 2024 and 2025 define it, tested on released and on raw texts."""
        gains = []
        for how, guesses in ways(pairs):
            attacked = _scored(guesses, pairs, ATTRIBUTE, test=RELEASED)
            for test in (RELEASED, RAW):
                useful = _scored(guesses, pairs, LABEL, test=test)
                for what, gain in _WAYS.items():
                    value = gain(useful, attacked)
                    note = "" if value is not None else "raw texts do not beat the random baseline"
                    gains.append(Score(f"{what}, use tested on {test} texts{how}", value, unit="number", note=note))
        return gains


_WAYS = {
    "as Meisenbacher et al. 2024 define it": relative_gain,
    "above not looking, as Meisenbacher et al. 2025 define it": relative_gain_above_guessing,
}


def _scored(guesses: Callable[..., Guesses], pairs: Pairs, target: str, *, test: str) -> Scored:
    raw = guesses(pairs, target, train=RAW, test=RAW)
    released = guesses(pairs, target, train=RELEASED, test=test)
    without = unseen(macro_f1, released.truth, released.blind)
    return Scored(macro_f1(raw.truth, raw.guessed), macro_f1(released.truth, released.guessed), without)
