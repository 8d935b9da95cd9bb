"""Run a policy over a Polars frame (charge, compute, stage, commit, check, publish), and read what is published.

from dptext_etl.polars import run_frame

run_frame(pl.scan_parquet("reviews/*.parquet").filter(pl.col("stars") > 0), "privacy.toml")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from dptext_etl.engines import run
from dptext_etl.engines.local.frame import FrameEngine
from dptext_etl.errors import bare
from dptext_etl.polars.other_ids import warn_of_other_ids
from dptext_etl.policy import PolicyLike, run_policy
from dptext_etl.runner import RunSummary, scan_published
from dptext_etl.runner.progress import Listener


@bare
def run_frame(
    frame: pl.DataFrame | pl.LazyFrame,
    policy: PolicyLike,
    *,
    id: str | None = None,  # noqa: A002  (the argument's name is the column's role)
    subject: str | None = None,
    partition: str | None = None,
    accept_lower_cap: bool = False,
    progress: Listener | None = None,
    **entries: Any,
) -> RunSummary:
    """Release the text columns of a frame as a whole run: charge, compute, stage, commit, check, publish.

    Every record gets the same text and the same charge as from `dptext_etl.run`. A second call with the same rows costs
    nothing; a run that was killed continues where it stopped. A lazy frame is read several times, in batches.

    Args:
        frame: The raw table; every evaluation must give the same rows in the same order.
        policy: A policy, the path of one, or the policy of one column, with the other entries of a run in `entries`.
            The run does not read its source.
        id: Column of the record ids, if the frame uses another name than the policy.
        subject: Column of the subjects, if the frame uses another name than the policy.
        partition: Name of the partition, if the policy has a place for one.
        accept_lower_cap: Lower the pinned cap to that of the policy; otherwise a lower cap is refused.
        progress: Called with counts, rate and remaining time, of every phase and of the whole run.
        entries: Entries of the policy to set: `sink`, `ledger`, `cap`, `keep`, `unit`, …

    Returns:
        Counts, spends, verdicts, and the place of the published table.

    Raises:
        InputError: The frame does not fit the policy; nothing was spent.
        PolicyError: The run cannot be carried out as written; nothing is lost.
        BudgetError: Records are over the cap, and on_cap is "refuse".
        GateError: A gate failed: nothing is published, charges stay, and the release name is revoked.
    """
    named = {"id": id, "subject": subject, **entries}
    whole = run_policy(policy, {name: value for name, value in named.items() if value is not None})
    warn_of_other_ids(whole, whole.id, frame)
    return run(
        whole,
        engine=FrameEngine(frame.lazy()),
        partition=partition,
        accept_lower_cap=accept_lower_cap,
        progress=progress,
    )


def released(sink: str, storage_options: Mapping[str, str] | None = None, *, verify: bool = True) -> pl.LazyFrame:
    """Scan the current version of a published table, and check first that its files are those of its manifest.

    Args:
        sink: Folder or object-store URL of the table, which is the policy's sink.
        storage_options: Options for object stores; values may be "env:NAME".
        verify: Read every file once and compare its hash.

    Returns:
        A lazy frame in row order, of the version that was current at the call.

    Raises:
        InputError: Nothing is published there, or a file is not the one that was published.
    """
    return scan_published(sink, storage_options, verify=verify)
