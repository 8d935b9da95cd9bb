"""Set the figures of paper 003 (DP-BART, Igamberdiev and Habernal 2023) next to our figures."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl

from dptext_etl import load
from frontier import setups
from frontier.data import ROOT
from frontier.plan import SHIPPED

BUDGETS = (2500, 1000, 750, 500, 250, 100, 50, 10)
SETS = {
    "Snips": {
        "PR+": (0.85, 0.80, 0.73, 0.65, 0.60, 0.05, 0.05, 0.05),
        "PR": (0.88, 0.50, 0.44, 0.39, 0.08, 0.08, 0.08, 0.08),
        "CLV": (0.22, 0.12, 0.11, 0.11, 0.11, 0.08, 0.13, 0.10),
        "ADePT": (0.24, 0.13, 0.16, 0.14, 0.10, 0.08, 0.09, 0.05),
    },
    "ATIS": {
        "PR+": (0.13, 0.13, 0.11, 0.08, 0.08, 0.06, 0.06, 0.07),
        "PR": (0.14, 0.08, 0.08, 0.08, 0.08, 0.08, 0.08, 0.08),
        "CLV": (0.09, 0.09, 0.08, 0.08, 0.09, 0.08, 0.08, 0.08),
        "ADePT": (0.09, 0.09, 0.08, 0.09, 0.08, 0.08, 0.08, 0.09),
    },
}
"""Table 5, macro-F1 by data set and mechanism, at `BUDGETS`."""


FIGURES = {
    "snips": {name: dict(zip(BUDGETS, row, strict=True)) for name, row in SETS["Snips"].items()},
    "atis": {name: dict(zip(BUDGETS, row, strict=True)) for name, row in SETS["ATIS"].items()},
    "imdb": {
        "PR+": dict(zip(BUDGETS, (0.63, 0.60, 0.58, 0.53, 0.55, 0.38, 0.40, 0.41), strict=True)),
        "PR": dict(zip(BUDGETS, (0.64, 0.47, 0.47, 0.45, 0.46, 0.43, 0.45, 0.45), strict=True)),
        "CLV": dict(zip(BUDGETS, (0.42, 0.40, 0.47, 0.43, 0.43, 0.45, 0.46, 0.46), strict=True)),
        "ADePT": dict(zip(BUDGETS, (0.49, 0.49, 0.43, 0.44, 0.46, 0.46, 0.43, 0.44), strict=True)),
    },
    "drugs": {
        "PR+": dict(zip(BUDGETS, (0.38, 0.39, 0.37, 0.37, 0.37, 0.37, 0.37, 0.37), strict=True)),
        "PR": dict(zip(BUDGETS, (0.62, 0.37, 0.37, 0.37, 0.37, 0.37, 0.37, 0.37), strict=True)),
        "CLV": dict.fromkeys(BUDGETS, 0.37),
        "ADePT": dict.fromkeys(BUDGETS, 0.37),
    },
}
"""Table 5, macro-F1 on raw test texts, by data set, mechanism, and epsilon."""
RAW = {"snips": 0.98, "atis": 0.89, "imdb": 0.86, "drugs": 0.78}
GIVEN = {"CLV": "bart-base", "PR": "bart-base-pr", "PR+": "bart-base-pr-plus", "ADePT": "adept"}
"""Folders of given weights."""
OURS = {"CLV": "english-autoencoder", "ADePT": "english-lstm"}


def reproduced(setup: setups.Setup) -> dict[str, Callable[[], setups.Shown]]:
    """Return a function for each table, by its name."""
    return {f"5-{name}": partial(_table_5, setup, name) for name in FIGURES}


def _latent(setup: setups.Setup, line: str, epsilon: float, name: str) -> Any:
    """Return a mechanism of the paper, with its delta for a data set."""
    folder = setup.weights(GIVEN[line], OURS.get(line, "")) or _pruned(setup, line)
    delta = setup.settings["delta"][name]
    common: dict[str, Any] = {"epsilon": epsilon, "model": folder, "mode": "faithful", "delta": delta}
    if line == "ADePT":
        kind: Any = load("adept")
        return kind(**common | {"model": folder if setup.has("adept") else str(SHIPPED / folder)})
    kind = load("dpbart")
    return kind(variant={"CLV": "clv", "PR": "pr", "PR+": "pr_plus"}[line], num_beams=BEAMS, **common)


def _pruned(setup: setups.Setup, line: str) -> str:
    """Prune a BART model on public texts, for PR+ also under noise; it is kept in target/."""
    base, steps, minutes = setup.weights("bart-base", OURS["CLV"]), setup.sizes["steps"], setup.sizes["minutes"]
    asked = json.dumps([base, steps, minutes, setup.sizes["words"], str(setup.tables), str(setup.data)])
    work = ROOT / "target" / "paper-003" / hashlib.sha256(asked.encode()).hexdigest()[:16]
    work.mkdir(parents=True, exist_ok=True)
    pl.DataFrame({"text": setup.public("imdb_unsup", 3_000)}).write_parquet(work / "public.parquet")
    more = ["--corpus", str(work / "public.parquet"), "--scale", "small", "--texts", "3000"]
    pruned, noisy = work / GIVEN["PR"], work / GIVEN["PR+"]
    first = ["dpbart-prune", "--model", base, *more, "--stages", "3", "--steps", str(steps), "--out", str(pruned)]
    second = ["dpbart-noise", "--model", str(pruned), *more, "--epsilon", "2500", "--epochs", "1", "--out", str(noisy)]
    second += ["--minutes", str(minutes)] if minutes else []
    for words, folder in ((first, pruned), (second, noisy)):
        if not (folder / "training.json").is_file():
            subprocess.run([sys.executable, "-m", "dptext_etl.cli", "train", *words], check=True)
    return str(pruned if line == "PR" else noisy)


BEAMS = 10
"""Appendix I."""


def _table_5(setup: setups.Setup, name: str) -> setups.Shown:
    few = setup.budgets("5")
    task, rows = setup.task(name, slow=True), []
    raw = setups.figure(setup, task, *task.texts, macro=True) / 100
    for line, printed in FIGURES[name].items():
        here: dict[float, float] = {}
        for epsilon in few:
            mechanism = _latent(setup, line, float(epsilon), name)
            train = setups.rewrite(mechanism, task.texts[0])
            here[epsilon] = setups.figure(setup, task, train, task.texts[1], macro=True) / 100
        rows.append([line, *(setups.cell(printed[int(at)], here.get(at)) for at in few)])
    head = ["mechanism", *(f"ε = {epsilon:,}" for epsilon in few)]
    title = f"Table 5: {setup.title(name)}, macro-F1; raw texts {setups.cell(RAW[name], raw)}"
    return setups.Shown(title, head, rows, "5")
