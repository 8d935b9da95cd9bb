"""kill -9 of commands that end or reverse something, before each of their writes: the same command then finishes."""

import shutil
import subprocess

import pytest

from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.anchor_files import require
from dptext_etl.policy import LedgerSpec

from ..ledger_kit import Kit

pytestmark = pytest.mark.thorough
KILLED = """
import os, signal, sys
from dptext_etl.cli.app import main
from dptext_etl.ledger.storage.store import SqliteStore

left = int(sys.argv.pop(1))

def dying(real, writes=lambda *_: True):
    def call(*args, **more):
        global left
        if writes(*args):
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        return real(*args, **more)
    return call

WRITES = ("begin immediate", "insert", "update", "delete", "commit")
SqliteStore._run = dying(SqliteStore._run, lambda store, sql, values: sql.startswith(WRITES))
for name in ("replace", "rename", "unlink", "rmdir", "fsync", "link"):
    setattr(os, name, dying(getattr(os, name)))
main()
"""
"""Runs a command, and dies before one of its writes to the ledger or to the disk."""
REASON = ("--reason", "as planned")
COMMANDS = {
    "freeze": ("ledger", "freeze", "reviews", *REASON),
    "revoke": ("ledger", "revoke", "reviews", "r1", *REASON, "--yes"),
    "thaw": ("ledger", "thaw", "songs", "--lost", "eps_pure=2", *REASON, "--yes"),
    "expire": ("ledger", "expire", "open", *REASON, "--yes"),
    "abort": ("ledger", "abort", "open", *REASON, "--yes"),
    "clean": ("clean", "privacy.toml"),
}


def prepared(make_job, monkeypatch):
    """A job with two versions and staged rows, and a ledger in which every command has something to do."""
    job = make_job("job", retention={"versions": 1, "staging_days": 0})
    monkeypatch.setenv("DPTEXT_ANCHORS", str(job.folder / "heads"))
    job.run()
    job.run(release="r2")
    job.write_policy()
    kit = Kit(job.folder / "other.db")
    kit.reserve(["a", "b"], cap=9)
    kit.commit(["a", "b"])
    kit.reserve(["c", "d"], cap=9, job="open")
    kit.reserve(["e"], refs=[kit.ref(dataset="songs")], cap=9)
    kit.ledger.losses.freeze("songs", "restored")
    kit.ledger.close()
    return job.folder


def state(folder):
    """The ledger's answers after a command, without times, and the names of all published and staged files."""
    with Ledger.open(folder / "other.db", read_only=True) as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        shown = [
            {name: row[name] for name in ("release", "burnt", "pending", "aborted")} for row in ledger.reports.show()
        ]
        told = [{name: row[name] for name in ("kind", "of", "reason", "after")} for row in ledger.reports.history()]
        for dataset in {"reviews", "songs"} - {*ledger.losses.frozen()}:
            require(ledger, Scope(dataset, "2026"), LedgerSpec(url="ledger.db", anchors=str(folder / "heads")))
        facts = (ledger.losses.frozen(), ledger.reports.caps(), shown, told)
    names = (path for path in folder.rglob("*") if path.is_file() and ".db" not in path.name and path.name != "steps")
    return facts, sorted(str(path.relative_to(folder)) for path in names if "heads" not in path.parts)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_killed_before_any_of_its_writes_finishes_when_repeated(
    command, make_job, warm, drill, monkeypatch
):
    folder = prepared(make_job, monkeypatch)
    spare = shutil.copytree(folder, folder.with_name("spare"), symlinks=True)
    words = [*COMMANDS[command], *(["--ledger", "other.db"] if COMMANDS[command][0] == "ledger" else [])]

    def call(killed_before):
        program = [*warm, "-c", KILLED, str(killed_before), *words]
        done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def again():
        shutil.rmtree(folder)
        shutil.copytree(spare, folder, symlinks=True)

    again()
    before = state(folder)
    assert call(10**6) == (0, ""), "undisturbed"
    expected, kills = state(folder), 0
    assert expected != before
    while True:
        again()
        code, _ = call(kills)
        if code == 0:
            break
        assert code == -9
        facts = state(folder)[0]
        assert facts in (before[0], expected[0]), "a ledger holds all of a command, or nothing"
        code, said = call(10**6)
        assert code == 0 or "is not frozen" in said, said
        assert state(folder) == expected
        kills += 1
    assert kills >= 4
    drill.tell(
        f"command {command}",
        f"`dptext {' '.join(words[:2])}` killed before each of its {kills} writes to the ledger and the disk",
        "all or nothing of it was in the ledger; the same command then finished",
    )
