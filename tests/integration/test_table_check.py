"""A plan says how persons are spelled, which caps keep which share of the rows, and what other forms cost."""

import re

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl.accounting.conversion import zcdp_epsilon
from dptext_etl.cli.app import app
from dptext_etl.families.aggregate.statistic import rho_of, variance_of
from dptext_etl.families.choice import usual_law
from dptext_etl.families.unlinked import Unlinked
from dptext_etl.runner import plan
from dptext_etl.runner.table_check import selection, spellings


def test_persons_are_counted_by_spelling():
    names = ["Ann ", "ann", "ANN", "Cafe\u0301", "Caf\u00e9", None, "Bo"]
    frame = pl.LazyFrame({"who": names, "number": range(7)})
    assert spellings.spellings(frame, "who") == {"persons": 6, "alike": 3}
    assert spellings.spellings(frame, "who", ("nfc",)) == {"persons": 5, "alike": 3}
    assert spellings.spellings(frame, "number") == {}


@pytest.mark.parametrize(("most", "share"), [(1, 3 / 10), (2, 5 / 10), (6, 9 / 10), (7, 1.0)])
def test_the_share_that_stays(most, share):
    assert selection.kept_share([1, 2, 7], most) == share


def rows_of_persons(reviews):
    """60 rows of two words each: three persons have 30, 20, and 10 of them, in two spellings."""
    persons = pl.Series("user_id", ["a", "A"] * 15 + ["b"] * 20 + ["c "] * 10)
    return reviews(60).with_columns(persons, review=pl.lit("worda wordb"), note=pl.lit(None, pl.String))


def test_a_plan_shows_spellings_and_what_caps_keep(make_job, reviews):
    job = make_job(frame=rows_of_persons(reviews), normalize=["casefold"], min_released=0.0)
    one = plan(job.policy(cap=None)).per_record["max"]
    cap = {"measure": "pure", "epsilon": 10 * one, "period": "2026"}
    found = plan(job.policy(cap=cap))
    assert found.table["spellings"] == {"persons": 3, "alike": 3}
    kept = {cap / one: count for cap, count in found.table["selection"]["caps"]}
    assert kept == {5: 15, 10: 30, 14: 38, 20: 50, 28: 58}
    assert found.left_out["quarantined"] == 30
    again = plan(job.policy(cap={**cap, "epsilon": 14 * one}))
    assert again.left_out["quarantined"] == 60 - kept[14], "a count that is shown is that of a plan with this cap"


def test_the_screen(make_job, reviews):
    job = make_job(frame=rows_of_persons(reviews))
    shown = CliRunner().invoke(app, ["plan", str(job.write_policy())]).output
    assert "The table" in shown
    assert "4 persons; 3 without case and blanks" in " ".join(shown.split())
    assert "500 → 100%, 1000 → 100%" in shown


def test_other_forms_cost_no_more_than_is_said(job):
    """240 rows of 40 persons, a kept column with five values; each figure is judged by its own accounting."""
    column = [{"name": "review", "mechanism": {"name": "surrogate", "epsilon": 1.0, "corpus": "example"}}]
    found = plan(job.policy(column=column))
    forms, labels = (line for line in found.notes if "synthetic" in line)
    pattern = (
        r"at epsilon 6 per subject with 6 records, epsilon may be: rows: 1 of a text;"
        r" unlinked: up to ([\d.]+) of a draw, delta (\S+); synthetic: ([\d.]+) of the table for one record, delta 1e-8"
    )
    draw, delta, table = map(float, re.fullmatch(pattern, forms).groups())
    assert found.together["epsilon"] == 6.0
    unlinked = Unlinked(rows=240, delta=delta, per_subject=6)
    assert unlinked.epsilon(usual_law(30_000, draw)) <= 1
    assert unlinked.charged_delta(usual_law(30_000, draw)) <= 1e-6
    assert unlinked.epsilon(usual_law(30_000, draw + 2)) > 1
    rho = float(rho_of(2000, variance_of(2000, table, 1e-8)))
    assert 5.9 < zcdp_epsilon(36 * rho, 1e-8) <= 6
    assert labels.startswith("stars: few values")
    assert not [line for line in plan(job.policy(column=column, keep=None)).notes if "few values" in line]
    words = [line for line in plan(job.policy()).notes if "unlinked" in line]
    assert words[0].startswith("at epsilon 8 per subject with 6 records"), "more than 30 bounds nothing"
    assert "rows: 0.666 of a text" in words[0], "two columns share it, rounded down"
