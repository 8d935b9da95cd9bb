"""Anchors that are remembered apart from a ledger show that it was lost or restored, to all who share a cap.

Specification: docs/spec/privacy.md#lost-ledger.
"""

import errno
import json
import os
import re
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dptext_etl.errors import BusyError, FullLedgerError, InputError, LedgerError
from dptext_etl.ledger import Ledger, Outcome, Scope, anchor_files
from dptext_etl.ledger.anchor_files import (
    VARIABLE,
    AnchorFile,
    anchored,
    is_named,
    maintain,
    place_of,
    record,
    require,
    require_place,
)
from dptext_etl.policy import Cap, LedgerSpec

from ..ledger_kit import Kit
from .conftest import each_store

FROZEN = "is frozen.*: this ledger misses the anchor that an earlier run stored"


class Charger:
    """A dataset that charges as functions and runs do: look, reserve, remember."""

    def __init__(self, kit, folder, dataset, group="people"):
        self.kit, self.folder, self.dataset, self.group = kit, folder, dataset, group

    def charge(self, name, epsilon, release="r1", cap=60, period="2026"):
        scope = Scope(self.dataset, period, self.group)
        place = settings(self.folder)
        require(self.kit.ledger, scope, *place)
        ref = self.kit.ref(dataset=self.dataset, release=release)
        terms = Cap(epsilon=cap, period=period, group=self.group)
        (outcome,) = self.kit.reserve([name], ["ann"], epsilon, terms, refs=[ref], scope=scope)
        record(self.kit.ledger, scope, release, *place)
        return outcome


def settings(place):
    """Return the settings that name an anchor store, and options: a folder, or a URL with options."""
    named, options = place if isinstance(place, tuple) else (place, None)
    return LedgerSpec(url="sqlite:///ledger.db", anchors=str(named)), options


def stored(path):
    return AnchorFile.parse(path.read_bytes(), path)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "anchors"


@pytest.fixture
def sqlite(tmp_path):
    kit = Kit(tmp_path / "ledger.db")
    yield kit
    kit.ledger.close()


def restored(kit, copy):
    """Put a copy in the place of a ledger."""
    kit.ledger.close()
    for path in kit.path.parent.glob("ledger.db*"):
        if not path.name.endswith(".key"):
            path.unlink()
    shutil.copy(copy, kit.path)
    kit.ledger = kit.open()


def replaced(kit):
    """Put an empty ledger in the place of a ledger."""
    kit.ledger.close()
    for path in kit.path.parent.glob("ledger.db*"):
        path.unlink()
    kit.ledger = kit.open()


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "shared"])
def test_a_copy_of_a_project_has_its_own_heads_or_the_refusal_names_it(sqlite, folder, tmp_path, apart):
    Charger(sqlite, folder, "a").charge("x", 1)
    (tmp_path / "scratch").mkdir()
    for path in tmp_path.glob("ledger.db*"):
        shutil.copy(path, tmp_path / "scratch")
    copy = Kit(tmp_path / "scratch" / "ledger.db")
    Charger(copy, tmp_path / "scratch" / "heads" if apart else folder, "a").charge("y", 1)
    copy.ledger.close()
    if apart:
        assert Charger(sqlite, folder, "a").charge("z", 1) == Outcome.RESERVED
        return
    where = re.escape(f"{tmp_path}/scratch/ledger.db on {socket.gethostname()} stored it at 20")
    with pytest.raises(LedgerError, match=rf"{FROZEN}.*{where}(.|\n)*Hint: .*set DPTEXT_ANCHORS there"):
        Charger(sqlite, folder, "a").charge("z", 1)


