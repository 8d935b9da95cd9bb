"""Store anchors of ledgers apart from them: the next charge notices a lost or restored ledger. Maintain ledgers.

A restored copy has forgotten charges, and a new ledger knows none. Both look like a fresh start. The anchors in
another folder show the difference (docs/spec/privacy.md#lost-ledger). An anchor is stored after a charge is durable
and before a text is scored, so no text is released without a charge that is known elsewhere.

The anchor store is a folder, or a prefix of an object store. There, a conditional write replaces the lock. One file per
dataset, in two folders: one per ledger, which is named by the ledger's own id, so that it is found however its place is
spelled; and one per place, so that a ledger which was replaced is noticed. Each charge looks at the anchors of all
datasets that share a cap with it: the loss of one is the loss of the others. A stored anchor that the ledger does not
hold is evidence of a loss. It is never overwritten before the loss is settled: the dataset freezes instead.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from socket import gethostname
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from dptext_etl import files, object_stores, telemetry
from dptext_etl.errors import BusyError, FrozenLedgerError, InputError, LedgerError, file_failure, seam
from dptext_etl.files import create, flush, make_folders
from dptext_etl.ledger.ledger import Ledger
from dptext_etl.ledger.storage.store import POSTGRES, resolve_url
from dptext_etl.ledger.types import Anchor, Scope
from dptext_etl.policy import LedgerSpec
from dptext_etl.storage import Objects, Storage

log = logging.getLogger("dptext_etl.ledger")
VARIABLE = "DPTEXT_ANCHORS"  # names the anchor store where nothing else does
_REASON = "this ledger misses the anchor that an earlier run stored: it was lost, restored from a copy, or replaced"
_HINT = (
    "bring the right ledger back, or settle the loss with `dptext ledger thaw` and use a new release name. A copy of a "
    f"project needs its own anchor store: set {VARIABLE} there"
)
_PLACE = f"name a place that lasts: anchors in the ledger's settings, or {VARIABLE}"
_UNSTORED = set[str]()  # stores in which this process could store no anchor. Only `store` writes it, `notes` reads it
_LONGEST_NAME = 200  # bytes of a file's name before its suffix, at most; file systems allow 255 in all
_STALE = 60.0  # seconds after which no one is writing a draft any more
_PATIENCE = 5.0  # seconds to wait for another writer of a file; one that was stopped holds up others no longer
_DRAFT = re.compile(r".*\.json\.[0-9a-f]{16}")  # the name of the draft of a file
_TRIES = 20  # how often an anchor is written into a store while others write it; one of them gets through each time


class FrozenError(FrozenLedgerError):
    """The ledger misses an anchor that was stored of it, so its datasets are frozen."""


class StoredAnchor(NamedTuple):
    """The stored anchor and names of a dataset in a ledger."""

    anchor: Anchor  # the anchor of the ledger after its last charge
    releases: tuple[str, ...]  # the release names that were used
    groups: tuple[str, ...]  # the groups that were charged
    losses: int  # what `losses.count` returned then
    stored: str | None = None  # which ledger stored the head, on which machine, and when, in words
    dataset: str | None = None  # the dataset, where its name is too long for the name of the file

    def missing(self, ledger: Ledger, dataset: str) -> bool:
        """Return whether a ledger misses the anchor, and no one has settled that yet."""
        if ledger.holds(self.anchor):
            return False
        losses = self.losses if self.anchor.ledger == ledger.ledger_id else None
        return not ledger.losses.settled(dataset, self.anchor, losses)

    def refuse(self, ledger: Ledger | None, dataset: str, scope: Scope, *, freezing: bool = True) -> None:
        """Freeze a dataset whose charges are missing, and all that shares a cap with it; a forecast freezes nothing."""
        mine = dataset == scope.dataset
        groups = {*self.groups, *([scope.group] if mine and scope.group is not None else [])}
        if ledger is not None and freezing:
            ledger.losses.freeze(dataset, _REASON, in_use=self.releases, missing=self.anchor, groups=sorted(groups))
        shared = "" if mine else f" with {dataset}, whose cap it shares"
        stored = f" ({self.stored})" if self.stored else ""
        raise FrozenError(f"the dataset {scope.dataset} is frozen{shared}: {_REASON}{stored}", _HINT)


class AnchorFiles:
    def __init__(self, ledger: Ledger, named: str | Path | None, options: Mapping[str, str] | None = None) -> None:
        self._ledger = ledger
        names = (ledger.ledger_id, ledger.place)
        self._places = [place_of(named, options).child(_hashed(name)[:32]) for name in names]

    def require(self, scope: Scope, *, replaced: bool = True, freezing: bool = True) -> None:
        """Refuse a ledger that misses an anchor of a dataset, or of one that shares a cap with it."""
        here = self._ledger.ledger_id
        stored = [
            (name, memory)
            for name, memory in self._read_all()
            if replaced or memory.anchor.ledger == here or name != scope.dataset
        ]
        charged = {group for name, memory in stored if name == scope.dataset for group in memory.groups}
        charged |= {scope.group} if scope.group is not None else set()
        datasets, groups = self._ledger.losses.sharing(scope.dataset, sorted(charged))
        for dataset, memory in stored:
            concerned = dataset in datasets or groups & set(memory.groups)
            if concerned and memory.missing(self._ledger, dataset):
                memory.refuse(self._ledger, dataset, scope, freezing=freezing)

    def store(self, scope: Scope, release: str | None = None) -> None:
        for place in self._places:
            if isinstance(place, Objects):
                _write_object(self._ledger, place, scope, release)
            else:
                _remove_stale(place.folder)
                write(self._ledger, place.folder / f"{_file_name(scope.dataset)}.json", scope, release)

    def _read_all(self) -> Iterator[tuple[str, StoredAnchor]]:
        for place in self._places:
            for name in place.glob("*.json"):
                stored = _read_object(place, name) if isinstance(place, Objects) else read(place.folder / name)
                if stored is not None:
                    yield stored.dataset or unquote(name.removesuffix(".json")), stored


@contextmanager
def anchored(
    ledger: Ledger, scope: Scope, release: str | None = None, named: str | Path | None = None
) -> Iterator[None]:
    """Look at the anchors of a ledger before a block that writes to it, and store the new anchor after it."""
    AnchorFiles(ledger, named).require(scope, replaced=False)
    yield
    store(ledger, scope, release, named)


def store(
    ledger: Ledger,
    scope: Scope,
    release: str | None = None,
    named: str | Path | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Store the anchor of a ledger in the anchor store; a failure is a warning where no one named the place."""
    try:
        AnchorFiles(ledger, named, options).store(scope, release)
    except FrozenError:
        raise
    except LedgerError:
        if is_named(named):
            raise
        place = place_of(named).url
        if place not in _UNSTORED:
            log.warning(_unstored(place))
        _UNSTORED.add(place)


