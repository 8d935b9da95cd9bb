"""Partitions in Dagster: by name and by time, a run for each, one run for a backfill, and texts that are rewritten."""

import polars as pl
import pytest

from dptext_etl import Policy, orchestration
from dptext_etl.mechanism import Released
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.runner import scan_published
from dptext_etl.runner.shard import computing

from ..later import later
from ..toy_mechanisms import again  # noqa: F401  (a fixture)
from .dagster_runs import GATES, PUBLISHED, QUIET, STAGED

dg = later("dagster")
MONTHS = ("2026-01", "2026-02", "2026-03")


@pytest.fixture
def months(make_job, save, reviews):
    """A job over three months."""
    job = make_job()
    for number, name in enumerate(MONTHS):
        save(reviews(60, 60 * number), job.folder / "raw" / f"{name}.parquet")
    job.values |= {
        "source": f"{job.folder}/raw/{{partition}}.parquet",
        "sink": f"{job.folder}/published/{{partition}}",
        "shard_rows": 50,
    }
    return job


def backfill(policy, instance, first, last):
    """Take a range of partitions in one run."""
    defs = orchestration.build_definitions(policy, backfill="single_run")
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    job = defs.resolve_job_def("run_reviews")
    return job.execute_in_process(run_config=QUIET, instance=instance, tags=tags, raise_on_error=False)


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def published(job):
    return sorted(path.name.partition(".")[0] for path in job.folder.glob("published/*.manifest.json"))


def parts(job):
    """The published files, without the staged files."""
    return {path: content for path, content in job.files().items() if ".staging/" not in path}


@pytest.mark.thorough
def test_a_backfill_in_one_run_is_the_same_release(months, make_job, instance):
    assert backfill(months.policy(), instance, "2026-01", "2026-03").success
    files, charged = parts(months), months.charged()
    orchestration.materialize(months.policy())
    assert published(months) == list(MONTHS)
    assert parts(months) == files
    assert months.charged() == charged


@pytest.mark.thorough
def test_what_is_said_of_a_partition_is_kept_with_it(months, save, reviews, instance):
    save(reviews(20, 500), months.folder / "raw" / "2026-02.parquet")
    result = backfill(months.policy(), instance, "2026-01", "2026-02")
    assert result.success
    for asset in (STAGED, PUBLISHED):
        said = {}
        for name in ("2026-01", "2026-02"):
            wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), asset_partitions=[name])
            (record,) = instance.fetch_materializations(wanted, limit=10).records
            said[name] = record.asset_materialization.metadata["dagster/row_count"].value
        assert said == {"2026-01": 60, "2026-02": 20}
    evaluations = [item for item in result.get_asset_check_evaluations() if item.asset_key == dg.AssetKey(STAGED)]
    checks = {(check.check_name, check.partition): check for check in evaluations}
    assert {(gate, name) for gate in GATES for name in ("2026-01", "2026-02")} <= set(checks)
    cells = {name: checks["rows_ledgered", name].metadata["cells"].value for name in ("2026-01", "2026-02")}
    assert cells["2026-01"] > cells["2026-02"] > 0
    for name in cells:
        wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(STAGED), asset_partitions=[name])
        (record,) = instance.fetch_materializations(wanted, limit=10).records
        assert checks["rows_ledgered", name].target_materialization_data.storage_id == record.storage_id


def header_only(job, name):
    job.values["source"] = f"{job.folder}/raw/{{partition}}.csv"
    for path in sorted((job.folder / "raw").glob("*.parquet")):
        rows = pl.read_parquet(path)
        (rows.clear() if path.stem == name else rows).write_csv(path.with_suffix(".csv"))


def failed_steps(result):
    failures = [event for event in result.all_events if event.is_step_failure]
    return {event.step_key: event.step_failure_data.user_failure_data.description for event in failures}


def test_a_partition_without_rows_stops_no_other_partition_of_the_run(months, instance):
    header_only(months, "2026-02")
    result = backfill(months.policy(), instance, "2026-01", "2026-03")
    assert not failed_steps(result)
    assert published(months) == ["2026-01", "2026-03"]
    evaluations = [item for item in result.get_asset_check_evaluations() if item.partition == "2026-02"]
    assert evaluations
    assert {item.description for item in evaluations if item.blocking} == {
        "nothing new is staged, so there was nothing to judge"
    }
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(STAGED), asset_partitions=["2026-02"])
    (record,) = instance.fetch_materializations(wanted, limit=10).records
    assert "no rows" in record.asset_materialization.metadata["notes"].value


@pytest.mark.thorough
def test_a_run_of_partitions_without_rows_fails_and_names_one(months, instance):
    header_only(months, "2026-02")
    result = backfill(months.policy(), instance, "2026-02", "2026-02")
    assert failed_steps(result)["staged_reviews"].startswith("partition 2026-02: the source has no rows")
    assert published(months) == []


