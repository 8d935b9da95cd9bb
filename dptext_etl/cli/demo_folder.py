"""Prepare the folder of `dptext demo`: invented requests, three forms of release, and a bug that the gates stop.

Arithmetic on the row number combines parts from `data/demo/requests.toml`; nothing is random. A third of the rows hold
sensitive words, as a real table would: names, e-mail addresses, telephone numbers, and words that no dictionary knows.

The faulty mechanism makes the same claim as CusText and runs through the same `run`. No catalog lists it, and no other
code imports it. The gates must stop it, because the canary rows of every run hold words that no vocabulary has.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import dptext_etl
from dptext_etl import engines
from dptext_etl.errors import GateError, PolicyError, seam
from dptext_etl.files import literal
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.policy import ColumnPolicy, Policy

if TYPE_CHECKING:
    import numpy.typing as npt

    from dptext_etl.corpora.corpus import Corpus


DATA = Path(dptext_etl.__file__).parent / "data" / "demo"
ROWS = 10_000
"""Rows of the table of requests, each of another user."""
TEST_NUMBERS = range(ROWS, ROWS + 5_000)
"""Further requests, on which the demo tests classifiers."""
MONTHS = {"2026-09": date(2026, 9, 1), "2026-10": date(2026, 10, 1)}
MONTH_ROWS = 200
MONTH_USERS = 150

_PARTS: dict[str, Any] = tomllib.loads((DATA / "requests.toml").read_text("utf-8"))
TOPICS: dict[str, list[str]] = _PARTS["topics"]
"""Topics and requests."""
DOMAINS: dict[str, list[str]] = _PARTS["domains"]
"""Topics, and the domains of `everyday-30k` that the corpus uses for each."""


def text(number: int) -> str:
    def part(name: str, place: int) -> str:
        return str(_PARTS[name][place % len(_PARTS[name])])

    wishes = TOPICS[topic(number)]
    wish = wishes[number // 16 % len(wishes)].format(a=part("adjectives", number // 5), b=part("places", number // 3))
    request = f"{part('beginnings', number // 7)}{wish}.{part('endings', number // 11)}"
    if number % 3 == 1:
        names = {
            "first": part("first_names", number),
            "last": part("last_names", number // 5),
            "strange": part("strange_words", number // 7),
        }
        request += " " + part("details", number // 3).format(**names, number=number % 90 + 10)
    return request


def topic(number: int) -> str:
    often: list[int] = _PARTS["often"]
    return list(TOPICS)[often[number % len(often)]]


def rows(numbers: range) -> list[dict[str, Any]]:
    """Return requests with their topics, each of another user."""
    first = date(2026, 9, 1)
    return [
        {
            "id": f"q{number:05d}",
            "user_id": f"u{number * 7919 % 100_003:06d}",
            "date": first + timedelta(days=number * 11 % 28),
            "topic": topic(number),
            "request": text(number),
        }
        for number in numbers
    ]


def month(name: str) -> list[dict[str, Any]]:
    """Return the first requests as one month: few users with several each, some requests null or empty."""
    start = list(MONTHS).index(name) * MONTH_ROWS
    return [
        {
            **row,
            "user_id": f"u{number * 37 % MONTH_USERS:03d}",
            "date": MONTHS[name] + timedelta(days=number * 11 % 28),
            "request": None if number % 97 == 50 else "" if number % 89 == 30 else row["request"],
        }
        for number, row in enumerate(rows(range(start, start + MONTH_ROWS)), start)
    ]


def write(folder: Path) -> None:
    (folder / "months").mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows(range(ROWS))).write_parquet(folder / "requests.parquet")
    for name in MONTHS:
        table = pl.DataFrame(month(name), schema_overrides={"request": pl.String})
        table.write_parquet(folder / "months" / f"{name}.parquet")


PUBLIC_NUMBERS = range(2 * ROWS, 3 * ROWS + 3_000)
"""Further requests, which stand for public texts of the same kind."""


def write_sample(folder: Path) -> list[Path]:
    """Write a table to try a first policy on, and public texts of the same kind to rehearse on."""
    tables = {folder / "requests.parquet": range(ROWS), folder / "public.parquet": PUBLIC_NUMBERS}
    with seam(f"writing the sample into {folder}", hint="name a folder that you can write to: dptext demo FOLDER"):
        folder.mkdir(parents=True, exist_ok=True)
        for path, numbers in tables.items():
            pl.DataFrame(rows(numbers)).write_parquet(path)
    return [*tables]


_MARK = ".dptext-demo"
FORMS = ("rows", "shuffled", "synthetic")


class DemoFolder:
    """The folder of the demo and the paths of its files; the demo changes nothing outside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.policy = path / "privacy.toml"
        self.ledger = path / "ledger.db"
        self.home = path / "dagster"  # the Dagster instance of the demo
        self.faulty = path / "planted-bug" / "privacy.toml"  # the planted bug has a separate ledger and sink
        self.forms = path / "three-forms"  # policies and tables of the three forms
        self.corpus = self.forms / "corpus"

    def prepare(self) -> None:
        """Remove an earlier demo from this folder, and write the files of a new one."""
        from dptext_etl import _kernel

        mark = self.path / _MARK
        if self.path.exists() and not mark.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            msg = f"{self.path} holds something that is not a demo"
            raise PolicyError(msg, "name another folder: dptext demo FOLDER")
        with seam(f"writing the demo into {self.path}", hint="name a folder that you can write to: dptext demo FOLDER"):
            shutil.rmtree(self.path, ignore_errors=True)
            self.faulty.parent.mkdir(parents=True)
            mark.touch()
            self.forms.mkdir()
            write(self.path / "raw")
            _kernel.Secret().write(str(self.path / "noise.key"))
            for form in FORMS:
                shutil.copyfile(DATA / f"{form}.toml", self.forms / f"{form}.toml")
            policy = Template((DATA / "words.toml").read_text("utf-8"))
            self.policy.write_text(policy.substitute(dataset="demo-words", up=""), "utf-8")
            self.faulty.write_text(policy.substitute(dataset="planted-bug", up="../"), "utf-8")

    def requests(self) -> pl.DataFrame:
        """Read the raw table of all requests, which the demo may do because they are public."""
        return pl.read_parquet(literal(self.path / "raw" / "requests.parquet"))

    def published(self, form: str) -> pl.DataFrame:
        """Read the table that was published in one of the three forms."""
        from dptext_etl.runner import scan_published

        return scan_published(str(self.forms / form)).collect()

    def months(self) -> pl.DataFrame:
        """Read the tables that were published word by word."""
        from dptext_etl.runner import scan_published

        return pl.concat([scan_published(str(self.path / "published" / month)).collect() for month in MONTHS])


