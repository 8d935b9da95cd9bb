"""The Dagster job from source to published table: the same release as `run`; readers downstream wait for its gates."""

import json
import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import Ledger, orchestration
from dptext_etl.engines import local
from dptext_etl.errors import PolicyError
from dptext_etl.families.stored_distributions import TableMechanism
from dptext_etl.runner.report import origins

from ..later import later
from ..synthetic_runs import used, verified
from .dagster_runs import GATES, PUBLISHED, STAGED, execute, failed_checks, failure, leaky, reader, require_silent

dg = later("dagster")


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def test_the_job_publishes_what_run_publishes(by_dagster):
    job, summary, expected = by_dagster.job, by_dagster.summary, by_dagster.expected
    assert (summary.success, summary.exit_code, job.files()) == (True, 0, by_dagster.other.files())
    assert (job.charged(), [check.name for check in summary.gates]) == (by_dagster.other.charged(), GATES)
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
    assert (next(iter(columns)), columns["id"].description) == ("id", "passes unchanged")
    assert columns["stars"].type == "Int64"
    assert columns["review"].tags == {"mechanism": "custext", "epsilon": "2"}
    lineage = published["dagster/column_lineage"].lineage.deps_by_column
    assert lineage["review"] == [dg.TableColumnDep(asset_key=dg.AssetKey("raw_reviews"), column_name="review")]


def test_reports_warn_and_block_nothing(by_dagster):
    found = {(check.name, check.asset): check for check in by_dagster.summary.checks if check.severity == "WARN"}
    assert {name for name, _ in found} == {"report_copies", "report_excluded", "report_budget"}
    excluded = found["report_excluded", STAGED]
    assert not excluded.passed
    assert excluded.counts["records"] == by_dagster.expected.rows["quarantined"] > 0
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
    assert (list(summary.runs[0].assets), stopped_in_dagster.seen) == ([STAGED], [])
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


def test_tables_are_not_built_to_load_definitions(job, monkeypatch):
    def built(self):
        raise AssertionError

    monkeypatch.setattr(TableMechanism, "table", property(built))
    dg.Definitions.validate_loadable(orchestration.build_definitions(job.policy()))


RECHECKS = {"published_files", "raw_column_absent", "canary_text_absent", "words_in_output_set", "rows_ledgered"}


@pytest.fixture
def parted(make_job, save, reviews):
    """A policy of three partitions."""
    job = make_job()
    for number, name in enumerate(("a", "b", "c")):
        save(reviews(50, 50 * number), job.folder / "raw" / f"{name}.parquet")
    return job.policy(source=f"{job.folder}/raw/{{partition}}.parquet", sink=f"{job.folder}/published/{{partition}}")


def everything(policy, *also, instance, partition=None):
    return execute(policy, also=also, selection=dg.AssetSelection.all(), partition=partition, instance=instance)


@pytest.mark.thorough
def test_several_partitions_come_in_one_frame(parted, instance):
    for name in ("a", "b", "c"):
        assert execute(parted, STAGED, PUBLISHED, partition=name, instance=instance).success
    seen = []
    assert execute(parted, "words", also=[reader(pl.DataFrame, seen)], instance=instance).success
    assert sorted(seen[0]["id"]) == [f"r{i:05d}" for i in range(150)]


@pytest.mark.thorough
def test_nothing_published_is_told(job, instance):
    result = execute(job.policy(), "words", also=[reader(pl.LazyFrame, [])], instance=instance)
    said = next(event.step_failure_data.error.to_string() for event in result.all_events if event.is_step_failure)
    assert "nothing is published" in said


def test_nothing_is_written_through_it(job):
    with pytest.raises(PolicyError, match="only its own step"):
        orchestration.PublishedTable(job.policy()).handle_output(dg.build_output_context(), pl.DataFrame())


