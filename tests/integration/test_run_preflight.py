"""A plan meets every refusal that a run meets before it draws: the same error, and a ledger that stays as it is."""

import json
import re
import shutil
from collections import namedtuple
from contextlib import contextmanager

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dptext_etl import Ledger, files
from dptext_etl.cli.app import app
from dptext_etl.errors import (
    BudgetError,
    BusyError,
    DiskError,
    FrozenLedgerError,
    InputError,
    KeyReferenceError,
    LedgerError,
    PolicyError,
)
from dptext_etl.policy.synthetic import CLAIM
from dptext_etl.runner import plan, preflight

from ..quick import quick
from ..refusals import foretold, head, same_refusal
from ..review_jobs import STAGED
from ..synthetic_runs import CAP, SYNTHETIC
from ..toy_mechanisms import toys  # noqa: F401  (a fixture)

LOW = {"measure": "pure", "epsilon": 60.0, "period": "2026"}
INCREMENTAL = {"incremental": True}
TEXT = [{"name": "review", "mechanism": {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}}]
SHUFFLED = {
    "column": TEXT,
    "keep": [],
    "cap": {"measure": "approx", "epsilon": 1000.0, "delta": 1e-5, "period": "2026"},
    "shuffled": {"rows": 200, "delta": 1e-9, "per_subject": 6},
}
Usage = namedtuple("Usage", "total used free")


def ran(job, entries):
    job.run(**entries)


def ran_before(*_):
    """The job ran without these entries: it is `released`."""


def stopped(job, _):
    assert job.stop("reserved")


def edited(edit):
    """Return a step that edits the raw table."""

    def step(job, _):
        path = job.folder / "raw.parquet"
        edit(pl.read_parquet(path)).write_parquet(path)

    return step


def changed(rows=3):
    texts = pl.when(pl.int_range(pl.len()) < rows).then(pl.lit("word anew")).otherwise("review")
    return edited(lambda frame: frame.with_columns(review=texts))


def nulled(column, rows):
    kept = pl.when(pl.int_range(pl.len()) >= rows).then(pl.col(column))
    return edited(lambda frame: frame.with_columns(kept.alias(column)))


def in_ledger(act):
    """Return a step that does something with the job's ledger."""

    def step(job, _):
        with Ledger.open(str(job.folder / "ledger.db")) as ledger:
            act(ledger)

    return step


def made(name):
    """Return a step that makes a file in the job's folder, and the folder that it is in."""

    def step(job, _):
        (job.folder / name).parent.mkdir(exist_ok=True)
        (job.folder / name).touch()

    return step


def malformed_key(job, _):
    (job.folder / "bad.key").write_text("no key\n")
    (job.folder / "bad.key").chmod(0o600)


def another_manifest(job, _):
    path = job.folder / "published.manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "gates": []}))


def without_parts(job, _):
    for part in (job.folder / "published").glob("*.parquet"):
        part.unlink()


def more(job, entries):
    """Run over fewer records, then bring the others."""
    frame = pl.read_parquet(job.folder / "raw.parquet")
    edited(lambda frame: frame.head(230))(job, entries)
    job.run(**entries)
    frame.write_parquet(job.folder / "raw.parquet")


def below(job, name):
    return str(job.folder / name)


def column(job, **parameters):
    found = job.policy().model_dump(by_alias=True)["column"][0]
    return [{**found, "mechanism": {**found["mechanism"], **parameters}}]


def consented(job):
    return {"column": [{**column(job)[0], "allow": ["cluster", "changed"]}], "on_changed": "quarantine"}


def in_file(job):
    return {"sink": below(job, "file/below"), "staging": below(job, "staging")}


def anchors_in_file(job):
    return {"ledger": {"url": f"sqlite:///{below(job, 'ledger.db')}", "anchors": below(job, "file/below")}}


