"""What plans say of a table: persons, caps, other forms and datasets, and rows that kept columns single out."""

from datetime import date, datetime, timedelta
from random import Random

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl.checks.sink_files import Manifest
from dptext_etl.cli.app import app
from dptext_etl.engines import run
from dptext_etl.engines.engine import stage
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.guarantee import MICRO
from dptext_etl.ledger import Scope
from dptext_etl.policy import Policy
from dptext_etl.policy.terms import Kept
from dptext_etl.runner import forecast, plan, planning, scan_published, statement, table_check
from dptext_etl.runner.forecast import Expected
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.shard.staging import from_json, to_json
from dptext_etl.runner.source.column_types import coarse, coarse_type
from tests.quick import quick


def test_persons_are_counted_by_spelling():
    names = ["Ann ", "ann", "ANN", "Cafe\u0301", "Caf\u00e9", None, "Bo"]
    frame = pl.DataFrame({"who": names, "number": range(7)})
    for column, how, counts in [
        ("who", (), {"persons": 6, "alike": 3, "folded": 3}),
        ("who", ("nfc",), {"persons": 5, "alike": 3, "folded": 3}),
        ("number", (), {}),
    ]:
        spelled = forecast.Spelled(how)
        spelled.add(frame[column])
        assert spelled.counts() == counts


def test_spellings_that_differ_in_punctuation_and_accents_are_reported():
    same = ["O'Brien", "o brien", "OBrien", "O\u2019Brien", "\uff2f\uff22rien", "\u00d3Br\u00eden"]
    apart = ["1-11", "11-1", "u1", "u-2", "u.3", "--", "??"]
    spelled = forecast.Spelled()
    for part in (same[:3], same[3:] + apart, [None, "obrien", "u 2"]):
        spelled.add(pl.Series(part, dtype=pl.String))
    counts = spelled.counts()
    assert counts == {"persons": 15, "alike": 14, "folded": 1 + len(apart)}
    first, second = forecast.spelling_lines(counts)
    assert first.startswith("15 persons; 14 without case and blanks")
    assert second == "6 more would join without punctuation and accents: write these alike in the source"
    assert forecast.spelling_lines({**counts, "alike": 8, "persons": 8}) == ["8 persons"]


def rows_of_persons(reviews):
    """60 rows of two words each: three persons have 30, 20, and 10 of them, in two spellings."""
    persons = pl.Series("user_id", ["a", "A"] * 15 + ["b"] * 20 + ["c "] * 10)
    return reviews(60).with_columns(persons, review=pl.lit("worda wordb"), note=pl.lit(None, pl.String))


def test_a_plan_shows_spellings_and_what_caps_keep(make_job, reviews):
    job = make_job(frame=rows_of_persons(reviews), normalize=["casefold"], min_released=0.0)
    one = plan(job.policy(cap=None)).per_record["max"]
    cap = {"measure": "pure", "epsilon": 10 * one, "period": "2026"}
    found = plan(job.policy(cap=cap))
    assert found.table["spellings"] == {"persons": 3, "alike": 3, "folded": 3}
    kept = {cap / one: count for cap, count in found.table["selection"]["caps"]}
    assert (kept, found.excluded["quarantined"]) == ({5: 15, 10: 30, 14: 38, 20: 50, 28: 58}, 30)
    again = plan(job.policy(cap={**cap, "epsilon": 14 * one}))
    assert again.excluded["quarantined"] == 60 - kept[14], "a count that is shown is the count of a plan with this cap"


def test_the_screen(make_job, reviews):
    job = make_job(frame=rows_of_persons(reviews))
    shown = CliRunner().invoke(app, ["plan", str(job.write_policy())]).output
    assert "The table" in shown
    assert "4 persons; 3 without case and blanks" in " ".join(shown.split())
    assert "A cap of epsilon 500 keeps 100% of rows.\nA cap of epsilon 1,000 keeps 100% of rows.\n" in shown
    own = [line for line in shown.splitlines() if str(job.folder) not in line]
    assert max(map(len, own)) <= 80
    assert "--rows 60 --label COLUMN" in shown


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
    first, *others = table_check.selection_lines({"by": "day", "periods": each})
    assert (first, len(others)) == ("day up to 2026-04: 2% of rows excluded", 5)
    assert others[-1] == "day 2026-09: 9% of rows excluded"
    assert table_check.selection_lines({"by": "day", "periods": each[3:]})[0] == "day 2026-04: 4% of rows excluded"