def test_raw_text_written_into_what_is_published_blocks_what_reads_it(job, sentinel, capfd):
    """It is in no event, and the next run fixes it."""
    job.run()
    policy, seen, part = job.policy(), [], job.part(0)
    raw = pl.read_parquet(job.folder / "raw.parquet").select("id", text="review")
    rows = pl.read_parquet(part).join(raw, on="id", how="left").with_columns(review="text").drop("text")
    rows.write_parquet(part)
    below = dg.AssetSelection.checks_for_assets(PUBLISHED) | dg.AssetSelection.assets("words")
    (job.folder / "home").mkdir()
    (job.folder / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with dg.DagsterInstance.from_config(str(job.folder / "home")) as instance:
        result = execute(policy, also=[reader(pl.LazyFrame, seen)], selection=below, instance=instance)
    assert (result.success, seen) == (False, [])
    failed = failed_checks(result)
    assert failed >= {(PUBLISHED, name) for name in ("published_files", "words_in_output_set", "rows_ledgered")}
    assert {asset for asset, _ in failed} == {PUBLISHED}
    sentence = failure(result).description
    assert sentence.startswith("the published table is not the one that passed its gates: published_files: changed: 1")
    assert "Hint: find out who wrote there" in sentence
    require_silent(job, capfd)
    job.run()
    assert not pl.read_parquet(part)["review"].str.contains(sentinel).any()


@pytest.mark.thorough
def test_checks_of_a_partitioned_table_look_at_all_that_is_published(parted, instance):
    for name in ("a", "c"):
        assert everything(parted, partition=name, instance=instance).success
    result = execute(parted, selection=dg.AssetSelection.checks_for_assets(PUBLISHED), instance=instance)
    assert result.success
    found = {(check.check_name, check.partition): check for check in result.get_asset_check_evaluations()}
    assert set(found) >= {(gate, name) for gate in RECHECKS for name in ("a", "c")}
    assert all(found["published_files", name].metadata["files"].value == 1 for name in ("a", "c"))
    assert not [key for key in found if key[1] not in {"a", "c"}]


@pytest.mark.thorough
def test_a_good_partition_does_not_hide_an_earlier_failure(parted, instance):
    assert everything(parted, partition="a", instance=instance).success
    (file,) = Path(parted.sink).parent.glob("a/**/part-*.parquet")
    pl.read_parquet(file).with_columns(review=pl.lit("edited")).write_parquet(file)
    checks = dg.AssetSelection.checks_for_assets(PUBLISHED)
    assert not execute(parted, selection=checks, instance=instance).success
    assert everything(parted, partition="b", instance=instance).success
    key = dg.AssetCheckKey(dg.AssetKey(PUBLISHED), "published_files")
    history = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    latest = {record.partition: record.status.value for record in reversed(history)}
    assert (latest["a"], latest["b"]) == ("FAILED", "SUCCEEDED")


class Automation:
    """Asks, tick by tick, what Dagster would run by itself."""

    def __init__(self, instance, *defs):
        self.defs, self.instance, self.cursor = dg.Definitions.merge(*defs), instance, None

    def asks(self):
        found = dg.evaluate_automation_conditions(self.defs, instance=self.instance, cursor=self.cursor)
        self.cursor = found.cursor
        asked = {result.key for result in found.results if found.get_num_requested(result.key)}
        return {key.to_user_string(): found.get_requested_partitions(key) for key in asked}


@pytest.mark.thorough
def test_automation_waits_for_the_blocking_checks(job, instance):
    policy = job.policy()
    defs = orchestration.build_definitions(policy)
    automation = Automation(instance, defs, dg.Definitions(assets=[reader(pl.LazyFrame, [])]))
    assert automation.asks() == {}
    assert execute(policy, STAGED, gates=False, instance=instance).success
    assert automation.asks() == {}
    assert execute(policy, selection=dg.AssetSelection.checks_for_assets(STAGED), instance=instance).success
    assert list(automation.asks()) == [PUBLISHED]
    assert execute(policy, PUBLISHED, instance=instance).success
    assert list(automation.asks()) == ["words"]


@pytest.mark.thorough
def test_automation_does_not_publish_what_failed_its_gates(job, instance):
    policy = leaky(job.policy())
    automation = Automation(instance, orchestration.build_definitions(policy))
    assert automation.asks() == {}
    assert not execute(policy, STAGED, instance=instance).success
    assert automation.asks() == {}


def test_staging_is_automatic_where_it_is_asked_for(job, instance):
    defs = orchestration.build_definitions(job.policy(), automation_condition=dg.AutomationCondition.eager())
    automation = Automation(instance, defs)
    automation.asks()
    instance.report_runless_asset_event(dg.AssetMaterialization("raw_reviews"))
    assert list(automation.asks()) == [STAGED]


def test_the_job_publishes_what_a_run_publishes(make_synthetic, reviews, sentinel):
    """Neither texts nor labels of the source, and no number of the statistic, are in any event."""
    raw = reviews().with_columns(topic=pl.lit(f"label {sentinel}"))
    job, other = (make_synthetic(name, raw) for name in ("dagster", "run"))
    expected = other.run()
    summary = orchestration.materialize(job.policy())
    assert summary.success
    assert job.files() == other.files()
    assert used(job) == used(other)
    assert [(check.name, check.passed) for check in summary.gates] == [(gate["name"], True) for gate in expected.gates]
    assert {check.name for check in summary.checks if check.asset == "published_reviews"} >= {"published_files"}
    said = json.dumps(summary.as_dict())
    assert sentinel not in said
    staged, shown = (summary.runs[0].assets[name] for name in ("staged_reviews", "published_reviews"))
    assert (staged["dagster/row_count"], shown["dagster/row_count"]) == (50, 50)
    assert (shown["epsilon of the whole table for one record"], shown["rows released"]) == (2.0, 240)
    assert shown["manifest sha256"] == expected.manifest
    manifest = json.loads((job.folder / "published.manifest.json").read_text())
    assert manifest["columns"][0]["statistic"]["sums"] not in said
    assert not set(job.published()["review"]) & {part for part in said.split('"') if " " in part}
    assert verified(job) == []
