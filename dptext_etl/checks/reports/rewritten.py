"""Report what post-processing made of released texts, and failures of models, by counts that decide nothing.

The counts are for people inside the boundary.

Copies are counted once more here, in the texts that readers see. No distribution of them is known, so nothing says what
chance makes, and the gates and the counts with a bound stay with what the mechanism released
(docs/spec/privacy.md#post-gates).

The texts on which a model fails depend on private data, so their count may neither stop nor delay a run
(docs/spec/privacy.md#fail-closed). Probes with public texts show whether a model works (docs/spec/privacy.md#probe).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dptext_etl.checks.gate import Verdict
from dptext_etl.checks.reports.copies import SAMPLE_ROWS, CopyCount, counts_all
from dptext_etl.policy import Policy

COPIES = "copies_published"
COPIES_CATCHES = "A rewriter that brings originals back, in the texts that readers see."
FAILURES = "rewriting_failures"
FAILURES_CATCHES = "A rewriter that fails on some texts, which then stay as the mechanism released them."

MODEL_FAILURES = "model_failures"
MODEL_FAILURES_CATCHES = "A model that fails on some texts, whose releases are then random at the same spend."

Failures = Mapping[str, Mapping[str, int]]
"""Counts by text column: `texts` on which a model failed, and their uniform `draws`."""
Post = Mapping[str, Mapping[str, Any]]
"""What staging says of a shard: `copies` and `failed` by text column."""


def copies_of(posts: Iterable[Post]) -> dict[str, CopyCount]:
    """Add up the copies among rewritten texts of all shards, by text column."""
    total: dict[str, CopyCount] = {}
    for post in posts:
        for column, facts in post.get("copies", {}).items():
            total[column] = total.get(column, CopyCount()) + CopyCount.from_dict(facts)
    return total


def report(policy: Policy, posts: Iterable[Post]) -> list[Verdict]:
    """Return the copies of every rewritten column, and how many texts its models failed on, where they failed."""
    posts = list(posts)
    made = [_copies(column, count, counts_all(policy)) for column, count in copies_of(posts).items()]
    failed: dict[str, int] = {}
    for post in posts:
        for column, count in post.get("failed", {}).items():
            failed[column] = failed.get(column, 0) + int(count)
    return [*made, *(_failures(column, count) for column, count in failed.items())]


def _copies(column: str, count: CopyCount, everything: bool) -> Verdict:
    rows = sum(count.rows_by_draws.values())
    of = "" if everything else f" (a sample: at most {SAMPLE_ROWS} of every shard)"
    said = f"column {column!r}, as it is published: {count.copies} of {rows} rewritten texts{of} equal their originals"
    message = f"{said}; nothing says what chance makes (report only)"
    return Verdict(
        COPIES, passed=True, counts={"rows": rows, "copies": count.copies}, message=message, catches=COPIES_CATCHES
    )


def _failures(column: str, count: int) -> Verdict:
    message = f"column {column!r}: a rewriter failed on {count} texts, which stay as they were released (report only)"
    return Verdict(FAILURES, passed=True, counts={"texts": count}, message=message, catches=FAILURES_CATCHES)


def model_failures(shards: Iterable[Failures]) -> list[Verdict]:
    """Add up the failures of all shards; return a report for each column with failures."""
    total: dict[str, dict[str, int]] = {}
    for shard in shards:
        for column, counts in shard.items():
            into = total.setdefault(column, {"texts": 0, "draws": 0})
            for name in into:
                into[name] += counts[name]
    return [
        Verdict(
            MODEL_FAILURES,
            passed=True,
            counts=counts,
            message=f"column {column!r}: the model failed on {counts['texts']} texts; {counts['draws']} of their draws "
            "are uniform, at the same spend (report only)",
            catches=MODEL_FAILURES_CATCHES,
        )
        for column, counts in total.items()
    ]
