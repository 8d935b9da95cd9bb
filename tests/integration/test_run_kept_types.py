"""Kept columns have one type per table that its format can hold: others are refused before a charge."""

import json

import polars as pl
import pytest

from dptext_etl.checks.published import check_published
from dptext_etl.errors import DPTextError, InputError, PolicyError
from dptext_etl.polars import released, run_frame
from dptext_etl.runner import scan_published
from dptext_etl.runner.planning import plan
from dptext_etl.runner.publish.forgetting import forget
from tests.quick import quick

from ..refusals import foretold
from ..review_jobs import make_reviews

INCREMENTAL = {"incremental": True}


AS_PANDAS = pl.when(pl.col("stars") > 1).then(pl.col("stars").cast(pl.Float64))
"""pandas holds whole numbers as floats once a cell is missing."""
MOMENT = pl.datetime(2026, 1, "stars")
CHANGES = {
    "in a struct": (
        pl.struct("stars", zzqcell=pl.lit(1)),
        pl.struct("stars", zzqcell=pl.lit(1.5)),
        r"is of type Struct of 2 fields \(Int64, Float64\), and published as Struct of 2 fields \(Int64, Int32\)",
    ),
    "Int64, then Float64": (pl.col("stars"), AS_PANDAS, r"2 \('stars'\) is of type Float64, and published as Int64"),
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
}


@pytest.mark.parametrize("change", quick(CHANGES))
def test_an_incremental_run_adds_no_part_of_another_type(make_job, reviews, save, change):
    first, second, message = CHANGES[change]
    job = make_job(frame=reviews().with_columns(stars=first))
    job.run(**INCREMENTAL)
    charged, before = job.charged(), job.published()
    source = reviews(300).with_columns(stars=second)
    save(source, job.folder / "raw.parquet")
    for attempt in (
        job.run,
        lambda **changes: plan(job.policy(**changes)),
        lambda **changes: run_frame(source, job.policy(**changes)),
    ):
        with pytest.raises(InputError, match=message) as caught:
            attempt(**INCREMENTAL)
        assert "zzqcell" not in str(caught.value)
    assert job.charged() == charged
    assert job.published().equals(before)
    assert job.run().published_rows == 300
    assert job.published().height == 300


@pytest.mark.parametrize("suffix", quick([".ndjson", ".csv"]))
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
    found = job.published()
    assert found.schema["stars"] == pl.Int64
    assert found["stars"].equals(reviews(300).select(untyped).to_series())


SPELLED = {
    "count": (["1", "-20", None], pl.Int64),
    "share": (["0.5", "1.0", "-2.25"], pl.Float64),
    "good": (["true", "false", None], pl.Boolean),
    "zip": (["00001", "12345", "1"], pl.String),
    "code": (["1E5", "2E5", None], pl.String),
    "price": (["1.10", "2.25", None], pl.String),
    "mixed": (["1", "2.5", None], pl.String),
    "missing": (["NaN", "1.5", None], pl.String),
    "large": (["9223372036854775808", "1", None], pl.String),
    "signed": (["+1", "1", "1"], pl.String),
    "quoted": (["1", "", "2"], pl.String),
    "day": (["2026-01-05", "2026-02-01", None], pl.String),
    "nothing": ([None, None, None], pl.String),
}
"""Columns of a CSV file: their values, and the type that keeps their spelling."""


def spelled(reviews, **more):
    cells = {
        name: pl.Series([values[i % 3] for i in range(240)], dtype=pl.String) for name, (values, _) in SPELLED.items()
    }
    return reviews().with_columns(**cells, **more)


@pytest.fixture
def csv_job(make_job, reviews):
    return make_job(frame=spelled(reviews), suffix=".csv", keep=[*SPELLED])


@pytest.mark.parametrize("sink", quick(["published.parquet", "published"]))
def test_a_kept_column_of_a_csv_file_gets_a_type_only_if_every_value_keeps_its_spelling(csv_job, reviews, sink):
    place = str(csv_job.folder / sink)
    csv_job.run(sink=place)
    found = scan_published(place).collect()
    assert {name: found.schema[name] for name in SPELLED} == {name: dtype for name, (_, dtype) in SPELLED.items()}
    assert found.select(*SPELLED).cast(pl.String).equals(spelled(reviews).select(*SPELLED))


def test_a_published_csv_file_holds_every_value_as_it_was_written(csv_job, reviews):
    place = csv_job.folder / "published"
    csv_job.run()
    written = pl.concat(pl.read_csv(path, infer_schema=False) for path in sorted(place.iterdir()))
    assert written.select(*SPELLED).equals(spelled(reviews).select(*SPELLED))


