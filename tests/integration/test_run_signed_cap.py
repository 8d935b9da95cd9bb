"""A signed cap: a run refuses one that was changed, is missing, or is signed by another key, before it charges."""

import json
import re

import pytest
from typer.testing import CliRunner

from dptext_etl import _kernel
from dptext_etl.cli.app import app
from dptext_etl.engines import run
from dptext_etl.errors import LedgerError, PolicyError
from dptext_etl.policy import Cap
from dptext_etl.policy.terms import anchored

CAP = 'measure = "pure"\nepsilon = 1000\nperiod = "2026"\ndataset = "reviews"\n'


def dptext(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def signed(make_job):
    """A job, the file of its signed cap, and what the policy says of it."""
    job = make_job()
    path, key = job.folder / "cap.toml", job.folder / "steward.key"
    _kernel.Secret().write(str(key))
    path.write_text(CAP)
    public = dptext("ledger", "sign-cap", path, "--key", f"file:{key}")["public_key"]
    return job, path, {"file": str(path), "public_key": public}


def set_cap(job, cap):
    place = ("--reason", "signed caps", "--ledger", job.folder / "ledger.db", "--yes")
    return dptext("ledger", "set-cap", "reviews", "--signed", cap["file"], "--public-key", cap["public_key"], *place)


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
    dptext("ledger", "init", "--ledger", job.folder / "ledger.db")
    set_cap(job, cap)
    _kernel.Secret().write(str(job.folder / "other.key"))
    other = dptext("ledger", "sign-cap", path, "--key", f"file:{job.folder / 'other.key'}")
    with pytest.raises(LedgerError, match=f"pins the key {cap['public_key']}"):
        job.run(cap={**cap, "public_key": other["public_key"]})
    elsewhere = ("--epsilon", 9, "--period", "2027", "--group", "new", "--reason", "x", "--yes")
    place = ("--ledger", job.folder / "ledger.db")
    refused = CliRunner().invoke(app, [*map(str, ("ledger", "set-cap", "reviews", *elsewhere, *place))])
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
        done = CliRunner().invoke(app, [*map(str, ("ledger", "set-cap", "reviews", *words, *place))])
        assert "no other option of the cap may be given" in done.output
    assert not (job.folder / "ledger.db").exists()


def test_a_cap_of_each_person_is_none_of_each_record(signed):
    job, path, cap = signed
    dptext("ledger", "init", "--ledger", job.folder / "ledger.db")
    set_cap(job, cap)
    for text, changes in ((CAP, {"unit": "record", "subject": None}), (CAP + 'unit = "record"\n', {})):
        later = path.with_name("later.toml")
        later.write_text(text.replace("2026", "2027"))
        dptext("ledger", "sign-cap", later, "--key", f"file:{job.folder / 'steward.key'}")
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
        done = CliRunner().invoke(app, ["ledger", *map(str, words)])
        assert done.exit_code == PolicyError.exit_code, done.output
        assert re.search("policy: cap|policy: epsilon|the file of the cap|a signed cap needs", done.output), done.output
    assert path.read_text() == text


@pytest.mark.parametrize("words", [["--epsilon", -5], ["--delta", 1e-6], ["--rho", 1, "--epsilon", 2]])
def test_set_cap_says_what_is_wrong_with_a_cap(tmp_path, words):
    place = ["--ledger", tmp_path / "ledger.db", "--reason", "x", "--yes"]
    dptext("ledger", "init", *place[:2])
    done = CliRunner().invoke(app, ["ledger", "set-cap", "reviews", *map(str, [*words, *place])])
    assert (done.exit_code, done.output[:13]) == (PolicyError.exit_code, "Error: policy"), done.output


def test_an_unsigned_entry_is_refused_by_name(signed):
    job, _, cap = signed
    with pytest.raises(PolicyError, match="epsilon and period: not signed"):
        job.policy(cap={**cap, "epsilon": 2000.0, "period": "2027"})
    with pytest.raises(PolicyError, match="needs `public_key`, `signature`"):
        job.policy(cap={"file": cap["file"]})
    with pytest.raises(LedgerError, match="signed for the dataset reviews, got others"):
        job.run(dataset="others", cap=cap)
