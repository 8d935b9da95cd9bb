"""Set the tables of paper 000 (DP-MLM, Meisenbacher et al. 2024) next to our figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dptext_etl import load
from dptext_etl.mechanism import Mechanism
from frontier import setups

LONGER = {
    (25, 0.1): (97.22, 41.36, 60.94, 0.38, 0.10),
    (25, 0.25): (97.57, 41.58, 61.23, 0.38, 0.10),
    (50, 0.1): (98.95, 35.61, 68.60, 0.48, 0.01),
    (50, 0.25): (98.94, 34.30, 66.12, 0.50, 0.04),
    (100, 0.1): (98.95, 34.74, 66.37, 0.49, 0.04),
    (100, 0.25): (99.29, 33.10, 67.43, 0.52, 0.03),
}
"""Table 4, Trustpilot, by epsilon and probability of addition: F1 of use, of both attackers, and both gains."""


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
    ("cola", "DP-MLM"): {10: (0.08, 0.16, 69.13), 50: (0.25, 0.64, 70.85), 250: (0.29, 0.70, 70.18)},
    ("cola", "DP-Paraphrase"): {10: (0.0, 0.26, 69.13), 50: (0.0, 0.28, 69.13), 250: (0.07, 0.43, 69.20)},
    ("cola", "DP-Prompt"): {10: (0.0, 0.04, 69.13), 50: (0.29, 0.71, 67.59), 250: (0.76, 0.95, 74.50)},
    ("sst2", "DP-MLM"): {10: (0.08, 0.17, 68.50), 50: (0.19, 0.61, 84.10), 250: (0.23, 0.67, 86.05)},
    ("sst2", "DP-Paraphrase"): {10: (0.0, 0.26, 58.60), 50: (0.0, 0.27, 61.66), 250: (0.05, 0.37, 67.81)},
    ("sst2", "DP-Prompt"): {10: (0.0, 0.07, 50.92), 50: (0.02, 0.36, 70.84), 250: (0.15, 0.65, 85.17)},
    ("mrpc", "DP-MLM"): {10: (0.05, 0.12, 71.32), 50: (0.17, 0.61, 75.25), 250: (0.21, 0.68, 76.39)},
    ("mrpc", "DP-Paraphrase"): {10: (0.0, 0.26, 68.38), 50: (0.0, 0.28, 68.38), 250: (0.05, 0.38, 68.95)},
    ("mrpc", "DP-Prompt"): {10: (0.0, 0.04, 68.38), 50: (0.05, 0.48, 71.10), 250: (0.37, 0.82, 71.24)},
    ("rte", "DP-MLM"): {10: (0.04, 0.10, 51.50), 50: (0.17, 0.61, 52.47), 250: (0.21, 0.66, 51.38)},
    ("rte", "DP-Paraphrase"): {10: (0.0, 0.27, 53.79), 50: (0.0, 0.29, 50.78), 250: (0.08, 0.43, 49.10)},
    ("rte", "DP-Prompt"): {10: (0.0, 0.05, 51.14), 50: (0.27, 0.71, 49.82), 250: (0.68, 0.94, 59.21)},
}
"""Table 2, by task and mechanism: BLEU, cosine, and accuracy, by epsilon."""
PRIVACY = {
    "trustpilot": {
        10: (97.30, 59.74, 58.50, 0.12, 0.14),
        50: (98.89, 68.58, 66.73, 0.01, 0.03),
        250: (99.24, 70.92, 66.33, -0.02, 0.04),
    },
    "yelp": {
        10: (95.51, 13.72, 62.40, 0.82, 0.26),
        50: (96.64, 47.24, 73.87, 0.45, 0.14),
        250: (96.47, 50.76, 74.13, 0.41, 0.14),
    },
}
"""Table 3, DP-MLM: use, static and adaptive attacker, and both gains, by data set and epsilon."""


def reproduced(setup: setups.Setup) -> dict[str, Callable[[], setups.Shown]]:
    """Return a function for each table, by its name."""
    tables: dict[str, Callable[[], setups.Shown]] = {"1": partial(_glue, setup), "2": partial(_rivals, setup)}
    tables |= {f"3-{name}": partial(_privacy, setup, name) for name in PRIVACY}
    return {**tables, "4": partial(_added, setup)}


def _dpmlm(setup: setups.Setup, epsilon: float, way: str = "mechanism", **more: Any) -> Any:
    """Return DP-MLM as the paper runs it, or ("second") in the mode that a release uses."""
    kind: Any = load("dpmlm")
    settings = {name: value for name, value in setup.settings["table"]["1"][way].items() if name != "name"}
    return kind(epsilon=epsilon, model=setup.weights("roberta-base", "english-small"), **settings, **more)


def _generative(setup: setups.Setup, name: str, epsilon: float) -> Any:
    """Return a rival in faithful mode: as many tokens as the longest input allows, as its code generates."""
    given, ours = {
        "DP-Paraphrase": ("gpt2-paraphraser", "english-paraphraser"),
        "DP-Prompt": ("flan-t5-base", "english-denoiser"),
    }[name]
    kind: Any = load("dp_paraphrase" if name == "DP-Paraphrase" else "dp_prompt")
    return kind(epsilon=epsilon, model=setup.weights(given, ours), mode="faithful")


def _glue(setup: setups.Setup) -> setups.Shown:
    """Run both modes: a cell has the printed figure, the paper's mode, and strict mode."""
    rows = []
    for at, name in enumerate(TASKS):
        here: dict[float, list[float]] = {}
        if setup.is_here(name):
            task = setup.task(name)
            here[0] = [setups.figure(setup, task, *task.texts)]
            for epsilon in setup.budgets("1"):
                ways = [_dpmlm(setup, float(epsilon), way) for way in ("mechanism", "second")]
                both = [[setups.rewrite(way, part) for part in task.texts] for way in ways]
                here[epsilon] = [setups.figure(setup, task, *parts) for parts in both]
        rows.append([setup.title(name), *(_pair(row[at], here.get(epsilon)) for epsilon, row in GLUE.items())])
    head = ["task", "raw texts", *(f"ε = {epsilon}" for epsilon in GLUE if epsilon)]
    title = "Table 1: accuracy (stsb: Pearson), DP-MLM; printed / faithful, sequential / strict, parallel"
    return setups.Shown(title, head, rows, "1")


