"""Types and names of Spark tables: moments, padded strings, and names with a dot."""

import json

import polars as pl
import pytest

from dptext_etl.engines.spark.frames import open_table
from dptext_etl.engines.spark.tasks import in_zones
from dptext_etl.errors import InputError
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.spark import run_frame

from ..quick import quick
from ..review_jobs import make_reviews

NOON = pl.lit("2026-07-01 12:00:00").str.to_datetime("%Y-%m-%d %H:%M:%S")
UTC, BERLIN = pl.Datetime("us", "UTC"), pl.Datetime("us", "Europe/Berlin")


@pytest.fixture
def zone(spark):
    """Set the time zone of the session; it is UTC again afterward."""
    yield lambda name: spark.conf.set("spark.sql.session.timeZone", name)
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def moments(dtype):
    rows = make_reviews(40).with_columns(at=NOON.dt.replace_time_zone("UTC").cast(dtype), plain=NOON)
    return rows.with_columns(inner=pl.struct("at"))


def test_a_moment_is_published_in_utc_whatever_the_zone_of_the_session(spark, make_job, zone):
    terms = {"id": "r.id", "keep": ["at", "plain", "inner"], "incremental": True}
    job = make_job(frame=moments(UTC).rename({"id": "r.id"}), **terms)
    rows = spark.read.parquet(str(job.folder / "raw.parquet"))
    for name, part in (("America/Los_Angeles", "`r.id` < 'r00020'"), ("Asia/Tokyo", "true")):
        zone(name)
        assert run_frame(rows.filter(part).coalesce(1), job.policy()).rows["new"] == 20
    table = scan_published(str(job.folder / "published")).collect()
    assert (table.height, table["at"].dtype, table["plain"].dtype) == (40, UTC, pl.Datetime("us"))
    assert table["inner"].dtype == pl.Struct({"field_1": UTC})
    assert {*table["at"].dt.hour(), *table["plain"].dt.hour()} == {12}


@pytest.mark.thorough
def test_a_table_that_was_published_with_a_zone_keeps_it(spark, make_job, zone):
    job = make_job(frame=moments(BERLIN), keep=["at", "plain"])
    frame = spark.read.parquet(str(job.folder / "raw.parquet"))
    zone("Asia/Tokyo")
    policy = job.policy()
    assert open_table(frame, policy, Layout.of(policy)).schema["at"] == UTC
    job.run()
    assert json.loads((job.folder / "published.manifest.json").read_text())["schema"]["at"] == str(BERLIN)
    assert open_table(frame, policy, Layout.of(policy)).schema["at"] == BERLIN
    batch = moments(pl.Datetime("us", "Asia/Tokyo")).select("at", "inner")
    assert in_zones(batch, {"at": "Europe/Berlin"}).schema == {"at": BERLIN, "inner": pl.Struct({"at": UTC})}


@pytest.mark.parametrize("column", quick(["id", "user_id"]))
def test_ids_of_type_char_are_refused_and_varchar_is_a_string(spark, job, column):
    raw = spark.read.parquet(str(job.folder / "raw.parquet"))
    policy = job.policy()
    for kind in ("char", "varchar"):
        place, name = job.folder / kind, f"{kind}_{column}"
        types = dict.fromkeys(raw.columns, "string") | {"stars": "bigint", column: f"{kind}(12)"}
        columns = ", ".join(f"{one} {dtype}" for one, dtype in types.items())
        spark.sql(f"create table {name} ({columns}) using parquet location '{place}'")
        raw.write.insertInto(name)
        table = spark.table(name)
        if kind == "char":
            with pytest.raises(InputError, match=rf"\(column '{column}'\) are of type CHAR"):
                open_table(table, policy, Layout.of(policy))
        else:
            assert open_table(table, policy, Layout.of(policy)).frame.agg({column: "max"}).collect()[0][0].strip()
        spark.sql(f"drop table {name}")