@pytest.mark.parametrize("first", ["b", "a", "c"])
def test_the_loss_of_one_dataset_is_noticed_by_all_that_share_its_cap(sqlite, folder, tmp_path, first):
    """The group's cap is 60; a charged 32 after the copy was made: no one may spend as if it had not."""
    a, b, c, d = (
        Charger(sqlite, folder, name, group) for name, group in zip("abcd", ["people"] * 3 + [None], strict=True)
    )
    b.charge("b0", 1)
    sqlite.ledger.backup(tmp_path / "copy.db")
    a.charge("a1", 32)
    d.charge("d0", 1)
    restored(sqlite, tmp_path / "copy.db")
    chargers = {"a": a, "b": b, "c": c}
    with pytest.raises(LedgerError, match=FROZEN):
        chargers[first].charge("x", 30)
    for charger in chargers.values():
        with pytest.raises(LedgerError, match="is frozen"):
            charger.charge("x", 30)
    with pytest.raises(LedgerError, match=FROZEN):
        d.charge("d1", 1)
    assert sqlite.ledger.losses.thaw("a", {"eps_pure": 32}) == {"group:people, period 2026": {"eps_pure": 28_000_000}}
    assert b.charge("b2", 28, "r2", cap=28) == Outcome.OVER_CAP
    assert b.charge("b2", 27, "r2", cap=28) == Outcome.RESERVED, "1 + 27, and 32 that are forgotten: 60"
    sqlite.sound()


def test_a_loss_is_settled_once_for_all(sqlite, folder, tmp_path):
    a, b = (Charger(sqlite, folder, name) for name in "ab")
    b.charge("b0", 1)
    sqlite.ledger.backup(tmp_path / "copy.db")
    b.charge("b1", 1)
    a.charge("a1", 2)
    restored(sqlite, tmp_path / "copy.db")
    with pytest.raises(LedgerError, match=FROZEN):
        a.charge("a2", 1)
    sqlite.ledger.losses.thaw("b", {"eps_pure": 3})
    assert b.charge("b2", 1, "r2", cap=57) == Outcome.RESERVED, "its own anchor is missing, and that is settled"
    assert a.charge("a2", 1, "r2", cap=57) == Outcome.RESERVED
    sqlite.ledger.backup(tmp_path / "second.db")
    b.charge("b3", 1, "r2", cap=57)
    restored(sqlite, tmp_path / "second.db")
    with pytest.raises(LedgerError, match=FROZEN):
        a.charge("a3", 1, "r2", cap=57)


def test_one_thaw_settles_the_loss_of_all_datasets_whose_anchors_are_missing(sqlite, folder):
    for name in "ab":
        Charger(sqlite, folder, name).charge("x", 1)
    replaced(sqlite)
    with pytest.raises(LedgerError, match=FROZEN):
        Charger(sqlite, folder, "a").charge("y", 1)
    assert sqlite.ledger.losses.frozen() == ["a", "b"]
    sqlite.ledger.losses.thaw("a", {"eps_pure": 1})
    for name in "ab":
        require(sqlite.ledger, Scope(name, "2026", "people"), *settings(folder))


def test_another_ledger_at_the_place_is_noticed(sqlite, folder):
    a = Charger(sqlite, folder, "a")
    a.charge("a1", 2, "r7")
    replaced(sqlite)
    place, _ = settings(folder)
    require(sqlite.ledger, Scope("a", "2026", "people"), place, released=tuple)
    require(sqlite.ledger, Scope("d", "2026"), place, released=tuple)
    with pytest.raises(LedgerError, match="the dataset b is frozen with a, whose cap it shares: this ledger"):
        require(sqlite.ledger, Scope("b", "2026", "people"), place, released=tuple)
    with pytest.raises(LedgerError, match=FROZEN):
        a.charge("a2", 1)
    with pytest.raises(LedgerError, match="the group people is frozen with the dataset a"):
        sqlite.reserve(
            ["x"],
            ["ann"],
            1,
            Cap(epsilon=60, period="2027", group="people"),
            refs=[sqlite.ref(dataset="new")],
            scope=Scope("new", "2027", "people"),
        )
    sqlite.ledger.losses.thaw("a", {})
    with pytest.raises(LedgerError, match="'r7' of a is revoked"):
        sqlite.ref(dataset="a", release="r7")
    sqlite.sound()


@each_store
def test_what_goes_on_is_the_same(kit, folder):
    a, b = Charger(kit, folder, "a"), Charger(kit, folder, "b", None)
    for at in range(4):
        assert (a if at % 2 else b).charge(f"x{at}", 1, f"r{at}") == Outcome.RESERVED
    (path,) = folder.glob("*.json")
    file = stored(path)
    assert sorted(file.datasets) == ["a", "b"]
    last = file.datasets["a"]
    assert (last.releases, last.groups, last.losses) == (("r1", "r3"), ("people",), 0)
    assert last.anchor == kit.ledger.anchor()
    assert kit.ledger.holds(file.datasets["b"].anchor)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_anchors_only_grow_when_many_write(sqlite, folder):
    scope = Scope("a")

    def work(at):
        sqlite.ref(dataset="a", release=f"r{at}")
        record(sqlite.ledger, scope, f"r{at}", *settings(folder))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(60)))
    (path,) = folder.glob("*.json")
    last = stored(path).datasets["a"]
    assert set(last.releases) == {f"r{at}" for at in range(60)}
    assert last.anchor == sqlite.ledger.anchor()


