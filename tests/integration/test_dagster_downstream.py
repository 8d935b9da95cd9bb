"""What is downstream: it sees the published table only, is blocked by what changed there, and waits for the gates."""

from pathlib import Path

import polars as pl
import pytest

from dptext_etl import orchestration
from dptext_etl.errors import PolicyError

from ..later import later
from .dagster_runs import PUBLISHED, STAGED, execute, failed_checks, failure, leaky, reader, require_silent

dg = later("dagster")
RECHECKS = {"published_files", "raw_column_absent", "canary_text_absent", "words_in_output_set", "rows_ledgered"}


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


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
def test_a_check_can_be_executed_by_itself(job, instance):
    policy = job.policy()
    alone = dg.AssetSelection.checks(dg.AssetCheckKey(dg.AssetKey(PUBLISHED), "published_files"))
    early = execute(policy, selection=alone, instance=instance)
    assert "no published table can be checked" in failure(early).description
    job.run()
    result = execute(policy, selection=alone, instance=instance)
    assert result.success
    assert [check.check_name for check in result.get_asset_check_evaluations()] == ["published_files"]


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


@pytest.mark.thorough
def test_automation_takes_the_partition_that_was_staged(parted, instance):
    automation = Automation(instance, orchestration.build_definitions(parted))
    assert automation.asks() == {}
    assert execute(parted, STAGED, partition="b", instance=instance).success
    assert automation.asks() == {PUBLISHED: {"b"}}


def test_staging_is_automatic_where_it_is_asked_for(job, instance):
    defs = orchestration.build_definitions(job.policy(), automation_condition=dg.AutomationCondition.eager())
    automation = Automation(instance, defs)
    automation.asks()
    instance.report_runless_asset_event(dg.AssetMaterialization("raw_reviews"))
    assert list(automation.asks()) == [STAGED]
