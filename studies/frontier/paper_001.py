"""Set the tables of paper 001 (Meisenbacher, Lee, Matthes 2025) next to our figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pyarrow as pa

from dptext_etl import load
from frontier import setups

Row = tuple[float, float, float, float, float]


@dataclass(frozen=True)
class Printed:
    """Table 1 of one data set.

    Attributes:
        raw: Accuracy of use and of the attacker from raw texts.
        guessing: The paper's figure of guessing: F1 of the positive class, or of a coin.
        accuracy: The accuracy of the same guesses.
        rows: Use, static, adaptive attacker and both gains, by mechanism and epsilon, divided evenly and by scores.
    """

    raw: tuple[float, float]
    guessing: tuple[float, float]
    accuracy: tuple[float, float]
    rows: dict[tuple[str, str], tuple[Row, Row]]


YELP = Printed(
    (95.09, 95.90),
    (96.65, 29.89),
    (93.526, 17.572),
    {
        ("1-Diffractor", "0.1"): ((93.53, 42.20, 80.92, 1.81, 1.23), (93.53, 42.37, 82.35, 1.81, 1.21)),
        ("1-Diffractor", "0.5"): ((95.01, 57.23, 92.16, 0.64, 0.11), (94.01, 55.09, 88.44, 1.31, 0.81)),
        ("1-Diffractor", "1"): ((94.70, 65.84, 92.72, 0.19, 0.30), (94.45, 62.60, 92.87, 0.91, 0.46)),
        ("DP-BART", "500"): ((93.53, 26.24, 38.82, 2.06, 1.86), (93.53, 17.11, 32.87, 2.19, 1.95)),
        ("DP-BART", "1000"): ((93.99, 26.99, 61.21, 1.75, 1.23), (93.53, 15.09, 37.30, 2.22, 1.89)),
        ("DP-BART", "1500"): ((94.47, 27.86, 67.63, 1.43, 0.83), (93.53, 15.55, 38.71, 2.22, 1.87)),
    },
)
TRUSTPILOT = Printed(
    (99.49, 72.16),
    (95.83, 66.67),
    (91.997, 58.088),
    {
        ("1-Diffractor", "0.1"): ((94.87, 59.61, 60.71, 1.02, 0.82), (93.62, 59.51, 60.37, 0.70, 0.54)),
        ("1-Diffractor", "0.5"): ((98.15, 64.12, 67.70, 1.09, 0.44), (97.93, 63.45, 66.59, 1.16, 0.59)),
        ("1-Diffractor", "1"): ((98.89, 67.28, 63.87, 1.34, 1.34), (98.64, 66.40, 68.25, 0.81, 0.48)),
        ("DP-BART", "500"): ((92.59, 60.71, 58.83, 0.20, 0.54), (92.09, 58.94, 58.09, 0.38, 0.54)),
        ("DP-BART", "1000"): ((98.03, 59.85, 62.48, 1.84, 1.36), (92.16, 59.34, 58.12, 0.33, 0.55)),
        ("DP-BART", "1500"): ((98.51, 60.16, 61.18, 1.91, 1.73), (93.36, 59.34, 58.94, 0.66, 0.73)),
    },
)
NEAR = 0.0105
"""A gain reproduces within this: both scores and guesses are rounded."""


def gain(used: float, attacked: float, blind: tuple[float, float], raw: tuple[float, float] = YELP.raw) -> float:
    """Return the relative gain above guessing (paper 001), all in percent."""
    return (used - blind[0]) / (raw[0] - blind[0]) - (attacked - blind[1]) / (raw[1] - blind[1])


def gains(of: Printed, blind: tuple[float, float]) -> dict[tuple[str, str, str], list[float]]:
    """Return both gains of every cell, by mechanism, epsilon and how it divides the budget."""
    return {
        (*name, way): [gain(row[0], attacked, blind, of.raw) for attacked in row[1:3]]
        for name, both in of.rows.items()
        for way, row in zip(("evenly", "by scores"), both, strict=True)
    }


def better(by: dict[tuple[str, str, str], list[float]], of: Printed) -> int:
    """Return in how many of the twelve cells dividing by scores gains more than dividing evenly."""
    return sum(
        two > one_
        for name in of.rows
        for one_, two in zip(by[(*name, "evenly")], by[(*name, "by scores")], strict=True)
    )


FIVE = ("ic", "pos", "ner", "wi", "sd")
ADVERSARIAL = {"yelp": YELP, "trustpilot": TRUSTPILOT, "blog": None}
BLOG: dict[tuple[str, str], tuple[tuple[float, float], tuple[float, float]]] = {
    ("1-Diffractor", "0.1"): ((26.56, 40.05), (26.19, 38.55)),
    ("1-Diffractor", "0.5"): ((31.34, 44.89), (31.96, 44.49)),
    ("1-Diffractor", "1"): ((35.39, 43.96), (35.43, 46.89)),
    ("DP-BART", "500"): ((12.73, 13.61), (7.95, 8.95)),
    ("DP-BART", "1000"): ((15.05, 21.77), (12.51, 13.58)),
    ("DP-BART", "1500"): ((15.87, 23.77), (17.22, 16.60)),
}
"""Table 1c: static and adaptive attacker, divided evenly and by scores."""
MEMBERSHIP = {
    ("yelp", "1-Diffractor", "0.1"): ((0.003, 0.007, 0.121, 0.151, 111), (0.003, 0.007, 0.121, 0.151, 154)),
    ("yelp", "1-Diffractor", "1"): ((0.003, 0.006, 0.124, 0.155, 2), (0.003, 0.006, 0.123, 0.154, 4)),
    ("yelp", "DP-BART", "500"): ((0.002, 0.005, 0.104, 0.137, 816), (0.001, 0.004, 0.042, 0.135, 964)),
    ("trustpilot", "1-Diffractor", "0.1"): ((0.002, 0.004, 0.055, 0.074, 308), (0.002, 0.004, 0.055, 0.075, 383)),
    ("trustpilot", "1-Diffractor", "1"): ((0.002, 0.004, 0.062, 0.081, 5), (0.002, 0.003, 0.060, 0.079, 15)),
    ("trustpilot", "DP-BART", "500"): ((0.002, 0.004, 0.052, 0.068, 780), (0.001, 0.005, 0.019, 0.035, 956)),
    ("blog", "1-Diffractor", "0.1"): ((0.001, 0.002, 0.052, 0.067, 47), (0.001, 0.002, 0.052, 0.067, 69)),
    ("blog", "1-Diffractor", "1"): ((0.001, 0.002, 0.053, 0.068, 2), (0.001, 0.001, 0.052, 0.068, 3)),
    ("blog", "DP-BART", "500"): ((0.001, 0.002, 0.042, 0.058, 772), (0.001, 0.002, 0.024, 0.036, 833)),
}
"""Table 2: masked words by place (1 and 3 predictions), by bag (1 and 3), and the mean rank of the own release."""
UTILITY = {
    ("sst2", 0.1): ((80.40, 0.508, 0.163, 9372), (78.93, 0.459, 0.155, 9849)),
    ("sst2", 0.5): ((87.21, 0.707, 0.240, 6329), (85.31, 0.625, 0.203, 7266)),
    ("sst2", 1.0): ((91.20, 0.813, 0.341, 5152), (88.94, 0.721, 0.267, 5813)),
    ("mrpc", 0.1): ((70.12, 0.438, 0.126, 1808), (64.67, 0.382, 0.118, 1912)),
    ("mrpc", 0.5): ((75.93, 0.665, 0.205, 991), (74.21, 0.573, 0.174, 1233)),
    ("mrpc", 1.0): ((71.39, 0.786, 0.314, 552), (73.48, 0.689, 0.243, 795)),
    ("bbc_news", 0.1): ((92.17, 0.507, 0.132, 692), (75.87, 0.461, 0.127, 725)),
    ("bbc_news", 0.5): ((95.87, 0.753, 0.222, 324), (95.56, 0.699, 0.196, 397)),
    ("bbc_news", 1.0): ((96.83, 0.855, 0.330, 173), (95.77, 0.807, 0.279, 236)),
    ("imdb", 0.1): ((57.31, 0.471, 0.167, 621), (77.64, 0.421, 0.162, 655)),
    ("imdb", 0.5): ((92.73, 0.707, 0.263, 309), (92.77, 0.639, 0.234, 371)),
    ("imdb", 1.0): ((94.46, 0.818, 0.370, 186), (93.94, 0.750, 0.317, 240)),
}
"""Table 3, 1-Diffractor: use, cosine, BLEU, and perplexity, divided evenly and by scores."""
ABLATION: dict[str, dict[float, tuple[tuple[float, ...], ...]]] = {
    "yelp": {
        0.1: (
            (42.37, 82.35, 154),
            (-1.56, 0.56, 4),
            (-1.68, 1.73, -3),
            (0.34, 1.79, -27),
            (-3.12, 3.97, 29),
            (-3.55, 0.04, 32),
        ),
        0.5: (
            (55.09, 88.44, 17),
            (-0.29, 1.68, 0),
            (-0.52, 2.52, -2),
            (1.96, 3.41, -6),
            (-0.99, -2.56, 6),
            (-2.14, 0.42, 6),
        ),
    },
    "sst2": {
        0.1: (
            (78.93, 0.459, 0.155),
            (0.23, 0.001, 0.0),
            (0.79, 0.01, 0.001),
            (0.37, 0.011, 0.003),
            (0.4, 0.001, 0.0),
            (-1.09, -0.028, -0.005),
        ),
        0.5: (
            (85.31, 0.625, 0.203),
            (-9.31, -0.001, 0.0),
            (-1.03, 0.017, 0.007),
            (0.96, 0.019, 0.01),
            (0.43, -0.002, -0.002),
            (-1.54, 0.058, -0.019),
        ),
    },
}
"""Table 4: all five scores, and the change without each of them (ic, pos, ner, wi, sd)."""
EVENLY, OWN = "evenly", "by scores"


def reproduced(setup: setups.Setup) -> dict[str, Callable[[], setups.Shown]]:
    """Return a function for each table, by its name."""
    tables: dict[str, Callable[[], setups.Shown]] = {
        f"1-{name}": partial(_table_1_here, setup, name) for name in ADVERSARIAL
    }
    tables |= {"2": partial(_table_2_here, setup), "3": partial(_table_3_here, setup)}
    return {**tables, **{f"4-{name}": partial(_table_4_here, setup, name) for name in ABLATION}}


@cache
def _reach() -> float:
    """Return N - 1, the largest number of places between two words of the list."""
    return float(_diffractor(1.0).loss_range)


def _diffractor(epsilon: float, **more: Any) -> Any:
    kind: Any = load("diffractor")
    return kind(variant="geometric", mode="faithful", **({} if more else {"epsilon": epsilon}), **more)


def total(task: setups.Task, mechanism: str, epsilon: float) -> float:
    """Return the budget of a text, the same for both divisions: the paper's total (section 4.1.1).

    1-Diffractor gets epsilon times the mean number of words of the set, DP-BART epsilon.
    """
    return round(epsilon if mechanism == "DP-BART" else epsilon * max(1.0, task.words), 6)


@dataclass(frozen=True)
class Evenly:
    """1-Diffractor with the same total for every text: each drawn word gets the total over the text's drawn words.

    Attributes:
        epsilon: Total of a text.
    """

    epsilon: float
    allocation = None

    def rewrite(self, rows: setups.Rows) -> setups.Rows:
        """Release texts in groups of as many drawn words, each group with its epsilon per word."""
        width, texts = len(rows[0]), [text for row in rows for text in row]
        counts = _diffractor(1.0).positions(pa.array(texts, pa.large_string())).to_pylist()
        after = list(texts)
        for count in sorted(set(counts)):
            at = [place for place, other in enumerate(counts) if other == count]
            each = _diffractor(math.floor(self.epsilon / max(1, count) * 1e6) / 1e6)
            if not 0.99 * self.epsilon <= each.epsilon * max(1, count) <= self.epsilon + 1e-6:
                raise ValueError(f"{count} words spend {each.epsilon * count:g} of a total of {self.epsilon:g}")
            for place, (text,) in zip(at, setups.rewrite(each, [(texts[place],) for place in at]), strict=True):
                after[place] = text
        return [tuple(after[at : at + width]) for at in range(0, len(after), width)]


def made(setup: setups.Setup, task: setups.Task, mechanism: str, epsilon: float, scores: Sequence[str]) -> Any:
    """Return the paper's mechanism with its total, divided by scores, or evenly among drawn words if there are none.

    A total of 1-Diffractor counts neighbors on the list; our parameter counts the farthest words, N - 1 places away.
    DP-BART draws the text at once, or by scores in `PIECES` pieces; these divide the same total.
    """
    whole = total(task, mechanism, epsilon) * (1.0 if mechanism == "DP-BART" else _reach())
    by_scores = {"total": round(whole, 6), "eps_hi": round(whole, 6), "scores": scores or FIVE, **_formulas(setup)}
    if mechanism != "DP-BART":
        return _diffractor(epsilon, allocation=by_scores) if scores else Evenly(whole)
    kind: Any = load("dpbart")
    model = setup.weights("bart-base", "english-autoencoder")
    if not scores:
        return kind(epsilon=round(whole, 6), model=model, mode="faithful")
    return kind(model=model, mode="faithful", sentences=PIECES, allocation=by_scores)


PIECES = 3


def _formulas(setup: setups.Setup) -> dict[str, Any]:
    """Return the formulas of the paper's code, where WordNet's counts are there; otherwise the corrected ones."""
    counts = setup.file("nltk_data")
    return {} if counts is None else {"printed": "code", "information": f"wordnet:{counts}"}


def equal_totals(setup: setups.Setup, task: setups.Task, mechanism: str, epsilon: float) -> float:
    """Return the total of both divisions, in the paper's unit, and refuse to continue if they differ."""
    evenly, by_scores = (made(setup, task, mechanism, epsilon, scores) for scores in ((), FIVE))
    totals = [each.epsilon if each.allocation is None else each.allocation.total for each in (evenly, by_scores)]
    totals[0] = round(totals[0], 6)
    if totals[0] != totals[1]:
        raise ValueError(f"the two divisions of {mechanism} have different totals: {totals[0]:g} and {totals[1]:g}")
    return total(task, mechanism, epsilon)


