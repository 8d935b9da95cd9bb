"""Ids written in another way: a run refuses them, or brings them into the pinned order; no one gets a new budget."""

import warnings

import polars as pl
import pyarrow as pa
import pytest

import dptext_etl.polars  # noqa: F401  (registers the namespace)
from dptext_etl import ColumnPolicy, privatize
from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Scope
from dptext_etl.polars import run_frame
from dptext_etl.polars.frame import OtherIdsWarning
from dptext_etl.runner import plan, scan_published
from dptext_etl.runner.publish.forgetting import forget

CAP = {"measure": "pure", "epsilon": 20.0, "period": "2026"}


def numbered(reviews):
    """The reviews, their people as strings of digits."""
    return reviews(60).with_columns(user_id=pl.col("user_id").str.slice(1))


def balances(job):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        found = ledger.remaining(Scope("reviews", "2026"))
        return found.units, found.exhausted, found.used


def test_people_as_integers_have_no_new_budget(make_job, reviews, save):
    job = make_job(frame=numbered(reviews), cap=CAP, min_released=0.0)
    assert job.run().rows["quarantined"]
    spent = balances(job)
    save(numbered(reviews).with_columns(pl.col("user_id").cast(pl.Int64)), job.folder / "raw.parquet")
    for ask in (job.run, lambda **changes: plan(job.policy(**changes))):
        with pytest.raises(LedgerError, match="subject ids of dataset:reviews are pinned as string, got integer"):
            ask(release="2026-12")
    assert balances(job) == spent


@pytest.mark.parametrize("ledger", [True, False])
def test_ids_that_a_csv_reader_makes_numbers_of_are_warned_of(make_job, reviews, ledger):
    """The command line reads ids of CSV as strings; `pl.read_csv` reads integers, which draw other texts."""
    job = make_job(frame=reviews(60).with_columns(pl.col("id").str.slice(1)), suffix=".csv")
    job.run()
    released = scan_published(str(job.folder / "published")).collect()["review"]
    policy = job.policy() if ledger else job.policy(ledger={"url": f"sqlite:///{job.folder / 'none.db'}"})
    raw = pl.read_csv(job.folder / "raw.csv")
    for frame in (raw, raw.lazy()):
        with pytest.warns(OtherIdsWarning, match=r"ids in column 'id' are integer here, and string in reviews") as seen:
            drawn = frame.dptext.privatize(policy)
        assert "schema_overrides={'id': pl.String}" in str(seen[0].message)
        assert not drawn.lazy().collect()["review"].equals(released)
    as_strings = pl.read_csv(job.folder / "raw.csv", schema_overrides={"id": pl.String})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert as_strings.dptext.privatize(policy)["review"].equals(released)
    if ledger:
        with pytest.warns(OtherIdsWarning), pytest.raises(LedgerError, match="pinned to type string, got integer"):
            run_frame(raw, policy)


def composite(frame, *fields):
    parts = {"shop": pl.col("user_id"), "number": pl.col("id").str.slice(1).cast(pl.Int64)}
    return frame.with_columns(id=pl.struct(**{name: parts[name] for name in fields}))


@pytest.mark.parametrize("composed", [False, True])
def test_a_struct_as_id_draws_other_texts_in_an_expression_than_in_a_run(make_job, reviews, composed):
    """docs/polars.md says so: a ledger pins the order of its fields, and an expression writes them by name."""
    joined = pl.concat_str("user_id", "id", separator="|")
    raw = composite(reviews(60), "shop", "number") if composed else reviews(60).with_columns(id=joined)
    job = make_job(frame=raw)
    job.run()
    released = scan_published(str(job.folder / "published")).collect().sort("id")["review"]
    column = next(item for item in job.policy().column_policies() if item.column == "review")
    drawn = raw.sort("id").select(pl.col("review").dptext.privatize(column, id="id"))["review"]
    assert drawn.equals(released) is not composed


def test_composite_ids_keep_their_budget_and_their_bytes_in_any_order(make_job, reviews, save):
    raw = reviews(60)
    job = make_job(frame=composite(raw, "shop", "number"), cap=CAP, unit="record", subject=None, min_released=0.0)
    first, charged, files = job.run(), job.charged(), job.files()
    save(composite(raw, "number", "shop"), job.folder / "raw.parquet")
    assert plan(job.policy()).over_cap == {"records": first.rows["quarantined"], "units": first.rows["quarantined"]}
    again = job.run()
    assert (again.rows["new"], again.changed) == (0, False)
    assert job.charged() == charged
    assert job.files() == files
    other = job.run(release="2026-12")
    assert other.rows["quarantined"] > first.rows["quarantined"], "the balances count what was charged before"
    save(
        composite(raw, "number", "shop").with_columns(pl.col("id").struct.rename_fields(["nr", "shop"])),
        job.folder / "raw.parquet",
    )
    pinned, got = (rf"composite of 2 fields \({kinds}\)" for kinds in ("string, integer", "integer, string"))
    with pytest.raises(LedgerError, match=f"pinned as {pinned}, got {got}"):
        job.run()


def test_without_a_ledger_the_order_of_fields_says_nothing(make_job, reviews):
    job = make_job()
    policy = job.policy().column_policy("review")
    rows = [{"b": {"y": 1, "x": "p"}, "a": 5}, {"b": {"y": 2, "x": "q"}, "a": 5}]
    turned = [{"a": row["a"], "b": {"x": row["b"]["x"], "y": row["b"]["y"]}} for row in rows]
    texts = pl.Series("review", [" ".join(reviews(1)["review"]) * 3] * 2)
    released = []
    for ids in (rows, turned):
        array = pa.array(ids, pa.struct([(name, pa.array([row[name] for row in ids]).type) for name in ids[0]]))
        released.append(privatize(texts.to_arrow(), array, policy).to_pylist())
        frame = pl.DataFrame({"id": pl.Series(ids), "review": texts})
        released.append(frame.select(pl.col("review").dptext.privatize(policy, id="id"))["review"].to_list())
    assert all(item == released[0] for item in released)
    assert released[0][0] != released[0][1]
    assert isinstance(policy, ColumnPolicy)


def test_who_is_missing_is_seen_in_any_order_of_fields(make_job, reviews, save):
    raw = reviews(60)
    job = make_job(frame=composite(raw, "shop", "number"))
    job.run()
    save(composite(raw.head(59), "number", "shop"), job.folder / "raw.parquet")
    assert forget(job.policy(), missing=True).removed == 1
    added = job.run(incremental=True)
    assert (added.rows["read"], added.rows["already_published"]) == (59, 59)
