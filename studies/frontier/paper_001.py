"""Set the tables of paper 001 (Meisenbacher, Lee, Matthes 2025) next to our figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pyarrow as pa

from dptext_etl import load
from dptext_etl_eval.pairs import words_of
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
RAW_ATTACK = {"yelp": YELP.raw[1], "trustpilot": TRUSTPILOT.raw[1], "blog": 58.64}
MEMBERSHIP = {
    ("yelp", "1-Diffractor", "0.1"): ((0.003, 0.007, 0.121, 0.151, 111), (0.003, 0.007, 0.121, 0.151, 154)),
    ("yelp", "1-Diffractor", "0.5"): ((0.003, 0.006, 0.122, 0.153, 9), (0.003, 0.006, 0.12, 0.153, 17)),
    ("yelp", "1-Diffractor", "1"): ((0.003, 0.006, 0.124, 0.155, 2), (0.003, 0.006, 0.123, 0.154, 4)),
    ("trustpilot", "1-Diffractor", "0.1"): ((0.002, 0.004, 0.055, 0.074, 308), (0.002, 0.004, 0.055, 0.075, 383)),
    ("trustpilot", "1-Diffractor", "0.5"): ((0.002, 0.004, 0.059, 0.078, 28), (0.002, 0.004, 0.057, 0.077, 64)),
    ("trustpilot", "1-Diffractor", "1"): ((0.002, 0.004, 0.062, 0.081, 5), (0.002, 0.003, 0.06, 0.079, 15)),
    ("blog", "1-Diffractor", "0.1"): ((0.001, 0.002, 0.052, 0.067, 47), (0.001, 0.002, 0.052, 0.067, 69)),
    ("blog", "1-Diffractor", "0.5"): ((0.001, 0.002, 0.052, 0.068, 3), (0.001, 0.002, 0.053, 0.068, 6)),
    ("blog", "1-Diffractor", "1"): ((0.001, 0.002, 0.053, 0.068, 2), (0.001, 0.001, 0.052, 0.068, 3)),
    ("yelp", "DP-BART", "500"): ((0.002, 0.005, 0.104, 0.137, 816), (0.001, 0.004, 0.042, 0.135, 964)),
    ("yelp", "DP-BART", "1000"): ((0.002, 0.004, 0.109, 0.135, 342), (0.001, 0.004, 0.043, 0.079, 936)),
    ("yelp", "DP-BART", "1500"): ((0.002, 0.005, 0.112, 0.139, 203), (0.001, 0.003, 0.051, 0.087, 879)),
    ("trustpilot", "DP-BART", "500"): ((0.002, 0.004, 0.052, 0.068, 780), (0.001, 0.005, 0.019, 0.035, 956)),
    ("trustpilot", "DP-BART", "1000"): ((0.001, 0.003, 0.058, 0.074, 257), (0.002, 0.004, 0.025, 0.041, 787)),
    ("trustpilot", "DP-BART", "1500"): ((0.001, 0.002, 0.061, 0.076, 146), (0.001, 0.002, 0.032, 0.049, 604)),
    ("blog", "DP-BART", "500"): ((0.001, 0.002, 0.042, 0.058, 772), (0.001, 0.002, 0.024, 0.036, 833)),
    ("blog", "DP-BART", "1000"): ((0.001, 0.001, 0.044, 0.056, 520), (0.001, 0.001, 0.026, 0.041, 559)),
    ("blog", "DP-BART", "1500"): ((0.001, 0.002, 0.049, 0.061, 472), (0.001, 0.001, 0.029, 0.045, 406)),
}
"""Table 2: masked words by place (1 and 3 predictions), by bag (1 and 3), and the mean rank of the own release."""
UTILITY: dict[tuple[str, str, float], Any] = {
    ("sst2", "1-Diffractor", 0.1): ((80.4, 0.508, 0.163, 9372), (78.93, 0.459, 0.155, 9849)),
    ("sst2", "1-Diffractor", 0.5): ((87.21, 0.707, 0.24, 6329), (85.31, 0.625, 0.203, 7266)),
    ("sst2", "1-Diffractor", 1.0): ((91.2, 0.813, 0.341, 5152), (88.94, 0.721, 0.267, 5813)),
    ("mrpc", "1-Diffractor", 0.1): ((70.12, 0.438, 0.126, 1808), (64.67, 0.382, 0.118, 1912)),
    ("mrpc", "1-Diffractor", 0.5): ((75.93, 0.665, 0.205, 991), (74.21, 0.573, 0.174, 1233)),
    ("mrpc", "1-Diffractor", 1.0): ((71.39, 0.786, 0.314, 552), (73.48, 0.689, 0.243, 795)),
    ("mnli", "1-Diffractor", 0.1): ((40.37, 0.464, 0.164, 1892), (39.78, 0.406, 0.157, 2035)),
    ("mnli", "1-Diffractor", 0.5): ((56.74, 0.706, 0.261, 1361), (55.3, 0.61, 0.22, 1232)),
    ("mnli", "1-Diffractor", 1.0): ((67.77, 0.819, 0.372, 648), (67.26, 0.719, 0.297, 857)),
    ("bbc_news", "1-Diffractor", 0.1): ((92.17, 0.507, 0.132, 692), (75.87, 0.461, 0.127, 725)),
    ("bbc_news", "1-Diffractor", 0.5): ((95.87, 0.753, 0.222, 324), (95.56, 0.699, 0.196, 397)),
    ("bbc_news", "1-Diffractor", 1.0): ((96.83, 0.855, 0.33, 173), (95.77, 0.807, 0.279, 236)),
    ("docnli", "1-Diffractor", 0.1): ((79.1, 0.593, 0.112, 716), (78.3, 0.546, 0.107, 795)),
    ("docnli", "1-Diffractor", 0.5): ((82.02, 0.814, 0.19, 311), (80.34, 0.765, 0.167, 376)),
    ("docnli", "1-Diffractor", 1.0): ((82.86, 0.879, 0.248, 212), (82.02, 0.845, 0.218, 257)),
    ("imdb", "1-Diffractor", 0.1): ((57.31, 0.471, 0.167, 621), (77.64, 0.421, 0.162, 655)),
    ("imdb", "1-Diffractor", 0.5): ((92.73, 0.707, 0.263, 309), (92.77, 0.639, 0.234, 371)),
    ("imdb", "1-Diffractor", 1.0): ((94.46, 0.818, 0.37, 186), (93.94, 0.75, 0.317, 240)),
    ("bbc_news", "DP-BART", 500.0): ((40.53, 0.145, 0.017, 23), (None, 0.065, 0.0, 34667)),
    ("bbc_news", "DP-BART", 1000.0): ((None, 0.414, 0.051, 11), (None, 0.072, 0.0, 15207)),
    ("bbc_news", "DP-BART", 1500.0): ((None, 0.489, 0.065, 11), (None, 0.072, 0.0, 5811)),
    ("docnli", "DP-BART", 500.0): ((None, 0.168, 0.012, 27), (None, 0.069, 0.0, 18314)),
    ("docnli", "DP-BART", 1000.0): ((None, 0.453, 0.038, 12), (None, 0.104, 0.001, 8303)),
    ("docnli", "DP-BART", 1500.0): ((None, 0.531, 0.047, 11), (None, 0.176, 0.004, 4936)),
    ("imdb", "DP-BART", 500.0): ((None, 0.187, 0.028, 19), (None, 0.091, 0.0, 25054)),
    ("imdb", "DP-BART", 1000.0): ((None, 0.411, 0.075, 9), (None, 0.102, 0.002, 5351)),
    ("imdb", "DP-BART", 1500.0): ((None, 0.454, 0.09, 9), (None, 0.129, 0.006, 1908)),
}
"""Table 3: use, cosine, BLEU, and perplexity, divided evenly and by scores; most uses of DP-BART are missing."""
ABLATION: dict[str, dict[float, tuple[tuple[float | None, ...], ...]]] = {
    "yelp": {
        0.1: (
            (93.53, 42.37, 82.35, 1.81, 1.21, 154),
            (0.0, -1.56, 0.56, 0.02, -0.01, 4),
            (0.0, -1.68, 1.73, 0.03, -0.03, -3),
            (0.0, 0.34, 1.79, -0.0, -0.03, -27),
            (0.0, -3.12, 3.97, 0.05, -0.06, 29),
            (0.17, -3.55, 0.04, -1.02, -0.11, 32),
        ),
        0.5: (
            (94.01, 55.09, 88.44, 1.31, 0.81, 17),
            (0.21, -0.29, 1.68, -0.12, -0.17, 0),
            (-0.18, -0.52, 2.52, 0.12, 0.07, -2),
            (-0.48, 1.96, 3.41, -0.02, 0.04, -6),
            (-0.48, -0.99, -2.56, 0.32, 0.34, 6),
            (-0.48, -2.14, 0.42, 0.34, 0.3, 6),
        ),
        1.0: (
            (94.45, 62.6, 92.87, 0.91, 0.46, 4),
            (-0.81, -0.87, -0.6, 0.53, 0.52, 0),
            (-0.92, 0.52, -0.94, 0.59, 0.6, 0),
            (-0.46, 1.56, -0.58, 0.28, 0.02, -1),
            (-0.92, -2.25, -1.16, 0.63, 0.6, 1),
            (-0.92, -2.08, -2.85, 0.63, 0.63, 3),
        ),
    },
    "sst2": {
        0.1: (
            (78.93, 0.459, 0.155, 9849),
            (0.23, 0.001, 0.0, 417),
            (0.79, 0.01, 0.001, 514),
            (0.37, 0.011, 0.003, 658),
            (0.4, 0.001, 0.0, None),
            (-1.09, -0.028, -0.005, 330),
        ),
        0.5: (
            (85.31, 0.625, 0.203, 7266),
            (-9.31, -0.001, 0.0, 251),
            (-1.03, 0.017, 0.007, -259),
            (0.96, 0.019, 0.01, -194),
            (0.43, -0.002, -0.002, 470),
            (-1.54, 0.058, -0.019, 621),
        ),
        1.0: (
            (88.94, 0.721, 0.267, 5813),
            (0.05, 0.001, 0.001, 214),
            (0.67, 0.022, 0.015, -142),
            (0.82, 0.022, 0.023, 189),
            (0.48, -0.001, -0.004, 77),
            (-3.28, 0.074, -0.4, 943),
        ),
    },
}
"""Table 4: all five scores, and the change without each of them (ic, pos, ner, wi, sd)."""
DIVISIONS = {
    "evenly": (),
    "by scores": FIVE,
    "evenly, by length": ("length",),
    "by corrected scores": ("corrected", *FIVE),
}
"""The paper's two; evenly among all words of a text, drawn or kept; and by the corrected formulas of scores."""


