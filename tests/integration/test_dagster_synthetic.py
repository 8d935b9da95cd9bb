"""The Dagster job publishes the synthetic table that a run publishes, and the unlinked release."""

import json

import polars as pl
import pytest

from dptext_etl import orchestration

from ..later import later
from ..synthetic_runs import used, verified

later("dagster")


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


def test_definitions_state_the_guarantee(make_synthetic):
    defs = orchestration.build_definitions(make_synthetic().policy(publish=False))
    found = [spec for item in defs.resolve_asset_graph().assets_defs for spec in item.specs]
    specs = {spec.key.to_user_string(): spec for spec in found}
    assert "CENTRAL_ZCDP" in specs["staged_reviews"].metadata["guarantee"].value
    assert specs["raw_reviews"].metadata["text columns"] == "review"


@pytest.mark.thorough
def test_the_job_publishes_the_unlinked_release_of_a_run(make_unlinked):
    entry = {"rows": 70, "delta": 1e-9, "per_subject": 2, "form": "counts"}
    job, other = (make_unlinked(name, unlinked=entry) for name in ("dagster", "run"))
    other.run()
    assert orchestration.materialize(job.policy()).success
    mine, theirs = ({path.split("/")[-1]: data for path, data in one.files().items()} for one in (job, other))
    assert mine == theirs
    assert pl.read_parquet(job.folder / "published" / "*.parquet")["count"].sum() == 80