def test_a_plan_of_a_month_says_who_is_at_the_cap_and_what_earlier_months_lost(make_job, reviews):
    """Two rows of a person fit; the first month has six of each, the second one has them again."""
    text = [{"name": "review", "mechanism": {"name": "surrogate", "epsilon": 1.0, "corpus": "example"}}]
    job = make_job(column=text, cap={"measure": "pure", "epsilon": 4.0, "period": "2026"}, min_released=0.0)
    for month in ("2026-09", "2026-10"):
        name = pl.format("{}/{}", pl.lit(month), "id").alias("id")
        reviews().with_columns(name).write_parquet(job.folder / f"{month}.parquet")
    places = {"source": str(job.folder / "{partition}.parquet"), "sink": str(job.folder / "published" / "{partition}")}
    job.values |= places
    done = run(job.policy(), partition="2026-09")
    assert (done.rows["released"], done.rows["quarantined"]) == (160, 80)
    found = plan(job.policy(), partition="2026-10").table
    assert found["at_cap"] == {"units": 40, "exhausted": 40, "unit": "subject"}
    assert found["selection"]["partitions"] == [["2026-09", 240, 80]]
    assert table_check.at_cap_lines(found["at_cap"]) == ["At their cap now: 40 of 40 people (100.0%)."]
    assert "partition 2026-09: 33% of rows excluded so far" in table_check.selection_lines(found["selection"])


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
    assert f"All releases in this ledger together charged the most charged person ε {most / MICRO:g}" in said
    assert "most charged" not in statement.markdown(statement.facts(policy=job.policy(**other), public=True))


def test_datasets_of_one_group_share_a_cap(job, reviews):
    job.run(cap={**CAP, "group": "film"})
    forecast = plan(job.policy(dataset="calls", sink=str(job.folder / "calls"), cap={**CAP, "group": "film"}))
    assert "scopes" not in forecast.table


MONTHS, YEARS = 'as = "month" }], or leave it out', 'as = "year" }], or leave it out'
MONTH = {"column": "opened", "as": "month"}


def tickets(rows=800):
    random, start = Random(7), datetime(2026, 1, 1)
    return pl.DataFrame(
        {
            "id": [f"r{n}" for n in range(rows)],
            "user_id": [f"u{n % 400}" for n in range(rows)],
            "category": [random.choice("abcdef") for _ in range(rows)],
            "priority": [random.choice(["low", "mid", "high"]) for _ in range(rows)],
            "opened": [start + timedelta(minutes=random.randrange(180 * 24 * 60)) for _ in range(rows)],
            "review": ["the film was good"] * rows,
            "note": ["a bad day"] * rows,
        }
    )


def traced(published, raw, names):
    """Return the share of rows that a join with raw rows on kept columns finds."""
    one = [frame.filter(pl.len().over(names) == 1) for frame in (published, raw)]
    return one[0].join(one[1], on=names, nulls_equal=True).height / raw.height