def test_a_policy_names_types(csv_job):
    types = {"price": "Float64", "day": "Date", "count": "String", "mixed": "Float64"}
    csv_job.run(csv={"types": types})
    found = csv_job.published()
    assert found["price"].head(3).to_list() == [1.1, 2.25, None]
    assert found["mixed"].head(3).to_list() == [1.0, 2.5, None]
    assert (found.schema["day"], found.schema["count"]) == (pl.Date, pl.String)


@pytest.mark.parametrize(
    ("types", "message"),
    quick(
        [
            ({"zip": "Boolean"}, r"csv.types reads column 10 \('zip'\) as Boolean, and 240 values do not fit"),
            ({"missing": "Float64"}, "and 80 values do not fit"),
            ({"quoted": "Int64"}, "and 80 values do not fit"),
            ({"code": "Datetime"}, "and 160 values do not fit"),
        ],
        first=2,
    ),
)
def test_a_type_that_does_not_fit_is_refused(csv_job, types, message):
    for attempt in (csv_job.run, lambda **changes: plan(csv_job.policy(**changes))):
        with pytest.raises(InputError, match=message) as caught:
            attempt(csv={"types": types})
        assert "00001" not in str(caught.value)
    assert not (csv_job.folder / "ledger.db").exists()


@pytest.mark.parametrize("names", ["id", "user_id", "review", "absent"])
def test_only_kept_columns_have_types_of_their_own(csv_job, names):
    with pytest.raises(PolicyError, match=r"csv\.types names columns of keep"):
        csv_job.policy(csv={"types": {names: "String"}}, keep=["count", "user_id"])


@pytest.mark.parametrize("incremental", quick([True, False]))
@pytest.mark.parametrize("sink", quick(["published", "published.parquet"]))
def test_later_runs_read_with_the_types_of_the_first_one(make_job, reviews, save, sink, incremental):
    """A file whose values allow another type, and one whose values do not allow the pinned type."""
    job = make_job(frame=reviews().with_columns(stars=pl.lit("a")), suffix=".csv")
    changes = {"sink": str(job.folder / sink), "incremental": incremental}
    job.run(**changes)
    save(reviews(300), job.folder / "raw.csv")
    job.run(**changes)
    assert scan_published(changes["sink"]).collect().schema["stars"] == pl.String
    other = {**changes, "release": "2026-12"}
    job.run(**other)
    assert scan_published(changes["sink"]).collect().schema["stars"] == pl.Int64
    charged = job.charged()
    save(reviews(320).with_columns(stars=pl.format("0{}", "stars")), job.folder / "raw.csv")
    with pytest.raises(InputError, match=r"column 3 \('stars'\) is published as Int64, and 320 values do not keep"):
        job.run(**other)
    assert job.charged() == charged
    job.run(**{**other, "incremental": False}, csv={"types": {"stars": "String"}})
    assert scan_published(changes["sink"]).collect()["stars"][0] == "01"


def test_a_release_whose_types_did_not_keep_every_spelling_keeps_them(make_job, reviews, save):
    """Its first source was not a CSV file, so `1E5` is 100000.0 in it."""
    job = make_job(frame=reviews().with_columns(stars=pl.Series([1.0, 100000.0] * 120)))
    job.values["sink"] = str(job.folder / "published.parquet")
    job.run()
    manifest = job.folder / "published.parquet.manifest.json"
    assert "exact" not in json.loads(manifest.read_text())
    before = scan_published(job.values["sink"]).collect()
    save(reviews().with_columns(stars=pl.Series(["1", "1E5"] * 120)), job.folder / "raw.csv")
    job.run(source=str(job.folder / "raw.csv"))
    assert scan_published(job.values["sink"]).collect().equals(before)
    assert "exact" not in json.loads(manifest.read_text())


@pytest.mark.parametrize("sink", quick([".csv", ".ndjson"]))
@pytest.mark.parametrize("source", quick([".csv", ".parquet"]))
def test_the_gates_read_files_without_types_with_those_of_the_manifest(make_job, reviews, save, source, sink):
    frame = reviews().with_columns(id=pl.int_range(240), day=pl.date(2026, 1, "stars"), good=pl.col("stars") > 1)
    job = make_job(frame=frame, suffix=source, keep=["stars", "day", "good"])
    place = job.folder / f"published{sink}"
    job.values["sink"] = str(place)
    job.run()
    parts = sorted(place.iterdir())
    for checked in (place, parts[0]):
        assert all(verdict.passed for verdict in check_published(checked, job.policy()))
    text = scan_published(str(place)).collect().tail(40).with_columns(pl.col("stars", "day").cast(pl.String))
    save(
        text.with_columns(stars=pl.when(pl.col("day") == "2026-01-05").then(pl.lit("zzqcell")).otherwise("stars")),
        parts[-1],
    )
    failed = {
        verdict.name: verdict.message for verdict in check_published(parts[-1], job.policy()) if not verdict.passed
    }
    assert "of another type than expected: 'stars'" in failed["raw_column_absent"]


