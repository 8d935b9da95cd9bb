"""Spark reads one version of a Delta Lake or Iceberg table by the list of its files, and publishes such tables."""

import json

import polars as pl
import pytest

from dptext_etl import run
from dptext_etl.engines import local
from dptext_etl.engines.spark import spark_engine
from dptext_etl.engines.spark.session import located, read_source
from dptext_etl.engines.spark.spark_engine import SparkEngine
from dptext_etl.errors import InputError
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.source.table import Files
from dptext_etl.spark import published as read_published

from .spark_runs import used

types = pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed (extra: tables)")
deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")


def run_on_spark(spark, policy):
    """As `dptext run --engine spark` does."""
    assert spark is not None
    with SparkEngine.started(policy, None) as engine:
        return run(policy, engine=engine)


def published(job):
    rows = scan_published(str(job.folder / "published")).collect()
    return rows.sort(rows.columns[0])


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
    with pytest.raises(InputError, match=r"Delta Lake with the features deletionVectors.*do not show its rows"):
        run_on_spark(spark, job.policy(source=str(place)))
    assert not (job.folder / "ledger.db").exists()


@pytest.mark.thorough
def test_an_iceberg_table_is_read_by_the_ids_of_its_columns(spark, job, reviews, steps):
    if not hasattr(spark.range(1), "toArrow"):
        pytest.skip("Spark 3.5 returns no table of Arrow")
    """As it shows itself now: without deleted rows, and with columns that were renamed, widened, dropped, and added."""
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed (extra: dev)")
    from pyiceberg.catalog.sql import SqlCatalog

    place = job.folder / "warehouse"
    place.mkdir()
    catalog = SqlCatalog("local", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    catalog.create_namespace("raw")
    frame = reviews(240).with_columns(pl.col("stars").cast(pl.Int32), pair=pl.struct(p="stars", q="id"))
    rows = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    table = catalog.create_table("raw.reviews", schema=rows.schema)
    table.append(rows)
    table.delete("id < 'r00100'")
    exchanged = [("user_id", "other"), ("id", "user_id"), ("other", "id"), ("secret", "key")]
    for before, after in [*exchanged, (("pair", "p"), "r"), (("pair", "q"), "p"), (("pair", "r"), "q")]:
        with table.update_schema() as change:
            change.rename_column(before, after)
    with table.update_schema() as change:
        change.update_column("stars", types.LongType())
        change.delete_column("note")
        change.add_column(("pair", "added"), types.LongType())
    with table.update_schema() as change:
        change.add_column("note", types.StringType())
    policy = job.policy(
        source=table.metadata_location.removeprefix("file://"), id="key", subject="user_id", keep=["stars", "pair"]
    )
    expected = Files.find(Layout.of(policy)).scan().collect()
    assert (expected["note"].null_count(), expected["user_id"].min()) == (140, "r00100")
    assert pl.DataFrame(read_source(spark, policy).toArrow()).sort("key").equals(expected.sort("key"))
    assert run_on_spark(spark, policy).rows["read"] == 140
    assert published(job)["note"].null_count() == 140
    assert "nothing was computed again" in run_on_spark(spark, policy).notes[0]
    assert len(steps) == 1


def test_parquet_files_of_a_folder_are_read_as_polars_reads_them(spark, make_job, reviews, save):
    """Columns of folder names are kept and name persons, and a name of a folder is not a pattern."""
    job, other = (make_job(name, keep=["stars", "shop"], subject="user") for name in ("what[1]{a,b}?", "other"))
    for one in (job, other):
        for user in range(40):
            place = one.folder / "raw" / "shop=a%2Fb" / f"user={user}"
            save(reviews(3, 3 * user).with_columns(shop=pl.lit("a/b")), place / "part-0.parquet")
        one.values["source"] = str(one.folder / "raw")
    run_on_spark(spark, job.policy())
    other.run()
    assert published(job).equals(published(other))
    assert used(job) == used(other)
    (job.folder / "raw" / "shop=a%2Fb" / "user=1" / "part-0.parquet").rename(job.folder / "_part.parquet")
    with pytest.raises(InputError, match=r"begins with .* and Spark ignores such files"):
        read_source(spark, job.policy(source=str(job.folder / "_part.parquet")))
    place = job.folder / "raw" / "shop=a%2Fb" / "user=2" / "part-0.parquet"
    rows = pl.read_parquet(place, glob=False)
    rows.with_columns(shop=pl.lit("b")).write_parquet(place)
    with pytest.raises(InputError, match="column 'shop' is in the names of the source's folders"):
        read_source(spark, job.policy())
    rows.drop("note").write_parquet(place)
    spark.read.parquet(str(other.folder / "raw.parquet")).coalesce(1).write.parquet(str(other.folder / "written"))
    (written,) = (other.folder / "written").glob("*.parquet")
    read_source(spark, job.policy(source=str(written), keep=[], subject="user_id"))
    reviews(7).write_parquet(written)
    with pytest.raises(InputError, match=r"has changed since Hadoop wrote its checksums next to it"):
        read_source(spark, job.policy(source=str(written), keep=[], subject="user_id"))
    with pytest.raises(InputError, match=r"part-0.parquet has no such column \(column 'note'"):
        read_source(spark, job.policy())


@pytest.mark.thorough
def test_every_reader_of_files_refuses_checksums_of_other_bytes_and_hidden_names(spark, job, reviews):
    reviews().write_delta(str(job.folder / "delta"))
    run(job.policy())
    run(job.policy(release="2", sink=str(job.folder / "text.csv")))
    sources = {
        "delta/*.parquet": lambda: read_source(spark, job.policy(source=str(job.folder / "delta"))),
        "published/*.parquet": lambda: read_published(spark, str(job.folder / "published")),
        "text.csv/*.csv": lambda: read_published(spark, str(job.folder / "text.csv")),
    }
    for pattern, read in sources.items():
        file = next(job.folder.glob(pattern))
        read()
        (file.parent / f".{file.name}.crc").write_bytes(b"crc\0\0\0\2\0" + bytes(4))
        with pytest.raises(InputError, match=r"has changed since Hadoop wrote its checksums next to it"):
            read()
    with pytest.raises(InputError, match=r"begins with .* and Spark ignores such files"):
        located("s3://bucket/raw/day=1/_part.parquet")


def test_a_damaged_file_is_named(spark, job, reviews):
    """Spark's reader fails on an executor, and executors look for the file."""
    place = job.folder / "raw"
    place.mkdir()
    for name, first in (("a", 0), ("b", 500)):
        reviews(500, first).write_parquet(place / f"{name}.parquet")
    bad = place / "b.parquet"
    content = bad.read_bytes()
    third = len(content) // 3
    bad.write_bytes(content[:third] + bytes(third) + content[2 * third :])
    with pytest.raises(InputError, match=rf"the file {bad} cannot be read as Parquet"):
        run_on_spark(spark, job.policy(source=str(place)))
