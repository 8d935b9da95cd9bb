"""Note inside the boundary which rows of the source a published version lacks, in counts by reason.

The page to sign states them. They are no part of the manifest: some of them depend on texts, and readers see that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dptext_etl.checks import Verdict
from dptext_etl.storage import Storage

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


def note(staging: Storage, manifest: str | None, rows: Mapping[str, int], verdicts: Iterable[Verdict]) -> None:
    """Write the counts next to the digest of the manifest that they belong to."""
    if manifest is not None:
        idle = [verdict.name for verdict in verdicts if _idle(verdict)]
        counts = {name: count for name, count in rows.items() if name not in _WAYS}
        _write(staging, {"manifest": manifest, "rows": counts, "idle": idle})


def carry(staging: Storage, before: str, now: str) -> None:
    """Take the counts over to a version that lacks forgotten people in addition."""
    found = _read(staging)
    if found is not None and found["manifest"] == before:
        _write(staging, {**found, "manifest": now})


def read(staging: Storage, manifest: str) -> LeftOut | None:
    """Return what was noted of a version; None where this folder holds nothing of it."""
    found = _read(staging)
    if found is None or found["manifest"] != manifest:
        return None
    return LeftOut(found["rows"], tuple(found["idle"]))


def _idle(verdict: Verdict) -> bool:
    nothing = verdict.counts.get("words") == 0 and NOT_APPLICABLE in verdict.message
    return nothing or verdict.message.startswith(NOT_APPLICABLE)


def _write(staging: Storage, facts: Mapping[str, object]) -> None:
    staging.write(FILE, json.dumps(facts).encode(), action="noting which rows were left out")


def _read(staging: Storage) -> dict[str, Any] | None:
    try:
        facts = json.loads(staging.read(FILE) or b"null")
    except ValueError:
        return None
    return facts if isinstance(facts, dict) and {"manifest", "rows", "idle"} <= facts.keys() else None