def notes(named: str | Path | None) -> list[str]:
    """Say that the anchors of the ledger are stored nowhere apart from it, if that is so."""
    place = place_of(named)
    lost = not is_named(named) and (place.url in _UNSTORED or not _is_writable(place.folder))
    return [_unstored(place.url)] if lost else []


def _unstored(place: str) -> str:
    msg = f"the anchor of the ledger cannot be stored in {place}, so a lost or restored ledger may go unnoticed"
    return f"{msg}; {_PLACE}"


def require_place(spec: LedgerSpec, options: Mapping[str, str] | None = None) -> None:
    """Refuse a ledger whose anchors need a named place and have none, or one that cannot be written to.

    A PostgreSQL ledger is written to by pods and machines whose own folders may not last, so it needs such a place
    unless `require_anchors` says otherwise. Nothing is made.
    """
    if not is_named(spec.anchors):
        in_postgres = resolve_url(spec.url).startswith(POSTGRES)
        if in_postgres if spec.require_anchors is None else spec.require_anchors:
            msg = "no anchor store is named for this ledger: a restored copy of it could go unnoticed"
            hint = (
                'write into the ledger\'s settings: anchors = "s3://bucket/anchors", or a folder that lasts and is '
                f"apart from the ledger; or set {VARIABLE}. Without such a place: require_anchors = false"
            )
            raise LedgerError(msg, hint)
        return
    place = place_of(spec.anchors, options)
    if place.remote:
        object_stores.require_writable(place.url, dict(place.options))
    elif not _is_writable(place.folder):
        raise LedgerError(f"the anchor of the ledger cannot be stored in {place.folder}", _PLACE)


def ledger_place(ledger: Ledger, named: str | None, options: Mapping[str, str] | None = None) -> Storage:
    """Return the place for the facts of one ledger, apart from the anchors of its datasets."""
    return place_of(named, options).child(f"{_hashed(ledger.ledger_id)[:32]}-ledger")