def reproduced(setup: setups.Setup) -> dict[str, Callable[[], setups.Shown]]:
    """Return a function for each table, by its name."""
    tables: dict[str, Callable[[], setups.Shown]] = {
        f"1-{name}": partial(_table_1, setup, name) for name in ADVERSARIAL
    }
    tables |= {"2": partial(_table_2, setup), "3": partial(_table_3, setup)}
    return {**tables, **{f"4-{name}": partial(_table_4, setup, name) for name in ABLATION}}


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
    """1-Diffractor with the same total for every text: each drawn word gets the total over a number of words.

    Attributes:
        epsilon: Total of a text, per place between two words of the list.
        drawn: Divide by the number of drawn words, which spends the total. Otherwise by the number of all words: the
            share of kept words is not spent.
    """

    epsilon: float
    drawn: bool = True
    allocation = None

    def of(self, count: int) -> Any:
        """Return the mechanism of a text that is divided by a number of words."""
        return _diffractor(math.floor(self.epsilon / max(1, count) * 1e6) / 1e6)

    def cost(self, count: int) -> float:
        """Return the cost of `count` draws of `of`, between any two words."""
        return float(self.of(count).epsilon_per_word) * count

    def rewrite(self, rows: setups.Rows) -> setups.Rows:
        """Release texts in groups with the same epsilon per word."""
        width, texts = len(rows[0]), [text for row in rows for text in row]
        counts = _diffractor(1.0).positions(pa.array(texts, pa.large_string())).to_pylist()
        if not self.drawn:
            counts = [len(words_of(text)) for text in texts]
        after = list(texts)
        for count in sorted(set(counts) - {0}):
            whole = self.epsilon * _reach()
            if not 0.99 * whole <= self.cost(count) <= whole * (1 + 1e-6):
                raise ValueError(f"{count} words spend {self.cost(count):g} of a total of {whole:g}")
            at = [place for place, other in enumerate(counts) if other == count]
            for place, (text,) in zip(
                at, setups.rewrite(self.of(count), [(texts[place],) for place in at]), strict=True
            ):
                after[place] = text
        return [tuple(after[at : at + width]) for at in range(0, len(after), width)]


