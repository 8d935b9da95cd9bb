"""`make surrogate-utility`: what surrogate leaves of public data sets, as a page (`docs/surrogate-utility.md`).

A run that was stopped goes on where it was: figures are kept in `target/surrogate-utility/`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import surrogate_measures as measures
from surrogate_measures import EVERYDAY, FEWER, DataSet, Kept

from dptext_etl import load
from dptext_etl.corpora import Corpus

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
ROOM = ROOT / "target" / "surrogate-utility"
PAGE = ROOT / "docs" / "surrogate-utility.md"
EPSILONS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 16.0)
FEW = (4.0, 8.0)
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Line:
    """A line of a table: a corpus with its encoder, and parts of a text."""

    corpus: str
    parts: int = 1

    @property
    def title(self) -> str:
        """As the page calls it."""
        return self.corpus + (f", {self.parts} parts" if self.parts > 1 else "")


def _variants(of: str) -> list[Line]:
    return [Line(f"{of}, {what}") for what in ("not whitened", "sgns vectors", "counter-fitted vectors")]


PLAN: dict[str, list[Line]] = {
    "Snips": [Line("dialogue turns"), Line(EVERYDAY), Line("film reviews")],
    FEWER: [
        Line("dialogue turns"),
        Line("dialogue turns, task"),
        *_variants("dialogue turns"),
    ],
    "ATIS": [Line("dialogue turns"), Line(EVERYDAY), Line("film reviews")],
    "Banking77": [Line("dialogue turns"), Line(EVERYDAY)],
    "SST-2": [
        Line("film reviews"),
        Line("film reviews, task of SST-2"),
        Line(EVERYDAY),
    ],
    "UCI sentences": [
        Line("film reviews"),
        Line("film reviews, task of UCI"),
        Line(EVERYDAY),
    ],
    "IMDb": [
        Line("film reviews"),
        Line("film reviews, task of IMDb"),
        Line("film reviews, task of IMDb", parts=4),
    ],
    "DrugLib, condition": [
        Line("encyclopedia"),
        Line("encyclopedia", parts=4),
        Line(EVERYDAY),
    ],
    "Blogs, gender": [Line("film reviews"), Line("film reviews", parts=4)],
}


def scores(kept: Kept, data: DataSet, place: Corpus, line: Line, epsilon: float) -> list[float]:
    """Release the training texts under a new key per seed; train on each release, test on raw texts."""
    texts, labels = data.train

    def once() -> float:
        out = measures.released(measures.surrogate(place, epsilon, line.parts), texts)
        return measures.f1((out, labels), data.test, place)

    key = ("surrogate", data.name, len(texts), place.sha256, line.parts, epsilon)
    return [kept.figure((*key, seed), once) for seed in SEEDS]


def baselines(kept: Kept, data: DataSet, place: Corpus) -> dict[str, float]:
    """Return the F1 of raw training texts, of public data alone (where there is any), and of guessing."""

    def best(name: str, train: measures.Rows) -> float:
        def by(strength: float) -> float:
            key = (name, data.name, len(train[0]), place.sha256, strength)
            return kept.figure(key, lambda: measures.f1(train, data.test, place, strength=strength))

        return max(map(by, (1.0, 10.0)))

    found = {"raw": best("raw", data.train)}
    if data.public[0]:
        found["public data alone"] = best("public", data.public)
    found = {**found, "guessing": measures.guessing(data.test, data.train)}
    return {name: value for name, value in found.items() if not math.isnan(value)}


def section(kept: Kept, data: DataSet, sets: dict[str, DataSet], room: Path) -> list[str]:
    """Measure a data set and write its part of the page."""
    rows, best = [], dict.fromkeys(EPSILONS, 0.0)
    first = measures.corpus(PLAN[data.name][0].corpus, DATA, room, sets, builds=kept.measures)
    base = {} if first is None else baselines(kept, data, first)
    for line in PLAN[data.name]:
        place = measures.corpus(line.corpus, DATA, room, sets, builds=kept.measures)
        cells = [line.title]
        for epsilon in EPSILONS:
            if place is None:
                cells.append("")
                continue
            found = scores(kept, data, place, line, epsilon)
            cells.append(shown(found))
            if cells[-1]:
                best[epsilon] = max(best[epsilon], statistics.mean(found))
        print(data.name, *cells, sep=" | ", flush=True)
        if any(cells[1:]):
            rows.append(cells)
    header = ["corpus and encoder", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    told = ", ".join(f"{name} {value:.3f}" for name, value in base.items())
    if not rows or not base:
        return []
    size = f"{len(data.train[0]):,} texts released, {len(data.test[0]):,} raw ones for the test."
    return [f"## {data.name}", f"{size} Macro-F1: {told}.", table(header, rows), verdict(base, best)]


def verdict(base: dict[str, float], best: dict[float, float]) -> str:
    """Say what the release brings beyond what is known without it."""
    name = "public data alone" if "public data alone" in base else "guessing"
    above = [epsilon for epsilon, value in best.items() if value > base[name]]
    none = "" if name != "guessing" else " (no public labels for this task are at hand)"
    if not above:
        return f"**The release brought nothing**: it stays below {name} ({base[name]:.3f}) at every ε{none}."
    return f"The best line is above {name} ({base[name]:.3f}) from ε = {above[0]:g} on{none}."


LEARNED: dict[str, dict[str, Any]] = {
    "words, C = 10": {"place": False, "strength": 10.0},
    "words, C = 1": {"place": False, "strength": 1.0},
    "vectors, C = 1": {"place": True, "words": False, "strength": 1.0},
    "words and vectors, C = 1": {"place": True, "strength": 1.0},
}


def learners(kept: Kept, data: DataSet, place: Corpus) -> str:
    """Measure what features and regularisation gain on released text."""
    rows = []
    texts, labels = data.train
    for title, settings in LEARNED.items():
        cells = [title]
        for epsilon in FEW:

            def once(epsilon: float = epsilon, settings: dict[str, Any] = settings) -> float:
                out = measures.released(measures.surrogate(place, epsilon), texts)
                by = {**settings, "place": place if settings["place"] else None}
                return measures.f1((out, labels), data.test, **by)

            key = ("learner", title, data.name, len(texts), place.sha256, epsilon)
            cells.append(shown([kept.figure((*key, seed), once) for seed in SEEDS]))
        if any(cells[1:]):
            rows.append(cells)
    return table(["features, regularisation", *(f"ε = {epsilon:g}" for epsilon in FEW)], rows)


WORDS = (4.0, 8.0, 12.0)


def word_mechanisms(kept: Kept, data: DataSet) -> str:
    """Measure what word mechanisms need per text: their epsilon per word times the mean number of words."""
    mean = statistics.mean(len(measures.plain(text).split()) for text in data.train[0])
    rows = []
    for name in ("custext", "madlib", "diffractor"):
        cells = [name]
        for epsilon in WORDS:

            def once(name: str = name, epsilon: float = epsilon) -> float:
                kind = load(name)
                make = getattr(kind, "aligned", None)
                mechanism = make(epsilon) if make is not None else kind(epsilon=epsilon)  # type: ignore[call-arg]
                return measures.f1((measures.released(mechanism, data.train[0]), data.train[1]), data.test)

            found = kept.figure(("word", name, data.name, len(data.train[0]), epsilon), once)
            cells.append("" if math.isnan(found) else f"{found:.3f}")
        if any(cells[1:]):
            rows.append(cells)
    header = ["mechanism", *(f"{e:g} per word, {e * mean:.0f} per text" for e in WORDS)]
    return table(header, rows)


def shown(found: Sequence[float]) -> str:
    """Write a mean and half the range; nothing where a figure was not measured."""
    if any(map(math.isnan, found)):
        return ""
    return f"{statistics.mean(found):.3f} ± {(max(found) - min(found)) / 2:.3f}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows])


INTRODUCTION = """<!-- written by `make surrogate-utility` (docs/surrogate_utility.py): do not edit -->
# What surrogate leaves of a text

