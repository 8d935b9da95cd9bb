"""Set the tables of paper 000 (DP-MLM, Meisenbacher et al. 2024) next to our figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from statistics import fmean
from typing import Any

from dptext_etl import load
from frontier import setups

LONGER = {
    (25, 0.1): (97.22, 54, 0.3405, 41.36, 60.94, 0.38, 0.1),
    (25, 0.25): (97.57, 89, 0.3537, 41.58, 61.23, 0.38, 0.1),
    (50, 0.1): (98.95, 227, 0.7094, 35.61, 68.6, 0.48, 0.01),
    (50, 0.25): (98.94, 226, 0.7091, 34.3, 66.12, 0.5, 0.04),
    (100, 0.1): (98.95, 227, 0.7484, 34.74, 66.37, 0.49, 0.04),
    (100, 0.25): (99.29, 261, 0.7502, 33.1, 67.43, 0.52, 0.03),
}
"""Table 4, Trustpilot, by epsilon and probability of addition: the figures of Table 3; cosines there are in percent."""


TASKS = ("cola", "sst2", "qqp", "mrpc", "stsb", "mnli", "qnli_dev", "wnli", "rte")
GLUE = {
    0: (84.72, 95.72, 89.26, 84.07, 84.57, 88.75, 93.51, 56.34, 54.99),
    10: (69.13, 68.50, 71.86, 71.32, 6.13, 52.86, 66.25, 53.05, 51.50),
    25: (69.77, 76.49, 74.17, 70.67, 12.42, 56.15, 68.54, 55.40, 51.87),
    50: (70.85, 84.10, 80.53, 75.25, 26.21, 66.99, 82.01, 52.58, 52.47),
    100: (70.05, 86.16, 82.17, 74.35, 34.68, 69.57, 83.56, 48.36, 53.31),
    250: (70.18, 86.05, 82.44, 76.39, 60.77, 70.96, 84.68, 51.64, 51.38),
}
"""Table 1 by epsilon (0: raw texts), one figure for each of `TASKS`."""
RIVALS = {
    ("cola", "DP-MLM"): {
        10: (0.08, 0.16, 69.13),
        25: (0.13, 0.35, 69.77),
        50: (0.25, 0.64, 70.85),
        100: (0.28, 0.69, 70.05),
        250: (0.29, 0.7, 70.18),
    },
    ("cola", "DP-Paraphrase"): {
        10: (0.0, 0.26, 69.13),
        25: (0.0, 0.26, 69.13),
        50: (0.0, 0.28, 69.13),
        100: (0.01, 0.33, 69.13),
        250: (0.07, 0.43, 69.2),
    },
    ("cola", "DP-Prompt"): {
        10: (0.0, 0.04, 69.13),
        25: (0.0, 0.09, 69.13),
        50: (0.29, 0.71, 67.59),
        100: (0.68, 0.93, 73.63),
        250: (0.76, 0.95, 74.5),
    },
    ("sst2", "DP-MLM"): {
        10: (0.08, 0.17, 68.5),
        25: (0.11, 0.37, 76.49),
        50: (0.19, 0.61, 84.1),
        100: (0.22, 0.65, 86.16),
        250: (0.23, 0.67, 86.05),
    },
    ("sst2", "DP-Paraphrase"): {
        10: (0.0, 0.26, 58.6),
        25: (0.0, 0.26, 63.88),
        50: (0.0, 0.27, 61.66),
        100: (0.0, 0.29, 64.26),
        250: (0.05, 0.37, 67.81),
    },
    ("sst2", "DP-Prompt"): {
        10: (0.0, 0.07, 50.92),
        25: (0.0, 0.12, 52.52),
        50: (0.02, 0.36, 70.84),
        100: (0.12, 0.62, 83.72),
        250: (0.15, 0.65, 85.17),
    },
    ("mrpc", "DP-MLM"): {
        10: (0.05, 0.12, 71.32),
        25: (0.08, 0.37, 70.67),
        50: (0.17, 0.61, 75.25),
        100: (0.19, 0.66, 74.35),
        250: (0.21, 0.68, 76.39),
    },
    ("mrpc", "DP-Paraphrase"): {
        10: (0.0, 0.26, 68.38),
        25: (0.0, 0.27, 68.71),
        50: (0.0, 0.28, 68.38),
        100: (0.0, 0.3, 68.71),
        250: (0.05, 0.38, 68.95),
    },
    ("mrpc", "DP-Prompt"): {
        10: (0.0, 0.04, 68.38),
        25: (0.0, 0.09, 68.55),
        50: (0.05, 0.48, 71.1),
        100: (0.29, 0.78, 71.16),
        250: (0.37, 0.82, 71.24),
    },
    ("rte", "DP-MLM"): {
        10: (0.04, 0.1, 51.5),
        25: (0.08, 0.33, 51.87),
        50: (0.17, 0.61, 52.47),
        100: (0.2, 0.65, 53.31),
        250: (0.21, 0.66, 51.38),
    },
    ("rte", "DP-Paraphrase"): {
        10: (0.0, 0.27, 53.79),
        25: (0.0, 0.28, 53.19),
        50: (0.0, 0.29, 50.78),
        100: (0.01, 0.33, 52.71),
        250: (0.08, 0.43, 49.1),
    },
    ("rte", "DP-Prompt"): {
        10: (0.0, 0.05, 51.14),
        25: (0.0, 0.09, 50.42),
        50: (0.27, 0.71, 49.82),
        100: (0.63, 0.92, 56.32),
        250: (0.68, 0.94, 59.21),
    },
}
"""Table 2, by task and mechanism: BLEU, cosine, and accuracy, by epsilon."""
PRIVACY = {
    ("trustpilot", "DP-MLM"): {
        10: (97.3, 62, 0.1, 59.74, 58.5, 0.12, 0.14),
        25: (97.98, 130, 0.19, 61.26, 61.93, 0.1, 0.09),
        50: (98.89, 221, 0.24, 68.58, 66.73, 0.01, 0.03),
        100: (99.11, 243, 0.25, 70.3, 65.1, -0.02, 0.06),
        250: (99.24, 257, 0.25, 70.92, 66.33, -0.02, 0.04),
    },
    ("trustpilot", "DP-Paraphrase"): {
        10: (96.43, -25, 0.15, 60.02, 60.17, 0.11, 0.1),
        25: (96.05, -63, 0.15, 60.23, 58.33, 0.1, 0.13),
        50: (96.72, 5, 0.15, 59.85, 58.97, 0.11, 0.13),
        100: (96.57, -11, 0.15, 60.27, 60.16, 0.1, 0.11),
        250: (96.16, -52, 0.15, 60.52, 58.03, 0.1, 0.13),
    },
    ("trustpilot", "DP-Prompt"): {
        10: (96.69, 2, 0.11, 59.7, 58.1, 0.11, 0.14),
        25: (96.72, 4, 0.13, 59.64, 57.23, 0.11, 0.15),
        50: (97.9, 123, 0.2, 68.75, 60.3, -0.01, 0.11),
        100: (99.3, 263, 0.24, 78.83, 66.53, -0.14, 0.04),
        250: (99.38, 270, 0.25, 81.67, 69.8, -0.18, -0.01),
    },
    ("yelp", "DP-MLM"): {
        10: (95.51, -84, 0.15, 13.72, 62.4, 0.82, 0.26),
        25: (95.51, -84, 0.5, 30.92, 61.07, 0.63, 0.28),
        50: (96.64, 29, 0.76, 47.24, 73.87, 0.45, 0.14),
        100: (96.22, -13, 0.8, 49.96, 71.87, 0.41, 0.16),
        250: (96.47, 11, 0.81, 50.76, 74.13, 0.41, 0.14),
    },
    ("yelp", "DP-Paraphrase"): {
        10: (95.51, -84, 0.34, 11.6, 20.27, 0.85, 0.74),
        25: (95.51, -84, 0.35, 11.72, 23.07, 0.85, 0.72),
        50: (95.51, -84, 0.36, 12.04, 22.27, 0.84, 0.72),
        100: (95.51, -84, 0.37, 12.44, 20.53, 0.84, 0.74),
        250: (96.05, -30, 0.36, 12.61, 25.0, 0.84, 0.69),
    },
    ("yelp", "DP-Prompt"): {
        10: (95.51, -84, 0.12, 10.16, 18.67, 0.86, 0.77),
        25: (95.51, -84, 0.15, 10.52, 13.33, 0.86, 0.83),
        50: (95.51, -84, 0.49, 25.32, 24.53, 0.69, 0.7),
        100: (95.76, -59, 0.72, 53.6, 48.8, 0.37, 0.42),
        250: (96.34, -1, 0.76, 62.48, 56.53, 0.27, 0.34),
    },
}
"""Table 3, by data set and mechanism: F1 of use, PP+, cosine, static and adaptive attacker, both gains, by epsilon."""


def reproduced(setup: setups.Setup) -> dict[str, Callable[[], setups.Shown]]:
    """Return a function for each table, by its name."""
    tables: dict[str, Callable[[], setups.Shown]] = {"1": partial(_glue, setup), "2": partial(_rivals, setup)}
    tables["figure-2"] = partial(_losses, setup)
    tables |= {f"3-{name}": partial(_privacy, setup, name) for name in ("trustpilot", "yelp")}
    return {**tables, "4": partial(_added, setup)}


def _mechanism(
    setup: setups.Setup, name: str, epsilon: float, way: str = "mechanism", *, table: str = "1", **more: Any
) -> Any:
    """Return DP-MLM as the paper runs it, or ("second") in the mode that a release uses, or a rival.

    A rival generates as many tokens as the longest input allows, as its code does.
    """
    if name == "DP-MLM":
        kind: Any = load("dpmlm")
        settings = {key: value for key, value in setup.settings["table"][table][way].items() if key != "name"}
        return kind(epsilon=epsilon, model=setup.weights("roberta-base", "english-small"), **settings, **more)
    given, ours, loaded = {
        "DP-Paraphrase": ("gpt2-paraphraser", "english-paraphraser", "dp_paraphrase"),
        "DP-Prompt": ("flan-t5-base", "english-denoiser", "dp_prompt"),
    }[name]
    kind = load(loaded)
    mode = setup.settings["table"]["2"]["mechanism"]["mode"]
    return kind(epsilon=epsilon, model=setup.weights(given, ours), mode=mode)


MODES = (("faithful", "mechanism"), ("strict", "second"))


@cache
def _released(setup: setups.Setup, name: str, mechanism: str, epsilon: float, way: str) -> Any:
    """Return training and test rows of a set as they are released."""
    by = _mechanism(setup, mechanism, epsilon, way)
    return tuple(setups.rewrite(by, part) for part in setup.task(name, slow=True).texts)


def _glue(setup: setups.Setup) -> setups.Shown:
    """Run both modes: a cell has the printed figure, the paper's mode, and strict mode."""
    rows = []
    for at, name in enumerate(TASKS):
        measures = ("Pearson", "Spearman") if name in setups.NUMBERS else ("accuracy",)
        here: dict[float, list[list[float]]] = {}
        if setup.is_here(name):
            task = setup.task(name, slow=True)
            here[0] = [setups.figures(setup, task, *task.texts, measures=measures)]
            for epsilon in setup.budgets("1"):
                both = [_released(setup, name, "DP-MLM", float(epsilon), way) for _, way in MODES]
                here[epsilon] = [setups.figures(setup, task, *parts, measures=measures) for parts in both]
        for number, measure in enumerate(measures):
            cells = [_pair(row[at], here.get(epsilon), number) for epsilon, row in GLUE.items()]
            rows.append([setup.title(name) + ("" if len(measures) == 1 else f", {measure}"), *cells])
    head = ["task", "raw texts", *(f"ε = {epsilon}" for epsilon in GLUE if epsilon)]
    title = "Table 1: accuracy, DP-MLM; printed / faithful, sequential / strict, parallel"
    return setups.Shown(title, head, rows, "1")


