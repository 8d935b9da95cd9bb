"""Published tables as other libraries read them, and what their logs hold (docs/spec/boundary.md#boundary)."""

import json
import re

import pytest

from dptext_etl.runner import scan_published
from tests.later import later
from tests.quick import THOROUGH

from ..toy_mechanisms import toys  # noqa: F401  (a fixture)
from .test_boundary import BLIND, long, short, table

pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (extra: tables)")
later("sqlalchemy", reason="sqlalchemy is not installed (extra: dev)")


def entry(form, folder):
    if form == "delta":
        return {"format": "delta"}
    return {
        "format": form,
        "name": "public.reviews",
        "catalog": {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"},
    }


def current(job):
    """The table's metadata, as a catalog knows where they are."""
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", **job.values["table"]["catalog"]).load_table("public.reviews")


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def job(request, make_shared):
    made = make_shared(request.param)
    made.values["table"] = entry(request.param, made.folder)
    made.run()
    return made


def place(job):
    form = job.values["table"]["format"]
    return str(job.folder / "published") if form == "delta" else current(job).metadata_location


def test_duckdb_reads_it_through_the_library_of_the_format(job):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra: dev)")
    connection = duckdb.connect()
    if job.values["table"]["format"] == "delta":
        import deltalake

        connection.register("published", deltalake.DeltaTable(place(job)).to_pyarrow_dataset())
    else:
        connection = current(job).scan().to_duckdb("published", connection)
    rows = connection.sql("SELECT * FROM published ORDER BY id").pl()
    assert rows.equals(scan_published(str(job.folder / "published")).collect())


VARIES = (
    "timestamp",
    "modificationTime",
    "lastUpdated",
    "createdTime",
    "id",
    "location",
    "metadata",
    "dptext.manifest",
)
"""Entries of a log that hold a time, a random number of the table, or where it is; the digest is compared below."""


def log(job):
    """A Delta log without what `VARIES`."""

    def plain(value):
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items() if name not in VARIES}
        return value

    paths = sorted((job.folder / "published" / "_delta_log").iterdir())
    return [plain(json.loads(line)) for path in paths for line in path.read_text().splitlines()]


def files(job):
    """The data files of an Iceberg table, with all that its manifests say of them."""
    rows = current(job).inspect.files().to_pylist()
    return sorted(re.sub(r"file:/*\S*/published/", "", str(row)) for row in rows)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_equal_draws_leave_equal_logs(make_job, toys, form):  # noqa: F811
    """Texts that differ as much as possible show in no file, log, or manifest."""
    found = []
    for name, text in (("first", short), ("second", long)):
        column = [{"name": "review", "mechanism": BLIND}]
        job = make_job(
            name, table(text, 150 if THOROUGH else 60), column=column, cap=None, shard_rows=40, shard_bytes=6_000
        )
        job.values["table"] = entry(form, job.folder)
        job.run()
        inside = [path for path in (job.folder / "published").rglob("*") if path.is_file()]
        ours = {
            str(path.relative_to(job.folder)): path.read_bytes()
            for path in inside
            if not {"_delta_log", "metadata"} & set(path.parts)
        }
        assert "published/_dptext/manifest.json" in ours
        found.append((ours, log(job) if form == "delta" else files(job)))
    assert found[0] == found[1]
