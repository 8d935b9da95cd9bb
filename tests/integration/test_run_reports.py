"""Copy reports look at a sample of stated size, or at all rows where the policy asks for it or the count decides."""

import pytest

from dptext_etl.checks.text_counts import SAMPLE_ROWS

GATE = {"copy_gate_false_alarm": 1e-6, "cap": {"measure": "approx", "epsilon": 1e5, "delta": 0.1, "period": "2026"}}


@pytest.fixture
def large(job, reviews, save):
    save(reviews(rows=2 * SAMPLE_ROWS + 100), job.folder / "raw.parquet")
    return job


def reported(summary):
    return {(item["name"], item["message"].split("'")[1]): item for item in summary.reports}


def test_a_report_looks_at_a_sample_of_every_shard_and_says_so(large):
    found = reported(large.run(shard_rows=SAMPLE_ROWS + 50))
    report = found["copies_within_chance", "review"]
    assert report["counts"]["rows"] == 2 * SAMPLE_ROWS
    assert f"a sample: at most {SAMPLE_ROWS} of every shard" in report["message"]


@pytest.mark.parametrize("asked", [{"reports": ["copies"]}, GATE], ids=["asked for", "it decides"])
def test_all_rows_count_where_the_policy_asks_for_it_or_the_count_decides(large, asked):
    found = reported(large.run(shard_rows=SAMPLE_ROWS + 50, **asked))
    report = found["copies_within_chance", "review"]
    assert report["counts"]["rows"] == 2 * SAMPLE_ROWS + 100
    assert "sample" not in report["message"]


def test_what_is_released_does_not_depend_on_the_reports(make_job):
    jobs = [make_job("sampled"), make_job("all")]
    for job, asked in zip(jobs, ({}, {"reports": ["copies"]}), strict=True):
        job.run(**asked)
    assert jobs[0].files() == jobs[1].files()