def _pair(printed: float, here: list[float] | None) -> str:
    first, more = (None, []) if here is None else (here[0], here[1:])
    return " / ".join([setups.cell(printed, first, 1), *(f"{value:.1f}" for value in more)])


def _rivals(setup: setups.Setup) -> setups.Shown:
    rows = []
    for (name, mechanism), printed in RIVALS.items():
        task = setup.task(name, slow=True)
        for epsilon in setup.budgets("2"):
            e = float(epsilon)
            ways: list[Any] = [("", _generative(setup, mechanism, e))] if mechanism != "DP-MLM" else []
            if mechanism == "DP-MLM":
                ways = [(f", {word}", _dpmlm(setup, e, way)) for word, way in MODES]
            for word, made in ways:
                train, test = (setups.rewrite(made, part) for part in task.texts)
                here = (
                    setups.bleu(task.texts[1], test),
                    setups.cosine(setup, task.texts[1], test),
                    setups.figure(setup, task, train, test),
                )
                cells = map(setups.cell, printed[int(epsilon)], here, (2, 2, 1))
                rows.append([setup.title(name), mechanism + word, f"{epsilon:g}", *cells])
    head = ["task", "mechanism", "ε", "BLEU", "cosine", "accuracy"]
    return setups.Shown("Table 2: three mechanisms", head, rows, "2")


MODES = (("faithful", "mechanism"), ("strict", "second"))


def _attacked(setup: setups.Setup, task: setups.Task, mechanism: Mechanism) -> tuple[float, float, float, float, float]:
    """Return use, static and adaptive attacker, and both relative gains."""
    train, test = (setups.rewrite(mechanism, part) for part in task.texts)
    use = setups.figure(setup, task, train, test)
    attackers = [setups.figure(setup, task, learned, test, secret=True) for learned in (task.texts[0], train)]
    raw = (setups.figure(setup, task, *task.texts), setups.figure(setup, task, *task.texts, secret=True))
    return use, *attackers, *(setups.gain(use, one_, raw) for one_ in attackers)  # type: ignore[return-value]


def _privacy(setup: setups.Setup, name: str) -> setups.Shown:
    task, rows = setup.task(name), []
    for epsilon, printed in PRIVACY[name].items():
        if epsilon not in setup.budgets("3"):
            continue
        here = _attacked(setup, task, _dpmlm(setup, float(epsilon)))
        rows.append([f"{epsilon}", *map(setups.cell, printed, here, (1, 1, 1, 2, 2))])
    head = ["ε", "use", "attacker, static", "attacker, adaptive", "gain, static", "gain, adaptive"]
    return setups.Shown(f"Table 3: DP-MLM on {setup.title(name)}", head, rows, "3")


def _added(setup: setups.Setup) -> setups.Shown:
    task, rows = setup.task("trustpilot"), []
    for (epsilon, addition), printed in LONGER.items():
        if epsilon not in setup.budgets("4"):
            continue
        made = _dpmlm(setup, float(epsilon), variant="plusminus", addition=addition)
        here = _attacked(setup, task, made)
        rows.append([f"{epsilon}", f"{addition:g}", *map(setups.cell, printed, here, (1, 1, 1, 2, 2))])
    head = ["ε", "addition", "use", "attacker, static", "attacker, adaptive", "gain, static", "gain, adaptive"]
    return setups.Shown(f"Table 4: words added, {setup.title('trustpilot')}", head, rows, "4")