@pytest.mark.parametrize("suffix", quick([".csv", ".ndjson", ".parquet"]))
def test_a_column_that_begins_with_a_part_of_nulls_is_read(make_job, reviews, save, suffix):
    late = pl.when(pl.int_range(pl.len()) >= 30).then(pl.format("v{}", "stars")).alias("stars")
    share = pl.when(pl.int_range(pl.len()) >= 30).then(pl.col("stars") / 4).alias("share")
    frame = reviews(60).with_columns(late, share, note=pl.when(pl.int_range(pl.len()) >= 30).then(pl.col("note")))
    job = make_job(frame=frame, keep=["stars", "share"], shard_rows=20)
    job.values["sink"] = str(job.folder / f"published{suffix}")
    job.run()
    expected = frame.select("id", "stars", "share")
    assert scan_published(job.values["sink"]).select("id", "stars", "share").collect().equals(expected)
    assert all(verdict.passed for verdict in check_published(job.values["sink"], job.policy()))
    save(frame.filter(pl.col("user_id") != "u039"), job.folder / "raw.parquet")
    forget(job.policy(), subjects=["u039"])
    left = expected.filter(frame["user_id"] != "u039")
    assert scan_published(job.values["sink"]).select("id", "stars", "share").collect().equals(left)


STARS = pl.col("stars")
UNFIT = {
    "Int128": (STARS.cast(pl.Int128), {"parquet", "ndjson", "csv"}),
    "UInt128": (STARS.cast(pl.UInt128), {"parquet", "ndjson", "csv"}),
    "List of Int128": (pl.concat_list(STARS.cast(pl.Int128)), {"parquet", "ndjson", "csv"}),
    "Struct of 1 field (UInt128)": (pl.struct(STARS.cast(pl.UInt128)), {"parquet", "ndjson", "csv"}),
    "Map of Int64 to Int128": (
        pl.concat_list(pl.struct(key=STARS, value=STARS.cast(pl.Int128))).cast(pl.Map(pl.Int64, pl.Int128)),
        {"parquet", "ndjson", "csv"},
    ),
    "Binary": (STARS.cast(pl.String).cast(pl.Binary), {"ndjson", "csv"}),
    "List of Binary": (pl.concat_list(STARS.cast(pl.String).cast(pl.Binary)), {"ndjson", "csv"}),
    "Map of Int64 to Int64": (
        pl.concat_list(pl.struct(key=STARS, value=STARS)).cast(pl.Map(pl.Int64, pl.Int64)),
        {"ndjson", "csv"},
    ),
    "Duration(time_unit='us')": (pl.duration(days=STARS), {"csv"}),
    "Array(1) of Int64": (pl.concat_list(STARS).list.to_array(1), {"csv"}),
    "Float16": (STARS.cast(pl.Float16), set()),
    "Time": (pl.time(STARS), set()),
    "Null": (pl.lit(None), set()),
}


FIRST = ("Struct of 1 field (UInt128)", "List of Binary", "Duration(time_unit='us')", "Time")


@pytest.mark.parametrize("kind", quick(sorted(UNFIT, key=lambda kind: kind not in FIRST), first=len(FIRST)))
def test_a_kept_column_fits_its_sink_or_is_refused_before_the_charge(make_job, kind):
    made, unfit = UNFIT[kind]
    raw = make_reviews(40).with_columns(kept=made)
    job = make_job()
    for file_format in ("parquet", "ndjson", "csv"):
        policy = job.policy(keep=["kept"], release=file_format, sink=str(job.folder / f"{file_format}.{file_format}"))
        if file_format in unfit:
            with pytest.raises(InputError) as caught:
                run_frame(raw, policy)
            assert f"column 'kept' of type {kind} cannot be in a" in str(caught.value)
        else:
            assert run_frame(raw, policy).published_rows == 40
            assert released(policy.sink).collect().height == 40
    if len(unfit) == 3:
        assert not (job.folder / "ledger.db").exists()


@pytest.mark.parametrize("sink", ["/proc/out", "/sys/out/deeper"])
def test_a_plan_and_a_run_refuse_a_sink_of_the_kernel(make_job, sink):
    job = make_job()
    with pytest.raises(DPTextError) as caught:
        job.run(sink=sink)
    assert foretold(job, sink=sink)[2] == caught.value.message
    assert not (job.folder / "ledger.db").exists()