def require_environment(
    environment: str, owned: Mapping[str, str], spec: LedgerSpec, options: Mapping[str, str], *, recording: bool
) -> None:
    """Refuse a ledger or a noise key that a run of another environment used; `recording` stores the name for new ones.

    Args:
        environment: Name of the environment.
        owned: What belongs to one environment, and a name of it that reveals nothing: "ledger" and "noise key".
        spec: The ledger's settings, which name the anchor store.
        options: Options of the store of that place.
        recording: Whether to store the environment of what belongs to none.
    """
    place = place_of(spec.anchors, options).child("environments")
    content = json.dumps({"environment": environment}).encode()
    for what, name in owned.items():
        file = f"{_hashed(f'{what} {name}')[:32]}.json"
        if recording and place.read(file) is None:
            if isinstance(place, Objects):
                place.replace_object(file, content, None)  # of two environments at once, one gets through
            else:
                make_folders(place.folder)
                with _locked(place.folder):
                    if place.read(file) is None:
                        place.write(file, content, action="recording the environment of the ledger and the noise key")
        current = place.read(file)
        if current not in {None, content}:
            msg = f"another environment uses this {what}, and this policy is of {environment}; nothing was charged"
            raise LedgerError(msg, f"name the {what} of {environment}: environments never share keys or ledgers")


def _is_writable(folder: Path) -> bool:
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    except OSError:
        return False


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _file_name(dataset: str) -> str:
    """Name the file of a dataset: the name itself, or where that is too long for a file system, its hash."""
    name = quote(dataset, safe=" ")
    return name if len(name) <= _LONGEST_NAME else _hashed(dataset)


def place_of(named: str | Path | None, options: Mapping[str, str] | None = None) -> Storage:
    """Return the anchor store: the named one, the one in `DPTEXT_ANCHORS`, or a folder of this user's state."""
    place = str(named or os.environ.get(VARIABLE) or "").removeprefix("file://")
    if "://" in place:
        return Storage.open(place, options or {})
    state = os.environ.get("XDG_STATE_HOME") or f"{files.home() or '/nonexistent'}/.local/state"
    return Storage(str(Path(place or f"{state}/dptext/anchors").absolute()))


def is_named(named: str | Path | None) -> bool:
    """Return whether someone named the place: then it must be there."""
    return bool(named or os.environ.get(VARIABLE))


def read(path: Path) -> StoredAnchor | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError:
        content = b""
    return _parsed(content, path)


def _parsed(content: bytes, place: Path | str) -> StoredAnchor:
    try:
        facts = json.loads(content)
        return StoredAnchor(
            Anchor.parse(facts["anchor"]),
            tuple(facts["releases"]),
            tuple(facts["groups"]),
            int(facts["losses"]),
            facts.get("stored"),
            facts.get("dataset"),
        )
    except (ValueError, KeyError, TypeError, LedgerError):
        broken = f"{place} cannot be read"
    hint = "this file names the right ledger: restore it, or remove it if you are sure of the ledger"
    raise LedgerError(broken, hint)


def _remove_stale(folder: Path) -> None:
    """Remove the drafts of writers that were killed."""
    with suppress(OSError):
        for draft in folder.iterdir():
            if _DRAFT.fullmatch(draft.name) and time.time() - draft.stat().st_mtime > _STALE:
                draft.unlink()


def _read_object(place: Objects, name: str) -> StoredAnchor | None:
    content = place.read(name)
    return None if content is None else _parsed(content, place.location(name))


def _write_object(ledger: Ledger, place: Objects, scope: Scope, release: str | None) -> None:
    """Write the anchor of a ledger into a store as `write` does into a folder; the condition replaces the lock."""
    name = f"{_hashed(scope.dataset)}.json"
    for _ in range(_TRIES):
        version = place.read_versioned(name)
        before = [] if version is None else [_parsed(version[0], place.location(name))]
        text = _merged(ledger, before, scope, release, named=True)
        if place.replace_object(name, text, None if version is None else version[1]) is not None:
            return
    raise BusyError(f"others keep writing the anchor of the ledger in {place.url}", "run again")


