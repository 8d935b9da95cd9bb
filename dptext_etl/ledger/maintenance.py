"""Maintain a ledger on a schedule: verify it, store an anchor apart from it, and make a backup."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dptext_etl import files, telemetry
from dptext_etl.errors import InputError, seam
from dptext_etl.ledger.anchor_files import ledger_place
from dptext_etl.ledger.ledger import Ledger
from dptext_etl.ledger.types import Anchor
from dptext_etl.storage import Objects, Storage

_FILE = "verified.json"
METRIC = "dptext.ledger.verified.age"


@dataclass(frozen=True)
class Maintained:
    """The result of one maintenance of a ledger.

    Attributes:
        problems: One sentence for each difference between the ledger and its journal, or an earlier anchor.
        counts: Rows of the ledger by kind.
        anchor: The head that was stored; empty if there were problems.
        copy: The backup; None if there were problems, or no folder was given.
        removed: Older backups that were deleted.
    """

    problems: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    anchor: str = ""
    copy: str | None = None
    removed: list[str] = field(default_factory=list)

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
    """Verify a ledger; if it is intact, store its head and make a backup, so that a backup is never of a broken ledger.

    Args:
        ledger: The ledger, open for reading.
        anchors: The place of the anchors, as in a policy.
        options: Options of the store of that place.
        backup: Folder of the backups, which are SQLite files without the id key; None makes none.
        keep: How many backups stay there.

    Raises:
        LedgerError: The anchor cannot be stored, or the stored one cannot be read.
        UnavailableLedgerError: The ledger does not answer.
    """
    place = ledger_place(ledger, anchors, options)
    found = ledger.verify()
    problems, before = list(found.problems), _verified(place)
    if before is not None and not ledger.holds(Anchor.parse(before["anchor"])):
        problems.append("the journal does not hold the head of the last maintenance: it was cut or is an old copy")
    if problems:
        return Maintained(problems, found.counts)
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
    return Maintained([], found.counts, str(anchor), copy, removed)


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
