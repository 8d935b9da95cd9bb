"""A plan says how persons are spelled, which caps keep which share of the rows, and what other forms cost."""

import re

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl import Ledger
from dptext_etl.accounting.conversion import zcdp_epsilon
from dptext_etl.cli.app import app
from dptext_etl.engines import run
from dptext_etl.errors import PolicyError
from dptext_etl.families.aggregate.statistic import rho_of, variance_of
from dptext_etl.families.choice import Unlinked, usual_law
from dptext_etl.guarantee import MICRO
from dptext_etl.ledger import Scope
from dptext_etl.runner import plan, planning, scan_published, statement, table_check
from dptext_etl.runner.forecast import Expected
from dptext_etl.runner.planning import plan_in_order
from dptext_etl.runner.shard.charging import at_most
from dptext_etl.runner.source import guessing
from tests.command_line import dptext
from tests.policy_files import write_policy
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


CAP = {"measure": "pure", "epsilon": 1000.0, "period": "2026"}


def test_persons_that_another_dataset_charged(job, reviews, monkeypatch):
    frame = reviews().filter(reviews()["user_id"] <= "u009")
    frame.write_parquet(job.folder / "raw.parquet")
    job.run(cap=CAP)
    with job.ledger() as ledger:
        first = int(ledger.remaining(Scope.of(job.policy(cap=CAP))).used["eps_pure"]["max"])
    reviews().write_parquet(job.folder / "raw.parquet")
    other = {"dataset": "calls", "sink": str(job.folder / "calls"), "cap": CAP}
    forecast = plan(job.policy(**other))
    part = forecast.table["scopes"]
    monkeypatch.setattr(planning, "_PERSONS_AT_ONCE", 7)
    assert plan(job.policy(**other)).table["scopes"] == part, "each person counts once, however rows are divided"
    persons = frame["user_id"].n_unique()
    assert (part["persons"], part["shared"]) == (40, {"dataset:reviews, period 2026": persons})
    assert (part["largest"], part["in_rho"]) == (first, [])
    assert table_check.scope_lines(part)[0].startswith(
        f"dataset:reviews, period 2026 has charged {persons} of these 40 persons"
    )
    job.run(**other)
    with job.ledger() as ledger:
        everyone = pl.Series(sorted(set(reviews()["user_id"]))).to_arrow()
        pair = [ledger.used(Scope(name, "2026"), everyone)["eps_pure"] for name in ("reviews", "calls")]
        most = int(sum(pair).max())
        assert ledger.reports.together()["largest"] == most
    said = statement.markdown(statement.facts(policy=job.policy(**other)))
    assert f"charged one person epsilon {most / MICRO:g} at most" in said
    assert "charged one person" not in statement.markdown(statement.facts(policy=job.policy(**other), public=True))


def test_datasets_of_one_group_share_a_cap(job, reviews):
    job.run(cap={**CAP, "group": "film"})
    forecast = plan(job.policy(dataset="calls", sink=str(job.folder / "calls"), cap={**CAP, "group": "film"}))
    assert "scopes" not in forecast.table


def in_order(job, *, group=None, **other):
    """Policies of two datasets over the same persons: their plans in order, and the second one by itself."""
    cap = {**CAP, "group": group} if group else CAP
    second = {"dataset": "calls", "sink": str(job.folder / "calls"), "cap": cap, **other}
    policies = [job.policy(cap=cap), job.policy(**second)]
    return plan_in_order(policies), plan(policies[1]), policies


@pytest.mark.parametrize("ledger", quick([False, True]), ids=["no ledger", "a ledger"])
@pytest.mark.parametrize("unit", ["subject", "record"])
def test_a_second_run_is_planned_against_the_cap_that_the_first_charged(job, ledger, unit):
    unit_of = {"unit": unit, **({"subject": None} if unit == "record" else {})}
    job.values |= {**unit_of, "min_released": 0.0}
    if ledger:
        Ledger.open(job.policy().ledger.url).close()
    alone = plan(job.policy())
    most = (alone.per_subject or alone.per_record)["max"]
    cap = {**CAP, "epsilon": 1.5 * most, "group": "film"}
    found, second, policies = in_order(job, group="film", cap=cap)
    policies[0] = job.policy(cap=cap)
    found = plan_in_order(policies)
    assert second.over_cap["records"] == found["plans"][0]["over_cap"]["records"] == 0
    over = found["plans"][1]["over_cap"]["records"]
    (shared,) = found["joint"]["scopes"]
    assert (shared["scope"], shared["unit"]) == ("group:film, period 2026", unit)
    assert most < shared["charged"]["eps_pure"]["max"] <= 1.5 * most
    assert found["joint"]["apart"] is False
    assert found["joint"]["together"]["epsilon"] == alone.together["epsilon"] + second.together["epsilon"]
    run(policies[0])
    assert run(policies[1]).rows["quarantined"] == over > 0
    with job.ledger() as book:
        used = book.remaining(Scope("calls", "2026", "film", unit)).used["eps_pure"]
    assert shared["charged"]["eps_pure"] == {name: amount / MICRO for name, amount in used.items()}


def test_the_first_refusal_of_runs_in_order(job):
    found, second, policies = in_order(
        job, group="film", on_cap="refuse", cap={**CAP, "epsilon": 150.0, "group": "film"}
    )
    assert "is pinned at eps_pure 1000; this policy asks for eps_pure 150" in found["refusal"]["message"]
    policies[0] = policies[0].model_copy(update={"cap": policies[1].cap, "on_cap": "quarantine", "min_released": 0.0})
    assert second.refusal["code"] == "budget"
    again = plan_in_order([policies[0].model_copy(update={"release": "r0"}), policies[1]])
    assert again["refusal"]["code"] == "budget"
    assert again["plans"][1]["over_cap"]["records"] > second.over_cap["records"]
    with pytest.raises(PolicyError, match="two of the policies are of release '2026-11' of reviews"):
        plan_in_order([job.policy(), job.policy()])
    later = plan_in_order([job.policy(), job.policy(release="next", cap={**CAP, "period": "2027"})])
    assert "would miss the charges of the run before in dataset:reviews, period 2026" in later["refusal"]["message"]
    assert not (job.folder / "ledger.db").exists()


def test_runs_that_share_no_scope(job):
    found, _, policies = in_order(job)
    assert (found["joint"]["scopes"], found["joint"]["apart"], found["refusal"]) == ([], True, None)
    one, other = (
        write_policy(
            job.folder / f"{policy.dataset}.toml", policy.model_dump(mode="json", by_alias=True, exclude_none=True)
        )
        for policy in policies
    )
    shown = dptext("plan", one, other)
    assert shown.exit_code == 0
    said = " ".join(shown.stdout.split())
    assert "not all of these runs share a scope" in said
    assert f"epsilon {at_most(found['joint']['together']['epsilon'])} at delta" in said
    assert dptext("plan", one, one).exit_code == 5
