"""Published tables pass the expectations as readers get them: from CSV files, and from SQLite, which keeps no dates."""

import polars as pl
import pytest

from dptext_etl.engines import run
from dptext_etl.errors import PolicyError
from dptext_etl.runner import scan_published
from tests.later import later
from tests.quick import quick
from tests.review_jobs import make_reviews

later("great_expectations")

expectations = later("dptext_etl.checks.great_expectations.expectations")


def test_a_table_without_ids_has_no_downstream_suite(job):
    with pytest.raises(PolicyError, match="with ids = 'drop'"):
        expectations.downstream_suite(job.policy(ids="drop"))


def test_a_synthetic_table_is_judged_by_its_gates(make_synthetic):
    job = make_synthetic("synthetic")
    policy = job.policy()
    run(policy)
    table = scan_published(policy.sink).collect()
    record = expectations.validate(table, policy)
    assert record.success
    assert {item.gate for item in record.outcomes} == {"raw_column_absent", "texts_in_corpus", "labels_in_list"}
    (column,) = {policy.synthetic.column} & {*table.columns}
    leaking = expectations.validate(table.with_columns(pl.lit("a raw text").alias(column)), policy)
    assert {item.gate for item in leaking.outcomes if not item.success} == {"texts_in_corpus"}


@pytest.mark.parametrize("ids", ["keyed", "drop"])
def test_a_table_without_its_own_ids_is_validated_without_the_rows_in_the_ledger(job, ids):
    policy = job.policy(ids=ids)
    run(policy)
    with pytest.warns(UserWarning, match=r"leaves out ExpectGateToPass\(rows_ledgered\); `dptext check"):
        assert expectations.validate(job.published(), policy).success
    for wrong in (pl.col("stars").alias("raw"), pl.lit("zxqv").alias("review"), pl.lit("r1").alias("id")):
        with pytest.warns(UserWarning, match="leaves out"):
            valid = expectations.validate(job.published().with_columns(wrong), policy).success
        assert valid == (ids == "keyed" and "id" in str(wrong)), "with keyed ids, any string may be one"


MOMENTS = {
    "day": pl.date(2026, 1, "stars"),
    "at": pl.datetime(2026, 1, "stars", 10, 30, microsecond=5),
    "zoned": pl.datetime(2026, 1, "stars", time_zone="UTC"),
    "gap": pl.when(pl.col("stars") > 1).then(pl.date(2026, 1, "stars")),
}


@pytest.fixture(scope="module")
def moments(make_shared):
    job = make_shared("moments", frame=make_reviews().with_columns(**MOMENTS), keep=["stars", *MOMENTS])
    job.run()
    return job


def sql_table(job, folder, frame, write):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{folder}/warehouse.db")
    write(frame, engine)
    engine.dispose()
    return expectations.validate_table(f"sqlite:///{folder}/warehouse.db", "released", job.policy())


WRITERS = {
    "polars": lambda frame, engine: frame.write_database("released", engine),
    "pandas": lambda frame, engine: frame.to_pandas().to_sql("released", engine, index=False),
    "pyarrow": lambda frame, engine: frame.to_pandas(use_pyarrow_extension_array=True).to_sql(
        "released", engine, index=False
    ),
}


@pytest.mark.parametrize("write", WRITERS)
def test_dates_and_times_in_sqlite_have_the_type_that_was_published(moments, tmp_path, write):
    assert sql_table(moments, tmp_path, moments.published(), WRITERS[write]).success


@pytest.mark.parametrize("cell", quick(["not a date", "2026-01-05, a text", ""]))
def test_text_in_the_place_of_a_date_is_counted_in_sqlite(moments, tmp_path, cell):
    days = pl.when(pl.col("id") == "r00007").then(pl.lit(cell)).otherwise(pl.col("day").cast(pl.String))
    record = sql_table(moments, tmp_path, moments.published().with_columns(day=days), WRITERS["polars"])
    (found,) = [item for item in record.outcomes if not item.success]
    assert found.counts["mistyped"] == 1


@pytest.mark.parametrize("sink", [".csv", ".ndjson"])
@pytest.mark.parametrize("source", quick([".csv", ".parquet"]))
def test_a_release_without_types_passes_the_expectations_as_it_is_read(make_job, reviews, source, sink):
    more = {**MOMENTS, "price": pl.lit("1.10").cast(pl.Decimal(10, 2)), "hour": pl.time("stars")}
    job = make_job(frame=reviews().with_columns(**more), suffix=source)
    job.values |= {"sink": str(job.folder / f"published{sink}"), "keep": ["stars", *more]}
    job.run()
    found = scan_published(job.values["sink"]).collect()
    for table in (found, found.to_pandas()):
        expectations.validate(table, job.policy()).require()
    in_sqlite = found.with_columns(pl.selectors.decimal().cast(pl.Float64))  # it has no decimals
    assert sql_table(job, job.folder, in_sqlite, WRITERS["polars"]).success
