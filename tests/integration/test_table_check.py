"""A plan says how many spellings persons have, and which caps keep which share of the rows."""

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl.cli.app import app
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
