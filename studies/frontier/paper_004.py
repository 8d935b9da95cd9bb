"""Set the tables of paper 004 (CusText, Chen et al. 2023) next to our figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dptext_etl import load
from dptext_etl.embeddings import DEFAULT_VECTORS
from dptext_etl_eval.attacks.query import queries_needed
from frontier import setups

QUERIES_004 = {
    "she": (5_500, 1_000, 320, 4),
    "car": (420_000, 90_000, 31_000, 3_200),
    "alice": (1_700, 360, 120, 9),
    "happy": (320_000, 55_000, 21_500, 1_500),
}


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
    "mrpc": dict.fromkeys(("random", "MADLIB (FBDD)", "SanText", "CusText", "SanText+", "CusText+")),
}
"""Table 1, accuracy at epsilon 1, 2, and 3; MRPC is not in the paper, its medical set is not public."""
RAW: dict[str, float | None] = {"sst2": 0.9050, "qnli_dev": 0.9096, "mrpc": None}
QUERIES = {
    "GloVe": {
        "she": (1_000, 200, 80, 5),
        "car": (1_220, 250, 90, 6),
        "alice": (1_190, 240, 100, 6),
        "happy": (1_490, 290, 110, 8),
    },
    "counter-fitted": QUERIES_004,
}
"""Table 2, CusText: queries that reveal a word, at epsilon 1, 2, 3, and 8."""
LIMIT = 5_000
"""Words of the vocabulary of mechanisms of noise and distances at small scale."""


def reproduced(setup: setups.Setup) -> dict[str, Callable[[], setups.Shown]]:
    """Return a function for each table, by its name."""
    tables: dict[str, Callable[[], setups.Shown]] = {f"1-{name}": partial(_utility, setup, name) for name in UTILITY}
    tables |= {f"2-{name}": partial(_queries, setup, name) for name in QUERIES}
    return {**tables, "figure-5": partial(_customization, setup)}


def _glove(setup: setups.Setup) -> str:
    """Return given GloVe vectors, or vectors of the data folder (50 dimensions, 5,000 words), or the included ones."""
    given = None if setup.models is None else setup.models / "glove.npz"
    if given is not None and given.is_file():
        return str(given)
    return setup.file("word_vectors", "glove6b_50d_5k.npz") or DEFAULT_VECTORS


def _counterfitted(setup: setups.Setup) -> str:
    return setup.file("word_vectors", "counterfit_300d_30k.npz") or DEFAULT_VECTORS


def _word(setup: setups.Setup, name: str, epsilon: float) -> Any:
    """Return a mechanism of Table 1, at an epsilon between the farthest words as the paper scales it."""
    vectors = _glove(setup)
    if name.startswith("CusText"):
        kind: Any = load("custext")
        return kind(epsilon=epsilon, variant="plus" if "+" in name else "plain", vectors=vectors, mode="faithful")
    kind = load("madlib" if name == "MADLIB (FBDD)" else "santext")
    limit = {} if setup.size == "full" else {"limit": LIMIT}
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
                here.append(setups.guessing(task) / 100)
                continue
            train, test = (setups.rewrite(_word(setup, mechanism, epsilon), part) for part in task.texts)
            here.append(setups.figure(setup, task, train, test) / 100)
        rows.append([mechanism, *map(setups.cell, printed or (None,) * 3, here, (3,) * 3)])
    raw = setups.cell(RAW[name], setups.figure(setup, task, *task.texts) / 100, 3)
    title = f"Table 1: {setup.title(name)}, accuracy; raw texts {raw}"
    return setups.Shown(title, ["mechanism", "ε = 1", "ε = 2", "ε = 3"], rows, "1")


def _queries(setup: setups.Setup, name: str) -> setups.Shown:
    """Count the queries that reveal a word with confidence 95%."""
    kind: Any = load("custext")
    given = {"vectors": _glove(setup)} if name == "GloVe" else {"vectors": _counterfitted(setup), "metric": "cosine"}
    rows = []
    for word, printed in QUERIES[name].items():
        here: list[float | None] = []
        for epsilon in (1.0, 2.0, 3.0, 8.0):
            mechanism = kind(epsilon=epsilon, mode="faithful", **given)
            attack = queries_needed(mechanism, word) if word in mechanism.input_words() else None
            here.append(None if attack is None or attack.queries is None else float(attack.queries))
        rows.append([word, *map(setups.cell, printed, here, (0,) * 4)])
    measure = "Euclidean distance" if name == "GloVe" else "cosine"
    return setups.Shown(
        f"Table 2: queries, CusText, {name}, {measure}", ["word", *(f"ε = {at}" for at in (1, 2, 3, 8))], rows, "2"
    )


def _customization(setup: setups.Setup) -> setups.Shown:
    """Draw Figure 5 as a table: privacy (1 less the share of masked words inferred) and accuracy, for K of 5 to 50."""
    kind: Any = load("custext")
    task, rows = setup.task("sst2"), []
    for k in (5, 20, 50):
        for epsilon in map(float, setup.budgets("Figure 5")):
            made = kind(epsilon=epsilon, k=k, vectors=_counterfitted(setup), metric="cosine", mode="faithful")
            train, test = (setups.rewrite(made, part) for part in task.texts)
            hit = setups.inferred(setup, task.texts[1], test)["seq1"]
            accuracy = setups.figure(setup, task, train, test) / 100
            rows.append([str(k), f"{epsilon:g}", f"{1 - hit:.3f}", f"{accuracy:.3f}"])
    return setups.Shown("Figure 5 (here only; the paper draws it)", ["K", "ε", "privacy", "accuracy"], rows, "Figure 5")
