"""Store anchors of ledgers apart from them: the next charge notices a lost or restored ledger. Maintain ledgers.

A restored copy has forgotten charges, and a new ledger knows none. Both look like a fresh start. The anchors in
another folder show the difference (docs/spec/privacy.md#lost-ledger). An anchor is stored after a charge is durable
and before a text is scored, so no text is released without a charge that is known elsewhere.

The anchor store is a folder, or a prefix of an object store, with one file per ledger. The name of the file holds the
ledger's own id, so that it is found however its place is spelled, and the place, so that a ledger which was replaced is
noticed. Writers read the head of the ledger under a lock, or replace the file under a condition: it never goes back to
an older head. Each charge looks at the anchors of all datasets that share a cap with it: the loss of one is the loss
of the others. A stored anchor that the ledger does not hold is evidence of a loss. It is never overwritten before the
loss is settled: the dataset freezes instead.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cache
from glob import escape
from pathlib import Path
from socket import gethostname
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field, PlainSerializer

from dptext_etl import files, object_stores, telemetry
from dptext_etl.errors import BusyError, FrozenLedgerError, InputError, LedgerError, file_failure, seam
from dptext_etl.files import flush, make_folders
from dptext_etl.ledger.ledger import Ledger
from dptext_etl.ledger.storage.store import POSTGRES, resolve_url
from dptext_etl.ledger.types import Anchor, Scope
from dptext_etl.policy import LedgerSpec
from dptext_etl.storage import Objects, Storage

log = logging.getLogger("dptext_etl.ledger")
VARIABLE = "DPTEXT_ANCHORS"  # names the anchor store where nothing else does
METRIC = "dptext.ledger.verified.age"
_REASON = "this ledger misses the anchor that an earlier run stored: it was lost, restored from a copy, or replaced"
_HINT = (
    "bring the right ledger back, or settle the loss with `dptext ledger thaw` and use a new release name. A copy of a "
    f"project needs its own anchor store: set {VARIABLE} there"
)
_PLACE = f"name a place that lasts: anchors in the ledger's settings, or {VARIABLE}"
_PATIENCE = 60.0  # seconds to wait for another writer of a file
_TRIES = 20  # how often an anchor is written into a store while others write it; one of them gets through each time


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


class StoredAnchor(BaseModel):
    """The stored anchor and names of a dataset in a ledger."""

    dataset: str = Field(exclude=True)  # it is the key in the file
    # the anchor of the ledger after its last charge
    anchor: Annotated[Anchor, BeforeValidator(lambda text: Anchor.parse(str(text))), PlainSerializer(str)]
    releases: tuple[str, ...]  # the release names that were used
    groups: tuple[str, ...]  # the groups that were charged
    losses: int  # what `losses.count` returned then

    def missing(self, ledger: Ledger) -> bool:
        """Return whether a ledger misses the anchor, and no one has settled that yet."""
        if ledger.holds(self.anchor):
            return False
        losses = self.losses if self.anchor.ledger == ledger.ledger_id else None
        return not ledger.losses.settled(self.dataset, self.anchor, losses)


class AnchorFile(BaseModel):
    """The content of the file of one ledger: where it was then, and its datasets."""

    place: str = ""
    host: str = ""
    time: datetime = Field(default_factory=_now)
    datasets: dict[str, StoredAnchor] = Field(default_factory=dict)
    verified: AwareDatetime | None = None  # when `maintain` last found the ledger intact

    @classmethod
    def parse(cls, content: bytes, place: Path | str) -> AnchorFile:
        try:
            facts = json.loads(content)
            datasets = {name: StoredAnchor(dataset=name, **item) for name, item in facts["datasets"].items()}
            stored = {name: facts[name] for name in ("place", "host", "time")}
            return cls(**stored, datasets=datasets, verified=facts.get("verified"))
        except (ValueError, KeyError, TypeError, AttributeError, LedgerError):
            broken = f"{place} cannot be read"
        hint = "this file names the right ledger: restore it, or remove it if you are sure of the ledger"
        raise LedgerError(broken, hint)

    @property
    def stored(self) -> str:
        """Which ledger stored it last, on which machine, and when, in words."""
        return f"{self.place} on {self.host} stored it at {self.time.isoformat()}"

    def content(self, ledger: Ledger) -> bytes:
        self.place, self.host, self.time = ledger.place, gethostname(), _now()
        self.datasets = dict(sorted(self.datasets.items()))
        return self.model_dump_json(exclude_none=True).encode()

    def add(self, ledger: Ledger, dataset: str, releases: Collection[str], groups: Collection[str]) -> None:
        """Put the ledger's current anchor in the place of the stored one, which must be held or settled."""
        before, since, losses = self.datasets.get(dataset), 0, 0
        if before is not None and ledger.holds(before.anchor):
            since, losses = before.anchor.seq, before.losses
        losses += ledger.losses.count(dataset, since)
        names = tuple(sorted({*releases, *(before.releases if before else ())}))
        joined = tuple(sorted({*groups, *(before.groups if before else ())}))
        self.datasets[dataset] = StoredAnchor(
            dataset=dataset, anchor=ledger.anchor(), releases=names, groups=joined, losses=losses
        )