CASES = {
    "malformed key": (KeyReferenceError, lambda job: {"key": f"file:{below(job, 'bad.key')}"}, malformed_key),
    "missing key": (KeyReferenceError, lambda job: {"key": f"file:{below(job, 'none.key')}"}),
    "changed texts of an incremental run": (InputError, INCREMENTAL, ran, changed()),
    "most texts changed": (BudgetError, consented, ran, changed(200)),
    "nothing to keep": (InputError, {"on_changed": "keep"}, stopped, changed()),
    "pinned epsilon": (
        LedgerError,
        lambda job: {"column": column(job, epsilon=3.0)},
        lambda job, _: job.run(column=column(job)),
    ),
    "lower cap": (LedgerError, {"cap": LOW}, ran_before),
    "higher cap": (LedgerError, {"cap": {**LOW, "epsilon": 2000.0}}, ran_before),
    "new period": (LedgerError, {"cap": {**LOW, "period": "2027"}}, ran_before),
    "no cap": (LedgerError, {"cap": None}, ran_before),
    "most without a person": (BudgetError, {"on_null_subject": "quarantine"}, nulled("user_id", 200)),
    "another person": (LedgerError, {}, ran_before, edited(lambda frame: frame.with_columns(user_id=pl.lit("u039")))),
    "frozen": (FrozenLedgerError, {}, ran_before, in_ledger(lambda ledger: ledger.losses.freeze("reviews", "a test"))),
    "no place for the ledger": (
        LedgerError,
        lambda job: {"ledger": {"url": f"sqlite:///{below(job, 'none/ledger.db')}"}},
    ),
    "a folder for a ledger": (LedgerError, {}, made("ledger.db/file")),
    "no place for the sink": (InputError, in_file, made("file")),
    "someone else's sink": (InputError, {}, made("published/notes.txt")),
    "no place for anchors": (LedgerError, anchors_in_file, made("file")),
    "published rows are gone": (InputError, INCREMENTAL, ran, edited(lambda frame: frame.tail(230))),
    "a manifest that the ledger did not record": (LedgerError, INCREMENTAL, ran, another_manifest),
    "another dataset in the sink": (PolicyError, {"dataset": "tickets"}, ran_before),
    "kept texts whose part is gone": (InputError, {"on_changed": "keep"}, ran_before, changed(), without_parts),
    "too few texts for a shuffled release without a cap": (
        InputError,
        {**SHUFFLED, "cap": None},
        nulled("review", 41),
    ),
    "more records than a shuffled release holds": (LedgerError, SHUFFLED, more),
}
"""The error, the entries of the policy that is refused, and the steps before; tests/contract has more."""


def prepared(request, case):
    """Take the steps of a case, and return its job, its entries, and its error."""
    kind, entries, *steps = CASES[case]
    job = request.getfixturevalue("released" if ran_before in steps else "job")
    entries = entries(job) if callable(entries) else entries
    for step in steps:
        step(job, entries)
    return job, entries, kind


RUN = {"missing key", "pinned epsilon", "lower cap", "another person", "no place for the sink"}
RUN |= {"published rows are gone", "too few texts for a shuffled release without a cap"}
"""One case of each step of a preflight: a run has the same steps, and raises the refusals that a plan collects."""


LATER = {"higher cap", "new period", "no cap", "changed texts of an incremental run"}
"""Cases of steps that another case has as well: thorough."""


@pytest.mark.parametrize("case", quick(sorted(CASES, key=LATER.__contains__), first=len(CASES) - len(LATER)))
def test_a_plan_foretells_what_a_run_is_refused_for(request, case, sentinel):
    job, entries, kind = prepared(request, case)
    if case in RUN:
        said = str(same_refusal(job, entries, kind))
    else:
        before = head(job, **entries)
        code, exit_code, *said = foretold(job, **entries)
        assert (code, exit_code, head(job, **entries)) == (kind.code, kind.exit_code, before)
    assert sentinel not in str(said)
    assert "r00001" not in str(said)


def test_a_plan_collects_what_a_run_would_meet_one_after_the_other(released):
    changed(7)(released, {})
    path = released.write_policy(cap=LOW, on_cap="refuse")
    found = plan(path)
    assert found.refusal == found.refusals[0]
    lower, texts, *_ = (item["message"] for item in found.refusals)
    assert "the policy asks for less" in lower
    assert "the texts of 7 records changed" in texts
    said = CliRunner().invoke(app, ["plan", str(path)])
    assert said.exit_code == found.refusal["exit_code"]
    assert "also in the way of a run: the texts of 7 records changed" in said.stdout


