"""`dptext ledger backup`: a copy of one moment, made while others write, from either kind of store to either kind."""

import fcntl
import json
import os
import shutil
import stat
import threading

import pytest
from typer.testing import CliRunner

from dptext_etl import files
from dptext_etl.cli.app import app
from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger, Outcome

from ..ledger_kit import ID_KEY


@pytest.fixture(params=["sqlite", "postgres"])
def goal(request, tmp_path):
    """A place for a copy."""
    if request.param == "sqlite":
        return tmp_path / "copies" / "copy.db"
    return request.getfixturevalue("postgres").url()


def test_a_copy_holds_everything_and_can_go_on(kit, goal, new_kit, tmp_path):
    (tmp_path / "copies").mkdir()
    kit.reserve(["a", "b"], ["ann", "bob"], 2, cap=9, refs=[kit.ref(), kit.ref("title")])
    kit.commit(["a"])
    kit.ledger.releases.revoke(kit.ref(release="gone"), "gate")
    kit.ledger.losses.freeze("others", "by hand")
    done = CliRunner().invoke(app, ["ledger", "backup", str(goal), "--ledger", kit.place, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"copy": str(goal), "anchor": str(kit.ledger.anchor())}
    if "://" not in kit.place:  # a SQLite ledger has its key next to it, which is copied apart
        shutil.copy(f"{kit.place}.id.key", tmp_path / "key")
    key = f"env:{ID_KEY}" if "://" in kit.place else f"file:{tmp_path / 'key'}"
    with Ledger.open(str(goal), key, create=False) as copy:
        assert copy.reports.show() == kit.ledger.reports.show()
        assert copy.reports.caps() == kit.ledger.reports.caps()
        assert copy.losses.frozen() == ["others"]
        kit.ledger.close()
        kit.ledger = copy
        assert kit.reserve(["a", "b", "c"], ["ann", "bob", "bob"], [2, 2, 6], cap=9) == [
            Outcome.COMMITTED,
            Outcome.PENDING,
            Outcome.OVER_CAP,
        ]
        kit.sound()


def test_a_copy_is_private_and_takes_no_place_that_is_taken(kit, goal, tmp_path):
    (tmp_path / "copies").mkdir()
    kit.reserve(["a"], cap=9)
    kit.ledger.backup(goal)
    with pytest.raises(LedgerError, match="there is something at the place of the copy already"):
        kit.ledger.backup(goal)
    with pytest.raises(LedgerError, match="there is something at the place of the copy already"):
        kit.ledger.backup(kit.place)
    kit.sound()
    if "://" not in str(goal):
        assert stat.S_IMODE(goal.stat().st_mode) == 0o600
        assert [path.name for path in goal.parent.iterdir()] == ["copy.db"], "no draft is left"
        with pytest.raises(LedgerError, match="the copy cannot be written"):
            kit.ledger.backup(tmp_path / "nowhere" / "copy.db")


@pytest.mark.parametrize("place", ["copy.db", "tables"])
def test_drafts_of_killed_processes_go_with_the_next_copy_or_export(kit, tmp_path, place):
    def leave(name, *, held):
        draft = tmp_path / "copies" / f".{files.PREFIX}{name}"
        (draft / "files").mkdir(parents=True)
        (draft / "files" / "copy.db").write_bytes(b"half")
        descriptor = os.open(draft, os.O_RDONLY) if held else None
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    kit.reserve(["a"], cap=9)
    leave("killed", held=False)
    held = leave("running", held=True)
    to = tmp_path / "copies" / place
    kit.ledger.backup(to) if to.suffix else kit.ledger.write_tables(to)
    assert sorted(path.name for path in to.parent.iterdir()) == [f".{files.PREFIX}running", place]
    os.close(held)


def test_copies_are_made_while_others_write(kit, new_kit, tmp_path):
    kit.reserve(["first"], cap=10_000)
    writing, failed = threading.Event(), []

    def write():
        other = new_kit(kit.place)
        at = 0
        while not writing.is_set():
            at += 1
            names = [f"r{at}-{i}" for i in range(20)]
            try:
                other.reserve(names, cap=10_000)
                other.commit(names)
            except LedgerError as error:
                failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    heads = []
    while len({head.seq for head in heads}) < 2 and len(heads) < 500:  # until a copy sees what another one does not
        heads.append(kit.ledger.backup(tmp_path / f"copy{len(heads)}.db"))
    writing.set()
    thread.join()
    assert not failed
    assert len({head.seq for head in heads}) > 1
    for at, head in enumerate(heads):
        with Ledger.open(tmp_path / f"copy{at}.db", create=False, read_only=True) as copy:
            assert copy.verify().problems == []
            assert copy.anchor() == head
        assert kit.ledger.holds(head)
