"""Set the tables of paper 004 (CusText, Chen et al. 2023) next to our figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dptext_etl import load
from dptext_etl.embeddings import DEFAULT_VECTORS
from dptext_etl_eval.attacks.query import LIMIT as MOST
from dptext_etl_eval.attacks.query import queries_needed
from frontier import setups

UTILITY: dict[str, dict[str, tuple[float, ...] | None]] = {
    "sst2": {
        "random": (0.5014, 0.5014, 0.5014),
        "MADLIB (FBDD)": (0.5022, 0.5041, 0.5032),
        "SanText": (0.5014, 0.4827, 0.5091),
        "CusText": (0.6985, 0.7172, 0.7029),
        "SanText+": (0.7211, 0.7446, 0.7260),
        "CusText+": (0.7501, 0.7452, 0.7683),
    },
    "qnli_dev": {
        "random": (0.5037, 0.5037, 0.5037),
        "MADLIB (FBDD)": (0.5021, 0.5152, 0.5368),
        "SanText": (0.5304, 0.5302, 0.5357),
        "CusText": (0.6926, 0.6884, 0.7133),
        "SanText+": (0.7607, 0.7636, 0.7493),
        "CusText+": (0.7528, 0.7602, 0.7740),
    },
    "medsts": {
        "random": None,
        "MADLIB (FBDD)": (0.0321, 0.0368, 0.0411),
        "SanText": (0.0850, 0.1673, 0.1124),
        "CusText": (0.4957, 0.5112, 0.5242),
        "SanText+": (0.4143, 0.4271, 0.5423),
        "CusText+": (0.6172, 0.6316, 0.6213),
    },
}
"""Table 1, accuracy (medsts: Pearson) at epsilon 1, 2, and 3. The paper's guess on medsts, 0.0382, is not a class."""
RAW: dict[str, float | None] = {"sst2": 0.9050, "qnli_dev": 0.9096, "medsts": 0.7598}
QUERIES: dict[str, dict[str, tuple[float, ...]]] = {
    "SanText": {
        "she": (2_350, 35, 4),
        "car": (1_300, 14, 1),
        "alice": (1_550, 20, 3),
        "happy": (3_200, 55, 4),
        "accuracy": (0.4959, 0.5799, 0.7958),
    },
    "CusText, GloVe": {
        "she": (1_000, 200, 80, 5),
        "car": (1_220, 250, 90, 6),
        "alice": (1_190, 240, 100, 6),
        "happy": (1_490, 290, 110, 8),
        "accuracy": (0.6985, 0.7172, 0.7029, 0.8155),
    },
    "CusText, counter-fitted": {
        "she": (5_500, 1_000, 320, 4),
        "car": (420_000, 90_000, 31_000, 3_200),
        "alice": (1_700, 360, 120, 9),
        "happy": (320_000, 55_000, 21_500, 1_500),
        "accuracy": (0.7117, 0.7370, 0.7298, 0.7957),
    },
}
"""Table 2: queries that reveal a word, and accuracy on SST-2, at epsilon 1, 2, 3, and (CusText) 8."""


def reproduced(setup: setups.Setup) -> dict[str, Callable[[], setups.Shown]]:
    """Return a function for each table, by its name."""
    tables: dict[str, Callable[[], setups.Shown]] = {f"1-{name}": partial(_utility, setup, name) for name in UTILITY}
    tables |= {f"2-{name}": partial(_queries, setup, name) for name in QUERIES}
    return {**tables, "figure-4": partial(_inferred, setup), "figure-5": partial(_customization, setup)}


def _glove(setup: setups.Setup) -> str:
    """Return given GloVe vectors, or vectors of the data folder (50 dimensions, 5,000 words), or the included ones."""
    return setup.weights("glove.npz", setup.file("word_vectors", "glove6b_50d_5k.npz") or DEFAULT_VECTORS)


def _counterfitted(setup: setups.Setup) -> str:
    ours = setup.file("word_vectors", "counterfit_300d_30k.npz") or DEFAULT_VECTORS
    return setup.weights("counter-fitted.npz", ours)


def _limit(setup: setups.Setup) -> dict[str, int]:
    """Return the size's limit of the vocabulary of mechanisms with distances between all words."""
    return {"limit": setup.sizes["vocabulary"]} if setup.sizes["vocabulary"] else {}