def write(ledger: Ledger, path: Path, scope: Scope, release: str | None, others: Iterable[Path] = ()) -> None:
    """Write the anchor of a ledger to a file, durably, and add the charged names to those there and in other files.

    An anchor that this ledger should hold, but does not, stays: it shows that the ledger was restored.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        make_folders(path.parent)
        with _locked(path.parent):
            before = [stored for each in (path, *others) if (stored := read(each)) is not None]
            text = _merged(ledger, before, scope, release)
            with os.fdopen(create(draft), "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            flush(path.parent)
    except OSError as exc:
        problem = f"the anchor of the ledger cannot be stored in {path.parent}"
        failure = file_failure(exc, problem, _PLACE, LedgerError)
    else:
        return
    with suppress(OSError):
        draft.unlink()
    raise failure


def _merged(
    ledger: Ledger, before: Sequence[StoredAnchor], scope: Scope, release: str | None, *, named: bool = False
) -> bytes:
    """Return the new content of a file; `named` writes the name of the dataset into it."""
    for stored in before:
        if stored.anchor.ledger == ledger.ledger_id and stored.missing(ledger, scope.dataset):
            stored.refuse(ledger, scope.dataset, scope)
    since = losses = 0
    if before:
        newest = max(before, key=lambda stored: (ledger.holds(stored.anchor), stored.anchor.seq))
        if ledger.holds(newest.anchor):
            since, losses = newest.anchor.seq, newest.losses
    releases = {name for stored in before for name in stored.releases}
    groups = {name for stored in before for name in stored.groups}
    named = named or _file_name(scope.dataset) != quote(scope.dataset, safe=" ")
    content = {
        "anchor": str(ledger.anchor()),
        **({"dataset": scope.dataset} if named else {}),
        "releases": sorted(releases | ({release} if release is not None else set())),
        "groups": sorted(groups | ({scope.group} if scope.group is not None else set())),
        "losses": losses + ledger.losses.count(scope.dataset, since),
        "stored": f"{ledger.place} on {gethostname()} stored it at {datetime.now(UTC).isoformat(timespec='seconds')}",
    }
    return json.dumps(content).encode()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process write in a folder at a time, as long as none of them was stopped."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    until = time.monotonic() + _PATIENCE
    try:
        while time.monotonic() < until:
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


_FILE = "verified.json"
METRIC = "dptext.ledger.verified.age"


@dataclass(frozen=True)
class Maintained:
    """The result of one maintenance of a ledger."""

    problems: list[str]  # one sentence for each difference between the ledger and its journal, or an earlier anchor
    counts: dict[str, int] = field(default_factory=dict)  # rows of the ledger by kind
    anchor: str = ""  # the anchor that was stored; empty if there were problems
    copy: str | None = None  # the backup; None if there were problems, or no folder was given
    removed: list[str] = field(default_factory=list)  # older backups that were deleted

    @property
    def ok(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return the facts as plain data for JSON."""
        return {"ok": self.ok, **asdict(self)}


def maintain(
    ledger: Ledger,
    anchors: str | None = None,
    options: Mapping[str, str] | None = None,
    *,
    backup: Path | None = None,
    keep: int = 7,
) -> Maintained:
    """Verify a ledger; if it is intact, store its anchor and make a backup: no backup is of a broken ledger.

    Args:
        ledger: The ledger, open for reading.
        anchors: The anchor store, as in a policy.
        options: Options of the store of that place.
        backup: Folder of the backups, which are SQLite files without the id key; None makes none.
        keep: How many backups stay there.

    Raises:
        LedgerError: The anchor cannot be stored, or the stored one cannot be read.
        UnavailableLedgerError: The ledger does not answer.
    """
    place = ledger_place(ledger, anchors, options)
    report = ledger.verify()
    problems, before = list(report.problems), _verified(place)
    if before is not None and not ledger.holds(Anchor.parse(before["anchor"])):
        problems.append("the journal does not hold the anchor of the last maintenance: it was cut or is an old copy")
    if problems:
        return Maintained(problems, report.counts)
    anchor, copy, removed = ledger.anchor(), None, list[str]()
    if backup is not None:
        with seam(f"making a backup in {backup}", InputError, "the folder must be writable by you"):
            files.make_folders(backup)
            path = backup / f"{ledger.ledger_id[:16]}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{anchor.seq}.db"
            anchor, copy = ledger.backup(path), str(path)
            older = sorted(backup.glob(f"{ledger.ledger_id[:16]}-*.db"))[:-keep]
            for old in older:
                old.unlink()
            removed = [str(old) for old in older]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    content = json.dumps({"anchor": str(anchor), "verified": now}).encode()
    if not isinstance(place, Objects):
        files.make_folders(place.folder)
    place.write(_FILE, content, action="storing the anchor of the ledger")
    telemetry.count(METRIC, 0, ledger=ledger.ledger_id)
    return Maintained([], report.counts, str(anchor), copy, removed)


def seconds_since_verified(
    ledger: Ledger, anchors: str | None = None, options: Mapping[str, str] | None = None
) -> float | None:
    """Return the seconds since `maintain` found the ledger intact; None if it never did."""
    before = _verified(ledger_place(ledger, anchors, options))
    return None if before is None else (datetime.now(UTC) - datetime.fromisoformat(before["verified"])).total_seconds()


def _verified(place: Storage) -> dict[str, str] | None:
    content = place.read(_FILE)
    try:
        facts = None if content is None else json.loads(content)
        if facts is not None:
            Anchor.parse(facts["anchor"])
            datetime.fromisoformat(facts["verified"])
    except (ValueError, KeyError, TypeError):
        pass
    else:
        return facts
    raise InputError(f"{place.location(_FILE)} cannot be read", "restore the file, or remove it if the ledger is right")
