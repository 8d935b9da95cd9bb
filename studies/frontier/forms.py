"""Release public sets in table-wide forms, and put them next to row-wise releases at an equal epsilon per person."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import surrogate_measures as measures
from surrogate_measures import EVERYDAY, DataSet, FigureCache

from dptext_etl.corpora import Corpus
from dptext_etl.corpora.static import PACKAGE
from dptext_etl.guarantee import largest_delta
from dptext_etl_eval.baselines import BETTER, NAMES, PUBLIC
from dptext_etl_eval.forms import FORMS, Released
from dptext_etl_eval.stand_in import StandIn
from dptext_etl_eval.statistics import macro_f1
from frontier import corpora, of_surrogate, tidy
from frontier.cells import WORK_FOLDER
from frontier.data import DATA
from frontier.tables import figure, table

MEASURE, ENDS = "form_utility", " (forms)"
"""Name of the figures in the tidy file, and how names of their data sets end."""
EPSILONS = (1.0, 2.0, 4.0, 8.0)
SHOWN = (1.0, 4.0)
"""Budgets of the short table."""
KEYS = 3
GUESSES = (NAMES, PUBLIC, of_surrogate.OTHERS, "guessing")
SHORT = {NAMES: "label names", PUBLIC: "public data", of_surrogate.OTHERS: "labeled texts"}
"""Guesses, as pages call them."""
PLAN = (
    "Snips",
    "Banking77",
    measures.REQUESTS,
    "SST-2",
    "UCI sentences",
    measures.OPINIONS,
    "DrugLib, condition",
    "IMDb",
)


@dataclass(frozen=True)
class Line:
    """A form over a corpus, as the tidy file and the page call it."""

    form: str
    says: str
    claim: str = "CENTRAL_ZCDP"
    variant: str = "maxent"
    corpus: str = EVERYDAY


_STATIC: dict[str, Any] = {"variant": f"maxent, {PACKAGE}", "corpus": measures.STATIC}
_TASK: dict[str, Any] = {"variant": f"maxent, {PACKAGE}, task", "corpus": measures.TASK}
CENTRAL = {
    "shuffled": Line("shuffled", "shuffled, one per label", "SHUFFLED_APPROX", "one per label"),
    "synthetic": Line("synthetic", "synthetic table"),
    "vectors": Line("synthetic_vectors", "reader of vectors"),
    "scores": Line("synthetic_scores", "reader of scores"),
    "linear_discriminant": Line("linear_discriminant", "linear discriminant of its statistic"),
    "vector_scores": Line("synthetic_vector_scores", "reader of vectors and scores"),
    "static_vectors": Line("synthetic_vectors", "reader of static vectors", **_STATIC),
    "static_scores": Line("synthetic_scores", "reader of scores of static vectors", **_STATIC),
    "static_vector_scores": Line("synthetic_vector_scores", "reader of static vectors and scores", **_STATIC),
    "static_discriminant": Line("linear_discriminant", "linear discriminant of static vectors", **_STATIC),
    "task_discriminant": Line("linear_discriminant", "linear discriminant with public labeled texts", **_TASK),
}
"""Forms that are measured here; forms of `surrogate` row by row are at hand."""
READERS = ("vectors", "scores", "vector_scores", "static_vectors", "static_scores", "static_vector_scores")
THRICE = ("Banking77", "UCI sentences")
ONCE = {(name, form) for name in (measures.REQUESTS, measures.OPINIONS) for form in ("shuffled", "synthetic")}
ONCE |= {(name, form) for name in PLAN if name not in THRICE for form in READERS}
"""Cells that are measured under one key; all others under three, except `MORE`."""
_MORE = [("UCI sentences", form) for form in ("synthetic", "linear_discriminant", "static_vectors")]
_MORE += [("UCI sentences", "static_discriminant"), ("UCI sentences", "task_discriminant"), ("IMDb", "synthetic")]
_MORE += [(measures.OPINIONS, "synthetic"), (measures.OPINIONS, "vectors"), ("DrugLib, condition", "vectors")]
MORE = dict.fromkeys(_MORE, 10)
"""Cells of more keys: noise moves three keys by more than a larger epsilon does."""
PAGE = (
    "surrogate",
    "shuffled",
    "synthetic",
    "vectors",
    "linear_discriminant",
    "static_discriminant",
    "task_discriminant",
)
"""Forms of the short table of the pages."""
SAYS = {"surrogate": "surrogate, row by row", **{name: line.says for name, line in CENTRAL.items()}}


def rows(kept: FigureCache, names: Sequence[str] = PLAN) -> Iterator[dict[str, Any]]:
    """Yield macro-F1 on raw test texts of all forms, one record per person: the first key of all before the second."""
    sets = measures.data_sets(DATA)
    for key in range(max(KEYS, *MORE.values())):
        for name in names:
            for form, line in CENTRAL.items():
                if key >= keys_of(name, form):
                    continue
                corpus = measures.corpus(line.corpus.format(set=name), DATA, corpora.WORK_FOLDER, sets)
                if corpus is None:
                    continue
                for epsilon in EPSILONS:
                    yield _row(kept, sets[name], form, epsilon, key, corpus)


def keys_of(name: str, form: str) -> int:
    """Return how many keys a form of a data set has; 0 where it is not measured."""
    without_labels = form == "task_discriminant" and name not in measures.TAUGHT
    if without_labels or (form.startswith("static_") and form in READERS and name not in THRICE):
        return 0
    return MORE.get((name, form), 1 if (name, form) in ONCE else KEYS)


def _row(kept: FigureCache, data: DataSet, form: str, epsilon: float, key: int, corpus: Corpus) -> dict[str, Any]:
    (texts, labels), line = data.train, CENTRAL[form]
    given = EVERYDAY if line.corpus == EVERYDAY else str(corpus.path)
    training = StandIn(tuple(texts), np.array([data.names[label] for label in labels]), (), np.array([]), given)
    delta = largest_delta(len(texts))

    def once() -> float:
        release = one_per_label if form == "shuffled" else FORMS[line.form].release
        made, truth = release(training, epsilon, 1, delta), np.array([data.names[one] for one in data.test[1]])
        if made.predict is not None:
            return float(macro_f1(truth, np.array(made.predict(data.test[0]))))
        return measures.f1((list(made.texts), made.labels.tolist()), (data.test[0], truth.tolist()))

    value = kept.figure((form, data.name, len(texts), epsilon, key), once)
    print(data.name, form, f"{epsilon:g}", key, f"{value:.3f}", sep=" | ", flush=True)
    return {
        "dataset": data.name + ENDS,
        "mechanism": line.form,
        "variant": line.variant,
        "reading": "per person, central",
        "epsilon": epsilon,
        "epsilon_per_text": epsilon,
        "delta": delta,
        "guarantee": line.claim,
        "key": key,
        "n": len(texts),
        "kind": "kept",
        "figure": of_surrogate.F1,
        "value": round(value, 5),
    }


def one_per_label(rows: StandIn, epsilon: float, per_person: int, delta: float) -> Released:
    """Publish a shuffled release for each label, whose own number of texts bounds how well a record hides."""
    parts = []
    for label in np.unique(rows.labels):
        texts = tuple(text for text, one in zip(rows.texts, rows.labels, strict=True) if one == label)
        if len(texts) > 1:  # a shuffled release holds two records or more
            part = StandIn(texts, np.repeat(label, len(texts)), (), np.array([]), rows.corpus)
            parts.append(FORMS["shuffled"].release(part, epsilon, per_person, delta))
    cost = (max(getattr(part, name) for part in parts) for name in ("epsilon", "person", "delta"))
    return Released([text for part in parts for text in part.texts], np.hstack([part.labels for part in parts]), *cost)


def forms(all_rows: pl.DataFrame) -> str:
    """Return a row per data set and form: macro-F1 at an equal epsilon per person."""
    lines = []
    for name in measured(all_rows):
        linked, free = guesses(all_rows, name)
        raw = of_surrogate.first(linked.filter(pl.col("figure") == of_surrogate.F1), "raw")
        context = [
            name,
            f"{linked.select(pl.max('n')).item():,}",
            *(figure(value) or "–" for value in (raw, *map(free.get, GUESSES))),
        ]
        for form, says in SAYS.items():
            best = reached(all_rows, name, form)
            if not best:
                continue
            columns = (figure(best.get(epsilon)) for epsilon in EPSILONS)
            lines.append([*context, says, *columns])
            context = [""] * len(context)
    head = ["data set", "texts", "raw", *GUESSES, "form", *(f"ε = {at:g}" for at in EPSILONS)]
    return table(head, lines)


def compared(all_rows: pl.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the one table of verdicts: every form at two epsilons, and the best one."""
    rows = []
    for name in measured(all_rows):
        linked, free = guesses(all_rows, name)
        at = {form: reached(all_rows, name, form) for form in PAGE}
        best = max(free, key=lambda guess: free[guess])
        cells = (" / ".join(f"{scores[epsilon]:.2f}" for epsilon in SHOWN) if scores else "–" for scores in at.values())
        chosen = (best_form(free, {form: at[form][epsilon] for form in at if at[form]}) for epsilon in SHOWN)
        advice = (SAYS[form].removesuffix(" of its statistic") if form else "do not publish" for form in chosen)
        texts = f"{name}, {linked.select(pl.max('n')).item():,}"
        baseline = f"{SHORT.get(best, best)} {free[best]:.2f}"
        rows.append([texts, " / ".join(dict.fromkeys(advice)), baseline, *cells])
    shown = " / ".join(f"{epsilon:g}" for epsilon in SHOWN)
    return [f"set, texts: F1 at ε = {shown}", "publish", "best baseline", *(SAYS[form] for form in PAGE)], rows


