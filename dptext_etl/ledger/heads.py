"""Remember the heads of ledgers apart from them: whoever charges next notices that a ledger was lost or restored.

A restored copy has forgotten charges, and a new ledger knows none. Both look like a fresh start. What a folder
elsewhere remembers shows the difference (docs/spec/privacy.md#lost-ledger). A head is kept after a charge is durable
and before a text is scored, so no text is released of whose charge nobody else knows.

One file per dataset, in one folder per ledger. Whoever charges a dataset looks at the heads of all datasets that share
a cap with it: the loss of one is the loss of the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from dptext_etl.errors import LedgerError
from dptext_etl.files import flush
from dptext_etl.ledger.ledger import Ledger
from dptext_etl.ledger.terms import Anchor, Scope

VARIABLE = "DPTEXT_ANCHORS"
"""Names the folder of the heads where nothing else does."""
_REASON = "this ledger does not hold what an earlier run left in it: it was lost, restored from a copy, or replaced"
_HINT = "bring the right ledger back, or settle the loss with `dptext ledger thaw` and take a new release name"
_PATIENCE = 5.0
"""Seconds to wait for another writer of a file; one that was stopped holds nobody longer."""


class Memory(NamedTuple):
    """What is remembered of a dataset in a ledger.

    Attributes:
        anchor: The head of the ledger after its last charge.
        releases: The release names that were used.
        groups: The groups that were charged.
        losses: What `Ledger.losses` said then; None in files of older versions.
    """

    anchor: Anchor
    releases: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    losses: int | None = None

    def missing(self, ledger: Ledger, dataset: str) -> bool:
        """Return whether a ledger misses the head, and nobody has settled that yet."""
        if ledger.holds(self.anchor):
            return False
        losses = self.losses if self.anchor.ledger == ledger.ledger_id else None
        return not ledger.settled(dataset, self.anchor, losses)

    def refuse(self, ledger: Ledger, dataset: str, asked: Scope) -> None:
        """Freeze a dataset whose charges are missing, and all that shares a cap with it.

        Args:
            ledger: The ledger that misses the head.
            dataset: The dataset whose head it is.
            asked: The dataset that was to be charged, and its group.

        Raises:
            LedgerError: Always. Nothing is charged until `Ledger.thaw` has settled the loss.
        """
        mine = dataset == asked.dataset
        groups = {*self.groups, *([asked.group] if mine and asked.group is not None else [])}
        ledger.freeze(dataset, _REASON, in_use=self.releases, missing=self.anchor, groups=sorted(groups))
        shared = "" if mine else f" with {dataset}, whose cap it shares"
        raise LedgerError(f"the dataset {asked.dataset} is frozen{shared}: {_REASON}", _HINT)


class Heads:
    """The heads that are remembered of one ledger.

    Args:
        ledger: The ledger.
        folder: The folder of all heads; `folder_of` finds it.
    """

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        self._ledger = ledger
        self._folder = folder / hashlib.sha256(ledger.place.encode()).hexdigest()[:32]

    def require(self, scope: Scope, *, replaced: bool = True) -> None:
        """Refuse a ledger that misses a head of a dataset, or of one that shares a cap with it.

        Args:
            scope: The dataset that is to be charged, and its group.
            replaced: Refuse also if the dataset itself was charged in another ledger at this place. Without it,
                somebody who removed a ledger may begin anew; where others share the cap, nobody may.

        Raises:
            LedgerError: It does; the datasets are frozen. Or a file cannot be read.
        """
        here = self._ledger.ledger_id
        kept = {
            name: memory
            for name, memory in self._all()
            if replaced or memory.anchor.ledger == here or name != scope.dataset
        }
        mine = kept.get(scope.dataset)
        named = {scope.group} - {None} | set(mine.groups if mine else ())
        datasets, groups = self._ledger.sharing(scope.dataset, [group for group in named if group is not None])
        for dataset, memory in kept.items():
            concerned = dataset in datasets or groups & set(memory.groups)
            if concerned and memory.missing(self._ledger, dataset):
                memory.refuse(self._ledger, dataset, scope)

    def remember(self, scope: Scope, release: str) -> None:
        """Keep the head of the ledger, durably.

        Args:
            scope: The dataset that was charged, and its group.
            release: The release name.

        Raises:
            LedgerError: The folder cannot be written to.
        """
        keep(self._ledger, self._folder / f"{quote(scope.dataset, safe=' ')}.json", scope, release)

    def _all(self) -> Iterator[tuple[str, Memory]]:
        for path in sorted(self._folder.glob("*.json")):
            found = read(path)
            if found is not None:
                yield unquote(path.stem), found


def folder_of(named: str | None) -> Path:
    """Return the folder of the heads: the one that is named, that of `DPTEXT_ANCHORS`, or one of this user's state."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(named or os.environ.get(VARIABLE) or Path(state) / "dptext" / "anchors").absolute()