def require(
    ledger: Ledger,
    scope: Scope,
    spec: LedgerSpec | None = None,
    options: Mapping[str, str] | None = None,
    *,
    released: Callable[[], Collection[str]] | None = None,
    freezing: bool = True,
) -> None:
    """Refuse a ledger that misses an anchor of a dataset, or of one that shares a cap with it.

    Another ledger was at this place before: that is a loss if this one has no anchor of the dataset yet. `released`
    returns the release names that are in use in sink and staging. Without any, the owner may have started over.
    """
    place, here = place_of(None if spec is None else spec.anchors, options), ledger.ledger_id
    stored = [(item, file.stored) for file in _files_of(place, ledger) for item in file.datasets.values()]
    known = any(item.dataset == scope.dataset and item.anchor.ledger == here for item, _ in stored)
    names = () if known or released is None else released()
    if known or (released is not None and not names):
        stored = [pair for pair in stored if pair[0].anchor.ledger == here or pair[0].dataset != scope.dataset]
    charged = {group for item, _ in stored if item.dataset == scope.dataset for group in item.groups}
    charged |= {scope.group} if scope.group is not None else set()
    datasets, groups = ledger.losses.sharing(scope.dataset, sorted(charged))
    shared = [pair for pair in stored if pair[0].dataset in datasets or groups & set(pair[0].groups)]
    _refuse_missing(shared, ledger, scope, freezing=freezing)
    if names and (spec is None or spec.require_anchors is not False):
        _refuse_unknown(ledger, scope, names, place, freezing=freezing)


def _refuse_missing(
    stored: Iterable[tuple[StoredAnchor, str]], ledger: Ledger, scope: Scope, *, freezing: bool = True
) -> None:
    """Freeze each dataset whose charges are missing, and all that shares a cap with it; a forecast freezes nothing."""
    missing = [(item, when) for item, when in stored if item.missing(ledger)]
    for item, _ in missing if freezing else ():  # all of them, so that one `thaw` settles the loss
        groups = {*item.groups, *([scope.group] if item.dataset == scope.dataset and scope.group is not None else [])}
        ledger.losses.freeze(item.dataset, _REASON, in_use=item.releases, missing=item.anchor, groups=sorted(groups))
    for item, when in missing:
        shared = "" if item.dataset == scope.dataset else f" with {item.dataset}, whose cap it shares"
        raise FrozenLedgerError(f"the dataset {scope.dataset} is frozen{shared}: {_REASON} ({when})", _HINT)


def _refuse_unknown(ledger: Ledger, scope: Scope, names: Collection[str], place: Storage, *, freezing: bool) -> None:
    """Refuse a release that is published or staged and of which no anchor is stored."""
    dataset = scope.dataset
    if not any(row["dataset"] == dataset for row in ledger.reports.show()):
        groups = [] if scope.group is None else [scope.group]
        if freezing:
            ledger.losses.freeze(dataset, _REASON, in_use=sorted(names), groups=groups)
        refuse_no_ledger(dataset)
    msg = f"{dataset} has a release in sink or staging, but {place.url} holds no anchor of it in this ledger"
    hint = (
        f"name the anchor store of the earlier runs: anchors in the ledger's settings, or {VARIABLE}. If you are sure "
        "that the ledger is not an old copy, `dptext ledger maintain` stores its anchor"
    )
    raise LedgerError(f"{msg}: it may be an old copy", hint)


def refuse_no_ledger(dataset: str) -> None:
    """Refuse a ledger that knows nothing of a dataset that was released."""
    raise FrozenLedgerError(f"the dataset {dataset} is frozen: {_REASON}", _HINT)


