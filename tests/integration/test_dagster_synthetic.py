"""The Dagster job publishes the synthetic table that a run publishes."""

import json

import polars as pl
import pytest

from ..synthetic_runs import published, used, verified

dg = pytest.importorskip("dagster", reason="dagster is not installed")

from dptext_etl.orchestration import build_definitions, materialize  # noqa: E402


def test_the_job_publishes_what_a_run_publishes(make_synthetic):
    job, other = make_synthetic("dagster"), make_synthetic("run")
    expected = other.run()
    summary = materialize(job.policy())
    assert summary.success
    assert job.files() == other.files()
    assert used(job) == used(other)
    assert [(check.name, check.passed) for check in summary.gates] == [(gate["name"], True) for gate in expected.gates]
    assert {check.name for check in summary.checks if check.asset == "published_reviews"} >= {"published_files"}
    again = materialize(job.policy())
    assert again.success
    assert again.runs[0].assets["published_reviews"]["manifest sha256"] == expected.manifest
    assert again.runs[0].assets["published_reviews"]["rows replayed"] == 240
    assert used(job) == used(other)
    assert verified(job) == []


def test_metadata_holds_declared_facts(make_synthetic, reviews, sentinel):
    """Neither texts nor labels of the source, and no number of the statistic, stand in any event."""
    raw = reviews().with_columns(topic=pl.lit(f"label {sentinel}"))
    job = make_synthetic(frame=raw)
    found = materialize(job.policy())
    assert found.success
    said = json.dumps(found.as_dict())
    assert sentinel not in said
    staged, shown = (found.runs[0].assets[name] for name in ("staged_reviews", "published_reviews"))
    assert (staged["dagster/row_count"], shown["dagster/row_count"]) == (50, 50)
    assert (shown["epsilon of the whole table for one record"], shown["rows released"]) == (2.0, 240)
    manifest = json.loads((job.folder / "published.manifest.json").read_text())
    assert manifest["columns"][0]["statistic"]["sums"] not in said
    assert not set(published(job)["review"]) & {part for part in said.split('"') if " " in part}


def test_definitions_state_the_guarantee(make_synthetic):
    defs = build_definitions(make_synthetic().policy(publish=False))
    found = [spec for item in defs.resolve_asset_graph().assets_defs for spec in item.specs]
    specs = {spec.key.to_user_string(): spec for spec in found}
    assert "CENTRAL_ZCDP" in specs["staged_reviews"].metadata["guarantee"].value
    assert specs["raw_reviews"].metadata["text columns"] == "review"