def best_form(free: Mapping[str, float], at: Mapping[str, float]) -> str | None:
    """Return the form to choose at an epsilon; None if no form beats every guess.

    Args:
        free: Macro-F1 of guesses that need no private text.
        at: Macro-F1 of each form; among those near the best one, the first is chosen.
    """
    highest = max(at.values())
    if highest <= max(free.values()) + BETTER:
        return None
    return next(form for form, value in at.items() if value >= highest - BETTER)


def measured(all_rows: pl.DataFrame) -> list[str]:
    """Return the data sets that both forms and row-wise releases were measured on."""
    there = set(all_rows["dataset"])
    return [name for name in PLAN if {name + ENDS, name + of_surrogate.SETS} <= there]


def guesses(all_rows: pl.DataFrame, name: str) -> tuple[pl.DataFrame, dict[str, float]]:
    """Return the rows of row-wise releases of a data set, and what guesses get."""
    linked = all_rows.filter(pl.col("dataset") == name + of_surrogate.SETS)
    free = {what: of_surrogate.value_of(linked, what) for what in GUESSES[:-1]}
    free[GUESSES[-1]] = of_surrogate.first(linked.filter(pl.col("figure") == of_surrogate.F1), "blind")
    return linked, {what: value for what, value in free.items() if value is not None}


def reached(all_rows: pl.DataFrame, name: str, form: str) -> dict[float, float]:
    """Return the mean macro-F1 of a form by epsilon per person, over the corpus of its line; nothing if unmeasured."""
    line = CENTRAL.get(form)
    ends, variant = (of_surrogate.SETS, EVERYDAY) if line is None else (ENDS, line.variant)
    here = all_rows.filter(
        pl.col("dataset") == name + ends,
        pl.col("mechanism") == (form if line is None else line.form),
        pl.col("variant") == variant,
        pl.col("figure") == of_surrogate.F1,
    )
    return dict(here.group_by("epsilon").agg(pl.col("value").mean()).rows())


def measure() -> None:
    """Measure missing figures, and write them to the tidy file."""
    WORK_FOLDER.mkdir(parents=True, exist_ok=True)
    tidy.put(MEASURE, rows(FigureCache(WORK_FOLDER / "forms.jsonl")))


if __name__ == "__main__":
    measure()
    sys.stdout.write("written: run `python -m generators` for the pages\n")
