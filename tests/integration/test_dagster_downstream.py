"""What stands downstream: it sees the published table alone, and a leak above it blocks it, with a sentence to read."""

from typing import Any

import polars as pl
import pytest

dg = pytest.importorskip("dagster", reason="dagster is not installed")

from dptext_etl.errors import PolicyError  # noqa: E402
from dptext_etl.orchestration import PublishedTable, after_gates, build_definitions  # noqa: E402
from tests.quick import quick  # noqa: E402

from .test_dagster_job import GATES, PUBLISHED, STAGED, leaky  # noqa: E402

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
RECHECKS = {"published_files", "raw_column_absent", "canary_text_absent", "words_in_output_set", "rows_ledgered"}


def reader(kind: Any, seen: list, **options):
    @dg.asset(automation_condition=after_gates(), **options)
    def words(published_reviews: kind) -> None:
        seen.append(published_reviews)

    return words


def everything(policy, *assets, selection=None, partition=None, instance, options=None):
    """Run a code location of a policy and assets downstream, or a selection of it."""
    defs = dg.Definitions.merge(build_definitions(policy, **(options or {})), dg.Definitions(assets=assets))
    some = dg.define_asset_job("some", selection=selection or dg.AssetSelection.all())
    job = dg.Definitions.merge(defs, dg.Definitions(jobs=[some])).resolve_job_def("some")
    return job.execute_in_process(run_config=QUIET, instance=instance, partition_key=partition, raise_on_error=False)


def failed(result):
    """The checks that failed, by asset, and what a user reads."""
    names = {(c.asset_key.to_user_string(), c.check_name) for c in result.get_asset_check_evaluations() if not c.passed}
    said = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    return names, [item.user_failure_data.description for item in said if item.user_failure_data]


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.mark.parametrize("kind", quick([pl.LazyFrame, pl.DataFrame]))
def test_a_parameter_is_the_published_table(job, instance, kind):
    seen = []
    result = everything(job.policy(), reader(kind, seen), instance=instance)
    assert result.success
    order = [event.step_key for event in result.all_events if event.event_type_value == "STEP_SUCCESS"]
    assert order == [STAGED, "gates_reviews", PUBLISHED, "recheck_reviews", "words"]
    (table,) = seen
    assert isinstance(table, kind)
    rows = table.lazy().collect()
    assert rows.columns == ["id", "stars", "review", "note"]
    assert rows.equals(pl.read_parquet(job.folder / "published" / "*.parquet"))


@pytest.mark.thorough
def test_several_partitions_come_in_one_frame(make_job, save, reviews, instance):
    job = make_job()
    for number, name in enumerate(("a", "b")):
        save(reviews(50, 50 * number), job.folder / "raw" / f"{name}.parquet")
    policy = job.policy(source=f"{job.folder}/raw/{{partition}}.parquet", sink=f"{job.folder}/published/{{partition}}")
    for name in ("a", "b"):
        steps = dg.AssetSelection.assets(STAGED, PUBLISHED)
        assert everything(policy, selection=steps, partition=name, instance=instance).success
    seen = []
    assert everything(policy, reader(pl.DataFrame, seen), selection=["words"], instance=instance).success
    assert sorted(seen[0]["id"]) == [f"r{i:05d}" for i in range(100)]


def test_nothing_published_is_told(job, instance):
    result = everything(job.policy(), reader(pl.LazyFrame, []), selection=["words"], instance=instance)
    said = next(event.step_failure_data.error.to_string() for event in result.all_events if event.is_step_failure)
    assert "nothing is published" in said


def test_nothing_is_written_through_it(job):
    with pytest.raises(PolicyError, match="only its own step"):
        PublishedTable(job.policy()).handle_output(dg.build_output_context(), pl.DataFrame())


def test_a_leak_blocks_everything_downstream(job, instance, sentinel):
    seen = []
    result = everything(leaky(job.policy()), reader(pl.LazyFrame, seen), instance=instance)
    assert not result.success
    assert not seen
    names, said = failed(result)
    assert (STAGED, "canary_text_absent") in names
    assert {asset for asset, _ in names} == {STAGED}
    (sentence,) = said
    assert sentence.startswith(f"3 of {len(GATES)} gates failed: canary_text_absent: ")
    assert "canary words" in sentence
    assert "Hint: find the defect, mend it, and release under a new name" in sentence
    assert sentinel not in sentence
    assert [e.step_key for e in result.all_events if e.event_type_value == "STEP_SUCCESS"] == [STAGED]
    assert not list(job.folder.glob("published/*"))


def test_raw_text_written_into_what_is_published_blocks_what_reads_it(job, instance, sentinel):
    policy, seen = job.policy(), []
    assert everything(policy, reader(pl.LazyFrame, seen), instance=instance).success
    part = job.part(0)
    raw = pl.read_parquet(job.folder / "raw.parquet").select("id", text="review")
    held = pl.read_parquet(part).join(raw, on="id", how="left").with_columns(review="text").drop("text")
    held.write_parquet(part)
    below = dg.AssetSelection.checks_for_assets(PUBLISHED) | dg.AssetSelection.assets("words")
    result = everything(policy, reader(pl.LazyFrame, seen), selection=below, instance=instance)
    assert not result.success
    assert len(seen) == 1
    names, said = failed(result)
    assert names >= {(PUBLISHED, name) for name in ("published_files", "words_in_output_set", "rows_ledgered")}
    assert {asset for asset, _ in names} == {PUBLISHED}
    (sentence,) = said
    assert sentence.startswith("the published table is not the one that passed its gates: published_files: changed: 1")
    assert "Hint: find out who wrote there" in sentence
    assert sentinel not in sentence
    assert everything(policy, reader(pl.LazyFrame, seen), instance=instance).success
    assert len(seen) == 2
    assert not pl.read_parquet(part)["review"].str.contains(sentinel).any()


