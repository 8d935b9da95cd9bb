"""The Dagster job from source to published table: the same release as `run`, and steps that do not trust each other."""

import json
import re

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import Ledger, orchestration
from dptext_etl.engines import local
from dptext_etl.families.stored_distributions import TableMechanism
from dptext_etl.runner.observing import origins

from ..later import later
from .dagster_runs import GATES, PUBLISHED, STAGED, execute, failure

dg = later("dagster")


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def test_the_job_publishes_what_run_publishes(by_dagster):
    job, summary, expected = by_dagster.job, by_dagster.summary, by_dagster.expected
    assert (summary.success, summary.exit_code) == (True, 0)
    assert job.files() == by_dagster.other.files()
    assert job.charged() == by_dagster.other.charged()
    assert [check.name for check in summary.gates] == GATES
    assert all(check.passed and check.counts and check.message for check in summary.gates)
    json.dumps(summary.as_dict())
    staged, published = (summary.runs[0].assets[name] for name in (STAGED, PUBLISHED))
    assert staged["dagster/row_count"] == published["dagster/row_count"] == expected.rows["released"]
    assert staged["rows new"] == expected.rows["new"] > 100
    assert staged["draws"] == expected.draws > 1000
    assert re.fullmatch(r"column \d", staged["columns dropped unread"])
    assert published["version"] == 1
    assert published["largest epsilon of a record"] >= published["log10 odds of that record"] > 0
    assert published["manifest"] == str(job.folder / "published.manifest.json")


def test_an_asset_downstream_reads_the_published_table_after_its_gates(by_dagster):
    (table,) = by_dagster.seen
    assert isinstance(table, pl.LazyFrame)
    assert table.collect().equals(pl.read_parquet(by_dagster.job.folder / "published" / "*.parquet"))
    with dg.DagsterInstance.from_config(str(by_dagster.job.folder / "home")) as instance:
        run_id = by_dagster.summary.runs[0].run_id
        done = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_SUCCESS)
    steps = [entry.dagster_event.step_key for entry in done]
    assert steps == [STAGED, "gates_reviews", PUBLISHED, "recheck_reviews", "words"]


def test_pages_show_schema_and_lineage(by_dagster):
    with dg.DagsterInstance.from_config(str(by_dagster.job.folder / "home")) as instance:
        (record,) = instance.fetch_materializations(dg.AssetKey(PUBLISHED), limit=1).records
    published = record.asset_materialization.metadata
    columns = {column.name: column for column in published["dagster/column_schema"].schema.columns}
    assert next(iter(columns)) == "id"
    assert columns["id"].description == "passes unchanged"
    assert columns["stars"].type == "Int64"
    assert columns["review"].tags == {"mechanism": "custext", "epsilon": "2"}
    lineage = published["dagster/column_lineage"].lineage.deps_by_column
    assert lineage["review"] == [dg.TableColumnDep(asset_key=dg.AssetKey("raw_reviews"), column_name="review")]


def test_reports_warn_and_block_nothing(by_dagster):
    found = {(check.name, check.asset): check for check in by_dagster.summary.checks if check.severity == "WARN"}
    assert {name for name, _ in found} == {"report_copies", "report_left_out", "report_budget"}
    left_out = found["report_left_out", STAGED]
    assert not left_out.passed
    assert left_out.counts["records"] == by_dagster.expected.rows["quarantined"] > 0
    assert {"review: copies", "review: threshold", "note: rows"} <= set(found["report_copies", STAGED].counts)


@pytest.mark.parametrize(
    ("ids", "how"),
    [("keyed", ("TRANSFORMATION", "keyed hash of the id", True)), ("keep", ("IDENTITY", "kept as it is", False))],
)
def test_ids_are_labeled_as_they_are_published(job, ids, how):
    assert {name: made for name, made, _ in origins(job.policy(ids=ids))}["id"] == how
    assert "id" not in {name for name, *_ in origins(job.policy(ids="drop"))}