def _pair(printed: float, here: list[list[float]] | None, number: int) -> str:
    first, *more = [None] if here is None else [values[number] for values in here]
    return " / ".join([setups.cell(printed, first, 1), *(f"{value:.1f}" for value in more)])


def _compared(setup: setups.Setup, name: str, mechanism: str, epsilon: float, way: str) -> tuple[float, float, float]:
    """Return BLEU, the cosine, and the accuracy of a mechanism on a task."""
    task, (train, test) = setup.task(name, slow=True), _released(setup, name, mechanism, epsilon, way)
    raw = task.texts[1]
    return setups.bleu(raw, test), setups.cosine(setup, raw, test), setups.figure(setup, task, train, test)


def _rivals(setup: setups.Setup) -> setups.Shown:
    rows = []
    for (name, mechanism), printed in RIVALS.items():
        for epsilon in setup.budgets("2"):
            for word, way in MODES if mechanism == "DP-MLM" else (("", "mechanism"),):
                here = _compared(setup, name, mechanism, float(epsilon), way)
                cells = map(setups.cell, printed[int(epsilon)], here, (2, 2, 1))
                rows.append([setup.title(name), f"{mechanism}, {word}".removesuffix(", "), f"{epsilon:g}", *cells])
    head = ["task", "mechanism", "ε", "BLEU", "cosine", "accuracy"]
    return setups.Shown("Table 2: three mechanisms", head, rows, "2")