def made(setup: setups.Setup, task: setups.Task, mechanism: str, epsilon: float, scores: Sequence[str]) -> Any:
    """Return the paper's mechanism with its total, divided by scores, or evenly if there are none.

    The cost of a word counts the farthest words, N - 1 places away, so the total of a division by scores does. DP-BART
    draws the text at once, or by scores in `PIECES` pieces; these divide the same total. "corrected" uses the
    corrected formulas of scores, and "length" divides evenly among all words.
    """
    whole, used = total(task, mechanism, epsilon), tuple(score for score in scores if score in FIVE)
    cost = round(whole * (1.0 if mechanism == "DP-BART" else _reach()), 6)
    formulas = _encoder(setup) | ({} if "corrected" in scores else _formulas(setup))
    by_scores = {"total": cost, "eps_hi": cost, "scores": used or FIVE, **formulas}
    if mechanism != "DP-BART":
        return _diffractor(epsilon, allocation=by_scores) if used else Evenly(whole, "length" not in scores)
    kind: Any = load("dpbart")
    model = setup.weights("bart-base", "english-autoencoder")
    if not used:
        return kind(epsilon=cost, model=model, mode="faithful", length=setup.length())
    return kind(model=model, mode="faithful", length=setup.length(), sentences=PIECES, allocation=by_scores)


