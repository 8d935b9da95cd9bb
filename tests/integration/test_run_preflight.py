"""A plan meets every refusal that a run meets before it draws: the same error, and a ledger that stays as it is."""

import json
import shutil
from collections import namedtuple
from contextlib import contextmanager, nullcontext

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl import files
from dptext_etl.cli.app import app
from dptext_etl.errors import BudgetError, DPTextError, InputError, KeyReferenceError, LedgerError, PolicyError
from dptext_etl.runner import plan

LOW = {"measure": "pure", "epsilon": 60.0, "period": "2026"}
Usage = namedtuple("Usage", "total used free")


def column(job, **parameters):
    found = job.policy().model_dump(by_alias=True)["column"][0]
    return [{**found, "mechanism": {**found["mechanism"], **parameters}}]


def changed(job, rows=3):
    frame = pl.read_parquet(job.folder / "raw.parquet").with_row_index("at")
    texts = pl.when(pl.col("at") < rows).then(pl.lit("word anew")).otherwise("review")
    frame.with_columns(review=texts).drop("at").write_parquet(job.folder / "raw.parquet")


def nulled(job, column, rows):
    frame = pl.read_parquet(job.folder / "raw.parquet").with_row_index("at")
    kept = pl.when(pl.col("at") >= rows).then(pl.col(column))
    frame.with_columns(kept.alias(column)).drop("at").write_parquet(job.folder / "raw.parquet")


def malformed_key(job):
    (job.folder / "bad.key").write_text("no key\n")
    (job.folder / "bad.key").chmod(0o600)
    return {"key": f"file:{job.folder / 'bad.key'}"}


def missing_key(job):
    return {"key": f"file:{job.folder / 'none.key'}"}


def changed_texts(job):
    job.run()
    changed(job)
    return {}


def changed_texts_of_an_incremental_run(job):
    job.run(incremental=True)
    changed(job)
    return {"incremental": True}


def most_texts_changed(job):
    consent = [{**job.policy().model_dump(by_alias=True)["column"][0], "allow": ["cluster", "changed"]}]
    entries = {"column": consent, "on_changed": "quarantine"}
    job.run(**entries)
    changed(job, 200)
    return entries


def nothing_to_keep(job):
    assert job.stop("reserved")
    changed(job)
    return {"on_changed": "keep"}


def pinned_epsilon(job):
    job.run(column=column(job))
    return {"column": column(job, epsilon=3.0)}


def lower_cap(job):
    job.run()
    return {"cap": LOW}


def higher_cap(job):
    job.run()
    return {"cap": {**LOW, "epsilon": 2000.0}}


def new_period(job):
    job.run()
    return {"cap": {**LOW, "period": "2027"}}


def no_cap(job):
    job.run()
    return {"cap": None}


def over_the_cap(job):
    return {"cap": LOW, "on_cap": "refuse"}


def below_min_released(job):
    return {"cap": LOW}


def null_persons(job):
    nulled(job, "user_id", 24)
    return {}


def most_without_a_person(job):
    nulled(job, "user_id", 200)
    return {"on_null_subject": "quarantine"}


def null_ids(job):
    nulled(job, "id", 5)
    return {}


def repeated_ids(job):
    frame = pl.read_parquet(job.folder / "raw.parquet")
    pl.concat([frame, frame.head(2)]).write_parquet(job.folder / "raw.parquet")
    return {}


def another_person(job):
    job.run()
    frame = pl.read_parquet(job.folder / "raw.parquet").with_columns(user_id=pl.lit("u039"))
    frame.write_parquet(job.folder / "raw.parquet")
    return {}


def revoked(job):
    from dptext_etl import Ledger

    job.run()
    with Ledger.open(str(job.folder / "ledger.db")) as ledger:
        ledger.revoke_name("reviews", "2026-11", "a test")
    return {}


def no_place_for_the_ledger(job):
    return {"ledger": {"url": f"sqlite:///{job.folder / 'none' / 'ledger.db'}"}}


def a_folder_for_a_ledger(job):
    (job.folder / "ledger.db").mkdir()
    return {}


def no_place_for_the_sink(job):
    (job.folder / "file").touch()
    return {"sink": str(job.folder / "file" / "below"), "staging": str(job.folder / "staging")}


def someone_elses_sink(job):
    (job.folder / "published").mkdir()
    (job.folder / "published" / "notes.txt").touch()
    return {}