def _losses(setup: setups.Setup) -> setups.Shown:
    """Draw Figure 2 as a table: the accuracy from raw texts less the accuracy from releases, a mean over four tasks."""
    rows, names = [], sorted({name for name, _ in RIVALS})
    for mechanism in ("DP-MLM", "DP-Paraphrase", "DP-Prompt"):
        for epsilon in setup.budgets("Figure 2"):
            printed, here = [], []
            for name in names:
                task = setup.task(name, slow=True)
                train, test = _released(setup, name, mechanism, float(epsilon), "mechanism")
                raw, after = setups.figure(setup, task, *task.texts), setups.figure(setup, task, train, test)
                here.append(raw - after)
                printed.append(GLUE[0][TASKS.index(name)] - RIVALS[name, mechanism][int(epsilon)][2])
            rows.append([mechanism, f"{epsilon:g}", setups.cell(fmean(printed), fmean(here), 1)])
    title = "Figure 2: mean loss of accuracy over four tasks; the paper's are computed from its Table 2"
    return setups.Shown(title, ["mechanism", "ε", "loss"], rows, "Figure 2")


FIGURES = ("use, F1", "use, accuracy", "PP+", "cosine", "attacker, static", "attacker, adaptive")
HEAD = (*FIGURES, "gain, static", "gain, adaptive")


