"""From `init` to `ledger export`, as a user goes: real files, real key, real ledger, real gates."""

import contextlib
import json
import os
import pty
import re
import subprocess
from importlib.metadata import EntryPoint
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl import extensions
from dptext_etl.cli.app import app
from dptext_etl.cli.commands import init, published_commands, run

SENTINEL = "zzqsentinelqzz"


def dptext(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert SENTINEL not in done.output
    return done


def facts(*words):
    done = dptext(*words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def contents(folder):
    found = (path for path in folder.rglob("*") if path.is_file() and ".staging" not in str(path))
    return {path.relative_to(folder): path.read_bytes() for path in found}


@pytest.fixture
def folder(tmp_path, monkeypatch, reviews, save):
    """A working folder with a raw table, and nothing else."""
    monkeypatch.chdir(tmp_path)
    save(reviews(rows=300).drop("note", "secret"), tmp_path / "reviews.parquet")
    return tmp_path


@pytest.fixture
def inited(folder, small_vectors):
    """The same after `dptext init`, with words of the small vectors instead of public texts."""
    assert tuple(facts("init", "reviews.parquet", "--form", "rows")) == init.KEYS
    policy = folder / "privacy.toml"
    words = f'{{ name = "custext", epsilon = 2.0, k = 5, vectors = "{small_vectors}" }}\nallow = ["cluster"]'
    proposed = '{ name = "surrogate", epsilon = 4.0, corpus = "everyday-30k-2" }'
    text = policy.read_text().replace(proposed, words).replace("per_subject = 5\n", "")
    limit = 'measure = "approx", epsilon = 20.0, delta = 1e-6'
    policy.write_text(text.replace(limit, 'measure = "pure", epsilon = 500.0'))
    return folder


def test_init_replaces_nothing_unless_told(folder):
    facts("init", "reviews.parquet", "--form", "rows")
    key = (folder / "noise.key").read_bytes()
    (folder / "privacy.toml").write_text("# mine")
    refused = dptext("init", "reviews.parquet")
    assert refused.exit_code == 5
    assert "--force" in refused.stderr
    assert (folder / "privacy.toml").read_text() == "# mine"
    assert facts("init", "reviews.parquet", "--form", "rows", "--force")["new_key"] is None
    assert (folder / "noise.key").read_bytes() == key


def test_init_into_another_folder_finds_the_source(folder):
    (folder / "policies").mkdir()
    found = facts("init", "reviews.parquet", "--form", "rows", "--out", "policies/reviews.toml")
    assert found["new_key"] == "policies/noise.key"
    assert facts("plan", "policies/reviews.toml")["rows"] == 200


def test_a_plan_spends_nothing_and_bounds_the_run(inited):
    before = contents(inited)
    planned = facts("plan", "privacy.toml")
    assert tuple(planned) == run.PLAN_KEYS
    assert contents(inited) == before
    shown = dptext("plan", "privacy.toml").stdout
    assert "10^" in shown
    assert "the output set of every word" in shown
    done = facts("run", "privacy.toml")
    assert tuple(done) == run.KEYS
    assert done["spend"]["largest_record"]["eps_pure"] == planned["per_record"]["max"]
    assert done["draws"] == planned["draws"]


def test_the_screen_shows_the_loss_of_a_person_before_the_one_of_a_text(inited):
    shown = dptext("run", "privacy.toml").output.splitlines()
    ((name, used), *_) = facts("ledger", "remaining", "privacy.toml")["scopes"][0]["used"].items()
    (at,) = [number for number, line in enumerate(shown) if line.startswith("most charged person")]
    assert shown[at].split(maxsplit=3)[3].startswith(f"{name} {used['max']:g} in all, odds move by 10^")
    assert shown[at + 1].startswith("largest record")


def test_a_profile_shows_every_stage_and_json_has_it(inited):
    shown = dptext("run", "privacy.toml", "--profile").stdout
    stages = ("open", "examine", "read", "reserve", "compute", "reports", "stage", "commit", "gates", "publish", "all")
    table = shown[shown.index("Profile") :].splitlines()
    assert {line.split()[0] for line in table if line.strip()} >= set(stages)
    recognised = {cost["name"]: cost for cost in facts("run", "privacy.toml")["profile"]}
    assert set(recognised) == {"open", "publish", "other"}
    assert recognised["open"]["bytes"] > 0
    Path(facts("run", "privacy.toml")["staging"], "unchanged.json").unlink()
    costs = {cost["name"]: cost for cost in facts("run", "privacy.toml")["profile"]}
    assert costs["read"]["rows"] == 300
    assert costs["read"]["bytes"] > 0
    assert costs["publish"]["rows"] == costs["gates"]["rows"] == 300
    assert "Profile" not in dptext("run", "privacy.toml").stdout


def test_the_ledger_answers(inited):
    facts("run", "privacy.toml")
    (release,) = facts("ledger", "show", "--ledger", "ledger.db")["releases"]
    assert (release["column"], release["class"], release["pending"]) == ("review", "COND_PURE", 0)
    left = facts("ledger", "remaining", "--ledger", "sqlite:///ledger.db", "--subject", "u001")
    (scope,) = left["scopes"]
    (known,) = (entry["eps_pure"] for entry in scope["asked"])
    assert known["used"] > 0
    assert known["used"] + known["left"] == scope["limits"]["eps_pure"]
    ((charge,),) = scope["charges"]
    assert (charge["release"], charge["column"], charge["used"]) == ("1", "review", {"eps_pure": known["used"]})
    shown = dptext("ledger", "remaining", "--ledger", "ledger.db", "--subject", "u001").stdout
    assert re.search(rf"{charge['date']} +\S+ +1 +review +{charge['records']} +eps_pure ", shown)
    assert dptext("ledger", "remaining", "--ledger", "ledger.db", "--subject", "nobody").exit_code == 8
    verified = facts("ledger", "verify", "--ledger", "ledger.db")
    assert (verified["ok"], verified["problems"]) == (True, [])
    exported = dptext("ledger", "export", "--ledger", "ledger.db")
    assert json.loads(exported.stdout) == facts("ledger", "export", "--ledger", "ledger.db")
    for command, said in {"show": "COND_PURE", "remaining": "at the cap", "verify": "the ledger is intact"}.items():
        assert said in dptext("ledger", command, "--ledger", "ledger.db").stdout


def test_a_policy_may_stand_before_or_after_the_own_argument(inited):
    facts("run", "privacy.toml")
    for words in (["first", "--id", "r1", "privacy.toml"], ["privacy.toml", "second", "--id", "r1"]):
        assert facts("ledger", "export", *words)["folder"] in words
    assert sorted(path.name for path in inited.iterdir() if path.name in {"first", "second"}) == ["first", "second"]
    for order in (["reviews", "privacy.toml"], ["privacy.toml", "reviews"]):
        done = dptext("ledger", "freeze", *order, "--reason", "tried", "--alone")
        assert done.exit_code == 0, done.output


def test_documented_keys_are_those_that_are_printed(inited):
    facts("run", "privacy.toml")
    for command, *words in (["show"], ["remaining"], ["verify"], ["export", "tables"]):
        found = facts("ledger", command, *words, "--ledger", "ledger.db")
        said = " ".join(dptext("ledger", command, "--help").stdout.split())
        assert f"Keys with --json: {', '.join(found)}." in said


def test_check_judges_without_the_raw_table(inited):
    released = facts("run", "privacy.toml")["published"]
    (inited / "reviews.parquet").unlink()
    found = facts("check", "privacy.toml", "--released", released)
    assert tuple(found) == published_commands.CHECK_KEYS
    assert found["passed"] is True
    part = next((inited / "published").rglob("*.parquet"))
    pl.read_parquet(part).with_columns(review=pl.lit(SENTINEL)).write_parquet(part)
    done = dptext("check", "privacy.toml", "--released", released, "--json")
    assert done.exit_code == 4
    assert json.loads(done.stdout)["passed"] is False
    assert "words_in_output_set" in done.stderr


def test_partitions(folder, small_vectors, reviews, save):
    for partition in ("a", "b"):
        save(reviews(rows=120, first=200 * (partition == "b")), folder / "raw" / f"{partition}.ndjson")
    (folder / "privacy.toml").write_text(
        f"""
        dataset = "reviews"
        release = "1"
        source = "raw/{{partition}}.ndjson"
        sink = "out/{{partition}}"
        id = "id"
        unit = "record"
        key = "file:noise.key"
        ledger = {{ url = "ledger.db" }}
        [[column]]
        name = "review"
        mechanism = {{ name = "custext", epsilon = 1.0, k = 5, vectors = "{small_vectors}" }}
        allow = ["cluster"]
        """
    )
    assert dptext("key", "new", "noise.key").exit_code == 0
    for partition in ("a", "b"):
        assert facts("run", "privacy.toml", "--partition", partition)["rows"]["new"] == 120
    without = dptext("run", "privacy.toml")
    assert without.exit_code == 5
    assert "--partition" in without.stderr
    save(reviews(rows=120, first=400), folder / "raw" / "c.ndjson")
    done = dptext("run", "privacy.toml", "--all-partitions", "--json")
    assert done.stderr.splitlines() == [f"partition {name} ({at} of 3)" for at, name in enumerate("abc", 1)]
    runs = json.loads(done.stdout)["partitions"]
    assert [(one["partition"], one["rows"].get("new", 0)) for one in runs] == [("a", 0), ("b", 0), ("c", 120)]
    (folder / "raw" / "b.ndjson").write_text('{"id": 1}\n')
    failed = dptext("run", "privacy.toml", "--all-partitions")
    assert failed.exit_code == 5
    assert "stopped at partition b; done: 1 of 3" in failed.stderr
    assert "(3 of 3)" not in failed.stderr
    (folder / "raw" / "d e.ndjson").touch()
    refused = dptext("run", "privacy.toml", "--all-partitions")
    assert "partition a" not in refused.stderr
    assert refused.exit_code == 5
    assert dptext("run", "privacy.toml", "--all-partitions", "--partition", "a").exit_code == 2


def test_a_terminal_sees_counts_and_stdout_stays_json(inited, warm):
    """Stderr is a terminal, stdout a pipe."""
    master, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    command = [*warm, "-m", "dptext_etl.cli", "run", "privacy.toml", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, env=environment) as process:
        out = process.stdout.read()
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while chunk := os.read(master, 65_536):
            shown += chunk
    os.close(master)
    assert (process.returncode, json.loads(out)["rows"]["new"]) == (0, 300)
    assert b"300 of 300 rows" in shown
    assert SENTINEL.encode() not in shown + out


def test_a_stopped_run_says_how_to_go_on(inited, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dptext_etl.engines.run", stop)
        done = dptext("run", "privacy.toml")
    assert done.exit_code == 130
    assert "run the same command again" in done.stderr
    assert facts("run", "privacy.toml")["rows"]["released"] == 300


BOUNDED = """
from contextlib import contextmanager
from dptext_etl.engines import LocalEngine

class Bounded(LocalEngine):
    @classmethod
    @contextmanager
    def started(cls, policy, partition):
        print(f"started for {policy.dataset}, {partition}")
        yield cls()
        print("stopped")
"""


def test_an_engine_of_another_package_runs_a_policy(job, tmp_path, monkeypatch):
    (tmp_path / "bounded_engine.py").write_text(BOUNDED)
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("bounded", "bounded_engine:Bounded", "dptext_etl.engines")
    engines = {**extensions.installed("engines"), "bounded": point}
    monkeypatch.setattr(extensions, "installed", lambda group: engines if group == "engines" else {})
    done = CliRunner().invoke(app, ["run", str(job.write_policy()), "--engine", "bounded", "--json"])
    assert done.exit_code == 0, done.output
    started, stopped, summary = done.stdout.split("\n", 2)
    assert (started, stopped) == (f"started for {job.policy().dataset}, None", "stopped")
    assert json.loads(summary)["version"] == 1
    assert job.run().as_dict()["version"] == 1  # the same rows again, in this process
