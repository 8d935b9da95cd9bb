"""Note inside the boundary which rows of the source a published version lacks, in counts by reason.

The page to sign states them. They are no part of the manifest: some of them depend on texts, and readers see that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dptext_etl.checks import Verdict
from dptext_etl.runner.staging_files import Shelf

FILE = "left-out.json"
NOT_APPLICABLE = "not applicable"
_WAYS = frozenset({"new", "resumed", "replayed", "changed_released"})
"""Counts of how released rows came to be: a run that was killed and goes on has others, and the same table."""


@dataclass(frozen=True)
class LeftOut:
    """What a run says of the version that it published or found published.

    Attributes:
        rows: The row counts of the run's summary, but for `_WAYS`.
        idle: Names of gates that had nothing to judge, because they are made for other mechanisms.
    """

    rows: Mapping[str, int]
    idle: tuple[str, ...]


def note(shelf: Shelf, manifest: str | None, rows: Mapping[str, int], verdicts: Iterable[Verdict]) -> None:
    """Write the counts next to the digest of the manifest that they belong to."""
    if manifest is not None:
        idle = [verdict.name for verdict in verdicts if _idle(verdict)]
        counts = {name: count for name, count in rows.items() if name not in _WAYS}
        _write(shelf, {"manifest": manifest, "rows": counts, "idle": idle})


def carry(shelf: Shelf, before: str, now: str) -> None:
    """Take the counts over to a version that lacks forgotten people in addition."""
    found = _read(shelf)
    if found is not None and found["manifest"] == before:
        _write(shelf, {**found, "manifest": now})


def read(shelf: Shelf, manifest: str) -> LeftOut | None:
    """Return what was noted of a version; None where this folder holds nothing of it."""
    found = _read(shelf)
    if found is None or found["manifest"] != manifest:
        return None
    return LeftOut(found["rows"], tuple(found["idle"]))


def _idle(verdict: Verdict) -> bool:
    nothing = verdict.counts.get("words") == 0 and NOT_APPLICABLE in verdict.message
    return nothing or verdict.message.startswith(NOT_APPLICABLE)


def _write(shelf: Shelf, facts: Mapping[str, object]) -> None:
    text = json.dumps(facts).encode()
    shelf.write(shelf.folder / FILE, lambda file: file.write(text), action="noting which rows were left out")


def _read(shelf: Shelf) -> dict[str, Any] | None:
    try:
        facts = json.loads(shelf.here(shelf.folder / FILE, fresh=True).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) and {"manifest", "rows", "idle"} <= facts.keys() else None