class LeakyInFebruary(CusText):
    """Gives back the texts of February as they were."""

    def release(self, texts, keys):
        released = super().release(texts, keys)
        february = any("februarymark" in (text or "") for text in texts.to_pylist())
        return Released(texts.cast(released.text.type), released.positions) if february else released


class LeakyInFebruaryPolicy(Policy):
    def column_policies(self):
        return [
            c.model_copy(update={"mechanism": LeakyInFebruary(**c.mechanism.model_dump())})
            for c in super().column_policies()
        ]


def test_one_fired_gate_publishes_no_partition_of_the_run(months, reviews, save, instance, sentinel):
    marked = reviews(60, 60).with_columns(review=pl.lit("februarymark ") + pl.col("review"))
    save(marked, months.folder / "raw" / "2026-02.parquet")
    policy = LeakyInFebruaryPolicy.model_validate(months.policy().model_dump(by_alias=True, exclude_none=True))
    result = backfill(policy, instance, "2026-01", "2026-03")
    assert not result.success
    assert published(months) == []
    failed = next(e.step_failure_data.user_failure_data for e in result.all_events if e.is_step_failure)
    assert failed.metadata["exit_code"].value == 4
    assert "canary_text_absent" in failed.description
    assert sentinel not in failed.description
    evaluations = [item for item in result.get_asset_check_evaluations() if item.asset_key == dg.AssetKey(STAGED)]
    checks = {(check.check_name, check.partition): check for check in evaluations}
    assert not checks["canary_text_absent", "2026-02"].passed
    blocking = [check for check in checks.values() if check.blocking]
    assert not any(check.passed for check in blocking if check.partition == "2026-03")  # the name is revoked
    assert "not evaluated" in checks["raw_column_absent", "2026-03"].description
    assert checks["raw_column_absent", "2026-01"].metadata["missing"].value == 0


ROWS, CANARIES = 60, 8
TWO = ("2026-01", "2026-02")


@pytest.fixture
def two_months(make_job, save, reviews, again):  # noqa: F811
    """Two months of reviews whose releases are rewritten."""
    job = make_job("rewriting")
    for number, name in enumerate(TWO):
        save(reviews(ROWS, ROWS * number), job.folder / "raw" / f"{name}.parquet")
    mechanism = {"name": "custext", "epsilon": 2.0, "k": 5, "vectors": job.vectors}
    review = {"name": "review", "mechanism": mechanism, "allow": ["cluster"]}
    job.values |= {
        "source": f"{job.folder}/raw/{{partition}}.parquet",
        "sink": f"{job.folder}/published/{{partition}}",
        "column": [{**review, "postprocess": [{"name": "again"}], "keep_intermediate": True}],
    }
    job.again = again
    return job


@pytest.fixture
def dies_once(monkeypatch):
    """The first rewriting dies: its shard is committed, and nothing is made of it."""
    real, calls = computing.rewrite, []

    def rewrite(*given):
        calls.append(len(calls))
        if calls == [0]:
            raise MemoryError
        return real(*given)

    monkeypatch.setattr(computing, "rewrite", rewrite)
    return calls


def published_rows(job, month):
    return scan_published(f"{job.folder}/published/{month}").collect().sort("id")


def facts(result, asset):
    (event,) = [event for event in result.get_asset_materialization_events() if event.asset_key == dg.AssetKey(asset)]
    return event.step_materialization_data.materialization.metadata


@pytest.mark.thorough
def test_a_step_that_died_before_rewriting_is_tried_again_and_pays_once(two_months, dies_once):
    defs = orchestration.build_definitions(two_months.policy(), retry_policy=dg.RetryPolicy(max_retries=1))
    job, month = defs.resolve_job_def("run_reviews"), TWO[0]
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(run_config=QUIET, partition_key=month, instance=instance)
    assert result.success
    retried = [event for event in result.all_events if event.event_type_value == "STEP_RESTARTED"]
    assert ([event.step_key for event in retried], dies_once) == ([STAGED], [0, 1])
    assert facts(result, STAGED)["rows replayed"].value == ROWS, "the first attempt had committed all rows"
    table = published_rows(two_months, month)
    assert (table["review"].str.split(" ").list.len() - 1).to_list() == table["review_intermediate"].str.split(
        " "
    ).list.len().to_list()
    assert two_months.charged() == {"review": (ROWS + CANARIES, ROWS + CANARIES)}
    with two_months.ledger() as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        assert report.counts["rewritten"] == ROWS + CANARIES
    columns = {item.name: item for item in facts(result, PUBLISHED)["dagster/column_schema"].schema.columns}
    assert columns["review"].description.endswith("then rewritten at no cost: again")
    assert columns["review_intermediate"].description == "released by custext with the parameter epsilon 2"
    assert columns["review"].tags == {"mechanism": "custext", "epsilon": "2", "postprocess": "again"}
    (copies,) = [item for item in result.get_asset_check_evaluations() if item.check_name == "report_copies"]
    assert copies.metadata["review, rewritten: copies"].value == 0
