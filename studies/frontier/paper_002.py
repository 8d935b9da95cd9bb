"""Run the table of paper 002 (Meisenbacher and Matthes 2024): rewriting what DP-BART and DP-Prompt released."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from rewriting_again import MODEL, TEMPLATE, rewritten

from dptext_etl import load
from frontier import setups
from frontier.plan import SHIPPED

AS_RELEASED, BASIC, ADVANCED = "rewritten", "T", "T++"
PRINTED = {
    "yelp": {
        ("DP-BART", 625): ((25.72, 50.12, 0.31), (18.96, 26.28, 0.31), (25.20, 33.62, 0.42)),
        ("DP-BART", 1875): ((22.02, 70.91, 0.57), (27.11, 39.34, 0.50), (40.29, 48.11, 0.53)),
        ("DP-Prompt", 137): ((17.92, 18.84, 0.23), (10.86, 17.57, 0.19), (9.42, 17.57, 0.38)),
        ("DP-Prompt", 206): ((19.71, 19.23, 0.44), (13.47, 17.59, 0.41), (12.95, 17.57, 0.48)),
    },
    "trustpilot": {
        ("DP-BART", 625): ((60.39, 60.03, 0.36), (55.99, 58.51, 0.28), (55.17, 59.38, 0.42)),
        ("DP-BART", 1875): ((59.38, 65.04, 0.62), (59.48, 61.47, 0.51), (60.90, 60.88, 0.58)),
        ("DP-Prompt", 137): ((58.53, 58.08, 0.22), (54.49, 58.10, 0.16), (49.61, 58.09, 0.36)),
        ("DP-Prompt", 206): ((61.99, 60.37, 0.43), (56.63, 59.91, 0.33), (54.73, 60.30, 0.45)),
    },
}
"""Table 1: static attacker, adaptive attacker, and cosine, as released, written anew by T, and by T++."""
RAW = {"yelp": 95.32, "trustpilot": 73.23}
DOMAIN = {"yelp": "imdb_unsup", "trustpilot": "imdb_unsup"}
"""Included reviews that play the data's own domain, unless a table `yelp_domain` or `trustpilot_domain` is given."""


def reproduced(setup: setups.Setup) -> dict[str, Callable[[], setups.Shown]]:
    """Return a function for each table, by its name."""
    return {f"1-{name}": partial(_table_1, setup, name) for name in PRINTED}


def _mechanism(setup: setups.Setup, name: str, epsilon: float) -> dict[str, Any]:
    """Return the mechanism of a row as a policy writes it."""
    if name == "DP-BART":
        model = setup.weights("bart-base", "english-autoencoder")
        return {"name": "dpbart", "epsilon": epsilon, "model": model, "mode": "faithful", "length": setup.length()}
    model = setup.weights("flan-t5-large", str(SHIPPED / "english-denoiser"))
    return {"name": "dp_prompt", "epsilon": epsilon, "model": model, "mode": "faithful"}


def _table_1(setup: setups.Setup, name: str) -> setups.Shown:
    task, rows = setup.task(name, slow=True), []
    raw = setups.figure(setup, task, *task.texts, secret=True)
    for (mechanism, epsilon), printed in PRINTED[name].items():
        if epsilon not in setup.budgets("1"):
            continue
        given = _mechanism(setup, mechanism, float(epsilon))
        kind: Any = load(given["name"])
        made = kind(**{key: value for key, value in given.items() if key != "name"})
        first = tuple(setups.rewrite(made, part) for part in task.texts)
        with tempfile.TemporaryDirectory(prefix="dptext-rewriter-") as room:
            basic, advanced = rewriters(setup, given, name, Path(room))
            for values, way, model in zip(
                printed, (AS_RELEASED, BASIC, ADVANCED), (None, basic, advanced), strict=True
            ):
                train, test = first if model is None else (anew(setup, model, part) for part in first)
                attacks = [
                    setups.figure(setup, task, learned_from, test, secret=True)
                    for learned_from in (task.texts[0], train)
                ]
                here = (*attacks, setups.cosine(setup, task.texts[1], test))
                rows.append([mechanism, f"{epsilon:,}", way, *map(setups.cell, values, here, (1, 1, 2))])
    title = f"Table 1: {setup.title(name)}; attacker on raw texts {setups.cell(RAW[name], raw, 1)}"
    head = ["mechanism", "ε", "text", "attacker, static", "attacker, adaptive", "cosine"]
    return setups.Shown(title, head, rows, "1")


def anew(setup: setups.Setup, model: str, rows: setups.Rows) -> setups.Rows:
    """Write released texts anew, as long as the classifier reads where the size does not cut."""
    longest = {} if setup.sizes["words"] else {"tokens": setup.settings["longest"]}
    return [(text,) for text in rewritten(model, [row[0] for row in rows], **longest)]


def rewriters(setup: setups.Setup, mechanism: dict[str, Any], name: str, room: Path) -> tuple[str, str]:
    """Train T on public texts that the mechanism privatized, and T++ from T on texts of the data's own domain."""
    rewriter = setup.settings["rewriter"]
    count = max(16, int((setup.sizes["rows"] or rewriter["texts"]) * setup.sizes["slow"]))
    own = f"{name}_domain"
    domain = own if setup.given(own) else DOMAIN[name]
    base = setup.weights(rewriter["base"], MODEL)
    folders = []
    for stage, corpus in (("T", "c4" if setup.given("c4") else "wiki_en"), ("T-plus-plus", domain)):
        base = _trained(setup, mechanism, base, setup.public(corpus, count), room / stage)
        folders.append(base)
    return folders[0], folders[1]


def _trained(setup: setups.Setup, mechanism: dict[str, Any], base: str, texts: list[str], room: Path) -> str:
    """Run `dptext train rewriter`, and return the folder of the model."""
    room.mkdir()
    pl.DataFrame({"text": texts}).write_parquet(room / "public.parquet")
    entries = "\n".join(f"{name} = {json.dumps(value)}" for name, value in mechanism.items())
    (room / "policy.toml").write_text(POLICY + entries + "\n", encoding="utf-8")
    rewriter = setup.settings["rewriter"]
    words = ["rewriter", str(room / "policy.toml"), "--corpus", str(room / "public.parquet"), "--base", base]
    words += [
        "--out",
        str(room / "model"),
        "--texts",
        str(len(texts)),
        "--epochs",
        "1",
        "--rate",
        str(rewriter["rate"]),
    ]
    words += ["--rows", str(rewriter["batch"]), "--template", TEMPLATE, "--seed", str(setup.seed)]
    if not setup.sizes["words"]:
        words += ["--words", str(setup.settings["longest"]), "--longest", str(setup.settings["longest"])]
    setups.train(words)
    return str(room / "model")


POLICY = """\
dataset = "paper-002"
release = "public texts"
source = "unused.parquet"
sink = "unused"
id = "id"
unit = "record"
publish = false
key = "env:DPTEXT_STUDY_SECRET"
ledger = { url = "ledger.db" }
[[column]]
name = "text"
[column.mechanism]
"""
