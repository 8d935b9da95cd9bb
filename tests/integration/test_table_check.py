"""A plan says how persons are spelled, which caps keep which share of the rows, and what other forms cost."""

import re

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl.accounting.conversion import zcdp_epsilon
from dptext_etl.cli.app import app
from dptext_etl.families.aggregate.statistic import rho_of, variance_of
from dptext_etl.families.choice import Unlinked, usual_law
from dptext_etl.runner import plan, scan_published, table_check
from dptext_etl.runner.forecast import Expected
from dptext_etl.runner.source import guessing
from tests.quick import quick


def test_persons_are_counted_by_spelling():
    names = ["Ann ", "ann", "ANN", "Cafe\u0301", "Caf\u00e9", None, "Bo"]
    frame = pl.LazyFrame({"who": names, "number": range(7)})
    assert guessing.spellings(frame, "who") == {"persons": 6, "alike": 3}
    assert guessing.spellings(frame, "who", ("nfc",)) == {"persons": 5, "alike": 3}
    assert guessing.spellings(frame, "number") == {}


@pytest.mark.parametrize(("most", "share"), [(1, 3 / 10), (2, 5 / 10), (6, 9 / 10), (7, 1.0)])
def test_the_share_that_stays(most, share):
    assert table_check.kept_share([1, 2, 7], most) == share


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
    assert again.left_out["quarantined"] == 60 - kept[14], "a count that is shown is the count of a plan with this cap"


def test_the_screen(make_job, reviews):
    job = make_job(frame=rows_of_persons(reviews))
    shown = CliRunner().invoke(app, ["plan", str(job.write_policy())]).output
    assert "The table" in shown
    assert "4 persons; 3 without case and blanks" in " ".join(shown.split())
    assert "500 → 100%, 1,000 → 100%" in shown


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


DAYS = ["2026-09-30", "2026-10-01", "2026-10-02", None]


def rows_of_days(reviews):
    """60 rows as above; the persons' rows are of three months, or of no day."""
    return rows_of_persons(reviews).with_columns(
        day=pl.Series([DAYS[row % 4] for row in range(60)]).str.to_date(),
        other=pl.lit("2026-11-01").str.to_date(),
        review=pl.Series(["worda" if row % 3 else "worda wordb" for row in range(60)]),
    )


@pytest.mark.parametrize("kept", [{"column": "day", "as": "month"}, "day"])
@pytest.mark.parametrize(
    "limits", quick([{"normalize": ["casefold"]}, {"per_subject": 10}, {"unit": "record", "subject": None}])
)
def test_plans_and_runs_show_which_periods_lose_rows(make_job, reviews, kept, limits):
    """The counts cover the rows that the run leaves out."""
    frame = rows_of_days(reviews)
    job = make_job(frame=frame, min_released=0.0, keep=[kept, "other"], **limits)
    one = plan(job.policy(cap=None)).per_record["max"]
    most = 5 if limits.get("unit") is None else 0.5
    job.values["cap"] = {"measure": "pure", "epsilon": most * one, "period": "2026"}
    found = plan(job.policy()).table["selection"]
    assert found["by"] == "day"
    done = job.run()
    assert done.table["selection"] == found
    assert done.table.get("spellings") == plan(job.policy()).table.get("spellings")
    lost = frame.join(scan_published(str(job.folder / "published")).collect(), on="id", how="anti")
    month = pl.col("day").dt.strftime("%Y-%m").fill_null("no time")
    counts = [dict(rows.group_by(month).len().iter_rows()) for rows in (frame, lost)]
    assert found["periods"] == [[name, counts[0][name], counts[1].get(name, 0)] for name in sorted(counts[0])]
    assert sum(gone for *_, gone in found["periods"]) == 60 - done.rows["released"] > 0


def test_six_periods_are_shown():
    each = [[f"2026-{month:02d}", 100, month] for month in range(1, 10)]
    (line,) = table_check.selection_lines({"by": "day", "periods": each})
    assert line == "left out by day: up to 2026-04: 2%, 2026-05: 5%, 2026-06: 6%, 2026-07: 7%, 2026-08: 8%, 2026-09: 9%"
    assert table_check.selection_lines({"by": "day", "periods": each[3:]})[0].startswith("left out by day: 2026-04: 4%")


def test_counts_of_spark_tasks_add_up():
    one = Expected(kept=[1, 2], periods={"a": [3, 1]}, spellings={"persons": 2, "alike": 1})
    assert Expected.total([one]) == one
    both = Expected.total([one, Expected(kept=[1, 1], periods={"a": [1, 1], "b": [2, 0]}), Expected()])
    assert (both.kept, both.periods) == ([2, 3], {"a": [4, 2], "b": [2, 0]})
    assert both.spellings == {}, "a person may have spellings in several tasks"