def release(place: DemoFolder) -> dict[str, Any]:
    """Run the three policies, and return the cost of each form for a person, and its usefulness."""
    from dptext_etl.corpora.frequencies import estimate_frequencies
    from dptext_etl.families.aggregate import read_statistic
    from dptext_etl.runner import open_classifier

    topics = _build_corpus(place)
    policies: dict[str, Any] = {form: Policy.load(place.forms / f"{form}.toml") for form in FORMS}
    summaries = {form: engines.run(policy).as_dict() for form, policy in policies.items()}
    passed = {form: all(gate["passed"] for gate in summary["gates"]) for form, summary in summaries.items()}
    raw = place.requests()  # the demo may read the raw table because it is public
    rows, shuffled, synthetic = (place.published(form) for form in FORMS)
    statistic = read_statistic(place.forms / "synthetic.manifest.json", str(place.corpus))
    learned = open_classifier(place.forms / "synthetic")
    f1 = _MacroF1(statistic.statistic.corpus, set(raw["request"]))
    row_wise, (draw,) = policies["rows"].column_policies()[0].mechanism, policies["shuffled"].column_policies()
    estimates = estimate_frequencies(
        dict(shuffled.iter_rows()), topics, epsilon=draw.mechanism.epsilon, near=draw.mechanism.near
    )
    near = {estimate.topic: estimate.neighborhood_share for estimate in estimates}
    noisy = {topic.label: topic.count for topic in statistic.topics()}
    release, maxent = draw.mechanism.shuffled, policies["synthetic"].synthetic.mechanism
    forms: dict[str, dict[str, Any]] = {
        "rows": {"epsilon": row_wise.epsilon, "delta": 0.0, "columns": rows.columns, "f1": f1.of_table(rows)},
        "shuffled": {
            "epsilon": float(release.epsilon(draw.mechanism.law)),
            "epsilon_of_draw": draw.mechanism.epsilon,
            "delta": release.delta,
            "columns": shuffled.columns,
        },
        "synthetic": {
            "epsilon": maxent.epsilon,
            "delta": maxent.delta,
            "columns": synthetic.columns,
            "f1": f1.of_table(synthetic),
            "f1_classifier": f1.of_answers(learned.predict(learned.encode(f1.texts, str(place.corpus)))),
        },
    }
    return {
        "rows": raw.height,
        "corpus": len(topics),
        "f1_raw": f1.of_table(raw),
        "f1_label_names": f1.of(list(TOPICS), list(TOPICS)),
        "forms": {form: {**facts, "gates_passed": passed[form]} for form, facts in forms.items()},
        "topics": [
            {"topic": topic, "raw": count, "neighborhood_share": near[topic] * raw.height, "synthetic": noisy[topic]}
            for topic, count in Counter(raw["topic"]).most_common()
        ],
    }


