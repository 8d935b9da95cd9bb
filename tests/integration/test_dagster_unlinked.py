"""The Dagster job publishes the unlinked release that a run publishes."""

import json
from functools import partial

import polars as pl
import pytest

dg = pytest.importorskip("dagster", reason="dagster is not installed")

from dptext_etl.orchestration import materialize  # noqa: E402

UNLINKED = {"rows": 70, "delta": 1e-9, "per_subject": 2, "form": "counts"}


@pytest.fixture
def make_unlinked(make_unlinked):
    return partial(make_unlinked, unlinked=UNLINKED)


def test_the_job_publishes_what_a_run_publishes(make_unlinked):
    job, other = make_unlinked("dagster"), make_unlinked("run")
    (other.folder / "noise.key").write_bytes((job.folder / "noise.key").read_bytes())
    other.run()
    summary = materialize(job.policy())
    assert summary.success
    for name in ("published.manifest.json", "published"):
        theirs, mine = other.files(name), job.files(name)
        assert {path.split("/")[-1]: data for path, data in mine.items()} == {
            path.split("/")[-1]: data for path, data in theirs.items()
        }
    manifest = json.loads((job.folder / "published.manifest.json").read_text())
    assert manifest["schema"] == {"review": "String", "count": "Int64"}
    rows = pl.read_parquet(job.folder / "published" / "*.parquet")
    assert (rows["count"].sum(), rows["review"].is_sorted()) == (80, True)
