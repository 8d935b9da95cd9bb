"""Report failures of models by counts for people inside the boundary; these counts decide nothing.

The texts on which a model fails depend on private data, so their count may neither stop nor delay a run
(docs/spec/privacy.md#fail-closed). Probes with public texts show whether a model works (docs/spec/privacy.md#probe).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dptext_etl.checks.verdict import Verdict

NAME = "model_failures"
CATCHES = "A model that fails on some texts, whose releases are then random at the same spend."

Failures = Mapping[str, Mapping[str, int]]
"""Counts by text column: `texts` on which a model failed, and their uniform `draws`."""


def report(shards: Iterable[Failures]) -> list[Verdict]:
    """Add up the failures of all shards; return a report for each column with failures."""
    total: dict[str, dict[str, int]] = {}
    for shard in shards:
        for column, counts in shard.items():
            into = total.setdefault(column, {"texts": 0, "draws": 0})
            for name in into:
                into[name] += counts[name]
    return [
        Verdict(
            NAME,
            passed=True,
            counts=counts,
            message=f"column {column!r}: the model failed on {counts['texts']} texts; {counts['draws']} of their draws "
            "are uniform, at the same spend (report only)",
            catches=CATCHES,
        )
        for column, counts in total.items()
    ]