def is_named(named: str | None) -> bool:
    """Return whether somebody named the folder: then it must be there."""
    return bool(named or os.environ.get(VARIABLE))


def read(path: Path) -> Memory | None:
    """Read a file that `keep` wrote; None if there is none.

    Raises:
        LedgerError: It cannot be read.
    """
    try:
        found = json.loads(path.read_bytes())
        names = tuple(found["releases"]), tuple(found.get("groups", ()))
        return Memory(Anchor.parse(found["anchor"]), *names, found.get("losses"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, LedgerError):
        broken = f"{path} cannot be read"
    hint = "this file names the right ledger: restore it, or remove it if you are sure of the ledger"
    raise LedgerError(broken, hint)


def keep(ledger: Ledger, path: Path, scope: Scope, release: str, others: Iterable[Path] = ()) -> None:
    """Write the head of a ledger to a file, durably, and add what was charged to what is there.

    Args:
        ledger: The ledger.
        path: The file.
        scope: The dataset that was charged, and its group.
        release: The release name.
        others: Files whose content the file takes in.

    Raises:
        LedgerError: The folder cannot be written to.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(path.parent):
            text = json.dumps(_now(ledger, _together(ledger, [path, *others]), scope, release)).encode()
            descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            draft.replace(path)
            flush(path.parent)
    except OSError as exc:
        problem = f"the head of the ledger cannot be kept in {path.parent} ({exc.strerror})"
    else:
        return
    with suppress(OSError):
        draft.unlink()
    raise LedgerError(problem, f"name a folder that lasts: anchors in the ledger's settings, or {VARIABLE}")


def _together(ledger: Ledger, paths: Iterable[Path]) -> Memory | None:
    """Read several files as one: all names, and the newest head that the ledger holds."""
    found = [memory for path in paths if (memory := read(path)) is not None]
    if not found:
        return None
    newest = max(found, key=lambda memory: (ledger.holds(memory.anchor), memory.anchor.seq))
    releases = {name for memory in found for name in memory.releases}
    groups = {name for memory in found for name in memory.groups}
    return newest._replace(releases=tuple(sorted(releases)), groups=tuple(sorted(groups)))


def _now(ledger: Ledger, before: Memory | None, scope: Scope, release: str) -> dict[str, object]:
    """Return what is to be remembered now: heads only grow, so the last one counts."""
    head, since, losses = ledger.anchor(), 0, 0
    if before is not None and before.losses is not None and ledger.holds(before.anchor):
        since, losses = before.anchor.seq, before.losses
    releases, groups = ({*before.releases}, {*before.groups}) if before else (set[str](), set[str]())
    return {
        "anchor": str(head),
        "releases": sorted(releases | {release}),
        "groups": sorted(groups | ({scope.group} if scope.group is not None else set())),
        "losses": losses + ledger.losses(scope.dataset, since),
    }


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
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