@cache
def _from_raw(setup: setups.Setup, name: str) -> tuple[float, float]:
    """Return F1 of use and the accuracy of an attacker, from raw texts."""
    task = setup.task(name, slow=True)
    use, *_ = setups.figures(setup, task, *task.texts, measures=("F1",))
    return use, setups.figure(setup, task, *task.texts, secret=True)


def _attacked(setup: setups.Setup, name: str, released: Any, printed: Sequence[float]) -> list[str]:
    """Return the cells of a row. F1 is of the most frequent class; an attacker's accuracy is its micro-F1."""
    task, (train, test) = setup.task(name, slow=True), released
    use, accuracy = setups.figures(setup, task, train, test, measures=("F1", "accuracy"))
    attackers = [setups.figure(setup, task, taught, test, secret=True) for taught in (task.texts[0], train)]
    gains = [setups.gain(use, attacker, _from_raw(setup, name)) for attacker in attackers]
    above = 100 * (use - setups.guessing(task, f1=True))
    here = (use, accuracy, above, setups.cosine(setup, task.texts[1], test), *attackers, *gains)
    return list(map(setups.cell, (printed[0], None, *printed[1:]), here, (1, 1, 0, 2, 1, 1, 2, 2)))


def _privacy(setup: setups.Setup, name: str) -> setups.Shown:
    rows = []
    for (owner, mechanism), printed in PRIVACY.items():
        for epsilon in setup.budgets("3") if owner == name else ():
            released = _released(setup, name, mechanism, float(epsilon), "mechanism")
            rows.append([mechanism, f"{epsilon:g}", *_attacked(setup, name, released, printed[int(epsilon)])])
    return setups.Shown(f"Table 3: {setup.title(name)}", ["mechanism", "ε", *HEAD], rows, "3")


def _added(setup: setups.Setup) -> setups.Shown:
    task, rows = setup.task("trustpilot", slow=True), []
    for (epsilon, addition), printed in LONGER.items():
        if epsilon not in setup.budgets("4") or addition not in setup.settings["table"]["4"]["additions"]:
            continue
        by = _mechanism(setup, "DP-MLM", float(epsilon), table="4", addition=addition)
        released = tuple(setups.rewrite(by, part) for part in task.texts)
        rows.append([f"{epsilon}", f"{addition:g}", *_attacked(setup, "trustpilot", released, printed)])
    title = f"Table 4: words added, {setup.title('trustpilot')}"
    return setups.Shown(title, ["ε", "addition", *HEAD], rows, "4")
