"""A plan meets every refusal that a run meets before it draws: the same error, and a ledger that stays as it is."""

import json
import shutil
from collections import namedtuple
from contextlib import contextmanager

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl import files
from dptext_etl.cli.app import app
from dptext_etl.errors import BudgetError, BusyError, InputError, KeyReferenceError, LedgerError, PolicyError
from dptext_etl.runner import plan, preflight

from ..toy_mechanisms import toys  # noqa: F401  (a fixture)
from .refusals import foretold, head, same_refusal

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


def no_place_for_anchors(job):
    (job.folder / "file").touch()
    return {"ledger": {"url": f"sqlite:///{job.folder / 'ledger.db'}", "anchors": str(job.folder / "file" / "below")}}


def frozen(job):
    from dptext_etl import Ledger

    job.run()
    with Ledger.open(str(job.folder / "ledger.db")) as ledger:
        ledger.freeze("reviews", "a test")
    return {}


def published_rows_are_gone(job):
    job.run(incremental=True)
    frame = pl.read_parquet(job.folder / "raw.parquet")
    frame.tail(230).write_parquet(job.folder / "raw.parquet")
    return {"incremental": True}


def another_manifest(job):
    """An incremental run over a manifest that the ledger did not record."""
    job.run(incremental=True)
    path = job.folder / "published.manifest.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "gates": []}))
    return {"incremental": True}


def another_dataset_in_the_sink(job):
    job.run()
    return {"dataset": "tickets"}


def kept_texts_whose_part_is_gone(job):
    job.run()
    changed(job)
    for part in (job.folder / "published.versions").rglob("*.parquet"):
        part.unlink()
    return {"on_changed": "keep"}


def too_few_texts_for_an_unlinked_release(job):
    nulled(job, "review", 41)
    return unlinked()


def too_few_texts_for_an_unlinked_release_without_a_cap(job):
    nulled(job, "review", 41)
    return {**unlinked(), "cap": None}


def other_records_than_an_unlinked_release_holds(job):
    job.run(**unlinked())
    frame = pl.read_parquet(job.folder / "raw.parquet")
    frame.head(230).write_parquet(job.folder / "raw.parquet")
    return unlinked()


def more_records_than_an_unlinked_release_holds(job):
    frame = pl.read_parquet(job.folder / "raw.parquet")
    frame.head(230).write_parquet(job.folder / "raw.parquet")
    job.run(**unlinked())
    frame.write_parquet(job.folder / "raw.parquet")
    return unlinked()


def unlinked():
    cap = {"measure": "approx", "epsilon": 1000.0, "delta": 1e-5, "period": "2026"}
    text = [{"name": "review", "mechanism": {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}}]
    return {"column": text, "keep": [], "cap": cap, "unlinked": {"rows": 200, "delta": 1e-9, "per_subject": 6}}


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
    no_place_for_anchors: LedgerError,
    frozen: LedgerError,
    published_rows_are_gone: InputError,
    another_manifest: LedgerError,
    another_dataset_in_the_sink: PolicyError,
    kept_texts_whose_part_is_gone: InputError,
    too_few_texts_for_an_unlinked_release: InputError,
    too_few_texts_for_an_unlinked_release_without_a_cap: InputError,
    other_records_than_an_unlinked_release_holds: LedgerError,
    more_records_than_an_unlinked_release_holds: LedgerError,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_plan_foretells_what_a_run_is_refused_for(job, case, sentinel):
    error = same_refusal(job, case(job), CASES[case])
    assert sentinel not in str(error)
    assert "r00001" not in str(error)


def test_a_full_disk(job, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 1 << 40, 4096))
    error = same_refusal(job, {}, InputError)
    assert "less room" in error.message


def test_a_full_disk_stops_no_run_that_needs_no_room(job, monkeypatch, reviews, save):
    """All texts are released already, or the ledger, which needs most, lies on another disk."""
    job.run()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 1 << 40, 4096))
    save(reviews().reverse(), job.folder / "raw.parquet")
    assert plan(job.policy()).refusal is None
    assert job.run().rows["new"] == 0
    assert plan(job.policy(release="2026-12")).refusal is not None
    monkeypatch.setattr(preflight, "disk_of", id)
    assert plan(job.policy(release="2026-12")).refusal is None


def test_another_run_under_way(job):
    job.run()
    staging = job.folder / "published.staging" / "2026-11" / "_"
    job.forget_that_nothing_changed()

    @contextmanager
    def busy():
        with files.lock(staging, "of this release is under way"):
            yield

    same_refusal(job, {}, BusyError, busy)


@pytest.mark.parametrize("table", [None, "delta"])
@pytest.mark.parametrize("first", [False, True])
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
