"""A format of files is one class: a run, its plan, its readers, its gates, and its export need no other code."""

import polars as pl
import pytest

from dptext_etl.checks.published import check_published
from dptext_etl.engines import run
from dptext_etl.file_formats import FORMATS, PLAIN, FileFormat, format_of
from dptext_etl.runner import plan
from dptext_etl.runner.publish.export import export, verify
from dptext_etl.runner.publish.manifest import scan_published
from dptext_etl.runner.source.guessing import guess


class Arrow(FileFormat):
    name, title, suffixes = "arrow", "Arrow", (".arrow",)
    readers = ('pl.read_ipc("data/*.arrow")',) * 5

    def scan(self, sources, how=PLAIN, **options):
        return pl.scan_ipc(sources, **options)

    def writer(self, frame, compression):
        return lambda file: frame.sink_ipc(file, compression="uncompressed")


@pytest.fixture
def arrow(monkeypatch):
    monkeypatch.setitem(FORMATS, Arrow.name, Arrow())


def test_a_format_that_is_registered_in_one_place_is_read_published_checked_and_exported(make_job, reviews, arrow):
    job = make_job()
    raw = job.folder / "raw.arrow"
    reviews().write_ipc(raw)
    policy = job.policy(source=str(raw), keep=["stars"])
    assert "review" in guess(str(raw)).texts
    assert plan(policy).rows == 240
    assert run(policy).published_rows == 240
    published = scan_published(policy.sink).collect()
    parts = sorted((job.folder / "published").iterdir())
    assert {path.suffix for path in parts} == {".arrow"}
    assert pl.concat(map(pl.read_ipc, parts)).equals(published)
    assert all(verdict.passed for verdict in check_published(policy.sink, policy))
    reviews(250).write_ipc(raw)
    assert run(policy).published_rows == 250
    export(policy, job.folder / "out")
    assert verify(job.folder / "out")["rows"] == 250


def test_no_other_file_knows_its_ending(arrow):
    assert format_of("a/b.ARROW") is FORMATS["arrow"]