`surrogate` replaces every text by a public one, drawn near it ([how](spec/surrogate.md)). Measured by
`make surrogate-utility`. {when}

* **ε is per text**, whatever its length, pure, and nothing of the column is disclosed. No other page of ours has such
  small ones: word mechanisms spend theirs per word.
* A logistic regression (C = 1) learns from **released** texts and is tested on **raw** ones. Its features are one and
  two words (TF-IDF) and the vector of the text by the corpus's public encoder. Figures are macro-F1, means of three
  keys ± half their range.
* *Raw* learns from the private texts themselves. *Public data alone* learns from other public labelled texts and sees
  no private text at all: **a release that stays below it has brought nothing.** Both take the better of C = 1 and 10.
  *Guessing* does not look: it says one label, or
  every label as often as it occurs, whichever is better (by macro-F1 a coin gets .50 of two labels).
* Corpora are 20,000 texts of 5 to 25 words: *dialogue turns* of Schema-Guided Dialogue, sentences of *film reviews*
  (IMDb's without labels), sentences of an *encyclopedia* (Wikipedia), and `{everyday}`, which comes with the library.
  Encoder: `words` with `english-20k`, half whitened, if nothing else stands there; *task* encoders learn directions
  from the public labelled texts of *public data alone*.
* Hit rates are those that `dptext corpus build` finds on public texts that stand in no data set here (for
  `{everyday}`: on dialogue turns, once). No test label chose anything.
"""

LEARNERS = """## What learners gain

A share of the releases is uniform, and labels stay with their rows: strong regularisation costs nothing. The vector of
a text by the corpus's public encoder is a feature that means the same before and after. 3,000 texts of Snips with
dialogue turns:"""

OTHERS = """## What word mechanisms need

A classifier over words (C = 1) on releases of word mechanisms of ours (`english-20k`, one key), 3,000 texts of Snips. ε
per text is that per word times the mean number of words; CusText also discloses the output set of every word, so its ε
is not the same promise. For latent mechanisms and for DP-MLM see [latent](latent-utility.md) and
[score](score-utility.md) mechanisms: they need ε in the hundreds per text.
[What equal use takes](frontier.md#which-equal-use-takes) on other data sets is on the page of all mechanisms."""


def page(parts: Sequence[str]) -> str:
    """Write the page."""
    when = f"Last run {datetime.now(UTC).date().isoformat()}."
    return "\n\n".join([INTRODUCTION.format(when=when, everyday=EVERYDAY), *parts]) + "\n"


def main(asked: Sequence[str] | None = None) -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kept", action="store_true", help="write the page from figures at hand, measure nothing")
    parser.add_argument("--only", nargs="*", default=list(PLAN), help="data sets to measure; the page needs all")
    given = parser.parse_args(asked)
    if not DATA.exists():
        sys.exit("left out: shared/data does not lie beside this checkout")
    ROOM.mkdir(parents=True, exist_ok=True)
    kept, sets = Kept(ROOM / "figures.jsonl", measures=not given.kept), measures.data_sets(DATA)
    parts = [part for name in given.only for part in section(kept, sets[name], sets, ROOM)]
    few, turns = sets[FEWER], measures.corpus("dialogue turns", DATA, ROOM, sets)
    if turns is not None and given.only == list(PLAN):
        parts += [LEARNERS, learners(kept, few, turns), OTHERS, word_mechanisms(kept, few)]
        PAGE.write_text(page(parts), encoding="utf-8")
        print(f"written to {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