@cache
def _released(setup: setups.Setup, name: str, mechanism: str, epsilon: float, scores: tuple[str, ...]) -> Any:
    """Return training and test rows of a set as they are released."""
    task = setup.task(name, slow=mechanism == "DP-BART")
    by = made(setup, task, mechanism, epsilon, scores)
    return tuple(by.rewrite(part) if isinstance(by, Evenly) else setups.rewrite(by, part) for part in task.texts)


def _divisions(values: Any) -> Any:
    return zip((EVENLY, OWN), ((), FIVE), values, strict=True)


def _table_1_here(setup: setups.Setup, name: str) -> setups.Shown:
    printed_ = ADVERSARIAL[name]
    cells: dict[tuple[str, str], Any] = dict(printed_.rows) if printed_ is not None else dict(BLOG)
    rows = []
    for (mechanism, at), both in cells.items():
        if float(at) not in setup.budgets("1"):
            continue
        task = setup.task(name, slow=mechanism == "DP-BART")
        raw_attack = setups.figure(setup, task, *task.texts, secret=True)
        for way, scores, values in _divisions(both):
            train, test = _released(setup, name, mechanism, float(at), scores)
            attacks = [
                setups.figure(setup, task, learned_from, test, secret=True) for learned_from in (task.texts[0], train)
            ]
            pairs_of_figures: list[tuple[float | None, float | None]] = [(None, None)]
            gains_: list[tuple[float | None, float | None]] = [(None, None)] * 2
            if printed_ is not None:
                use = setups.figure(setup, task, train, test)
                raw = (setups.figure(setup, task, *task.texts), raw_attack)
                blind = (setups.guessing(task), setups.guessing(task, secret=True))
                pairs_of_figures = [(values[0], use)]
                gains_ = [(p, setups.gain(use, a, raw, blind)) for p, a in zip(values[3:], attacks, strict=True)]
            printed_attacks = values[1:3] if printed_ is not None else values
            pairs_of_figures += [*zip(printed_attacks, attacks, strict=True), *gains_]
            digits = (1, 1, 1, 2, 2)
            budget = f"{equal_totals(setup, task, mechanism, float(at)):,.1f}"
            rows.append(
                [
                    mechanism,
                    at,
                    budget,
                    way,
                    *(setups.cell(*c, d) for c, d in zip(pairs_of_figures, digits, strict=True)),
                ]
            )
    figures = ["use", "attacker, static", "attacker, adaptive", "γ, static", "γ, adaptive"]
    head = ["mechanism", "ε", "total, both", "divided", *figures]
    return setups.Shown(f"Table 1: {setup.title(name)}", head, rows, "1")


