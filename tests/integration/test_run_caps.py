"""Caps that are lowered, or leave most rows out: a run refuses, and says why, before it charges."""

import json

import polars as pl
import pytest

from dptext_etl.engines import run
from dptext_etl.errors import BudgetError, LedgerError, PolicyError
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.policy import Cap
from dptext_etl.runner import plan, scan_published
from tests.command_line import dptext, facts


@pytest.mark.parametrize("words", [["--epsilon", -5], ["--delta", 1e-6], ["--rho", 1, "--epsilon", 2]])
def test_set_cap_says_what_is_wrong_with_a_cap(tmp_path, words):
    place = ["--ledger", tmp_path / "ledger.db", "--reason", "x", "--yes"]
    facts("ledger", "init", *place[:2])
    done = dptext("ledger", "set-cap", "reviews", *[*words, *place])
    assert (done.exit_code, done.output[:13]) == (PolicyError.exit_code, "Error: policy"), done.output


TYPO = {"measure": "pure", "epsilon": 7.0, "period": "2026"}


def test_a_lower_cap_is_refused_until_it_is_accepted(make_job):
    job = make_job()
    assert plan(job.policy()).cap_change is None
    before, files = job.run(), job.files()
    said = plan(job.policy(cap=TYPO))
    assert (said.cap_change["change"], said.cap_change["asked"]) == ("lower", {"eps_pure": 7.0})
    assert "needs --accept-lower-cap" in said.notes[0]
    with pytest.raises(LedgerError, match="is pinned at 1000; the policy asks for less: 7"):
        job.run(cap=TYPO, release="2026-12")
    with job.ledger() as ledger:
        assert ledger.reports.caps()[0]["limits"] == {"eps_pure": 1_000_000_000}
        assert [row["release"] for row in ledger.reports.show()] == ["2026-11", "2026-11"], "nothing was pinned"
    assert job.files() == files
    assert job.run().rows["replayed"] == before.rows["released"]


def caps_of(job):
    with job.ledger() as ledger:
        return ledger.reports.caps()


def test_a_run_that_leaves_most_rows_out_publishes_nothing(make_job):
    job = make_job()
    job.run()
    files, rows = job.files(), scan_published(str(job.folder / "published")).collect()
    lower = {"cap": {**TYPO, "epsilon": 210.0}, "release": "2026-12"}
    charged, caps = job.charged(), caps_of(job)
    with pytest.raises(BudgetError, match=r"of 240 rows would be excluded \(over the cap\); .*min_released") as caught:
        run(job.policy(**lower), accept_lower_cap=True, accept_fewer_rows=True)
    assert caught.value.exit_code == 3
    assert job.files() == files, "readers see the same files"
    assert (job.charged(), caps_of(job)) == (charged, caps), "nothing was charged, and no cap was lowered"
    summary = run(job.policy(**lower, min_released=0.0), accept_lower_cap=True, accept_fewer_rows=True)
    assert 0 < summary.published_rows < 120
    assert scan_published(str(job.folder / "published")).collect().height < rows.height


def test_new_rows_over_the_cap_do_not_stop_what_is_added_to(make_job, reviews, save):
    job = make_job(frame=reviews(200), incremental=True, cap={**TYPO, "epsilon": 400.0})
    assert job.run().rows["quarantined"] == 0
    long = reviews(30, 200).with_columns(pl.concat_str([pl.col("review")] * 30, separator=" "))
    save(pl.concat([reviews(200), reviews(5, 230), long]), job.folder / "raw.parquet")
    added = job.run()
    assert (added.rows["quarantined"], added.rows["released"]) == (30, 5), "30 of 235 rows"
    with pytest.raises(PolicyError, match="min_released"):
        job.policy(min_released=1.5)


@pytest.fixture
def ledger(make_job):
    job = make_job()
    job.run()
    return job, ["--ledger", str(job.folder / "ledger.db")]


