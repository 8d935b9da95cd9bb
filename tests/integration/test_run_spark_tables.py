"""Spark reads one version of a Delta Lake or Iceberg table by the list of its files, and publishes such tables."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from dptext_etl import run
from dptext_etl.engines import local
from dptext_etl.engines.spark import spark_engine
from dptext_etl.engines.spark.session import read_source
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.errors import InputError
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source.table import Files

LongType = pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed (extra: tables)").LongType
deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")


def run_on_spark(spark, policy):
    """As `dptext run --engine spark` does."""
    source = Files.find(Layout.of(policy))
    return run(policy, engine=SparkEngine(read_source(spark, policy, None, source), source=source))


def published(job):
    return scan_published(str(job.folder / "published")).collect().sort("id")


def manifest(job):
    return json.loads((job.folder / "published.manifest.json").read_text())


@pytest.fixture
def steps(monkeypatch):
    """How often a run looked at the rows of its source."""
    looked = []
    for module in (local, spark_engine):
        examine = module.examine
        monkeypatch.setattr(
            module, "examine", lambda *given, examine=examine, **more: looked.append(1) or examine(*given, **more)
        )
    return looked


@pytest.mark.thorough
def test_a_delta_table_is_read_by_its_log(spark, make_job, reviews, steps):
    job, other = make_job("spark"), make_job("polars")
    place = str(job.folder / "table")
    reviews(120).drop("note").write_delta(place)
    reviews(120, 120).write_delta(place, mode="append", delta_write_options={"schema_mode": "merge"})
    deltalake.DeltaTable(place).delete("id < 'r00100'")
    other.run(source=place)
    summary = run_on_spark(spark, job.policy(source=place))
    assert published(job).equals(published(other))
    assert manifest(job)["source"] == {"format": "delta", "version": "2"}
    assert (summary.rows["read"], len(steps)) == (140, 2)
    for again in (lambda: run_on_spark(spark, job.policy(source=place)), lambda: other.run(source=place)):
        assert "nothing was computed again" in again().notes[0]
    assert len(steps) == 2
    reviews(10, 240).write_delta(place, mode="append")
    assert run_on_spark(spark, job.policy(source=place)).rows["new"] == 10


@pytest.mark.thorough
def test_partitions_of_a_delta_table_are_columns(spark, job, reviews):
    place = str(job.folder / "table")
    options = {"partition_by": ["stars"]}
    reviews().with_columns(stars=pl.when(pl.col("stars") > 1).then("stars")).write_delta(
        place, delta_write_options=options
    )
    run_on_spark(spark, job.policy(source=place))
    assert published(job)["stars"].to_list() == [i % 5 + 1 if i % 5 else None for i in range(240)]
    assert published(job)["stars"].dtype == pl.Int64


def test_a_table_that_was_made_anew_is_another_one(job, reviews, steps):
    import shutil

    place = str(job.folder / "table")
    reviews().write_delta(place)
    job.run(source=place)
    shutil.rmtree(place)
    reviews(200).write_delta(place)
    assert job.run(source=place).rows["read"] == 200
    assert len(steps) == 2


def test_a_delta_table_whose_files_are_not_its_rows_is_refused(spark, job, reviews):
    place = job.folder / "table"
    reviews().write_delta(str(place))
    log = place / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(InputError, match=r"Delta Lake with the features deletionVectors.*also hold other rows"):
        run_on_spark(spark, job.policy(source=str(place)))
    assert not (job.folder / "ledger.db").exists()


@pytest.fixture
def iceberg(job, reviews):
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed (extra: dev)")
    from pyiceberg.catalog.sql import SqlCatalog

    place = job.folder / "warehouse"
    place.mkdir()
    catalog = SqlCatalog("local", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    catalog.create_namespace("raw")
    rows = reviews(240).with_columns(pl.col("stars").cast(pl.Int32)).to_arrow(compat_level=pl.CompatLevel.oldest())
    table = catalog.create_table("raw.reviews", schema=rows.schema)
    table.append(rows)
    return table


def test_an_iceberg_table_is_read_by_its_metadata(spark, make_job, job, iceberg, steps):
    """Also where a column was widened, and one was added, since its files were written."""
    other = make_job("polars")
    iceberg.delete("id < 'r00100'")
    with iceberg.update_schema() as change:
        change.update_column("stars", LongType())
        change.add_column("added", LongType())
    policies = [one.policy(source=iceberg.metadata_location.removeprefix("file://")) for one in (job, other)]
    assert run_on_spark(spark, policies[0]).rows["read"] == 140
    run(policies[1])
    assert published(job).equals(published(other))
    assert manifest(job)["source"]["format"] == "iceberg"
    assert "nothing was computed again" in run_on_spark(spark, policies[0]).notes[0]
    assert len(steps) == 2


def test_renamed_columns_of_an_iceberg_table_are_refused(spark, job, iceberg):
    with iceberg.update_schema() as change:
        change.rename_column("note", "remark")
    policy = job.policy(source=iceberg.metadata_location.removeprefix("file://"))
    with pytest.raises(InputError, match="columns that were renamed"):
        run_on_spark(spark, policy)
    newest = Path(policy.source)
    text = re.sub(r'("name":\s*"stars",[^}]*?"type":\s*)"int"', r'\1"timestamp_ns"', newest.read_text())
    newest.write_text(
        re.sub(r'"format-version":\s*2', '"format-version": 3, "next-row-id": 0', text).replace('"remark"', '"note"')
    )
    with pytest.raises(InputError, match="columns in nanoseconds, which Spark does not read"):
        run_on_spark(spark, policy)
    assert not (job.folder / "ledger.db").exists()


@pytest.mark.thorough
def test_spark_publishes_a_table(spark, job, reviews):
    job.values["table"] = {"format": "delta"}
    policy = job.policy()
    assert run_on_spark(spark, policy).version == 1
    rows = pl.read_delta(str(job.folder / "published"))
    assert rows["id"].sort().to_list() == reviews()["id"].to_list()
    assert not run_on_spark(spark, policy).changed
    assert deltalake.DeltaTable(str(job.folder / "published")).version() == 0