@pytest.mark.thorough
def test_a_check_can_be_executed_by_itself(job, instance):
    policy = job.policy()
    alone = dg.AssetSelection.checks(dg.AssetCheckKey(dg.AssetKey(PUBLISHED), "published_files"))
    early = everything(policy, selection=alone, instance=instance)
    assert "no published table can be checked" in failed(early)[1][0]
    assert everything(policy, instance=instance).success
    result = everything(policy, selection=alone, instance=instance)
    assert result.success
    assert [check.check_name for check in result.get_asset_check_evaluations()] == ["published_files"]


@pytest.mark.thorough
def test_checks_of_a_partitioned_table_look_at_all_that_is_published(make_job, save, reviews, instance):
    job = make_job()
    for number, name in enumerate(("a", "b", "c")):
        save(reviews(50, 50 * number), job.folder / "raw" / f"{name}.parquet")
    policy = job.policy(source=f"{job.folder}/raw/{{partition}}.parquet", sink=f"{job.folder}/published/{{partition}}")
    for name in ("a", "c"):
        assert everything(policy, partition=name, instance=instance).success
    checks = dg.AssetSelection.checks_for_assets(PUBLISHED)
    result = everything(policy, selection=checks, instance=instance)
    assert result.success
    found = {(check.check_name, check.partition): check for check in result.get_asset_check_evaluations()}
    assert set(found) >= {(gate, name) for gate in RECHECKS for name in ("a", "c")}
    assert all(found["published_files", name].metadata["files"].value == 1 for name in ("a", "c"))
    assert not [key for key in found if key[1] not in {"a", "c"}]


@pytest.mark.thorough
def test_a_good_partition_does_not_hide_an_earlier_failure(make_job, save, reviews, instance):
    job = make_job()
    for number, name in enumerate(("a", "b")):
        save(reviews(50, 50 * number), job.folder / "raw" / f"{name}.parquet")
    policy = job.policy(source=f"{job.folder}/raw/{{partition}}.parquet", sink=f"{job.folder}/published/{{partition}}")
    assert everything(policy, partition="a", instance=instance).success
    (file,) = job.folder.glob("published/a/**/part-*.parquet")
    pl.read_parquet(file).with_columns(review=pl.lit("edited")).write_parquet(file)
    checks = dg.AssetSelection.checks_for_assets(PUBLISHED)
    assert not everything(policy, selection=checks, instance=instance).success
    assert everything(policy, partition="b", instance=instance).success
    key = dg.AssetCheckKey(dg.AssetKey(PUBLISHED), "published_files")
    history = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    latest = {record.partition: record.status.value for record in reversed(history)}
    assert (latest["a"], latest["b"]) == ("FAILED", "SUCCEEDED")


def test_reports_warn_and_block_nothing(job, instance):
    policy = job.policy(cap={"measure": "pure", "epsilon": 60.0, "period": "2026"}, min_released=0.0)
    result = everything(policy, instance=instance)
    assert result.success
    found = {check.check_name: check for check in result.get_asset_check_evaluations() if not check.blocking}
    assert set(found) == {"report_copies", "report_left_out", "report_budget"}
    assert all(check.severity == dg.AssetCheckSeverity.WARN for check in found.values())
    left_out = found["report_left_out"]
    assert not left_out.passed
    assert left_out.metadata["records"].value > 0
    assert {"review: copies", "review: threshold", "note: rows"} <= set(found["report_copies"].metadata)


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
    words = reader(pl.LazyFrame, [])
    policy = job.policy()
    automation = Automation(instance, build_definitions(policy), dg.Definitions(assets=[words]))
    assert automation.asks() == {}
    steps = dg.AssetSelection.assets(STAGED).without_checks()
    assert everything(policy, selection=steps, instance=instance).success
    assert automation.asks() == {}
    assert everything(policy, selection=dg.AssetSelection.checks_for_assets(STAGED), instance=instance).success
    assert list(automation.asks()) == [PUBLISHED]
    assert everything(policy, selection=dg.AssetSelection.assets(PUBLISHED), instance=instance).success
    assert list(automation.asks()) == ["words"]


def test_automation_does_not_publish_what_failed_its_gates(job, instance):
    policy = leaky(job.policy())
    automation = Automation(instance, build_definitions(policy))
    assert automation.asks() == {}
    assert not everything(policy, selection=dg.AssetSelection.assets(STAGED), instance=instance).success
    assert automation.asks() == {}


@pytest.mark.thorough
def test_automation_takes_the_partition_that_was_staged(make_job, save, reviews, instance):
    job = make_job()
    for number, name in enumerate(("a", "b")):
        save(reviews(50, 50 * number), job.folder / "raw" / f"{name}.parquet")
    policy = job.policy(source=f"{job.folder}/raw/{{partition}}.parquet", sink=f"{job.folder}/published/{{partition}}")
    automation = Automation(instance, build_definitions(policy))
    assert automation.asks() == {}
    assert everything(policy, selection=dg.AssetSelection.assets(STAGED), partition="b", instance=instance).success
    assert automation.asks() == {PUBLISHED: {"b"}}


def test_staging_is_automatic_where_it_is_asked_for(job, instance):
    defs = build_definitions(job.policy(), automation_condition=dg.AutomationCondition.eager())
    automation = Automation(instance, defs)
    automation.asks()
    instance.report_runless_asset_event(dg.AssetMaterialization("raw_reviews"))
    assert list(automation.asks()) == [STAGED]
