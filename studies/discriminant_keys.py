"""`make -C studies discriminant-keys`: macro-F1 of the classifier of a statistic under several keys.

Texts are encoded once per corpus, so that many keys need little time. It prints mean and standard deviation over keys,
and by how much the mean is worse at a larger epsilon. The sets are the ones on the pages, and two that chose constants.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import surrogate_measures as measures
from frontier import corpora
from frontier.cells import WORK_FOLDER
from frontier.data import DATA
from reader_constants import glosses, snippets
from surrogate_measures import EVERYDAY, MINILM, STATIC, TASK, TAUGHT, DataSet, FigureCache

from dptext_etl import _kernel
from dptext_etl.corpora import Corpus
from dptext_etl.corpora.corpus import Int8s
from dptext_etl.families.aggregate import describe, linear_discriminant, noisy, partial_sum
from dptext_etl.families.aggregate.contributions import encoded
from dptext_etl.families.aggregate.statistic import Statistic
from dptext_etl.guarantee import largest_delta
from dptext_etl_eval.statistics import macro_f1

EPSILONS = (1.0, 2.0, 4.0, 8.0)
USUAL = ("glosses", "film snippets")


def figures(kept: FigureCache, data: DataSet, corpus: Corpus, keys: int) -> Iterator[list[float]]:
    """Yield macro-F1 on raw test texts under every key, by epsilon."""
    texts, test = (pa.array(rows[0], pa.large_string()) for rows in (data.train, data.test))
    labels, truth = ([data.names[label] for label in rows[1]] for rows in (data.train, data.test))
    ids, vectors = pa.array([str(row) for row in range(len(texts))]), dict[str, Int8s]()
    for epsilon in EPSILONS:
        delta = largest_delta(len(texts))
        statistic = describe(corpus, epsilon=epsilon, delta=delta, labels=sorted(set(labels)))

        def once(key: int, statistic: Statistic = statistic) -> float:
            if not vectors:
                vectors.update(train=encoded(statistic, texts), test=encoded(statistic, test))
            secret = _kernel.Secret.from_bytes(hashlib.sha256(f"discriminant keys {key}".encode()).digest())
            release = _kernel.ReleaseKey(secret, data.name, "text", "study", statistic.cfg())
            sums = partial_sum(statistic, release, ids, texts, pa.array(labels, pa.large_string()), vectors["train"])
            learned = linear_discriminant(noisy(statistic, release, sums))
            return float(macro_f1(np.array(truth), np.array(learned.predict(vectors["test"]))))

        yield [kept.figure((data.name, statistic.cfg(), key), partial(once, key)) for key in range(keys)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", default=USUAL)
    parser.add_argument("--keys", type=int, default=5)
    parser.add_argument("--encoder", action="store_true", help="measure the sentence encoder, too")
    given = parser.parse_args()
    WORK_FOLDER.mkdir(parents=True, exist_ok=True)
    sets = measures.data_sets(DATA)
    sets |= {data.name: data for data in (glosses(), snippets())}
    kept = FigureCache(WORK_FOLDER / "discriminant-keys.jsonl")
    head = (f"epsilon = {epsilon:g}" for epsilon in EPSILONS)
    print("set", "corpus", *head, f"worse by ({given.keys} keys)", sep=" | ")
    for name in given.sets:
        taught = [TASK.format(set=name)] if name in TAUGHT else []
        encoders = [f"{EVERYDAY}, {MINILM}"] if given.encoder else []
        for place in (EVERYDAY, STATIC, *taught, *encoders):
            corpus = measures.corpus(place, DATA, corpora.WORK_FOLDER, sets)
            if corpus is None:
                print(name, place, "not installed", sep=" | ", flush=True)
                continue
            scores = np.array(list(figures(kept, sets[name], corpus, given.keys)))
            means = scores.mean(axis=1)
            worse = float((np.maximum.accumulate(means) - means).max())
            cells = (f"{mean:.3f} ± {spread:.3f}" for mean, spread in zip(means, scores.std(axis=1), strict=True))
            print(name, place, *cells, f"{worse:.3f}", sep=" | ", flush=True)


if __name__ == "__main__":
    main()