PIECES = 3


def _formulas(setup: setups.Setup) -> dict[str, Any]:
    """Return the formulas of the paper's code, where WordNet's counts are there; otherwise the corrected ones."""
    counts = setup.file("nltk_data")
    formulas = setup.settings["budget"]["formulas"]
    return {} if counts is None else {"printed": formulas, "information": f"wordnet:{counts}"}


def _encoder(setup: setups.Setup) -> dict[str, str]:
    """Return the paper's encoder of the scores wi and sd, where it is given."""
    return {"encoder": f"sentence-transformers:{setup.weights('gte-small', '')}"} if setup.has("gte-small") else {}


def equal_totals(setup: setups.Setup, task: setups.Task, mechanism: str, epsilon: float) -> float:
    """Return the total of both divisions, in the paper's unit, and refuse to continue if their costs differ."""
    evenly, by_scores = (made(setup, task, mechanism, epsilon, scores) for scores in ((), FIVE))
    cost = evenly.cost(10) if isinstance(evenly, Evenly) else float(evenly.epsilon)
    if not 0.999 * by_scores.allocation.total <= cost <= by_scores.allocation.total * (1 + 1e-6):
        raise ValueError(f"the divisions of {mechanism} cost {cost:g} and {by_scores.allocation.total:g}")
    return total(task, mechanism, epsilon)


