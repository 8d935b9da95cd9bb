"""A code location of one's own: names, sources, tags, retries, schedules and sensors, several releases, pandas."""

import json

import polars as pl
import pytest

from dptext_etl import Policy, _kernel, orchestration
from dptext_etl.errors import GateError, PolicyError
from tests.later import later
from tests.policy_files import custext_column, policy_in, write_policy

pd = later("pandas")

dg = later("dagster", reason="dagster is not installed")
trees = later("dagster.components.core.component_tree")
K8S = {"dagster-k8s/config": {"container_config": {"resources": {"limits": {"nvidia.com/gpu": "1"}}}}}
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@pytest.fixture
def make_policy(tmp_path, small_vectors):
    _kernel.Secret().write(str(tmp_path / "noise.key"))

    def make(**changes):
        cap = {"measure": "pure", "epsilon": 4.2, "period": "2026"}
        facts = {"dataset": "notes", "sink": str(tmp_path / "published"), "cap": cap, **changes}
        return policy_in(tmp_path, custext_column(small_vectors, "note"), **facts)

    return make


def write_file(policy, path, **changes):
    """Write a policy as a file."""
    return write_policy(path, policy.model_dump(mode="json", by_alias=True, exclude_none=True) | changes)


def write(path, rows=40):
    pl.DataFrame({"id": [f"r{n}" for n in range(rows)], "note": ["wordaa wordab"] * rows}).write_parquet(path)


def keys(defs):
    return {spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()}


def test_two_releases_of_a_dataset_fit_into_a_location_with_an_executor_of_its_own(make_policy, tmp_path):
    now, then = make_policy(), make_policy(release="r2", sink=str(tmp_path / "other"))
    merged = dg.Definitions.merge(
        orchestration.build_definitions(now),
        orchestration.build_definitions(
            then, key_prefix=["privacy", "v2"], group_name="second", owners=["team:privacy"]
        ),
        dg.Definitions(executor=dg.multiprocess_executor),
    )
    dg.Definitions.validate_loadable(orchestration.check_lineage(merged))
    stages = ("raw_notes", "staged_notes", "published_notes")
    assert keys(merged) == {*stages, *(f"privacy/v2/{stage}" for stage in stages)}
    jobs = {name: merged.resolve_job_def(name) for name in ("run_notes", "run_privacy_v2_notes")}
    assert {job.executor_def.name for job in jobs.values()} == {"in_process"}
    assert {"ledger_notes", "ledger_privacy_v2_notes"} <= set(merged.resources)
    specs = {spec.key.to_user_string(): spec for spec in merged.resolve_all_asset_specs()}
    assert specs["privacy/v2/published_notes"].group_name == "second"
    assert list(specs["privacy/v2/staged_notes"].owners) == ["team:privacy"]
    assert specs["staged_notes"].group_name == "notes"


def test_a_translator_names_the_assets(make_policy):
    class Ours(orchestration.PolicyTranslator):
        def asset_key(self, policy, stage):
            return dg.AssetKey(["privacy", policy.dataset, stage])

    defs = orchestration.build_definitions(make_policy(), translator=Ours(group_name="g"))
    assert keys(defs) == {"privacy/notes/raw", "privacy/notes/staged", "privacy/notes/published"}
    assert defs.resolve_job_def("run_privacy_notes_published").name
    with pytest.raises(PolicyError, match="a translator names the assets"):
        orchestration.build_definitions(make_policy(), translator=Ours(), key_prefix="v2")


def test_an_asset_of_ones_own_takes_the_place_of_the_raw_one(make_policy, tmp_path):
    @dg.asset(key=["dump", "notes"])
    def dump() -> None:
        write(tmp_path / "raw.parquet")

    @dg.asset
    def words(published_notes: pd.DataFrame) -> int:
        assert type(published_notes) is pd.DataFrame
        return int(published_notes["note"].str.split(" ").str.len().sum())

    @dg.asset(deps=[dump])
    def lengths() -> None: ...

    defs = orchestration.build_definitions(make_policy(), source_asset=dump)
    assert keys(defs) == {"dump/notes", "staged_notes", "published_notes"}
    merged = orchestration.check_lineage(dg.Definitions.merge(defs, dg.Definitions(assets=[dump, words])))
    with dg.DagsterInstance.ephemeral() as instance:
        job = merged.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(instance=instance, run_config=QUIET)
        assert done.success
        assert done.output_for_node("words") == 80
        (event,) = instance.fetch_materializations(dg.AssetKey("published_notes"), limit=1).records
        facts = {name: value.value for name, value in event.asset_materialization.metadata.items()}
        assert (facts["eps_pure left, median"], facts["eps_pure left, least"]) == (0.2, 0.2)
        assert facts["records at their cap"] == 0
        assert list(facts).index("eps_pure used, most") < list(facts).index("largest epsilon of a record")
    (near,) = [item for item in done.get_asset_check_evaluations() if item.check_name == "report_budget"]
    assert (near.passed, near.severity, near.blocking) == (False, dg.AssetCheckSeverity.WARN, False)
    assert near.description == "the median record has 5% of the cap left"
    with pytest.raises(GateError, match="dump/notes -> lengths"):
        orchestration.check_lineage(dg.Definitions.merge(defs, dg.Definitions(assets=[dump, lengths])))


