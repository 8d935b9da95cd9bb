"""Judge a staged run. A gate that fires revokes the release name (docs/spec/privacy.md#fired-gate)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import polars as pl

from dptext_etl import files, telemetry
from dptext_etl.checks import Candidate, Verdict, evaluate
from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.checks.candidate import Lineage
from dptext_etl.checks.reports import copies, rewritten
from dptext_etl.checks.reports.copies import CopyCount
from dptext_etl.device import threads
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.ledger import Ledger
from dptext_etl.policy import Policy
from dptext_etl.runner.anchoring import remember
from dptext_etl.runner.progress import Checkpoint, Listener, Meter, nothing
from dptext_etl.runner.publish.manifest import draft
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.roles import output_columns
from dptext_etl.runner.staged import StagedRun

log = logging.getLogger("dptext_etl.runner")

NOTE = "fired.txt"
"""Mark of a staging folder without texts; `dptext clean` removes the rest."""
_AGAIN = "remove the staging folder by hand: it may hold raw text"

Judge = Callable[[StagedRun, Candidate, Callable[[int], object]], tuple[Verdict, ...]]
"""Check the hashes of the staged files, give their rows to every gate, and report the number of rows."""


def judge_here(staged: StagedRun, candidate: Candidate, seen: Callable[[int], object]) -> tuple[Verdict, ...]:
    """Judge a staged run in this process; the hashes of its files are compared meanwhile."""
    staging = Staging(staged.layout.staging)
    with ThreadPoolExecutor(threads(), thread_name_prefix="dptext-hash") as beside:
        compared = [beside.submit(staging.require, shard) for shard in staged.shards]
        if staging.storage.remote:
            wait(compared)  # the comparison fetches them
        try:
            verdicts = evaluate(candidate, seen)
        finally:
            for one in compared:  # a gate that stumbles over a file that has changed is not what is to be said
                one.result()
    for shard in staged.shards:
        staged.profile.count("gates", rows=shard.counts["rows"], size=staging.path(shard).stat().st_size)
    return verdicts


@bare
def check(
    staged: StagedRun,
    *,
    judge: Judge = judge_here,
    progress: Listener | None = None,
    checkpoint: Checkpoint = nothing,
) -> tuple[Verdict, ...]:
    """Evaluate all gates over a staged run; if one fires, revoke the release name and take texts out of staging."""
    if not staged.shards:
        return ()
    with staged.profile.stage("gates"):
        return _check(staged, judge, progress, checkpoint)


def _check(staged: StagedRun, judge: Judge, progress: Listener | None, checkpoint: Checkpoint) -> tuple[Verdict, ...]:
    policy = staged.policy
    staging = Staging(staged.layout.staging)
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False) as ledger:
        lineage = Lineage.declared(policy, (*output_columns(policy), *staged.dropped))
        rows = sum(shard.counts["rows"] for shard in staged.shards) + sum(len(plan.rows) for plan in staged.canaries)
        meter = Meter("gates", rows, progress)
        verdicts = judge(
            staged,
            Candidate(
                policy=policy,
                parts=staged.parts,
                rewritten=staged.rewritten,
                canaries=staged.canaries,
                quarantined=staged.rows["quarantined"],
                ledger=ledger,
                refs=staged.refs,
                texts=(_draft(staged, staging),),
                lineage=lineage,
                copies=copies_of(staged),
                recomputed=_recomputed(staged),
                scratch=staging.folder,
            ),
            meter.add,
        )
        fired = [verdict.name for verdict in verdicts if not verdict.passed]
        if fired:
            log.error("gates fired: %s; the release name is revoked", ", ".join(fired))
            ledger.revoke(next(iter(staged.refs.values())), ", ".join(fired)[:200])
            remember(ledger, staged.layout.memory, policy)  # a restored copy would not know of it
            strip(staging, policy)
        telemetry.judged(policy.dataset, policy.release, verdicts)
        checkpoint("gated")
    return verdicts


def copies_of(staged: StagedRun) -> dict[str, CopyCount]:
    """Add up the copy counts of all shards, by text column."""
    total: dict[str, CopyCount] = {}
    for shard in staged.shards:
        for column, facts in shard.copies.items():
            total[column] = total.get(column, CopyCount()) + CopyCount.from_dict(facts)
    return total


def _recomputed(staged: StagedRun) -> dict[str, Counter[str]]:
    total: dict[str, Counter[str]] = {}
    for shard in staged.shards:
        for column, found in shard.recomputed.items():
            total.setdefault(column, Counter()).update(found)
    return total


def reports(staged: StagedRun) -> list[Mapping[str, object]]:
    """Compare counts of the whole run with their bounds, and say what models failed on, for people inside the boundary.

    Nothing is decided by it.
    """
    with staged.profile.stage("reports"):
        counted = copies_of(staged)
        made = (*copies.report(staged.policy, counted), *copies.ngram_report(staged.policy, counted))
        failed = rewritten.model_failures(shard.failures for shard in staged.shards)
        again = rewritten.report(staged.policy, (shard.post for shard in staged.shards))
        return [*(item.verdict().as_dict() for item in made), *(item.as_dict() for item in (*failed, *again))]


def _draft(staged: StagedRun, staging: Staging) -> Path:
    """Write a draft of the manifest, so that the gates search it, too."""
    path = staging.folder / "manifest.draft.json"
    schema, computed = staging.schema(staged.shards[0]), staged.computed
    drafted = draft(
        staged.policy, staged.layout, schema, gates=[], parts=(), version=0, computed=computed, source=staged.origin
    )
    files.write(path, drafted.text().encode(), action="staging the manifest")
    return path


def strip(staging: Staging, policy: Policy) -> None:
    """Remove the staged texts of all records except canary rows, and all bytes that were kept for replays.

    A gate that failed has found a defect, so staged texts may be raw. Ids, kept columns, draw counts, records and the
    texts of canary rows stay: they show the failure, and hold no one's text.
    """
    clear, texts = {policy.id, *policy.keep, CANARY}, {item.name for item in policy.columns}
    storage = staging.storage
    with seam("removing staged texts", InputError, _AGAIN):
        storage.delete(*storage.glob("kept-*"))
        for name in storage.glob("shard-*.parquet"):
            frame = pl.read_parquet(storage.local_path(name, fresh=True))
            chosen = [column for column in frame.columns if column in clear | texts]
            frame = frame.select(chosen).with_columns(
                pl.when(CANARY).then(pl.col(column)).alias(column) for column in chosen if column in texts
            )
            storage.write(name, frame.write_parquet, action="removing staged texts")
        storage.delete(*storage.glob("shard-*.post"))  # made of texts that may be raw
        note = b"A gate fired. Texts of records were removed; `dptext clean` removes the rest.\n"
        storage.write(NOTE, note, action="removing staged texts")
