"""Caps that are signed, lowered, or leave most rows out: a run refuses, and says why, before it charges."""

import json
import re

import polars as pl
import pytest

from dptext_etl import _kernel
from dptext_etl.engines import run
from dptext_etl.errors import BudgetError, LedgerError, PolicyError
from dptext_etl.policy import Cap
from dptext_etl.policy.terms import anchored
from dptext_etl.runner import plan, scan_published
from tests.command_line import dptext, facts

CAP = 'measure = "pure"\nepsilon = 1000\nperiod = "2026"\ndataset = "reviews"\n'


@pytest.fixture
def signed(make_job):
    """A job, the file of its signed cap, and the entry of the policy."""
    job = make_job()
    path, key = job.folder / "cap.toml", job.folder / "steward.key"
    _kernel.Secret().write(str(key))
    path.write_text(CAP)
    public = facts("ledger", "sign-cap", path, "--key", f"file:{key}")["public_key"]
    return job, path, {"file": str(path), "public_key": public}


def set_cap(job, cap):
    place = ("--reason", "signed caps", "--ledger", job.folder / "ledger.db", "--yes")
    return facts("ledger", "set-cap", "reviews", "--signed", cap["file"], "--public-key", cap["public_key"], *place)


def test_a_run_takes_the_cap_that_the_pinned_key_signed(signed):
    job, path, cap = signed
    job.run()
    with pytest.raises(LedgerError, match="pins no key for caps of dataset:reviews"):
        job.run(cap=cap)
    assert set_cap(job, cap)["changed"]
    with pytest.raises(LedgerError, match=f"pins the key {cap['public_key']} for caps of dataset:reviews"):
        job.run()
    policy = job.policy(cap=anchored({"cap": {**cap, "file": path.name}}, path.parent)["cap"])
    assert Cap.model_validate_json(policy.cap.model_dump_json()) == policy.cap, "workers need no file"
    assert run(policy).rows["replayed"] == 240
    with job.ledger() as book:
        assert book.verify().ok
        assert [event["change"] for event in book.reports.history()] == ["first", "same"]


def test_another_key_is_refused_until_a_steward_pins_it(signed):
    job, path, cap = signed
    Cap.model_validate(cap)
    facts("ledger", "init", "--ledger", job.folder / "ledger.db")
    set_cap(job, cap)
    _kernel.Secret().write(str(job.folder / "other.key"))
    other = facts("ledger", "sign-cap", path, "--key", f"file:{job.folder / 'other.key'}")
    with pytest.raises(LedgerError, match=f"pins the key {cap['public_key']}"):
        job.run(cap={**cap, "public_key": other["public_key"]})
    elsewhere = ("--epsilon", 9, "--period", "2027", "--group", "new", "--reason", "x", "--yes")
    place = ("--ledger", job.folder / "ledger.db")
    refused = dptext("ledger", "set-cap", "reviews", *elsewhere, *place)
    assert "caps of group:new" in refused.output
    assert set_cap(job, {**cap, "public_key": other["public_key"]})["changed"]
    assert job.run(cap={**cap, "public_key": other["public_key"]}).rows["new"] == 240


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda text: text.replace("1000", "2000"), "the signature of the cap is wrong"),
        (lambda text: text.replace("2026", "2027"), "the signature of the cap is wrong"),
        (lambda text: f'group = "people"\n{text}', "the signature of the cap is wrong"),
        (lambda text: text.partition("signature")[0], "a signed cap needs `public_key`, `signature`"),
        (lambda text: text.replace('dataset = "reviews"\n', ""), "and its `dataset` or `group`"),
        (lambda _: "no TOML", "the file of the cap is missing, or is not TOML"),
        (lambda _: None, "the file of the cap is missing, or is not TOML"),
    ],
)
def test_a_changed_file_is_refused(signed, edit, said):
    _, path, cap = signed
    text = edit(path.read_text())
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(PolicyError, match=said):
        signed[0].policy(cap=cap)


@pytest.mark.parametrize("others", [["--epsilon", 2000], ["--period", "2027"], ["--group", "people"]])
def test_set_cap_takes_no_entry_next_to_a_signed_cap(signed, others):
    job, _, cap = signed
    key = ["--public-key", cap["public_key"]]
    for words in ([*key, "--signed", cap["file"], *others], [*key, *others, "--epsilon", 9]):  # a key pins nothing
        place = ["--reason", "x", "--ledger", job.folder / "ledger.db", "--yes"]
        done = dptext("ledger", "set-cap", "reviews", *words, *place)
        assert "no other option of the cap may be given" in done.output
    assert not (job.folder / "ledger.db").exists()


def test_a_cap_of_each_person_is_none_of_each_record(signed):
    job, path, cap = signed
    facts("ledger", "init", "--ledger", job.folder / "ledger.db")
    set_cap(job, cap)
    for text, changes in ((CAP, {"unit": "record", "subject": None}), (CAP + 'unit = "record"\n', {})):
        later = path.with_name("later.toml")
        later.write_text(text.replace("2026", "2027"))
        facts("ledger", "sign-cap", later, "--key", f"file:{job.folder / 'steward.key'}")
        with pytest.raises(LedgerError, match="the cap is signed per"):
            job.run(cap={**cap, "file": str(later)}, **changes)
    assert set_cap(job, {**cap, "file": str(later)})["after"] == {"eps_pure": 1000.0}
    assert job.run(cap={**cap, "file": str(later)}, unit="record", subject=None).rows["new"] == 240


@pytest.mark.parametrize("text", ["epsilon = 1\nepsilon = 2\n", CAP.replace("1000", "nan"), "epsilon = 1000\n"])
def test_a_cap_that_no_policy_takes_is_not_signed(signed, text):
    job, path, cap = signed
    path.write_text(text)
    place = ["--ledger", job.folder / "ledger.db", "--reason", "x", "--yes"]
    signing = ["sign-cap", path, "--key", f"file:{job.folder / 'steward.key'}"]
    setting = ["set-cap", "reviews", "--signed", path, "--public-key", cap["public_key"], *place]
    for words in (signing, setting):
        done = dptext("ledger", *words)
        assert done.exit_code == PolicyError.exit_code, done.output
        assert re.search("policy: cap|policy: epsilon|the file of the cap|a signed cap needs", done.output), done.output
    assert path.read_text() == text


@pytest.mark.parametrize("words", [["--epsilon", -5], ["--delta", 1e-6], ["--rho", 1, "--epsilon", 2]])
def test_set_cap_says_what_is_wrong_with_a_cap(tmp_path, words):
    place = ["--ledger", tmp_path / "ledger.db", "--reason", "x", "--yes"]
    facts("ledger", "init", *place[:2])
    done = dptext("ledger", "set-cap", "reviews", *[*words, *place])
    assert (done.exit_code, done.output[:13]) == (PolicyError.exit_code, "Error: policy"), done.output


def test_an_unsigned_entry_is_refused_by_name(signed):
    job, _, cap = signed
    with pytest.raises(PolicyError, match="epsilon and period: not signed"):
        job.policy(cap={**cap, "epsilon": 2000.0, "period": "2027"})
    with pytest.raises(PolicyError, match="needs `public_key`, `signature`"):
        job.policy(cap={"file": cap["file"]})
    with pytest.raises(LedgerError, match="signed for the dataset reviews, got others"):
        job.run(dataset="others", cap=cap)


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
    with pytest.raises(BudgetError, match=r"of 240 rows would be left out \(over the cap\); .*min_released") as caught:
        run(job.policy(**lower), accept_lower_cap=True)
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