def test_a_plan_of_a_messy_table_lists_everything_at_once(job, reviews):
    """Rows without a person, doubled ids, and a kept column that singles out rows; then columns of wrong types."""
    frame = reviews().with_columns(
        id=pl.when(pl.col("id") == "r00007").then(pl.lit("r00008")).otherwise("id"),
        user_id=pl.when(pl.col("id") == "r00003").then(None).otherwise("user_id"),
        stars=pl.int_range(pl.len()),
    )
    frame.write_parquet(job.folder / "raw.parquet")
    with pytest.raises(InputError) as caught:
        plan(job.policy(keep_unique=None))
    ids, kept = caught.value.fields["also"]
    assert "1 row has no subject (column 'user_id' is null)" in caught.value.message
    assert "1 record id occurs more than once in column 'id'" in ids
    assert "the kept columns single out 240 of 240 rows" in kept
    assert "without 'stars'" in kept
    shown = CliRunner().invoke(app, ["plan", str(job.write_policy(keep_unique=None))])
    assert [f"Also: {line}" in shown.stderr for line in (ids, kept)] == [True, True]
    frame.with_columns(review=7, note=7.5, id=pl.lit(1.5)).write_parquet(job.folder / "raw.parquet")
    error = same_refusal(job, {}, InputError)
    assert "text column 'review' must hold strings" in error.message
    note, record = error.fields["also"]
    assert ("text column 'note'" in note, "record ids (column 'id') of type Float64" in record) == (True, True)


def test_a_full_disk(job, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 1 << 40, 4096))
    error = same_refusal(job, {}, DiskError)
    assert "less room" in error.message


