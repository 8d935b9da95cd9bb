"""Runs that charge their draws: where a mechanism says so and the cap is pure, the rest goes back to the subject."""

import numpy as np
import polars as pl
import pytest

from dptext_etl.errors import BudgetError
from dptext_etl.ledger import Scope
from dptext_etl.runner import scan_published
from tests.quick import quick

from ..toy_mechanisms import toys  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("toys")
EPSILON = 2.0
WORST = 5 * EPSILON


@pytest.fixture
def steps(make_job):
    column = [{"name": "review", "mechanism": {"name": "steps", "epsilon": EPSILON}}]
    return make_job("steps", column=column)


def drawn(job):
    """Draws of each subject's records, as their released words tell."""
    words = pl.col("review").str.split(" ").list.len()
    raw = pl.read_parquet(job.folder / "raw.parquet").select("id", "user_id")
    table = scan_published(str(job.folder / "published")).with_columns(words).collect().join(raw, on="id")
    return table.group_by("user_id").agg(pl.col("review").sum(), pl.len().alias("records")).sort("user_id")


def used(job):
    with job.ledger() as ledger:
        assert ledger.verify().ok
        people = drawn(job)["user_id"]
        return ledger.used(Scope.of(job.policy()), people.to_arrow())["eps_pure"] / 1e6


def test_a_subject_is_charged_the_draws_that_were_made(steps):
    summary = steps.run()
    people = drawn(steps)
    assert people["review"].n_unique() > 1
    np.testing.assert_allclose(used(steps), EPSILON * people["review"].to_numpy())
    total = summary.spend["sum_over_records"]
    assert total["eps_pure"] == WORST * 240
    assert total["eps_charged"] == EPSILON * people["review"].sum() < total["eps_pure"]
    assert summary.notes[-1].endswith("draws that were not made were given back")
    assert summary.spend["largest_record"]["eps_pure"] == WORST, "a record's guarantee stays the worst case"
    with steps.ledger() as ledger:
        (shown,) = ledger.reports.show()
    assert shown["expost"] is True
    assert shown["max_eps_pure"] == WORST * 1e6


def test_the_same_run_again_gives_back_nothing_more(steps):
    steps.run()
    before, files = used(steps), steps.files()
    again = steps.run()
    assert again.rows["replayed"] == 240
    assert again.spend["sum_over_records"]["eps_charged"] == pytest.approx(before.sum())
    np.testing.assert_array_equal(used(steps), before)
    assert steps.files() == files


@pytest.mark.parametrize("step", quick(["staged", "computed", "committed"]))
def test_a_run_that_stops_and_goes_on_settles_the_same(steps, make_job, step):
    other = make_job("undisturbed", column=steps.values["column"])
    other.run()
    assert steps.stop(step, 2)
    steps.run()
    np.testing.assert_array_equal(used(steps), used(other))
    assert steps.files() == other.files()


def test_what_went_back_can_be_spent_again(steps):
    """Six records of every subject: 60 at worst; a cap of 60 holds another release only by the unused rest."""
    steps.run(cap={"measure": "pure", "epsilon": 60.0, "period": "2026"})
    left = 60.0 - used(steps)
    summary = steps.run(
        cap={"measure": "pure", "epsilon": 60.0, "period": "2026"},
        release="2026-12",
        sink=steps.values["source"] + ".out",
        min_released=0.0,
    )
    fits = np.floor(left / WORST)
    assert 0 < summary.rows["released"] < 240
    assert summary.rows["released"] >= fits.sum()


def test_other_caps_keep_the_worst_case(steps):
    summary = steps.run(cap={"measure": "zcdp", "rho": 1e6, "period": "2026"})
    total = summary.spend["sum_over_records"]
    assert total["eps_charged"] == total["eps_pure"] == WORST * 240


def test_what_is_reserved_is_the_worst_case(steps):
    with pytest.raises(BudgetError):
        steps.run(cap={"measure": "pure", "epsilon": 59.0, "period": "2026"}, on_cap="refuse")
