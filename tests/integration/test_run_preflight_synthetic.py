"""A plan of a synthetic table meets the refusals of its run; the refusals of all runs are in test_run_preflight.py."""

from contextlib import contextmanager

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import Ledger, files
from dptext_etl.errors import BudgetError, BusyError, InputError, LedgerError
from dptext_etl.policy.synthetic import CLAIM

from ..quick import quick
from ..refusals import foretold, same_refusal
from ..synthetic_runs import CAP, SYNTHETIC


@pytest.fixture
def job(make_synthetic):
    return make_synthetic()


def edit(job, *columns):
    path = job.folder / "raw.parquet"
    frame = pl.read_parquet(path).with_row_index("at").with_columns(*columns)
    frame.drop("at").write_parquet(path)


def first(rows, column, value):
    return pl.when(pl.col("at") >= rows).then(pl.col(column)).otherwise(pl.lit(value, pl.String)).alias(column)


def keep(job, rows):
    frame = pl.read_parquet(job.folder / "raw.parquet")
    frame.head(rows).write_parquet(job.folder / "raw.parquet")
    return frame


def low(job, records=3):
    return {**CAP, "epsilon": job.policy().statistic.charge(CLAIM).eps_approx * records / 1e6}


def forget(job, records):
    with Ledger.open(str(job.folder / "ledger.db")) as ledger:
        ledger.people.forget("reviews", pa.array(records), pa.array([], pa.string()))


def changed_labels(job):
    job.run()
    edit(job, first(4, "topic", "other"))
    return {}


def other_records(job):
    job.run()
    keep(job, 230)
    return {}


def more_records(job):
    frame = keep(job, 230)
    job.run()
    frame.write_parquet(job.folder / "raw.parquet")
    return {}


def forgotten_people(job):
    job.run()
    forget(job, ["r00007"])
    return {}


def all_are_forgotten(job):
    job.run()
    forget(job, [f"r{number:05d}" for number in range(240)])
    return {"release": "anew"}


def pinned_statistic(job):
    job.run()
    return {"synthetic": {**SYNTHETIC, "mechanism": {**SYNTHETIC["mechanism"], "epsilon": 1.0}}}


def below_min_released(job):
    return {"cap": low(job), "min_released": 0.9}


def most_without_a_person(job):
    edit(job, first(200, "user_id", None))
    return {"on_null_subject": "quarantine", "min_released": 0.9}


def another_person(job):
    job.run()
    edit(job, pl.lit("u039").alias("user_id"))
    return {"synthetic": {**SYNTHETIC, "per_subject": 240}, "release": "anew"}


CASES = {
    changed_labels: InputError,
    more_records: LedgerError,
    forgotten_people: LedgerError,
    pinned_statistic: LedgerError,
    below_min_released: BudgetError,
    another_person: LedgerError,
    other_records: LedgerError,
    all_are_forgotten: InputError,
    most_without_a_person: BudgetError,
}


@pytest.mark.parametrize("case", quick(CASES, first=6), ids=lambda case: case.__name__)
def test_a_plan_foretells_what_a_run_is_refused_for(job, case, sentinel):
    error = same_refusal(job, case(job), CASES[case])
    assert sentinel not in str(error)
    assert "r00" not in str(error)


def test_another_run_is_publishing(job):
    job.run()
    job.forget_that_nothing_changed()

    @contextmanager
    def busy():
        with files.lock(job.folder / "published.versions", "is publishing to this sink"):
            yield

    same_refusal(job, {}, BusyError, busy)


def test_nothing_in_the_way(job):
    assert foretold(job) is None
    assert job.run().rows["new"] == 240
    job.forget_that_nothing_changed()
    assert foretold(job) is None, "the same run again"
    assert job.run().rows["replayed"] == 240


def test_what_was_left_out_over_the_cap_is_left_out_again(job):
    entries = {"cap": low(job), "min_released": 0.0}
    assert job.run(**entries).rows["quarantined"] == 120
    job.forget_that_nothing_changed()
    assert foretold(job, **entries) is None
    assert job.run(**entries).rows["replayed"] == 120