def test_tickets_with_minutes_are_refused_and_with_months_nearly_none_is_traced(make_job):
    kept = ["category", "priority", "opened"]
    job = make_job(frame=tickets(), keep=kept, ids="keyed", keep_unique=None)
    forecast = plan(job.policy())
    facts = forecast.table["traceable"]
    assert facts["single"] > 0.9 * 800
    assert (facts["helps_most"], facts["single_without"]["opened"]) == ("opened", 0)
    assert "without 'opened', 0 of 800 rows" in forecast.refusal["message"]
    with pytest.raises(PolicyError, match="single out"):
        job.run()
    assert not (job.folder / "ledger.db").exists()
    months = [*kept[:2], MONTH]
    summary = job.run(keep=months)
    assert summary.table["traceable"]["single"] <= 0.05 * 800
    published = scan_published(str(job.folder / "published")).collect()
    raw = tickets().with_columns(pl.col("opened").dt.strftime("%Y-%m"))
    assert traced(published, raw, kept) < 0.05
    assert published["opened"].sort().to_list() == raw["opened"].sort().to_list()
    policy = job.policy(keep=months)
    layout = Layout.of(policy)
    found = table_check.of_published(layout, Manifest.read(layout))
    stated = statement.facts(policy=policy)
    assert stated["traceable"] == found
    page = statement.markdown(stated)
    assert "category, priority" in page
    assert "Coarsened columns pass: opened (month). category and priority pass unchanged" in page
    assert (found["single"], found["few"]) == tuple(summary.table["traceable"][name] for name in ("single", "few"))
    with pytest.raises(PolicyError, match="single out"):  # the columns are finer than those that are published
        job.run(keep=kept)
    assert job.run(keep=kept, keep_unique="accepted").version == 2
    assert job.run(keep=kept).version == 2  # later versions are only described


@pytest.mark.parametrize(
    ("kept", "values", "way"),
    [
        ("at", pl.datetime_range(datetime(2026, 1, 1), interval="1d", eager=True, end=datetime(2026, 9, 27)), MONTHS),
        ({"column": "at", "as": "month"}, pl.date_range(date(1900, 1, 1), date(1922, 6, 1), "1mo", eager=True), YEARS),
        ("at", pl.int_range(270, eager=True), "bins = [public bounds]"),
        ({"column": "at", "bins": [*range(270)]}, pl.int_range(270, eager=True), "bins = [fewer public bounds]"),
        ("at", pl.int_range(270, eager=True).cast(pl.String), "top = [public values]"),
        ({"column": "at", "top": [*map(str, range(270))]}, pl.int_range(270, eager=True).cast(pl.String), None),
        ("at", pl.int_range(270, eager=True).cast(pl.Binary), None),
        ("user_name", pl.int_range(270, eager=True).cast(pl.String), None),
    ],
)
def test_a_hint_fits_the_type_of_the_column(make_job, kept, values, way):
    name = kept if isinstance(kept, str) else kept["column"]
    frame = tickets(270).with_columns(values.alias(name))
    (refusal,) = plan(make_job(frame=frame, keep=[kept], keep_unique=None).policy()).refusals
    begins = "leave it out" if way is None else f'coarsen it by keep = [{{ column = "{name}", {way}'
    assert refusal["hint"].startswith(begins)


def test_an_incremental_run_does_not_add_rows_that_are_coarsened_otherwise(make_job):
    bins = {"column": "n", "bins": [2]}
    frame = tickets(200).with_columns(n=pl.int_range(pl.len()) % 5)
    job = make_job(frame=frame, keep=["category", MONTH, bins], incremental=True)
    job.run()
    assert job.run().rows["new"] == 0
    top = {"column": "category", "top": ["a", "b"]}
    for other in ([top, MONTH, bins], ["category", MONTH, {"column": "n", "bins": [2.0]}]):  # labels "<2" and "<2.0"
        with pytest.raises(PolicyError, match="differs from the policy in: keep"):
            job.run(keep=other)
    assert job.run(keep=[top, MONTH, bins], incremental=False).version == 2
    published = scan_published(str(job.folder / "published")).collect()
    assert set(published["category"]) == {"a", "b", "other"}


CELLS = {
    "month": ({"as": "month"}, [date(2026, 3, 31), None], ["2026-03", None]),
    "no calendar": ({"as": "month"}, pl.Series([2**63 - 1, -1]).cast(pl.Datetime("us")), [None, "1969-12"]),
    "year": ({"as": "year"}, [datetime(1999, 12, 31, 23, 59), None], [1999, None]),
    "bins": (
        {"bins": [0, 18, 65]},
        [-1, 0, 17, 64, 65, None],
        ["<0", "0 to <18", "0 to <18", "18 to <65", "65+", None],
    ),
    "bins of floats": ({"bins": [0.5]}, [0.4, 0.5, float("nan"), None], ["<0.5", "0.5+", None, None]),
    "top": ({"top": ["a"]}, ["a", "b", "", None], ["a", "other", "other", None]),
}


