"""A Dagster run whose texts are rewritten: partitions, a step that dies between commit and post-processing, a retry."""

import pytest

from dptext_etl import orchestration
from dptext_etl.runner import scan_published
from dptext_etl.runner.shard import computing

from ..later import later
from ..toy_mechanisms import again  # noqa: F401  (a fixture)
from .dagster_runs import PUBLISHED, QUIET, STAGED

dg = later("dagster")
pytestmark = pytest.mark.thorough
ROWS, CANARIES = 60, 8
MONTHS = ("2026-01", "2026-02")


@pytest.fixture
def months(make_job, save, reviews, again):  # noqa: F811
    """Two months of reviews whose releases are rewritten."""
    job = make_job("rewriting")
    for number, name in enumerate(MONTHS):
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


def published(job, month):
    return scan_published(f"{job.folder}/published/{month}").collect().sort("id")


def facts(result, asset):
    (event,) = [event for event in result.get_asset_materialization_events() if event.asset_key == dg.AssetKey(asset)]
    return event.step_materialization_data.materialization.metadata


def test_a_step_that_died_before_rewriting_is_tried_again_and_pays_once(months, dies_once):
    defs = orchestration.build_definitions(months.policy(), retry_policy=dg.RetryPolicy(max_retries=1))
    job, month = defs.resolve_job_def("run_reviews"), MONTHS[0]
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(run_config=QUIET, partition_key=month, instance=instance)
    assert result.success
    retried = [event for event in result.all_events if event.event_type_value == "STEP_RESTARTED"]
    assert [event.step_key for event in retried] == [STAGED]
    assert dies_once == [0, 1]
    assert facts(result, STAGED)["rows replayed"].value == ROWS, "the first attempt had committed all rows"
    table = published(months, month)
    assert (table["review"].str.split(" ").list.len() - 1).to_list() == table["review_intermediate"].str.split(
        " "
    ).list.len().to_list()
    assert months.charged() == {"review": (ROWS + CANARIES, ROWS + CANARIES)}
    with months.ledger() as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        assert report.counts["rewritten"] == ROWS + CANARIES
    columns = {item.name: item for item in facts(result, PUBLISHED)["dagster/column_schema"].schema.columns}
    assert columns["review"].description.endswith("then rewritten at no cost: again")
    assert columns["review_intermediate"].description == "released by custext with the parameter epsilon 2"
    assert columns["review"].tags == {"mechanism": "custext", "epsilon": "2", "postprocess": "again"}
    (copies,) = [item for item in result.get_asset_check_evaluations() if item.check_name == "report_copies"]
    assert copies.metadata["review, rewritten: copies"].value == 0


def test_a_month_that_died_is_materialised_again_and_the_other_is_not_touched(months, dies_once):
    first = orchestration.materialize(months.policy())
    assert [(run.partition, run.success) for run in first.runs] == [(MONTHS[0], False), (MONTHS[1], True)]
    other = months.files(f"published/{MONTHS[1]}")
    again = orchestration.materialize(months.policy())  # noqa: F811
    assert again.success
    assert months.files(f"published/{MONTHS[1]}") == other
    assert len(months.again.got) == 2 * (ROWS + CANARIES), "no text is rewritten twice"
    assert months.charged()["review"] == (2 * (ROWS + CANARIES),) * 2
    assert set(published(months, MONTHS[0])["review_intermediate"]) <= set(months.again.got)