def test_a_writer_that_is_stopped_never_writes_an_older_head(sqlite, folder, monkeypatch):
    """It holds the lock between reading the head and replacing the file: others wait, and are refused in the end."""
    Charger(sqlite, folder, "a").charge("x", 1)
    (path,) = folder.glob("*.json")
    before = path.read_bytes()
    monkeypatch.setattr(anchor_files, "_PATIENCE", 0.05)
    (lock,) = folder.glob("*.lock")
    with anchor_files._locked(lock), pytest.raises(BusyError, match="another writer holds"):
        record(sqlite.ledger, Scope("a"), "r9", *settings(folder))
    assert path.read_bytes() == before
    record(sqlite.ledger, Scope("a"), "r9", *settings(folder))
    assert "r9" in stored(path).datasets["a"].releases


def test_a_file_that_is_broken_says_so(kit, folder):
    charger = Charger(kit, folder, "a")
    charger.charge("x", 1)
    (path,) = folder.glob("*.json")
    whole = json.loads(path.read_text())
    assert list(whole["datasets"]["a"]) == ["anchor", "releases", "groups", "losses"], "the bytes of 0.3.0"
    for broken in ("{", "{}", *(json.dumps(without(whole, name)) for name in ("place", "host", "time", "datasets"))):
        path.write_text(broken)
        with pytest.raises(LedgerError, match=r"\.json cannot be read\nHint: this file names the right ledger"):
            charger.charge("y", 1)


def without(facts, name):
    """The facts without one of them."""
    return {key: value for key, value in facts.items() if key != name}