def test_amounts_without_a_bound_are_not_plotted():
    from dptext_etl.orchestration.steps import budget

    assert budget({"used": {"eps_pure": {"max": "inf"}}, "left": {}, "unit": "record", "exhausted": 0}) == {}


def test_tags_and_retries_reach_runs_and_steps(make_policy):
    policy = make_policy(dagster={"tags": K8S})
    for defs in (orchestration.build_definitions(policy), orchestration.build_definitions(make_policy(), op_tags=K8S)):
        job = defs.resolve_job_def("run_notes")
        with dg.DagsterInstance.ephemeral() as instance:  # a run launcher is given the run
            run = instance.create_run_for_job(job, tags=job.run_tags)
        assert json.loads(run.tags["dagster-k8s/config"]) == K8S["dagster-k8s/config"]
        assert "dagster-k8s/config" in job.get_node_named("staged_notes").definition.tags
        assert "dagster-k8s/config" not in job.get_node_named("published_notes").definition.tags
    assert "dagster" not in make_policy().model_dump(by_alias=True)
    assert Policy.parse(policy.model_dump(by_alias=True)) == policy
    again = dg.RetryPolicy(max_retries=3)
    job = orchestration.build_definitions(make_policy(), retry_policy=again).resolve_job_def("run_notes")
    assert {job.get_node_named(name).definition.retry_policy for name in ("staged_notes", "gates_notes")} == {again}


def sensor_context(instance, cursor, repository):
    """What Dagster's daemon gives to a sensor."""
    resources = {"key_notes": repository.get_top_level_resources()["key_notes"]}
    return dg.build_sensor_context(instance, cursor=cursor, repository_def=repository, resources=resources)


def test_a_sensor_is_stopped_at_first_and_an_object_store_has_none(make_policy):
    defs = orchestration.build_definitions(make_policy(), watch_source=True)
    assert defs.resolve_sensor_def("sensor_notes").default_status == dg.DefaultSensorStatus.STOPPED
    with pytest.raises(PolicyError, match="object store"):
        orchestration.build_definitions(make_policy(source="s3://bucket/raw.parquet"), watch_source=True)


def tick(policy, **options):
    """Return how to evaluate the sensor of a policy."""
    defs = orchestration.build_definitions(policy, watch_source=True, **options)
    sensor, repository = defs.resolve_sensor_def("sensor_notes"), defs.get_repository_def()

    def once(cursor=None):
        with dg.DagsterInstance.ephemeral() as instance:
            return sensor.evaluate_tick(sensor_context(instance, cursor, repository))

    return once


def test_a_file_of_a_partition_that_the_location_does_not_know_is_named(make_policy, tmp_path):
    policy = make_policy(source=str(tmp_path / "{partition}.parquet"), sink=str(tmp_path / "out" / "{partition}"))
    write(tmp_path / "2026-01.parquet")
    look, listed = tick(policy), tick(policy, partitions=["2026-01"])
    cursor = look().cursor
    assert look(cursor).skip_message == "the files of the source are those that were seen before"
    write(tmp_path / "2026-02.parquet")
    assert look(cursor).skip_message == "reload the code location: it does not know 1 new partition (2026-02)"
    assert "seen before" in listed(cursor).skip_message
    assert [request.partition_key for request in tick(policy)(cursor).run_requests] == ["2026-02"]