def test_a_cap_is_set_by_command(ledger):
    job, place = ledger
    asked = ("ledger", "set-cap", "reviews", "--epsilon", 7, "--period", "2026", "--reason", "less is enough", *place)
    refused = dptext(*asked, input="n\n")
    assert refused.exit_code == 5
    assert "nothing was changed" in refused.output
    assert "to epsilon 7 (it is eps_pure 1000 now)?" in refused.output
    assert dptext(*asked).exit_code == 5, "there is no terminal to answer"
    result = json.loads(dptext(*asked, "--yes", "--json").stdout)
    expected = {"scope": "dataset:reviews, period 2026", "before": {"eps_pure": 1000.0}, "after": {"eps_pure": 7.0}}
    assert result == expected | {"changed": True}
    assert json.loads(dptext(*asked, "--json").stdout)["changed"] is False
    asked = ("ledger", "set-cap", "reviews", "--period", "2026", *place)
    for reason in ((), ("--reason", ""), ("--reason", "a\x1bb"), ("--reason", "r" * 201)):
        assert dptext(*asked, "--epsilon", 2000, "--yes", *reason).exit_code in {2, 5}, reason
    asked += ("--reason", "board of May 4")
    raised = dptext(*asked, "--epsilon", 2000, input="y\n")
    assert raised.exit_code == 0
    assert "is now eps_pure 2000" in raised.output
    assert job.run(cap={**TYPO, "epsilon": 2000.0}).rows["replayed"] == 240
    with job.ledger() as book:
        assert book.verify().ok
    other = dptext(*asked, "--rho", 2, "--yes")
    assert other.exit_code == 5
    assert "is capped on pure, got zcdp" in other.output
    history = json.loads(dptext("ledger", "history", *place, "--json").stdout)["history"]
    assert [(event["change"], event["reason"]) for event in history] == [
        ("first", None),
        ("lower", "less is enough"),
        ("higher", "board of May 4"),
    ]
    assert "board of May 4" in dptext("ledger", "history", *place).output
    approx = {"measure": "approx", "epsilon": 2000.0, "delta": 1e-6, "period": "2026"}
    with pytest.raises(LedgerError, match="is capped on pure, got approx") as caught:
        job.run(cap=approx)
    command = caught.value.hint.partition("`")[2].partition("`")[0].replace("WORDS", "one-scope").split()
    assert command[:3] == ["dptext", "ledger", "set-cap"]
    converted = dptext(*command[1:], *place, "--yes")
    assert "is now eps_approx 2000 and delta 1e-06" in converted.output
    assert job.run(cap=approx).rows["replayed"] == 240


def test_a_plan_refuses_a_cap_on_another_measure(make_job):
    job = make_job()
    job.run()
    cap = {"measure": "approx", "epsilon": 1000.0, "delta": 1e-6, "period": "2026"}
    assert "is capped on pure, got approx" in plan(job.policy(cap=cap)).refusal["message"]


@pytest.mark.parametrize("command", ["thaw", "accept-units"])
@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        (("eps_pure=15", "eps_pure=0"), "eps_pure is given twice"),
        (("eps_pure",), "a loss is written COMPONENT=AMOUNT"),
        (("eps_pure=much",), "a loss is written COMPONENT=AMOUNT"),
        (("EPS_PURE=15", "eps_pure=0"), "a loss is of a component that no cap has"),
        (("epsilon=15", "eps_pure=0"), "the components are eps_pure, "),
    ],
)
def test_a_loss_is_given_once_for_each_component(tmp_path, command, lost, expected):
    place = tmp_path / "ledger.db"
    with Ledger.open(place) as ledger:
        ledger.set_cap(Scope("reviews"), Cap(epsilon=20))
        ledger.losses.freeze("reviews", "restored") if command == "thaw" else None
    options = [part for amount in lost for part in ("--lost", amount)]
    done = dptext("ledger", command, "reviews", *options, "--reason", "x", "--yes", "--ledger", place)
    assert (done.exit_code, expected in done.output) == (5, True), done.output
    with Ledger.open(place, read_only=True) as ledger:
        assert ledger.reports.caps()[0]["limits"] == {"eps_pure": 20_000_000}