def test_a_folder_that_cannot_be_used_says_so(kit, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(LedgerError, match=r"cannot be stored in .*\nHint: name a place that lasts: .*DPTEXT_ANCHORS"):
        Charger(kit, tmp_path / "taken", "a").charge("x", 1)


def test_a_full_disk_at_the_anchor_store_is_a_full_disk(kit, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    charger = Charger(kit, tmp_path / "anchors", "a")
    charger.charge("x", 1)
    monkeypatch.setattr(anchor_files.os, "fsync", full)
    with pytest.raises(FullLedgerError, match=r"cannot be stored in .*\(No space left on device\)\nHint: free"):
        charger.charge("y", 1)
    monkeypatch.undo()
    charger.charge("z", 1)
    assert sorted(path.suffix for path in (tmp_path / "anchors").iterdir()) == [".json", ".lock"], "no draft stays"


def test_where_anchors_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("DPTEXT_ANCHORS", str(tmp_path / "env"))
    assert (place_of("named").folder, is_named("named")) == (Path("named").absolute(), True)
    assert (place_of(None).folder, is_named(None)) == (tmp_path / "env", True)
    monkeypatch.setenv("DPTEXT_ANCHORS", "s3://bucket/anchors")
    assert (place_of(None).url, place_of(None).remote) == ("s3://bucket/anchors", True)
    monkeypatch.delenv("DPTEXT_ANCHORS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert (place_of(None).folder, is_named(None)) == (tmp_path / "dptext" / "anchors", False)
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME")
    assert place_of(None).url.endswith("/.local/state/dptext/anchors")


POSTGRES, SQLITE = "postgresql://host/db", "sqlite:///ledger.db"


@pytest.mark.parametrize(
    ("entries", "variable", "refused"),
    [
        ({"url": POSTGRES}, None, True),
        ({"url": POSTGRES}, "anchors", False),
        ({"url": POSTGRES, "anchors": "anchors"}, None, False),
        ({"url": POSTGRES, "require_anchors": False}, None, False),
        ({"url": SQLITE}, None, False),
        ({"url": SQLITE, "require_anchors": True}, None, True),
        ({"url": "env:DPTEXT_LEDGER_SECRET_URL"}, None, True),
    ],
)
def test_a_ledger_in_postgres_needs_a_named_place(monkeypatch, tmp_path, entries, variable, refused):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPTEXT_LEDGER_SECRET_URL", POSTGRES)
    monkeypatch.setenv("DPTEXT_ANCHORS", variable or "")
    if not refused:
        require_place(LedgerSpec(**entries))
        return
    hint = r'\nHint: write .*: anchors = "s3://bucket/anchors", or'
    with pytest.raises(LedgerError, match=f"no anchor store is named .*{hint}"):
        require_place(LedgerSpec(**entries))
    assert list(tmp_path.iterdir()) == []


def test_a_head_that_nowhere_can_be_stored_is_a_warning_once(kit, monkeypatch, tmp_path, caplog):
    """HOME cannot be written to, and no one named another place."""
    (tmp_path / "home").write_text("")
    monkeypatch.delenv("DPTEXT_ANCHORS")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for _ in range(2):
        record(kit.ledger, Scope("a"))
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(
        f"the anchor of the ledger cannot be stored in {tmp_path}/home/.local/state/dptext/anchors, so"
    )
    assert anchor_files.notes(LedgerSpec(url=SQLITE)) == [warning]
    assert anchor_files.notes(LedgerSpec(url=SQLITE, anchors=str(tmp_path / "named"))) == []
    with pytest.raises(LedgerError, match=r"cannot be stored in .*\nHint: .*; or write require_anchors = false"):
        require_place(LedgerSpec(url=SQLITE))
    require_place(LedgerSpec(url=SQLITE, require_anchors=False))


@pytest.fixture
def served(monkeypatch):
    """A small S3 on the loopback interface."""
    from ..object_store import serving

    monkeypatch.setenv("DPTEXT_TEST_SECRET", "not-to-be-printed")
    with serving() as handler:
        yield handler


@pytest.fixture
def anchors(served):
    """A prefix of an object store, and its options."""
    return "s3://bucket/anchors", served.options


def test_anchors_in_an_object_store_show_a_loss(sqlite, anchors, served, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a, b = Charger(sqlite, anchors, "a/ü"), Charger(sqlite, anchors, "b")
    a.charge("a0", 1)
    sqlite.ledger.backup(tmp_path / "copy.db")
    a.charge("a1", 32)
    before = dict(served.objects)
    assert len(before) == 1, "one file per ledger"
    restored(sqlite, tmp_path / "copy.db")
    with pytest.raises(LedgerError, match=FROZEN):
        b.charge("b0", 1)
    with pytest.raises(LedgerError, match=FROZEN):
        record(sqlite.ledger, Scope("a/ü", "2026", "people"), "r1", *settings(anchors))
    assert served.objects == before, "the evidence stays"
    sqlite.ledger.losses.thaw("a/ü", {"eps_pure": 32})
    assert b.charge("b2", 1, "r2", cap=28) == Outcome.RESERVED
    assert not (tmp_path / "s3:").exists()
    sqlite.sound()


def test_a_store_lets_one_writer_of_an_anchor_through_at_a_time(sqlite, anchors, served):
    def work(at):
        sqlite.ref(dataset="a", release=f"r{at}")
        record(sqlite.ledger, Scope("a"), f"r{at}", *settings(anchors))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(12)))
    (content,) = served.objects.values()
    last = AnchorFile.parse(content, "").datasets["a"]
    assert (set(last.releases), last.anchor) == ({f"r{at}" for at in range(12)}, sqlite.ledger.anchor())


def test_a_store_that_cannot_be_written_to_is_refused_before_a_charge(served):
    spec = LedgerSpec(url=SQLITE, anchors="s3://bucket/anchors")
    require_place(spec, served.options)
    assert served.objects == {}
    served.refusing = "anchors"
    with pytest.raises(InputError, match="checking write access to s3://bucket/anchors failed"):
        require_place(spec, served.options)


def forgetful(kit, tmp_path, folder):
    """A ledger that was restored from a copy and misses a charge of dataset `a`; the file with the anchor it misses."""
    charger = Charger(kit, folder, "a")
    charger.charge("a1", 20)
    kit.ledger.backup(str(tmp_path / "copy.db"))
    charger.charge("a2", 20)
    restored(kit, tmp_path / "copy.db")
    return Scope("a", "2026", "people"), next(folder.glob("*.json"))


def test_no_writer_overwrites_a_head_that_the_ledger_misses(sqlite, tmp_path, folder):
    """The anchor is the only evidence: the next writer keeps it, and freezes the dataset."""
    scope, path = forgetful(sqlite, tmp_path, folder)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=FROZEN):
        record(sqlite.ledger, scope, "r1", *settings(folder))
    assert path.read_bytes() == before
    assert sqlite.ledger.losses.frozen() == ["a"]
    sqlite.ledger.losses.thaw("a", {"eps_pure": 20})
    record(sqlite.ledger, scope, "r3", *settings(folder))
    assert stored(path).datasets["a"].anchor == sqlite.ledger.anchor()
    sqlite.sound()


def test_nothing_is_written_to_a_ledger_that_misses_a_head(sqlite, tmp_path, folder, monkeypatch):
    scope, _ = forgetful(sqlite, tmp_path, folder)
    monkeypatch.setenv(VARIABLE, str(folder))
    with pytest.raises(LedgerError, match=FROZEN), anchored(sqlite.ledger, scope, "r1"):
        pytest.fail("the block must not begin")


@pytest.mark.parametrize("spelled", ["sqlite:///{path}", "{folder}/./ledger.db", "{folder}/link.db", "{folder}/moved"])
def test_anchors_are_found_however_the_place_is_spelled(sqlite, tmp_path, folder, spelled):
    """A copy of a file elsewhere, and a server under another name, are the same ledger."""
    forgetful(sqlite, tmp_path, folder)
    (tmp_path / "link.db").symlink_to(sqlite.path)
    sqlite.ledger.backup(str(tmp_path / "moved"))
    place = spelled.format(path=sqlite.path, folder=sqlite.path.parent)
    with (
        Ledger.open(place, f"file:{sqlite.path}.id.key", create=False) as ledger,
        pytest.raises(LedgerError, match=FROZEN),
    ):
        require(ledger, Scope("a", "2026", "people"), *settings(folder), released=tuple)


@each_store
def test_a_release_without_an_anchor_is_refused_until_its_ledger_is_verified(kit, folder):
    """A ledger that knows the dataset may be an old copy; one that does not was lost, so the dataset freezes."""
    Charger(kit, folder.with_name("of another machine"), "a").charge("x", 1)
    place, scope = settings(folder)[0], Scope("a", "2026", "people")
    require(kit.ledger, scope, place, released=tuple)
    with pytest.raises(LedgerError, match=r"a has a release .*it may be an old copy\nHint: name the anchor store of"):
        require(kit.ledger, scope, place, released=lambda: {"r1"})
    require(kit.ledger, scope, place.model_copy(update={"require_anchors": False}), released=lambda: {"r1"})
    assert maintain(kit.ledger, str(folder)).ok
    require(kit.ledger, scope, place, released=lambda: pytest.fail("an anchor is stored"))
    for freezing in (False, True):
        with pytest.raises(LedgerError, match=r"b is frozen: this ledger misses"):
            require(kit.ledger, Scope("b"), place, released=lambda: {"r7"}, freezing=freezing)
        assert kit.ledger.losses.frozen() == ["b"] * freezing
    kit.ledger.losses.thaw("b", {})
    record(kit.ledger, Scope("b"), None, place)
    require(kit.ledger, Scope("b"), place, released=lambda: pytest.fail("an anchor is stored"))
    with pytest.raises(LedgerError, match="'r7' of b is revoked"):
        kit.ref(dataset="b", release="r7")


@pytest.mark.parametrize("lost", [-1000, True, float("nan"), float("inf"), "40", None, 1e13])
def test_an_amount_that_may_be_lost_is_a_number_of_zero_or_more(sqlite, tmp_path, folder, lost):
    forgetful(sqlite, tmp_path, folder)
    with pytest.raises(LedgerError):
        Charger(sqlite, folder, "a").charge("a3", 1)
    with pytest.raises(LedgerError, match="a loss is a number from 0 to"):
        sqlite.ledger.losses.thaw("a", {"eps_pure": lost})
    assert sqlite.ledger.losses.frozen() == ["a"]