def _table_2_here(setup: setups.Setup) -> setups.Shown:
    rows = []
    for (name, mechanism, at), both in MEMBERSHIP.items():
        task = setup.task(name, slow=mechanism == "DP-BART")
        raw, budget = task.texts[1], f"{equal_totals(setup, task, mechanism, float(at)):,.1f}"
        for way, scores, values in _divisions(both):
            _, test = _released(setup, name, mechanism, float(at), scores)
            shares = setups.inferred(setup, raw, test)
            here = [*(shares[kind] for kind in ("seq1", "seq3", "bow1", "bow3")), setups.rank(setup, raw, test)]
            rows.append(
                [setup.title(name), mechanism, at, budget, way, *map(setups.cell, values, here, (3, 3, 3, 3, 0))]
            )
    head = ["set", "mechanism", "ε", "total, both", "divided", "place, 1", "place, 3", "bag, 1", "bag, 3", "rank"]
    return setups.Shown("Table 2: masked words and nearest neighbors", head, rows, "2")


def _table_3_here(setup: setups.Setup) -> setups.Shown:
    rows = []
    for (name, epsilon), both in UTILITY.items():
        if epsilon not in setup.budgets("3"):
            continue
        task = setup.task(name)
        budget = f"{equal_totals(setup, task, '1-Diffractor', epsilon):,.1f}"
        for way, scores, values in _divisions(both):
            train, test = _released(setup, name, "1-Diffractor", epsilon, scores)
            here = _useful(setup, task, train, test)
            rows.append([setup.title(name), f"{epsilon:g}", budget, way, *map(setups.cell, values, here, (1, 3, 3, 0))])
    head = ["set", "ε", "total, both", "divided", "use", "cosine", "BLEU", "perplexity"]
    return setups.Shown("Table 3: 1-Diffractor", head, rows, "3")