def _word(setup: setups.Setup, name: str, epsilon: float) -> Any:
    """Return a mechanism of Table 1, at an epsilon between the farthest words as the paper scales it."""
    vectors = _glove(setup)
    if name.startswith("CusText"):
        kind: Any = load("custext")
        return kind(epsilon=epsilon, variant="plus" if "+" in name else "plain", vectors=vectors, mode="faithful")
    kind = load("madlib" if name == "MADLIB (FBDD)" else "santext")
    limit = _limit(setup)
    if name == "MADLIB (FBDD)":
        return kind.aligned(epsilon, vectors=vectors, mode="faithful", **limit)
    return kind.aligned(epsilon, vectors=vectors, **limit).model_copy(
        update={"variant": "plus" if "+" in name else "plain", "mode": "faithful"}
    )


def _utility(setup: setups.Setup, name: str) -> setups.Shown:
    task, rows = setup.task(name), []
    for mechanism, printed in UTILITY[name].items():
        here: list[float | None] = []
        for epsilon in map(float, setup.budgets("1")):
            if mechanism == "random":
                here.append(None if task.numbers else setups.guessing(task) / 100)
                continue
            train, test = (setups.rewrite(_word(setup, mechanism, epsilon), part) for part in task.texts)
            here.append(setups.figure(setup, task, train, test) / 100)
        rows.append([mechanism, *map(setups.cell, printed or (None,) * 3, here, (3,) * 3)])
    raw = setups.cell(RAW[name], setups.figure(setup, task, *task.texts) / 100, 3)
    title = f"Table 1: {setup.title(name)}, accuracy; raw texts {raw}"
    return setups.Shown(title, ["mechanism", "ε = 1", "ε = 2", "ε = 3"], rows, "1")


def _attacked(setup: setups.Setup, name: str, epsilon: float, **more: Any) -> Any:
    """Return a mechanism of Table 2 and of the figures; SanText's epsilon is per unit of distance there."""
    if name == "SanText":
        kind: Any = load("santext")
        return kind(epsilon=epsilon, vectors=_glove(setup), mode="faithful", **_limit(setup))
    kind = load("custext")
    near = {"vectors": _glove(setup)}
    near = near if name == "CusText, GloVe" else {"vectors": _counterfitted(setup), "metric": "cosine"}
    return kind(epsilon=epsilon, mode="faithful", **near, **more)


def _queries(setup: setups.Setup, name: str) -> setups.Shown:
    """Count the queries that reveal a word with confidence 95%, and learn from releases."""
    task, budgets = setup.task("sst2"), (1.0, 2.0, 3.0, 8.0)[: 3 if name == "SanText" else 4]
    made = {epsilon: _attacked(setup, name, epsilon) for epsilon in budgets}
    rows = []
    for word, printed in QUERIES[name].items():
        cells = []
        for value, mechanism in zip(printed, made.values(), strict=True):
            if word == "accuracy":
                train, test = (setups.rewrite(mechanism, part) for part in task.texts)
                cells.append(setups.cell(value, setups.figure(setup, task, train, test) / 100, 3))
                continue
            known = word in mechanism.input_words()
            attack = queries_needed(mechanism, word, repeats=setup.sizes["attacks"]) if known else None
            if attack is not None and attack.queries is None:
                cells.append(f"{value:,.0f} / above {MOST:,}")
                continue
            cells.append(setups.cell(value, None if attack is None else attack.queries, 0))
        rows.append([word, *cells])
    return setups.Shown(f"Table 2: queries, {name}", ["word", *(f"ε = {at:g}" for at in budgets)], rows, "2")


def _traded(setup: setups.Setup, mechanism: Any) -> list[str]:
    """Return privacy (1 less the share of masked words inferred) and accuracy on SST-2."""
    task = setup.task("sst2")
    train, test = (setups.rewrite(mechanism, part) for part in task.texts)
    hit, accuracy = setups.inferred(setup, task.texts[1], test)["seq1"], setups.figure(setup, task, train, test) / 100
    return [f"{1 - hit:.3f}", f"{accuracy:.3f}"]


def _inferred(setup: setups.Setup) -> setups.Shown:
    """Draw Figure 4 as a table."""
    rows = [
        [name, f"{epsilon:g}", *_traded(setup, _attacked(setup, name, float(epsilon)))]
        for name in QUERIES
        for epsilon in setup.budgets("Figure 4")
    ]
    title = "Figure 4 (here only; the paper draws it)"
    return setups.Shown(title, ["mechanism", "ε", "privacy", "accuracy"], rows, "Figure 4")


def _customization(setup: setups.Setup) -> setups.Shown:
    """Draw Figure 5 as a table, for each K."""
    rows = [
        [str(k), f"{epsilon:g}", *_traded(setup, _attacked(setup, "CusText, counter-fitted", float(epsilon), k=k))]
        for k in setup.settings["table"]["Figure 5"]["k"]
        for epsilon in setup.budgets("Figure 5")
    ]
    return setups.Shown("Figure 5 (here only; the paper draws it)", ["K", "ε", "privacy", "accuracy"], rows, "Figure 5")
