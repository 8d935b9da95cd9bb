"""Kept columns have one type per published table: other types are refused before anything is charged."""

import polars as pl
import pytest

from dptext_etl.errors import InputError
from dptext_etl.polars import run_frame
from dptext_etl.runner import scan_published
from dptext_etl.runner.planning import plan

INCREMENTAL = {"incremental": True}


def published(job):
    return scan_published(str(job.folder / "published")).collect()


AS_PANDAS = pl.when(pl.col("stars") > 1).then(pl.col("stars").cast(pl.Float64))
"""pandas holds whole numbers as floats once a cell is missing."""
MOMENT = pl.datetime(2026, 1, "stars")
CHANGES = {
    "Int64, then Float64": (
        pl.col("stars"),
        AS_PANDAS,
        r"2 \('stars'\) is of type Float64, and published as Int64",
    ),
    "Float64, then Int64": (AS_PANDAS, pl.col("stars"), "is of type Int64, and published as Float64"),
    "fewer bits": (pl.col("stars"), pl.col("stars").cast(pl.Int32), "is of type Int32, and published as Int64"),
    "strings": (pl.col("stars"), pl.col("stars").cast(pl.String), "is of type String, and published as Int64"),
    "time zones": (
        MOMENT.dt.replace_time_zone("UTC"),
        MOMENT.dt.replace_time_zone("Europe/Berlin"),
        "is of type Datetime",
    ),
    "in a list": (
        pl.concat_list("stars"),
        pl.concat_list(AS_PANDAS),
        "is of type List of Float64, and published as List of Int64",
    ),
    "in a struct": (
        pl.struct("stars", zzq=pl.lit(1)),
        pl.struct("stars", zzq=pl.lit(1.5)),
        r"is of type Struct of 2 fields \(Int64, Float64\), and published as Struct of 2 fields \(Int64, Int32\)",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_incremental_run_adds_no_part_of_another_type(make_job, reviews, save, change):
    first, second, message = CHANGES[change]
    job = make_job(frame=reviews().with_columns(stars=first))
    job.run(**INCREMENTAL)
    charged, before = job.charged(), published(job)
    source = reviews(300).with_columns(stars=second)
    save(source, job.folder / "raw.parquet")
    for attempt in (
        job.run,
        lambda **changes: plan(job.policy(**changes)),
        lambda **changes: run_frame(source, job.policy(**changes)),
    ):
        with pytest.raises(InputError, match=message) as caught:
            attempt(**INCREMENTAL)
        assert "zzq" not in str(caught.value)
    assert job.charged() == charged
    assert published(job).equals(before)
    assert job.run().published_rows == 300
    assert published(job).height == 300


@pytest.mark.parametrize("suffix", [".ndjson", ".csv"])
def test_formats_without_types_refuse_them_as_well(make_job, reviews, save, suffix):
    job = make_job(suffix=suffix)
    frame = reviews(300).with_columns(stars=AS_PANDAS)
    run_frame(reviews(), job.policy(**INCREMENTAL))
    with pytest.raises(InputError, match="is of type Float64, and published as Int64"):
        run_frame(frame, job.policy(**INCREMENTAL))
    assert job.charged()["review"][0] < 300


def test_a_column_of_nulls_gets_the_type_that_is_published(make_job, reviews, save):
    job = make_job()
    job.run(**INCREMENTAL)
    untyped = pl.when(pl.col("id") < "r00240").then("stars")
    save(reviews(60, 240).with_columns(stars=pl.lit(None)), job.folder / "raw.parquet")
    job.run(**INCREMENTAL, deletions="keep")
    found = published(job)
    assert found.schema["stars"] == pl.Int64
    assert found["stars"].equals(reviews(300).select(untyped).to_series())