def test_a_full_disk_stops_no_run_that_needs_no_room(released, monkeypatch, reviews, save):
    """All texts are released already, or the ledger, which needs most, lies on another disk."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 1 << 40, 4096))
    save(reviews().reverse(), released.folder / "raw.parquet")
    assert plan(released.policy()).refusal is None
    assert released.run().rows["new"] == 0
    assert plan(released.policy(release="2026-12")).refusal is not None
    monkeypatch.setattr(preflight, "disk_of", id)
    assert plan(released.policy(release="2026-12")).refusal is None


def test_another_run_under_way(released):
    staging = released.folder / STAGED / "2026-11" / "_"
    released.forget_that_nothing_changed()

    @contextmanager
    def busy():
        with files.lock(staging, "of this release is under way"):
            yield

    same_refusal(released, {}, BusyError, busy)


@pytest.mark.parametrize(("first", "table"), [(True, None), (False, "delta")])
def test_another_run_that_is_publishing(job, first, table):
    sink = job.folder / "published.versions"
    if table is not None:
        pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
        job.values["table"] = {"format": table}
        sink = job.folder / "published" / "_dptext"
    if not first:
        job.run()
        job.forget_that_nothing_changed()
    sink.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def busy():
        with files.lock(sink, "is publishing to this sink"):
            yield

    error = same_refusal(job, {}, BusyError, busy)
    assert error.exit_code == 6
    with busy():
        assert foretold(job, publish=False) is None, "what stays staged needs no sink"


def test_a_model_that_fails_on_public_texts(job, toys, monkeypatch):  # noqa: F811
    def fails(self):
        raise PolicyError("the model fails on public texts")

    column = [{"name": "review", "mechanism": {"name": "fickle", "epsilon": 2.0}}]
    entries = {"column": column, "cap": None}
    with monkeypatch.context() as patch:
        patch.setattr(toys["fickle"], "probe", fails)
        same_refusal(job, entries, PolicyError)
        assert not (job.folder / "ledger.db").exists()
        assert toys["fickle"].scored == []
    job.run(**entries)
    job.forget_that_nothing_changed()
    monkeypatch.setattr(toys["fickle"], "probe", fails)
    assert foretold(job, **entries) is None, "all texts are committed: no model computes"
    job.run(**entries)


def test_a_lost_ledger_is_foretold_and_frozen_by_the_run_alone(released):
    released.forget_that_nothing_changed()
    for path in released.folder.glob("ledger.db*"):
        path.unlink()
    said = foretold(released)
    assert head(released) is None, "a plan makes no ledger"
    with pytest.raises(LedgerError) as caught:
        released.run()
    assert caught.value.message.startswith(said[2])
    with released.ledger() as ledger:
        assert ledger.losses.frozen() == ["reviews"]


def test_nothing_in_the_way(job):
    assert foretold(job) is None
    assert sorted(path.name for path in job.folder.iterdir()) == ["noise.key", "raw.parquet"], "a plan leaves no trace"
    assert job.run().rows["new"] == 240
    assert foretold(job) is None, "the same run again"


def test_the_command_prints_counts_and_ends_as_the_run_would(released):
    changed(7)(released, {})
    path = released.write_policy()
    for command in ("plan", "run"):
        said = CliRunner().invoke(app, [command, str(path)])
        assert said.exit_code == 5
        assert "the texts of 7 records changed" in said.stderr
        assert "r00001" not in said.output
    said = CliRunner().invoke(app, ["plan", str(path), "--json"])
    found = json.loads(said.stdout)
    assert (said.exit_code, found["changed"], found["refusal"]["code"]) == (5, 7, "input")
    low = released.write_policy(cap=LOW, release="2026-12")
    for command in ("plan", "run"):
        assert CliRunner().invoke(app, [command, str(low)]).exit_code == 5
        assert CliRunner().invoke(app, [command, str(low), "--accept-lower-cap"]).exit_code == 3


@pytest.fixture
def topics(make_synthetic):
    return make_synthetic()


def plainly(job, _):
    job.run()


def low(job):
    """A cap that holds three records of a person."""
    return {"cap": {**CAP, "epsilon": job.policy().statistic.charge(CLAIM).eps_approx * 3 / 1e6}}


def forgets(records):
    return in_ledger(lambda ledger: ledger.people.forget("reviews", pa.array(records), pa.array([], pa.string())))


ANOTHER = {"synthetic": {**SYNTHETIC, "mechanism": {**SYNTHETIC["mechanism"], "epsilon": 1.0}}}
LABELS = pl.when(pl.int_range(pl.len()) >= 4).then("topic").otherwise(pl.lit("other"))
OF_TOPICS = {
    "changed labels": (InputError, {}, plainly, edited(lambda frame: frame.with_columns(topic=LABELS))),
    "more records": (LedgerError, {}, more),
    "forgotten people": (LedgerError, {}, plainly, forgets(["r00007"])),
    "pinned statistic": (LedgerError, ANOTHER, plainly),
    "below min_released": (BudgetError, lambda job: {**low(job), "min_released": 0.9}),
    "another person": (
        LedgerError,
        {"synthetic": {**SYNTHETIC, "per_subject": 240}, "release": "anew"},
        plainly,
        edited(lambda frame: frame.with_columns(user_id=pl.lit("u039"))),
    ),
    "other records": (LedgerError, {}, plainly, edited(lambda frame: frame.head(230))),
    "all are forgotten": (InputError, {"release": "anew"}, plainly, forgets([f"r{at:05d}" for at in range(240)])),
    "most without a person": (
        BudgetError,
        {"on_null_subject": "quarantine", "min_released": 0.9},
        nulled("user_id", 200),
    ),
}
"""The same of synthetic tables."""


@pytest.mark.parametrize("case", quick(OF_TOPICS, first=6))
def test_a_plan_of_a_synthetic_table_foretells_refusals(topics, case, sentinel):
    kind, entries, *steps = OF_TOPICS[case]
    entries = entries(topics) if callable(entries) else entries
    for step in steps:
        step(topics, entries)
    error = same_refusal(topics, entries, kind)
    assert sentinel not in str(error)
    assert not re.search(r"r00\d{3}", str(error))


@pytest.mark.parametrize("rows", [240, 120])
def test_the_same_synthetic_table_again_is_free_also_without_records_over_the_cap(topics, rows):
    if rows == 120:
        topics.values |= {**low(topics), "min_released": 0.0}
    assert foretold(topics) is None
    assert topics.run().rows["new"] == rows
    topics.forget_that_nothing_changed()
    assert foretold(topics) is None
    assert topics.run().rows["replayed"] == rows