CASES = {
    malformed_key: KeyReferenceError,
    missing_key: KeyReferenceError,
    changed_texts: InputError,
    changed_texts_of_an_incremental_run: InputError,
    most_texts_changed: BudgetError,
    nothing_to_keep: InputError,
    pinned_epsilon: LedgerError,
    lower_cap: LedgerError,
    higher_cap: LedgerError,
    new_period: LedgerError,
    no_cap: LedgerError,
    over_the_cap: BudgetError,
    below_min_released: BudgetError,
    null_persons: InputError,
    most_without_a_person: BudgetError,
    null_ids: InputError,
    repeated_ids: InputError,
    another_person: LedgerError,
    revoked: LedgerError,
    no_place_for_the_ledger: LedgerError,
    a_folder_for_a_ledger: LedgerError,
    no_place_for_the_sink: InputError,
    someone_elses_sink: InputError,
}


def head(job):
    if not (job.folder / "ledger.db").is_file():
        return None
    with job.ledger() as ledger:
        return str(ledger.anchor())


def foretold(job, **entries):
    """The refusal that a plan foretells, raised or in its summary."""
    try:
        found = plan(job.policy(**entries)).refusal
    except DPTextError as error:
        return error.code, error.exit_code, error.message, error.hint, error.fields
    return found and tuple(found.values())


def same_refusal(job, entries, kind, around=nullcontext):
    before = head(job)
    with around():
        said = foretold(job, **entries)
        with pytest.raises(kind) as caught:
            job.run(**entries)
    error = caught.value
    assert said == (error.code, error.exit_code, error.message, error.hint, error.fields)
    assert head(job) == before, "the ledger is as it was"
    return error


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_plan_foretells_what_a_run_is_refused_for(job, case, sentinel):
    error = same_refusal(job, case(job), CASES[case])
    assert sentinel not in str(error)
    assert "r00001" not in str(error)


def test_a_full_disk(job, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 1 << 40, 4096))
    error = same_refusal(job, {}, InputError)
    assert "less room" in error.message


def test_another_run_under_way(job):
    job.run()
    staging = job.folder / "published.staging" / "2026-11" / "_"
    job.forget_that_nothing_changed()

    @contextmanager
    def busy():
        with files.lock(staging, "of this release is under way"):
            yield

    same_refusal(job, {}, PolicyError, busy)


def test_a_lost_ledger_is_foretold_and_frozen_by_the_run_alone(job):
    job.run()
    job.forget_that_nothing_changed()
    for path in job.folder.glob("ledger.db*"):
        path.unlink()
    said = foretold(job)
    assert head(job) is None, "a plan makes no ledger"
    with pytest.raises(LedgerError) as caught:
        job.run()
    assert said[2] == caught.value.message
    with job.ledger() as ledger:
        assert ledger.frozen() == ["reviews"]


def test_nothing_in_the_way(job):
    assert foretold(job) is None
    assert job.run().rows["new"] == 240
    assert foretold(job) is None, "the same run again"


def test_a_plan_leaves_no_trace(job):
    plan(job.policy())
    assert sorted(path.name for path in job.folder.iterdir()) == ["noise.key", "raw.parquet"]


def test_the_command_prints_counts_and_ends_as_the_run_would(job, write_policy):
    job.run()
    changed(job, 7)
    path = write_policy(job.policy())
    for command in ("plan", "run"):
        said = CliRunner().invoke(app, [command, str(path)])
        assert said.exit_code == 5
        assert "the texts of 7 records changed" in said.stderr
        assert "r00001" not in said.output
    said = CliRunner().invoke(app, ["plan", str(path), "--json"])
    found = json.loads(said.stdout)
    assert (said.exit_code, found["changed"], found["refusal"]["code"]) == (5, 7, "input")
    low = write_policy(job.policy(cap=LOW, release="2026-12"))
    assert CliRunner().invoke(app, ["plan", str(low)]).exit_code == 5
    assert CliRunner().invoke(app, ["plan", str(low), "--accept-lower-cap"]).exit_code == 3


@pytest.fixture
def write_policy(tmp_path):
    """Write a policy as TOML."""

    def write(policy):
        values = policy.model_dump(mode="json", by_alias=True, exclude_none=True)
        path = tmp_path / "privacy.toml"
        path.write_text("\n".join(f"{name} = {toml(value)}" for name, value in values.items()))
        return path

    return write


def toml(value):
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {toml(item)}' for name, item in value.items())} }}"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else json.dumps(value)