def _build_corpus(place: DemoFolder) -> dict[str, str]:
    """Build the corpus of the demo, and return the topic of each of its texts."""
    from dptext_etl.corpora import building
    from dptext_etl.corpora.building import Source
    from dptext_etl.corpora.shipped.everyday_30k import LICENSE, PROVENANCE, sentences
    from dptext_etl.corpora.shipped.everyday_30k_2 import LEFT_OUT

    topic_of = {domain: topic for topic, domains in DOMAINS.items() for domain in domains}
    topics = {
        sentence: topic_of[domain]
        for sentence, domain in sentences().select("text", "domain").iter_rows()
        if domain in topic_of and not LEFT_OUT.search(sentence)
    }
    source = place.forms / "public-texts.parquet"
    pl.DataFrame({"text": list(topics)}).write_parquet(source)
    building.build(
        [Source(source, "text")], place.corpus, building.Options(name="demo", license=LICENSE, provenance=PROVENANCE)
    )
    return topics


class _MacroF1:
    """Macro-F1 of a classifier by nearest means of vectors, on further requests that are in no table."""

    def __init__(self, corpus: Corpus, training: set[str]) -> None:
        tests = {text(number): topic(number) for number in TEST_NUMBERS}
        tests = {request: label for request, label in tests.items() if request not in training}
        self._corpus = corpus
        self.texts, self._topics = list(tests), np.array(list(tests.values()))
        self._vectors = self._units(self.texts)

    def of(self, texts: Sequence[str], topics: Sequence[str]) -> float:
        """Return the F1 of a classifier that learned from texts with topics."""
        vectors, labels = self._units(texts), np.array(topics)
        means = np.stack([vectors[labels == topic].mean(axis=0) for topic in TOPICS])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        best = (self._vectors @ means.T).argmax(axis=1)
        return self.of_answers(np.array(list(TOPICS))[best])

    def of_table(self, table: pl.DataFrame) -> float:
        """Return the F1 of a classifier that learned from a table with the columns request and topic."""
        return self.of(table["request"].to_list(), table["topic"].to_list())

    def of_answers(self, answers: Sequence[str] | npt.NDArray[np.str_]) -> float:
        labels = np.array(answers)
        scores = []
        for topic in TOPICS:
            hits = int(((labels == topic) & (self._topics == topic)).sum())
            scores.append(2 * hits / max(1, int((labels == topic).sum() + (self._topics == topic).sum())))
        return float(np.mean(scores))

    def _units(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        vectors = self._corpus.encoder.encode(texts) - self._corpus.vectors.mean(axis=0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        units: npt.NDArray[np.float64] = vectors / np.where(lengths > 0, lengths, 1.0)
        return units


class LeakyCusText(CusText):
    """CusText with a mistake that a review can miss."""

    def input_policy(self) -> dict[str, Any]:
        """Keep unknown words, which strict mode should draw uniformly."""
        return {**super().input_policy(), "oov": "keep"}


class LeakyPolicy(Policy):
    """The demo's policy with the leaky mechanism instead of the correct one."""

    def column_policies(self) -> list[ColumnPolicy]:
        return [
            column.model_copy(update={"mechanism": LeakyCusText(**column.mechanism.model_dump())})
            for column in super().column_policies()
        ]


def run(folder: DemoFolder) -> None:
    engines.run(LeakyPolicy.load(folder.faulty), partition=next(iter(MONTHS)))


def stopped(folder: DemoFolder) -> dict[str, Any]:
    """Run the planted bug in a separate process, and make sure that the gates stopped it."""
    command = ["demo", str(folder.path), "--planted-bug"]
    done = subprocess.run(  # noqa: S603  (our own interpreter and our own command)
        [sys.executable, "-m", "dptext_etl.cli", *command], capture_output=True, text=True, check=False
    )
    published = list(folder.faulty.parent.glob("published/*.manifest.json"))
    if done.returncode != GateError.exit_code or published:
        outcome = f"exit code {done.returncode}, {len(published)} tables published"
        hint = "this is a defect of dptext_etl: please report it"
        raise GateError(f"the planted bug was not stopped by a gate: {outcome}", hint)
    return {"command": f"dptext {shlex.join(command)}", "exit_code": done.returncode, "message": done.stderr.strip()}