@cache
def _released(setup: setups.Setup, name: str, mechanism: str, epsilon: float, scores: tuple[str, ...]) -> Any:
    """Return training and test rows of a set as they are released."""
    task = setup.task(name, slow=mechanism == "DP-BART")
    by = made(setup, task, mechanism, epsilon, scores)
    return tuple(by.rewrite(part) if isinstance(by, Evenly) else setups.rewrite(by, part) for part in task.texts)


def _divisions(mechanism: str, printed: Any) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Yield each division of a budget and its printed figures, which two of them have."""
    for place, (way, scores) in enumerate(DIVISIONS.items()):
        if mechanism != "DP-BART" or "length" not in scores:
            yield way, scores, printed[place] if place < len(printed) else (None,) * len(printed[0])


def _table_1(setup: setups.Setup, name: str) -> setups.Shown:
    printed_ = ADVERSARIAL[name]
    cells: dict[tuple[str, str], Any] = dict(printed_.rows) if printed_ is not None else dict(BLOG)
    rows = []
    for (mechanism, at), both in cells.items():
        if float(at) not in setup.budgets("1"):
            continue
        task = setup.task(name, slow=mechanism == "DP-BART")
        raw_attack = setups.figure(setup, task, *task.texts, secret=True)
        budget = f"{equal_totals(setup, task, mechanism, float(at)):,.1f}"
        for way, scores, values in _divisions(mechanism, both):
            train, test = _released(setup, name, mechanism, float(at), scores)
            attacks = [
                setups.figure(setup, task, learned_from, test, secret=True) for learned_from in (task.texts[0], train)
            ]
            figures: list[tuple[float | None, float | None]] = [(None, None)] * 2
            figures += zip(values[-2:], attacks, strict=True)
            gains_: list[tuple[float | None, float | None]] = [(None, None)] * 2
            if printed_ is not None:
                use = setups.figure(setup, task, train, test)
                raw = (setups.figure(setup, task, *task.texts), raw_attack)
                blind = (setups.guessing(task), setups.guessing(task, secret=True))
                above = [100 * (values[0] - printed_.guessing[0]) if values[0] is not None else None]
                above += [100 * (use - setups.guessing(task, f1=True))]
                figures = [(values[0], use), (above[0], above[1]), *zip(values[1:3], attacks, strict=True)]
                gains_ = [(p, setups.gain(use, a, raw, blind)) for p, a in zip(values[3:], attacks, strict=True)]
            shown = (setups.cell(*c, d) for c, d in zip([*figures, *gains_], (1, 0, 1, 1, 2, 2), strict=True))
            rows.append([mechanism, at, budget, way, *shown])
    names = ["use", "PP+", "attacker, static", "attacker, adaptive", "γ, static", "γ, adaptive"]
    task = setup.task(name)
    attack = setups.cell(RAW_ATTACK[name], setups.figure(setup, task, *task.texts, secret=True), 1)
    title = f"Table 1: {setup.title(name)}; attacker on raw texts {attack}"
    if printed_ is not None:
        title += f", use {setups.cell(printed_.raw[0], setups.figure(setup, task, *task.texts), 1)}"
    return setups.Shown(title, ["mechanism", "ε", "total, both", "divided", *names], rows, "1")


def _table_2(setup: setups.Setup) -> setups.Shown:
    rows = []
    for (name, mechanism, at), both in MEMBERSHIP.items():
        if float(at) not in setup.budgets("2"):
            continue
        task = setup.task(name, slow=mechanism == "DP-BART")
        raw, budget = task.texts[1], f"{equal_totals(setup, task, mechanism, float(at)):,.1f}"
        for way, scores, values in _divisions(mechanism, both):
            _, test = _released(setup, name, mechanism, float(at), scores)
            shares = setups.inferred(setup, raw, test)
            here = [*(shares[kind] for kind in ("seq1", "seq3", "bow1", "bow3")), setups.rank(setup, raw, test)]
            cells = map(setups.cell, values, here, (3, 3, 3, 3, 0))
            rows.append([setup.title(name), mechanism, at, budget, way, *cells])
    head = ["set", "mechanism", "ε", "total, both", "divided", "place, 1", "place, 3", "bag, 1", "bag, 3", "rank"]
    return setups.Shown("Table 2: masked words and nearest neighbors", head, rows, "2")


def _table_3(setup: setups.Setup) -> setups.Shown:
    rows = []
    for (name, mechanism, epsilon), both in UTILITY.items():
        if epsilon not in setup.budgets("3"):
            continue
        if not setup.is_here(name):
            for way, values in zip(("evenly", "by scores"), both, strict=True):
                absent = (setups.cell(value, None, digits) for value, digits in zip(values, (1, 3, 3, 0), strict=True))
                rows.append([name, mechanism, f"{epsilon:g}", "–", way, *absent])
            continue
        task = setup.task(name, slow=mechanism == "DP-BART")
        budget = f"{equal_totals(setup, task, mechanism, epsilon):,.1f}"
        for way, scores, values in _divisions(mechanism, both):
            train, test = _released(setup, name, mechanism, epsilon, scores)
            here = _useful(setup, task, train, test)
            cells = map(setups.cell, values, here, (1, 3, 3, 0))
            rows.append([setup.title(name), mechanism, f"{epsilon:g}", budget, way, *cells])
    head = ["set", "mechanism", "ε", "total, both", "divided", "use", "cosine", "BLEU", "perplexity"]
    return setups.Shown("Table 3: use and likeness", head, rows, "3")


def _useful(setup: setups.Setup, task: setups.Task, train: setups.Rows, test: setups.Rows) -> tuple[float, ...]:
    raw = task.texts[1]
    return (
        setups.figure(setup, task, train, test),
        setups.cosine(setup, raw, test),
        setups.bleu(raw, test),
        setups.perplexity(setup, test),
    )


def _attacked(setup: setups.Setup, task: setups.Task, train: setups.Rows, test: setups.Rows) -> tuple[float, ...]:
    use = setups.figure(setup, task, train, test)
    attacks = [setups.figure(setup, task, taught, test, secret=True) for taught in (task.texts[0], train)]
    raw = (setups.figure(setup, task, *task.texts), setups.figure(setup, task, *task.texts, secret=True))
    blind = (setups.guessing(task), setups.guessing(task, secret=True))
    gains_ = (setups.gain(use, attack, raw, blind) for attack in attacks)
    return use, *attacks, *gains_, setups.rank(setup, task.texts[1], test)


def _table_4(setup: setups.Setup, name: str) -> setups.Shown:
    """Leave out one score at a time; changes are differences from all five."""
    private = name == "yelp"
    rows, digits = [], (1, 1, 1, 2, 2, 0) if private else (1, 3, 3, 0)
    task = setup.task(name)
    for epsilon, printed in ABLATION[name].items():
        if epsilon not in setup.budgets("4"):
            continue
        base: tuple[float, ...] = ()
        for excluded, values in zip((None, *FIVE), printed, strict=True):
            scores = tuple(score for score in FIVE if score != excluded)
            train, test = _released(setup, name, "1-Diffractor", epsilon, scores)
            here = (_attacked if private else _useful)(setup, task, train, test)
            base = base or here
            change = here if excluded is None else [new - all_ for new, all_ in zip(here, base, strict=True)]
            cells = map(setups.cell, values, change, digits)
            rows.append([f"{epsilon:g}", f"without {excluded}" if excluded else "all five", *cells])
    attackers = ["use", "attacker, static", "attacker, adaptive", "γ, static", "γ, adaptive", "rank"]
    names = attackers if private else ["use", "cosine", "BLEU", "perplexity"]
    return setups.Shown(f"Table 4: {setup.title(name)}", ["ε", "scores", *names], rows, "4")