def record(
    ledger: Ledger,
    scope: Scope,
    release: str | None = None,
    spec: LedgerSpec | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Store the anchor of a ledger, durably; without a named place, settings may allow that this fails."""
    place = place_of(None if spec is None else spec.anchors, options)

    def store(file: AnchorFile) -> None:
        before = file.datasets.get(scope.dataset)
        _refuse_missing([] if before is None else [(before, file.stored)], ledger, scope)
        names, groups = (set() if name is None else {name} for name in (release, scope.group))
        file.add(ledger, scope.dataset, names, groups)

    try:
        _replace(ledger, place, store)
    except FrozenLedgerError:
        raise
    except LedgerError:
        required = spec is not None and (spec.anchors is not None or spec.require_anchors is not False)
        if required or is_named(None):
            raise
        _warn(place.url)


@contextmanager
def anchored(ledger: Ledger, scope: Scope, release: str | None = None) -> Iterator[None]:
    """Look at the anchors of a ledger before a block that writes to it, and store the new anchor after it."""
    require(ledger, scope, released=tuple)
    yield
    record(ledger, scope, release)


def _files_of(place: Storage, ledger: Ledger) -> Iterator[AnchorFile]:
    """Read the files of a ledger, and of others that were at its place."""
    by_id, by_place = (_hashed(name)[:16] for name in (ledger.ledger_id, ledger.place))
    for name in place.glob("*.json"):
        of_ledger = name.startswith(by_id) or name.endswith(f"-{by_place}.json")
        if of_ledger and (content := place.read(name)) is not None:
            yield AnchorFile.parse(content, place.location(name))


def _name_of(place: Storage, ledger: Ledger) -> str:
    """Return the name of the file of a ledger, which keeps it if the ledger moves."""
    by_id, by_place = (_hashed(name)[:16] for name in (ledger.ledger_id, ledger.place))
    return next(iter(place.glob(f"{by_id}-*.json")), f"{by_id}-{by_place}.json")


def _replace(ledger: Ledger, place: Storage, change: Callable[[AnchorFile], None]) -> None:
    """Change the file of a ledger, while no one else does."""
    if isinstance(place, Objects):
        name = _name_of(place, ledger)
        # An object store has no lock: a conditional write fails if another writer was faster, and all is read again.
        for _ in range(_TRIES):
            version = place.read_versioned(name)
            file = AnchorFile() if version is None else AnchorFile.parse(version[0], place.location(name))
            change(file)
            tag = None if version is None else version[1]
            if place.replace_object(name, file.content(ledger), tag) is not None:
                return
        raise BusyError(f"others keep writing the anchor of the ledger in {place.url}", "run again")
    try:
        make_folders(place.folder)
        # The lock is another file, because every write replaces the anchor file.
        with _locked(place.folder / f"{_hashed(ledger.ledger_id)[:16]}.lock"):
            path = place.folder / _name_of(place, ledger)
            file = AnchorFile.parse(path.read_bytes(), path) if path.exists() else AnchorFile()
            change(file)
            _write(path, file.content(ledger))
    except OSError as exc:
        problem = f"the anchor of the ledger cannot be stored in {place.folder}"
        raise file_failure(exc, problem, _PLACE, LedgerError) from None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one writer in at a time; the operating system unlocks the file if a writer dies."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, files.PRIVATE_FILE)
    until = time.monotonic() + _PATIENCE
    try:
        while True:
            with suppress(BlockingIOError):
                flock(descriptor, LOCK_EX | LOCK_NB)
                break
            if time.monotonic() > until:
                raise BusyError(f"another writer holds {path}", "is it stopped? Let it continue or end it; run again")
            time.sleep(0.005)
        yield
    finally:
        # Closing unlocks the file. It stays, because other writers may be waiting for it.
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    """Write a file durably, completely or not at all, under the lock: other drafts are of writers that were killed."""
    for stale in path.parent.glob(f".{escape(path.name)}-*.draft"):
        stale.unlink()
    draft = files.draft_of(path)
    with os.fdopen(files.create(draft), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    flush(path.parent)  # a new name is durable only with its folder


def notes(spec: LedgerSpec) -> list[str]:
    """Say that the anchors of the ledger are stored nowhere apart from it, if that is so."""
    place = place_of(spec.anchors)
    return [] if is_named(spec.anchors) or _is_writable(place.folder) else [_unstored(place.url)]


def _unstored(place: str) -> str:
    msg = f"the anchor of the ledger cannot be stored in {place}, so a lost or restored ledger may go unnoticed"
    return f"{msg}; {_PLACE}"


@cache
def _warn(place: str) -> None:
    """Log once per process that anchors cannot be stored."""
    log.warning(_unstored(place))


def require_place(spec: LedgerSpec, options: Mapping[str, str] | None = None) -> None:
    """Refuse a ledger whose anchors need a named place and have none, or one that cannot be written to.

    A PostgreSQL ledger is written to by pods and machines whose own folders may not last, so it needs such a place
    unless `require_anchors` says otherwise. Nothing is made.
    """
    named, place = is_named(spec.anchors), place_of(spec.anchors, options)
    in_postgres = resolve_url(spec.url).startswith(POSTGRES)
    if not named and (in_postgres if spec.require_anchors is None else spec.require_anchors):
        msg = "no anchor store is named for this ledger: a restored copy of it could go unnoticed"
        hint = (
            'write into the ledger\'s settings: anchors = "s3://bucket/anchors", or a folder that lasts and is '
            f"apart from the ledger; or set {VARIABLE}. Without such a place: require_anchors = false"
        )
        raise LedgerError(msg, hint)
    if place.remote:
        object_stores.require_writable(place.url, dict(place.options))
    elif not _is_writable(place.folder) and (named or spec.require_anchors is not False):
        hint = _PLACE if named else f"{_PLACE}; or write require_anchors = false"
        raise LedgerError(f"the anchor of the ledger cannot be stored in {place.folder}", hint)


def require_environment(
    environment: str, owned: Mapping[str, str], spec: LedgerSpec, options: Mapping[str, str], *, recording: bool
) -> None:
    """Refuse a ledger or a noise key that a run of another environment used; `recording` stores the name for new ones.

    `owned` has names of both that reveal nothing, by "ledger" and "noise key".
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
                with _locked(place.folder / "environments.lock"):
                    if place.read(file) is None:
                        place.write(file, content, action="recording the environment of the ledger and the noise key")
        if place.read(file) not in {None, content}:
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

    Backups are SQLite files without the id key, in the folder `backup`, which keeps some of them.
    """
    place = place_of(anchors, options)
    report = ledger.verify()
    problems = (
        [
            f"the journal does not hold the stored anchor of {item.dataset}: it was cut or is an old copy"
            for file in _files_of(place, ledger)
            for item in file.datasets.values()
            if item.anchor.ledger == ledger.ledger_id and item.missing(ledger)
        ]
        if report.ok
        else list(report.problems)
    )
    if problems:
        return Maintained(problems, report.counts)
    anchor, copy, removed = ledger.anchor(), None, list[str]()
    if backup is not None:
        with seam(f"making a backup in {backup}", InputError, "the folder must be writable by you"):
            files.make_folders(backup)
            path = backup / f"{ledger.ledger_id[:16]}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{anchor.seq}.db"
            anchor, copy = ledger.backup(path), str(path)
            older = sorted(backup.glob(f"{ledger.ledger_id[:16]}-*.db"))[:-keep]  # names sort by time
            for old in older:
                old.unlink()
            removed = [str(old) for old in older]

    def store(file: AnchorFile) -> None:
        """Store the anchor of all datasets of the ledger, and the time."""
        releases: dict[str, set[str]] = {}
        for row in ledger.reports.show():
            releases.setdefault(row["dataset"], set()).add(row["release"])
        for dataset, names in releases.items():
            file.add(ledger, dataset, names, ledger.losses.sharing(dataset)[1])
        file.verified = _now()

    # Last, so that the stored time means that the backup was made, too.
    _replace(ledger, place, store)
    telemetry.count(METRIC, 0, ledger=ledger.ledger_id)
    return Maintained([], report.counts, str(anchor), copy, removed)


def seconds_since_verified(
    ledger: Ledger, anchors: str | None = None, options: Mapping[str, str] | None = None
) -> float | None:
    """Return the seconds since `maintain` found the ledger intact; None if it never did."""
    place = place_of(anchors, options)
    content = place.read(_name_of(place, ledger))
    verified = None if content is None else AnchorFile.parse(content, place.url).verified
    return None if verified is None else (datetime.now(UTC) - verified).total_seconds()
