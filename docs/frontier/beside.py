"""Figures that are no release of a data set: the query attack on single words, and what `make latent-utility` found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from dptext_etl import load
from dptext_etl.evaluation import queries_needed
from frontier.cells import ROOM
from frontier.data import ROOT
from frontier.plan import COUNTERFITTED

WORDS = ("she", "car", "alice", "happy", "good", "bad", "film", "people", "doctor")
"""The four words of paper 004 and five more."""
EPSILONS = (1.0, 2.0, 3.0, 8.0)
LATENT = ROOT / "docs" / "latent-utility.md"
LATENT_SETS = {"Snips": "Snips, as paper 003", "ATIS": "ATIS, as paper 003"}


def queries() -> Iterator[dict[str, Any]]:
    """Yield how many draws of a word reveal it, under CusText with counter-fitted vectors; 0 for never."""
    path = ROOM / "queries.json"
    kept: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for epsilon in EPSILONS:
        for word in WORDS:
            name = f"{word} {epsilon:g}"
            if name not in kept:
                mechanism = load("custext")(epsilon=epsilon, vectors=COUNTERFITTED)  # type: ignore[call-arg]
                found = queries_needed(mechanism, word)  # type: ignore[arg-type]
                kept[name] = [found.queries or 0, found.stays]
            common = {
                "dataset": "single words",
                "mechanism": "custext",
                "variant": "counter-fitted",
                "epsilon": epsilon,
            }
            common |= {"reading": "per word, within its output set", "epsilon_per_text": epsilon, "delta": 0.0}
            common |= {"guarantee": "COND_PURE", "discloses": "cluster, length, nullness", "kind": "learnt"}
            for figure, value in (("draws that reveal it", kept[name][0]), ("stays", round(kept[name][1], 5))):
                yield {**common, "measure": "query_attack", "figure": f"{word}: {figure}", "value": float(value)}
    ROOM.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept), encoding="utf-8")


def latents() -> Iterator[dict[str, Any]]:
    """Yield the figures of `docs/latent-utility.md`: models that it trained, at paper 003's budgets."""
    variants = {
        "DP-BART-PR+": ("dpbart", "PR+"),
        "DP-BART-PR": ("dpbart", "PR"),
        "DP-BART-CLV": ("dpbart", "CLV"),
        "ADePT": ("adept", ""),
    }
    for title, part in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", LATENT.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")
        ]
        raw = next((float(row[3]) for row in rows if row[1] == "original texts"), None)
        for epsilon, name, bleu, f1 in (row for row in rows if row[1] in variants and title in LATENT_SETS):
            mechanism, variant = variants[name]
            budget = float("inf") if epsilon == "∞" else float(epsilon)
            common = {"dataset": LATENT_SETS[title], "mechanism": mechanism, "variant": variant, "epsilon": budget}
            common |= {"reading": "per text, with δ", "epsilon_per_text": budget, "delta": 1e-6, "n": 500}
            common |= {"guarantee": "APPROX_LDP", "discloses": "nullness", "kind": "kept", "measure": "latent_utility"}
            yield {**common, "figure": "BLEU, 0 to 100", "value": float(bleu)}
            yield {**common, "figure": "macro-F1 on raw test texts", "value": float(f1), "raw": raw}