def test_the_partitions_of_history_are_started_only_if_someone_says_so(make_policy, tmp_path):
    policy = make_policy(source=str(tmp_path / "{partition}.parquet"), sink=str(tmp_path / "out" / "{partition}"))
    for part in ("a", "b"):
        write(tmp_path / f"{part}.parquet")
    look = tick(policy, partitions=["a", "b", "c"])
    first = look()
    assert (first.run_requests, first.cursor) == ([], None)
    assert "2 partitions have files" in first.skip_message
    assert "`dagster sensor cursor sensor_notes --set all`" in first.skip_message
    assert [request.partition_key for request in look("all").run_requests] == ["a", "b"]
    skipped = look("skip")
    assert (skipped.run_requests, skipped.skip_message) == (
        [],
        "2 partitions with files that are there now count as seen",
    )
    assert look(skipped.cursor).run_requests == []
    write(tmp_path / "a.parquet", rows=41)
    write(tmp_path / "c.parquet")
    assert [request.partition_key for request in look(skipped.cursor).run_requests] == ["a", "c"]


@pytest.mark.parametrize("table", [False, True], ids=["file", "delta"])
def test_the_cursor_of_a_sensor_is_a_hash_under_the_noise_key(make_policy, tmp_path, table):
    """Its sizes follow from raw texts, and anyone who reads Dagster's database could compute an unkeyed one."""
    write(tmp_path / "raw.parquet")
    source = tmp_path / "raw.parquet"
    if table:
        pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
        source = tmp_path / "table"
        pl.read_parquet(tmp_path / "raw.parquet").write_delta(str(source))
    policy = make_policy(source=str(source))
    look = tick(policy)
    first = look()
    assert look(first.cursor).run_requests == []
    _kernel.Secret().write(str(tmp_path / "other.key"))
    other = tick(policy.model_copy(update={"key": f"file:{tmp_path / 'other.key'}"}))()
    found, theirs = json.loads(first.cursor), json.loads(other.cursor)
    assert found.keys() == theirs.keys()
    assert found != theirs
    assert first.run_requests[0].run_key != other.run_requests[0].run_key


def test_a_schedule_is_that_of_the_job_or_of_its_partitions(make_policy, tmp_path):
    daily = orchestration.build_definitions(make_policy(), schedule="0 4 * * *").resolve_schedule_def("schedule_notes")
    assert (daily.cron_schedule, daily.default_status) == ("0 4 * * *", dg.DefaultScheduleStatus.STOPPED)
    parts = make_policy(source=str(tmp_path / "{partition}.parquet"), sink=str(tmp_path / "out" / "{partition}"))
    months = dg.MonthlyPartitionsDefinition("2026-01", fmt="%Y-%m")
    made = orchestration.build_definitions(parts, partitions=months, schedule="@daily")
    assert made.resolve_schedule_def("schedule_notes").cron_schedule == "0 0 1 * *"
    with pytest.raises(PolicyError, match="which of the named partitions"):
        orchestration.build_definitions(parts, partitions=["a"], schedule="@daily")


def test_the_component_has_the_same_settings(make_policy, tmp_path):
    policy = write_file(make_policy(), tmp_path / "privacy.toml", dagster={"tags": {"team": "privacy"}})
    attributes = {
        "policy": str(policy), "key_prefix": "v2", "source_asset": "dump/notes", "max_retries": 2,
        "owners": ["team:privacy"], "schedule": "@daily", "watch_source": True,
    }  # fmt: skip
    component = orchestration.PolicyComponent.from_attributes_dict(attributes=attributes)
    defs = component.build_defs(trees.ComponentTree.for_test().load_context)
    assert keys(defs) == {"dump/notes", "v2/staged_notes", "v2/published_notes"}
    job = defs.resolve_job_def("run_v2_notes")
    assert (job.executor_def.name, defs.executor, job.run_tags["team"]) == ("in_process", None, "privacy")
    assert job.get_node_named("v2__staged_notes").definition.retry_policy.max_retries == 2
    assert {item.name for item in [*defs.schedules, *defs.sensors]} == {"schedule_v2_notes", "sensor_v2_notes"}


def test_a_sensor_looks_at_the_version_of_a_table(make_policy, tmp_path):
    pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
    place = tmp_path / "table"
    write(tmp_path / "rows.parquet")
    rows = pl.read_parquet(tmp_path / "rows.parquet")
    rows.write_delta(str(place))
    look = tick(make_policy(source=str(place)))
    first = look()
    assert (len(first.run_requests), look(first.cursor).run_requests) == (1, [])
    (place / "left over.parquet").touch()
    assert look(first.cursor).run_requests == [], "a file that the log does not list is no row"
    rows.head(1).write_delta(str(place), mode="append")
    assert len(look(first.cursor).run_requests) == 1
