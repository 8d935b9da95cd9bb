"""`make -C studies reader-constants`: compare the constants of readers on two sets that no page reports as evidence.

Glosses of WordNet with the hypernym of their word (120 labels), and film snippets (3 opinions), under one key. It
prints macro-F1 of every constant, and by how much the best one is better than the constant of the library; figures are
kept, so that a stopped run continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl
from frontier.cells import WORK_FOLDER
from frontier.data import DATA
from surrogate_measures import EVERYDAY, DataSet, FigureCache

from dptext_etl.guarantee import largest_delta
from dptext_etl_eval import readers
from dptext_etl_eval.forms import FORMS
from dptext_etl_eval.stand_in import StandIn
from dptext_etl_eval.statistics import macro_f1

EPSILONS, FACTORS = (1.0, 4.0), (0.1, 0.3, 1.0, 3.0, 10.0)
CONSTANTS = {"synthetic_vectors": "_STRENGTH", "synthetic_scores": "_RIDGE"}
HYPERNYMS, GLOSSES = 120, 9_000


def glosses() -> DataSet:
    """Return definitions of synsets under the most frequent hypernyms, by the first word of these."""
    folder = DATA / "wordnet"
    links = pl.read_parquet(folder / "synset_relations.parquet").filter(pl.col("relation") == "hypernym")
    synsets = pl.read_parquet(folder / "synsets.parquet").select("synset", "definition", word=pl.col("members").list[0])
    common = links["target"].value_counts(sort=True)["target"][:HYPERNYMS]
    rows = (
        links.filter(pl.col("target").is_in(common.implode()))
        .join(synsets.select("synset", "definition"), left_on="source", right_on="synset")
        .join(synsets.select("synset", "word"), left_on="target", right_on="synset")
        .unique("definition", maintain_order=True)
        .sample(fraction=1.0, seed=0, shuffle=True)
    )
    train, test = ((part["definition"].to_list(), part["word"].to_list()) for part in (rows[:GLOSSES], rows[GLOSSES:]))
    return DataSet("glosses", train, test, names={word: word for word in rows["word"].unique()})


def snippets() -> DataSet:
    """Return sentences of film reviews with the opinion of their review."""
    table = pl.read_parquet(DATA / "movie_snippets4" / "movie_snippets4.parquet")
    parts = (table.filter(pl.col("split") == split) for split in ("train", "test"))
    train, test = ((part["text"].to_list(), part["label"].to_list()) for part in parts)
    return DataSet("film snippets", train, test, names={label: label for label in set(train[1])})


def compared(kept: FigureCache, data: DataSet, form: str, epsilon: float) -> Iterator[float]:
    """Yield macro-F1 by factor of the constant."""
    constant = CONSTANTS[form]
    used = getattr(readers, constant)
    training = StandIn(tuple(data.train[0]), np.array(data.train[1]), (), np.array([]), EVERYDAY)

    def once(factor: float) -> float:
        setattr(readers, constant, used * factor)
        released = FORMS[form].release(training, epsilon, 1, largest_delta(len(training.texts)))
        assert released.predict is not None
        found = float(macro_f1(np.array(data.test[1]), np.array(released.predict(data.test[0]))))
        setattr(readers, constant, used)
        return found

    for factor in FACTORS:
        yield kept.figure((data.name, form, epsilon, factor), partial(once, factor))


def main() -> None:
    """Measure and print."""
    WORK_FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FigureCache(WORK_FOLDER / "reader-constants.jsonl")
    print("set", "reader", "epsilon", *(f"x {factor:g}" for factor in FACTORS), "best is better by", sep=" | ")
    for data in (snippets(), glosses()):
        for form in CONSTANTS:
            for epsilon in EPSILONS:
                scores = [*compared(kept, data, form, epsilon)]
                gain = max(scores) - scores[FACTORS.index(1.0)]
                shown = (f"{score:.3f}" for score in (*scores, gain))
                print(data.name, form, f"{epsilon:g}", *shown, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
