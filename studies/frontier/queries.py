"""Figures that are not a release of a data set: the query attack on single words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dptext_etl import load
from dptext_etl_eval import queries_needed
from frontier.cells import WORK_FOLDER
from frontier.plan import COUNTERFITTED

WORDS = ("she", "car", "alice", "happy", "good", "bad", "film", "people", "doctor")
"""The four words of paper 004 and five more."""
VARIANT = "counter-fitted, cosine"
"""As in Table 2 of the paper: counter-fitted vectors are made for cosine."""
EPSILONS = (1.0, 2.0, 3.0, 8.0)


def queries() -> Iterator[dict[str, Any]]:
    """Yield how many draws of a word reveal it, under CusText with counter-fitted vectors by cosine; 0 for never."""
    path = WORK_FOLDER / "queries.json"
    kept: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for epsilon in EPSILONS:
        for word in WORDS:
            name = f"{word} {epsilon:g}"
            if name not in kept:
                mechanism = load("custext")(epsilon=epsilon, vectors=COUNTERFITTED, metric="cosine")  # type: ignore[call-arg]
                attack = queries_needed(mechanism, word)  # type: ignore[arg-type]
                kept[name] = [attack.queries or 0, attack.stays]
            common = {
                "dataset": "single words",
                "mechanism": "custext",
                "variant": VARIANT,
                "epsilon": epsilon,
            }
            common |= {"reading": "per word, within its output set", "epsilon_per_text": epsilon, "delta": 0.0}
            common |= {"guarantee": "COND_PURE", "discloses": "cluster, length, nullness", "kind": "learnt"}
            for figure, value in (("draws that reveal it", kept[name][0]), ("stays", round(kept[name][1], 5))):
                yield {**common, "measure": "query_attack", "figure": f"{word}: {figure}", "value": float(value)}
    WORK_FOLDER.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept), encoding="utf-8")
