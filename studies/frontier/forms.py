"""Release public sets in table-wide forms, and put them next to row-wise releases at an equal epsilon per person."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
import surrogate_measures as measures
from surrogate_measures import EVERYDAY, DataSet, Kept

from dptext_etl import delta_policy
from dptext_etl_eval.baselines import NAMES, PUBLIC
from dptext_etl_eval.forms import FORMS
from dptext_etl_eval.stand_in import StandIn
from dptext_etl_eval.statistics import macro_f1
from frontier import of_surrogate, tidy
from frontier.baselines import verdict
from frontier.cells import ROOM
from frontier.data import DATA
from frontier.tables import figure, table

MEASURE, ENDS = "form_utility", " (forms)"
"""Name of the figures in the tidy file, and how names of their data sets end."""
EPSILONS = (1.0, 2.0, 4.0, 8.0)
KEYS = 3
PLAN = ("Snips", "Banking77", "SST-2", "UCI sentences", "DrugLib, condition", "IMDb")
CENTRAL = {
    "unlinked": ("one per label", "UNLINKED_APPROX"),
    "synthetic": ("maxent", "CENTRAL_ZCDP"),
    "nearest_mean": ("maxent", "CENTRAL_ZCDP"),
}
"""Forms that are measured here, with their variants and classes; those of `surrogate` row by row are at hand."""
SAYS = {
    "surrogate": "surrogate, row by row",
    "unlinked": "unlinked, one per label",
    "synthetic": "synthetic table",
    "nearest_mean": "nearest mean of its statistic",
}


def rows(kept: Kept, names: Sequence[str] = PLAN, keys: int = KEYS) -> Iterator[dict[str, Any]]:
    """Yield macro-F1 on raw test texts of both forms, one record per person: the first key of all before the second."""
    sets = measures.data_sets(DATA)
    for key in range(keys):
        for name in names:
            for form in CENTRAL:
                for epsilon in EPSILONS:
                    yield _row(kept, sets[name], form, epsilon, key)


def _row(kept: Kept, data: DataSet, form: str, epsilon: float, key: int) -> dict[str, Any]:
    (texts, labels), (variant, claim) = data.train, CENTRAL[form]
    own = StandIn(tuple(texts), np.array([data.names[one] for one in labels]), (), np.array([]))

    def once() -> float:
        made, asked = FORMS[form].release(own, epsilon, 1), np.array([data.names[one] for one in data.test[1]])
        if made.predict is not None:
            return float(macro_f1(asked, np.array(made.predict(data.test[0]))))
        return measures.f1((list(made.texts), made.labels.tolist()), (data.test[0], asked.tolist()))

    value = kept.figure((form, data.name, len(texts), epsilon, key), once)
    print(data.name, form, f"{epsilon:g}", key, f"{value:.3f}", sep=" | ", flush=True)
    return {
        "dataset": data.name + ENDS,
        "mechanism": form,
        "variant": variant,
        "reading": "per person, central",
        "epsilon": epsilon,
        "epsilon_per_text": epsilon,
        "delta": delta_policy.largest(len(texts)),
        "guarantee": claim,
        "key": key,
        "n": len(texts),
        "kind": "kept",
        "figure": of_surrogate.F1,
        "value": round(value, 5),
    }


def forms(found: pl.DataFrame) -> str:
    """Return a row per data set and form: what a learner gets at an equal epsilon per person, and what to do."""
    lines = []
    for name in (name for name in PLAN if name + ENDS in set(found["dataset"])):
        linked = found.filter(pl.col("dataset") == name + of_surrogate.SETS)
        free = {what: of_surrogate.value_of(linked, what) for what in (NAMES, PUBLIC, of_surrogate.OTHERS)}
        free["guessing"] = of_surrogate.first(linked.filter(pl.col("figure") == of_surrogate.F1), "blind")
        known = {what: value for what, value in free.items() if value is not None}
        raw = of_surrogate.first(linked.filter(pl.col("figure") == of_surrogate.F1), "raw")
        beside = [name, f"{linked['n'].max():,}", *(figure(value) or "–" for value in (raw, *free.values()))]
        for form, says in SAYS.items():
            best = reached(found, name, form)
            shown = (figure(best.get(epsilon)) for epsilon in EPSILONS)
            lines.append([*beside, says, *shown, verdict(known, best)])
            beside = [""] * len(beside)
    head = ["data set", "texts", "raw", NAMES, PUBLIC, of_surrogate.OTHERS, "guessing", "form"]
    return table([*head, *(f"ε = {epsilon:g}" for epsilon in EPSILONS), "what to do"], lines)


def reached(found: pl.DataFrame, name: str, form: str) -> dict[float, float]:
    """Return the mean macro-F1 of a form by epsilon per person, over `everyday-30k`."""
    central = form in CENTRAL
    ends, variant = (ENDS, CENTRAL[form][0]) if central else (of_surrogate.SETS, EVERYDAY)
    here = found.filter(
        pl.col("dataset") == name + ends,
        pl.col("mechanism") == form,
        pl.col("variant") == variant,
        pl.col("figure") == of_surrogate.F1,
    )
    return dict(here.group_by("epsilon").agg(pl.col("value").mean()).rows())


def measure() -> None:
    """Measure what is not kept, and write it to the tidy file."""
    ROOM.mkdir(parents=True, exist_ok=True)
    tidy.put(MEASURE, rows(Kept(ROOM / "forms.jsonl")))


if __name__ == "__main__":
    measure()
    sys.stdout.write("written: run `python -m generators` and `frontier.page.write()` for the pages\n")
