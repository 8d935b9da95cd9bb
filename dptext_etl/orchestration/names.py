"""Name a dataset, its stages and its resources in Dagster."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, NamedTuple

import dagster as dg

from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from dptext_etl.orchestration.translator import PolicyTranslator

RAW_TAG, STAGED_TAG, PUBLISHED_TAG = "dptext/raw", "dptext/staged", "dptext/published"
"""Tags of the stages, whose value is the dataset; `check_lineage` and selections in Dagster's pages use them."""
PUBLIC_TAG = "dptext/public"
"""Tag of an asset that holds no raw text, though raw assets are made from it."""
_TAG_LENGTH = 63
_KINDS = ("gates", "recheck", "run", "schedule", "sensor", "ledger", "key", "table")


class Names(NamedTuple):
    """Keys of a dataset's assets, steps, job and resources; several datasets and releases fit into one code location.

    Attributes:
        raw: The source: its rows never enter an event.
        staged: Released rows in quarantine, inside the boundary.
        published: The table that readers see.
        evidence: The report of what a release keeps and gives away, inside the boundary.
        gates: The step that evaluates every gate.
        recheck: The step that judges the published table again.
        job: The job of all steps.
        schedule: The schedule of the job.
        sensor: The sensor that starts the job when the source is new.
        group: The group of the assets.
        owners: The owners of the assets.
        ledger: The resource that names the ledger.
        key: The resource that refers to the noise key.
        table: The resource through which downstream assets read the published table.
        word: What distinguishes the dataset in all of these.
    """

    raw: dg.AssetKey
    staged: dg.AssetKey
    published: dg.AssetKey
    evidence: dg.AssetKey
    gates: str
    recheck: str
    job: str
    schedule: str
    sensor: str
    group: str
    owners: list[str]
    ledger: str
    key: str
    table: str
    word: str

    def tag(self, stage: str) -> dict[str, str]:
        """Mark a stage of the dataset; Dagster allows tags of 63 characters."""
        word = self.word
        return {stage: word if len(word) <= _TAG_LENGTH else hashlib.sha256(word.encode()).hexdigest()[:16]}


def word_of(name: str) -> str:
    """Write a name as Dagster allows it: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def names(
    policy: Policy, translator: PolicyTranslator | None = None, source: dg.CoercibleToAssetKey | None = None
) -> Names:
    """Name the stages of a policy's dataset.

    Steps, job and resources are called after the key of the published asset, so that they differ where the keys do.
    """
    from dptext_etl.orchestration.translator import PolicyTranslator

    mapped = translator or PolicyTranslator()
    raw = mapped.asset_key(policy, "raw") if source is None else dg.AssetKey.from_coercible(source)
    staged, published, evidence = (mapped.asset_key(policy, stage) for stage in ("staged", "published", "evidence"))
    *prefix, last = published.path
    word = word_of("_".join([*prefix, last.removeprefix("published_")]))
    gates, recheck, job, schedule, sensor, ledger, key, table = (f"{kind}_{word}" for kind in _KINDS)
    group, owners = mapped.group_name(policy), list(mapped.owners(policy))
    steps = (gates, recheck, job, schedule, sensor)
    return Names(raw, staged, published, evidence, *steps, group, owners, ledger, key, table, word)
