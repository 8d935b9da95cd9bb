"""Note inside the boundary which rows of the source a published version lacks, in counts by reason.

The statement reports them. They are not part of the manifest: some of them depend on texts, and readers see that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dptext_etl.checks import Verdict
from dptext_etl.storage import Storage

_FILE = "left-out.json"
_NOT_APPLICABLE = "not applicable"
_WAYS = frozenset({"new", "resumed", "replayed", "changed_released"})
"""Counts of how released rows came to be: a run that was killed and goes on has others, and the same table."""


def note(staging: Storage, manifest: str | None, rows: Mapping[str, int], verdicts: Iterable[Verdict]) -> None:
    """Write the counts of a run, and the gates that had nothing to judge, with the digest of its manifest."""
    if manifest is not None:
        idle = [verdict.name for verdict in verdicts if _is_idle(verdict)]
        counts = {name: count for name, count in rows.items() if name not in _WAYS}
        _write(staging, {"manifest": manifest, "rows": counts, "idle": idle})


def carry(staging: Storage, before: str, now: str) -> None:
    """Take the counts over to a version that lacks forgotten people in addition."""
    facts = read(staging, before)
    if facts is not None:
        _write(staging, {**facts, "manifest": now})


def read(staging: Storage, manifest: str) -> dict[str, Any] | None:
    """Return `rows` and `idle` as they were noted of a version; None if this folder holds nothing of it."""
    try:
        facts = json.loads(staging.read(_FILE) or b"null")
    except ValueError:
        return None
    complete = isinstance(facts, dict) and {"manifest", "rows", "idle"} <= facts.keys()
    return facts if complete and facts["manifest"] == manifest else None


def _is_idle(verdict: Verdict) -> bool:
    nothing = verdict.counts.get("words") == 0 and _NOT_APPLICABLE in verdict.message
    return nothing or verdict.message.startswith(_NOT_APPLICABLE)


def _write(staging: Storage, facts: Mapping[str, object]) -> None:
    staging.write(_FILE, json.dumps(facts).encode(), action="noting which rows were left out")
