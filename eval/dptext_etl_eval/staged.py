"""Read a staged run of a policy that publishes nothing, such as a faithful mechanism's, for a report."""

from __future__ import annotations

from typing import Any

import polars as pl

from dptext_etl import keys
from dptext_etl.checks.canaries import CANARY
from dptext_etl.errors import InputError, seam
from dptext_etl.ledger import Ledger
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import claims
from dptext_etl.runner.shard.staging import Staging, staging_key
from dptext_etl_eval.raw_reports import log_request


def staged_rows(policy: Policy, layout: Layout) -> tuple[pl.LazyFrame, list[dict[str, Any]]]:
    """Return the rows that a run staged, without canary rows, and the policy's claims for every text column.

    Raises:
        InputError: Nothing of this release and configuration is staged.
    """
    hint = "`dptext run POLICY` stages its rows; with publish = false, they stay in staging"
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
        releases = ledger.releases.find_all(policy)
    if missing := [item.column for item in policy.column_policies() if item.column not in releases]:
        names = ", ".join(f"{name!r}" for name in missing)
        msg = f"the ledger has no release {policy.release!r} of {policy.dataset!r} with this configuration of {names}"
        raise InputError(msg, hint)
    key = staging_key(keys.resolve(policy.key), policy.dataset, layout.staging)
    staging = Staging(layout.staging, key)
    shards = staging.shards()
    if not shards:
        raise InputError(f"nothing is staged of the release {policy.release!r} of {policy.dataset!r}", hint)
    log_request(policy, layout.staging, "evaluate")
    with seam("reading the staged rows", InputError, hint):
        rows = pl.concat([staging.outcome(shard) for shard in shards], how="diagonal_relaxed")
    return rows.filter(~pl.col(CANARY)).drop(CANARY).lazy(), claims(policy)