def test_a_fired_gate_stops_everything_downstream_and_revokes_the_name(stopped_in_dagster, sentinel):
    summary, job = stopped_in_dagster.summary, stopped_in_dagster.job
    assert (summary.success, summary.exit_code) == (False, 4)
    sentence = summary.runs[0].message
    assert sentence.startswith(f"3 of {len(GATES)} gates failed: canary_text_absent: ")
    assert "Hint: find and fix the defect, and release under a new name" in sentence
    assert sentinel not in sentence
    assert {check.asset for check in summary.checks if not check.passed} == {STAGED}
    assert list(summary.runs[0].assets) == [STAGED]
    assert stopped_in_dagster.seen == []
    assert not list(job.folder.glob("published/*"))
    with job.ledger() as ledger:
        assert any(row["burnt"] for row in ledger.reports.show())
    assert stopped_in_dagster.again.exit_code == 5
    assert "revoked" in stopped_in_dagster.again.runs[0].message


@pytest.mark.thorough
@pytest.mark.parametrize("table", [False, True], ids=["file", "delta"])
def test_a_second_materialisation_costs_nothing_and_changes_nothing(job, reviews, monkeypatch, table):
    """An input that equals the last run's is recognized: no row is read again, and the gates have nothing to do."""
    policy = job.policy()
    if table:
        pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
        policy = job.policy(source=str(job.folder / "table"))
        reviews().write_delta(policy.source)
    orchestration.materialize(policy)
    files, charged = job.files(), job.charged()
    with monkeypatch.context() as patched:
        patched.delattr(local, "examine")
        again = orchestration.materialize(policy)
    assert again.success
    assert (job.files(), job.charged()) == (files, charged)
    rows, published = again.runs[0].assets[STAGED], again.runs[0].assets[PUBLISHED]
    assert (rows["rows new"], rows["rows replayed"]) == (0, 240)
    assert "nothing was computed again" in published["notes"]
    assert published["dagster/row_count"] == 240
    if table:
        reviews(10, 240).write_delta(policy.source, mode="append")
        assert orchestration.materialize(policy).runs[0].assets[STAGED]["rows new"] == 10


def test_what_was_recognized_is_looked_at_again_when_it_is_published(job, instance):
    job.run()
    assert execute(job.policy(), STAGED, instance=instance).success
    with Ledger.open(job.folder / "ledger.db") as ledger:
        ledger.people.forget("reviews", pa.array(["r00050"]), pa.array([], pa.string()))
    published = execute(job.policy(), PUBLISHED, instance=instance)
    assert "or a record was forgotten" in failure(published).description


def test_nothing_is_published_that_was_not_staged_and_judged_as_it_is(job, instance):
    policy = job.policy()

    def refused(changed=policy):
        said = failure(execute(changed, PUBLISHED, instance=instance))
        return said.metadata["exit_code"].value, said.description

    code, said = refused()
    assert (code, "no staged rows can be checked" in said) == (5, True)
    assert execute(policy, STAGED, instance=instance, gates=False).success
    code, said = refused()
    assert (code, "not judged" in said) == (4, True)
    mechanism = {**policy.columns[0].model_dump()["mechanism"], "epsilon": 3.0}
    columns = [{"name": name, "mechanism": mechanism, "allow": ["cluster"]} for name in ("review", "note")]
    for change in ({"column": columns}, {"keep": []}):
        assert "the policy changed" in refused(job.policy(**change))[1]
    with job.ledger() as ledger:
        assert not any(row["burnt"] for row in ledger.reports.show())
    assert execute(policy, STAGED, instance=instance).success
    part = next(job.folder.glob("published.staging/**/shard-00000.parquet"))
    pl.read_parquet(part).write_parquet(part, compression="zstd")
    assert "has changed since it was staged" in refused()[1]
    assert not (job.folder / "published.manifest.json").exists()


@pytest.mark.thorough
def test_a_deployment_brings_its_own_ledger(job):
    other = orchestration.LedgerResource(url=f"sqlite:///{job.folder}/other.db")
    assert orchestration.materialize(job.policy(), ledger=other).success
    assert not (job.folder / "ledger.db").exists()
    with other.open() as ledger:
        assert len(ledger.reports.show()) == 2


def test_tables_are_not_built_to_load_definitions(job, monkeypatch):
    def built(self):
        raise AssertionError

    monkeypatch.setattr(TableMechanism, "table", property(built))
    dg.Definitions.validate_loadable(orchestration.build_definitions(job.policy()))
