"""Name a dataset, its stages and its resources in Dagster."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from dptext_etl.policy import Policy

STAGED = "staged_"
"""Prefix of the keys of staged assets."""

RAW_TAG, STAGED_TAG, PUBLISHED_TAG = "dptext/raw", "dptext/staged", "dptext/published"
"""Tags of the stages, whose value is the dataset; `check_lineage` and selections in Dagster's pages use them."""
_TAG_LENGTH = 63


class Names(NamedTuple):
    """Keys of a dataset's assets, steps, job and resources; several datasets fit into one code location.

    Attributes:
        raw: The source: its rows never enter an event.
        staged: Released rows in quarantine, inside the boundary.
        published: The table that readers see.
        evidence: The report of what a release keeps and gives away, inside the boundary.
        gates: The step that evaluates every gate.
        recheck: The step that judges the published table again.
        job: The job of all steps.
        group: The group of the assets.
        ledger: The resource that names the ledger.
        key: The resource that refers to the noise key.
        table: The resource through which downstream assets read the published table.
    """

    raw: str
    staged: str
    published: str
    evidence: str
    gates: str
    recheck: str
    job: str
    group: str
    ledger: str
    key: str
    table: str


def names(policy: Policy) -> Names:
    """Name the stages of a policy's dataset; Dagster allows letters, digits and underscores."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", policy.dataset)
    kinds = ("raw", "staged", "published", "evidence", "gates", "recheck", "privatize", "", "ledger", "key", "table")
    return Names._make(f"{kind}_{word}" if kind else word for kind in kinds)


def stage_tag(tag: str, policy: Policy) -> dict[str, str]:
    """Mark a stage of a policy's dataset; Dagster allows tags of 63 characters."""
    word = names(policy).raw.removeprefix("raw_")
    return {tag: word if len(word) <= _TAG_LENGTH else hashlib.sha256(word.encode()).hexdigest()[:16]}
