"""Report what models failed on: counts for people inside the boundary, which decide nothing.

Which texts a model fails on follows from the texts, so a count of them may neither stop a run nor hold one back
(docs/spec/privacy.md#fail-closed). Whether a model works is asked with public texts (docs/spec/privacy.md#probe).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dptext_etl.checks.verdict import Verdict

NAME = "model_failures"
CATCHES = "A model that fails on some texts: what they became is random, at the same spend."

Failures = Mapping[str, Mapping[str, int]]
"""By text column: `texts` that a model failed on, and `draws` that were uniform for it."""


def report(shards: Iterable[Failures]) -> list[Verdict]:
    """Add up the failures of all shards; a report per column that has some."""
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