def _useful(setup: setups.Setup, task: setups.Task, train: setups.Rows, test: setups.Rows) -> tuple[float, ...]:
    raw = task.texts[1]
    return (
        setups.figure(setup, task, train, test),
        setups.cosine(setup, raw, test),
        setups.bleu(raw, test),
        setups.perplexity(setup, test),
    )


def _table_4_here(setup: setups.Setup, name: str) -> setups.Shown:
    """Leave out one score at a time; changes are differences from all five."""
    rows, digits = [], (1, 1, 0) if name == "yelp" else (1, 3, 3)
    task = setup.task(name)
    for epsilon, printed in ABLATION[name].items():
        if epsilon not in setup.budgets("4"):
            continue
        base: list[float] = []
        for excluded, values in zip((None, *FIVE), printed, strict=True):
            scores = tuple(score for score in FIVE if score != excluded)
            train, test = _released(setup, name, "1-Diffractor", epsilon, scores)
            if name == "yelp":
                attacks = [
                    setups.figure(setup, task, learned_from, test, secret=True)
                    for learned_from in (task.texts[0], train)
                ]
                here = [*attacks, setups.rank(setup, task.texts[1], test)]
            else:
                here = list(_useful(setup, task, train, test)[:3])
            base = base or here
            change = here if excluded is None else [one_ - all_ for one_, all_ in zip(here, base, strict=True)]
            rows.append([f"{epsilon:g}", f"without {excluded}" if excluded else "all five"])
            rows[-1] += map(setups.cell, values, change, digits)
    names = ["attacker, static", "attacker, adaptive", "rank"] if name == "yelp" else ["use", "cosine", "BLEU"]
    return setups.Shown(f"Table 4: {setup.title(name)}", ["ε", "scores", *names], rows, "4")
