"""One policy file for several environments: variables, --set, and no shared ledger or noise key."""

import json
import logging
import shutil
import sys

import pytest

from dptext_etl import Policy
from dptext_etl.cli import failures
from dptext_etl.engines import run
from dptext_etl.errors import LedgerError, PolicyError
from dptext_etl.runner import progress
from tests.command_line import dptext
from tests.refusals import same_refusal


@pytest.fixture
def job(make_job, monkeypatch):
    made = make_job()
    monkeypatch.setenv("DPTEXT_ANCHORS", str(made.folder / "anchors"))
    made.values["environment"] = "production"
    return made


@pytest.fixture
def path(job):
    written = job.write_policy()
    text = written.read_text().replace(str(job.folder / "published") + '"', '${DPTEXT_PLACE}/published"')
    written.write_text(text.replace('release = "2026-11"', 'release = "env:DPTEXT_RELEASE"'))
    return written


def test_variables_and_settings_give_the_same_policy_as_their_values(path, job, monkeypatch):
    monkeypatch.setenv("DPTEXT_PLACE", str(job.folder))
    monkeypatch.setenv("DPTEXT_RELEASE", "2026-11")
    assert Policy.load(path).model_dump() == job.policy().model_dump()
    changed = Policy.load(path, {"release": "2026-12", "sink": "there", "environment": "development"})
    assert (changed.release, changed.environment) == ("2026-12", "development")
    assert changed.sink == str(job.folder / "there")
    assert {item.release for item in changed.column_policies()} == {"2026-12"}


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("sink", "${DPTEXT_PLACE}/published", "sink: the variable DPTEXT_PLACE is not set"),
        ("sink", "${DPTEXT_PLACE/published", "sink holds ${ without the name of a variable"),
        ("source", "env:DPTEXT_PLACE", "source: the variable DPTEXT_PLACE is not set"),
        ("sink", "s3://other/${AWS_SESSION_TOKEN}", "sink: only variables whose names begin with DPTEXT_"),
        ("sink", "s3://other/${DPTEXT_STORE_SECRET}", "sink: only variables whose names begin with DPTEXT_"),
        ("key", "file:other", "key cannot be set for a single call"),
        ("cap", "100", "cap cannot be set for a single call"),
        ("table.name", "a.b", "table.name cannot be set: the policy has no table"),
    ],
)
def test_a_wrong_setting_is_named_and_writes_nothing(job, monkeypatch, entry, value, message):
    monkeypatch.delenv("DPTEXT_PLACE", raising=False)
    before = sorted(job.folder.rglob("*"))
    done = dptext("run", job.write_policy(), "--set", f"{entry}={value}")
    assert (done.exit_code, message in done.stderr) == (PolicyError.exit_code, True), done.stderr
    assert sorted(job.folder.rglob("*")) == sorted([*before, job.folder / "privacy.toml"])


def test_a_setting_needs_a_policy_file(tmp_path):
    for words in (["statement", tmp_path], ["forget", tmp_path, "--everywhere", "--subject", "u1"]):
        done = dptext(*words, "--set", "release=2")
        assert (done.exit_code, "leave out --set" in done.stderr) == (2, True), done.stderr


def test_environments_never_share_a_ledger_or_a_noise_key(job):
    run(job.policy())
    error = same_refusal(job, {"environment": "development", "release": "d"}, LedgerError)
    assert error.message.startswith("another environment uses this noise key")
    other = {"url": f"sqlite:///{job.folder / 'other.db'}"}
    changed = {"environment": "development", "ledger": other, "sink": str(job.folder / "development")}
    assert same_refusal(job, changed, LedgerError).message == error.message
    shutil.copy(job.folder / "noise.key", job.folder / "copy.key")  # the value counts, not the name
    with pytest.raises(LedgerError, match="another environment uses this noise key"):
        run(job.policy(**changed, key=f"file:{job.folder / 'copy.key'}"))
    (job.folder / "dev.key").write_text("5c1f" * 16)
    (job.folder / "dev.key").chmod(0o600)
    with pytest.raises(LedgerError, match="another environment uses this ledger"):
        run(job.policy(environment="development", key=f"file:{job.folder / 'dev.key'}", release="d"))
    assert run(job.policy(**changed, key=f"file:{job.folder / 'dev.key'}")).published
    assert run(job.policy()).published


def test_a_log_in_json_has_one_object_per_line(job, monkeypatch, capsys):
    monkeypatch.setattr(failures, "_HANDLER", logging.StreamHandler(sys.stderr))
    logger = logging.getLogger("dptext_etl")
    monkeypatch.setattr(logger, "level", logger.level)
    monkeypatch.setattr(logger, "handlers", [failures._HANDLER])
    about = {"dataset": "reviews", "release": "1", "partition": None}
    failures.log_run(None, "json", about)
    run(job.policy())
    logger.info("too much for a scheduler")
    slow = progress.Progress("release", 5, 9, 31.0, 2.0)
    logger.info("release: %s", slow, extra={"progress": slow})
    assert [json.loads(line)["rows"] for line in capsys.readouterr().err.splitlines()] == [5]
    failures.log_run("info", "json", about)
    run(job.policy(release="3"))
    failures.note("stopped at partition 3")
    failures.report(PolicyError("the cap is too low", "raise it"))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all(line.items() >= about.items() for line in lines)
    phases = {line["phase"]: line for line in lines if "phase" in line}
    assert {"release", "gates"} <= phases.keys()
    assert phases["release"]["rows"] == phases["release"]["rows_total"] > 0
    assert [(line["level"], line["message"]) for line in lines[-2:]] == [
        ("info", "stopped at partition 3"),
        ("error", "Error: the cap is too low\nHint: raise it"),
    ]
    failures.log_run("error", "text", about)
    run(job.policy(release="2"))
    assert capsys.readouterr().err == ""