@pytest.mark.parametrize("case", CELLS)
def test_cells_are_coarsened(case):
    rule, cells, wanted = CELLS[case]
    kept, frame = Kept(column="c", **rule), pl.DataFrame({"c": cells})
    made = frame.select(coarse(kept, frame.schema["c"]))
    assert made["c"].to_list() == wanted
    assert made.schema["c"] == coarse_type(kept, frame.schema["c"])


def test_months_of_moments_with_a_zone_count_in_utc():
    moment = pl.Series("c", [datetime(2026, 1, 31, 23, 30)]).dt.replace_time_zone("UTC")
    for zone in ("UTC", "Europe/Berlin"):
        frame = moment.dt.convert_time_zone(zone).to_frame()
        assert frame.select(coarse(Kept(column="c", **{"as": "month"}), frame.schema["c"])).item() == "2026-01"


@pytest.mark.parametrize("rule", [{"as": "month"}, {"bins": [1]}])
def test_a_column_of_another_type_is_refused_by_name(make_job, rule):
    job = make_job(frame=tickets(40), keep=[{"column": "category", **rule}])
    for attempt in (plan, lambda policy: job.run(keep=policy.keep)):
        with pytest.raises(InputError, match="column 'category' holds String"):
            attempt(job.policy())
    assert not (job.folder / "ledger.db").exists()


ENTRIES = {
    "two ways": ([{"column": "opened", "as": "month", "top": ["a"]}], "one way"),
    "bins that do not ascend": ([{"column": "n", "bins": [2, 1]}], "ascend"),
    "a column twice": (["opened", MONTH], "two roles"),
    "the subject": ([{"column": "user_id", "top": ["a"]}], "coarsens the subject"),
    "a text": ([{"column": "review", "top": ["a"]}], "two roles"),
}


@pytest.mark.parametrize("case", ENTRIES)
def test_entries_that_contradict_each_other_are_refused(make_job, case):
    keep, message = ENTRIES[case]
    with pytest.raises(PolicyError, match=message):
        make_job(frame=tickets(40)).policy(keep=keep)


def test_columns_that_look_like_names_or_free_text_are_named(make_job):
    words = [f"please call customer {n} back today" for n in range(200)]
    frame = tickets(200).with_columns(customer_name=pl.lit("Ann"), agent_note=pl.lit(""), c7=pl.Series(words))
    job = make_job(frame=frame, keep=["category", "customer_name", "agent_note", "c7"], keep_unique="accepted")
    looks = plan(job.policy()).table["traceable"]["looks"]
    assert looks == {
        "customer_name": "is named like names or ids of people",
        "agent_note": "is named like free text",
        "c7": "looks like free text",
    }


def test_a_policy_that_names_columns_only_is_written_as_before(make_job):
    policy = make_job(frame=tickets(40)).policy(keep=["category"], keep_unique=None)
    assert policy.model_dump(mode="json")["keep"] == ["category"]
    assert "keep_unique" not in policy.model_dump()
    assert Policy.parse(policy.model_dump(by_alias=True)) == policy


def test_coarsened_columns_in_a_table_with_a_log_and_after_people_were_forgotten(make_job):
    job = make_job(frame=tickets(300), keep=["category", MONTH], table={"format": "delta"})
    job.run()
    months = set(tickets(300)["opened"].dt.strftime("%Y-%m"))
    assert set(pl.read_delta(str(job.folder / "published"))["opened"]) == months
    tickets(300).filter(pl.col("user_id") != "u7").write_parquet(job.folder / "raw.parquet")
    forget(job.policy(), subjects=["u7"])
    left = scan_published(str(job.folder / "published")).collect()
    assert (left.height, set(left["opened"])) == (299, months)
    assert Manifest.read(Layout.of(job.policy())).coarse == {"opened": {"as": "month"}}
    assert job.run().rows["new"] == 0


def test_a_run_in_several_processes_keeps_what_it_found_of_the_table(make_job):
    staged = stage(make_job(frame=tickets(300), keep=["category", MONTH]).policy())
    assert from_json(to_json(staged), staged.policy).table == staged.table
    assert staged.table["traceable"]["rows"] == 300
