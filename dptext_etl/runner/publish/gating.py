"""Judge a staged run. A gate that fires revokes the release name (docs/spec/privacy.md#fired-gate)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait

import polars as pl

from dptext_etl import files, telemetry
from dptext_etl.checks import Candidate, Verdict, evaluate
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.reports import (
    CopyCount,
    copy_reports,
    model_failures,
    ngram_reports,
    rewriting_reports,
    total_copies,
)
from dptext_etl.device import threads
from dptext_etl.errors import InputError, bare, seam
from dptext_etl.ledger import Ledger
from dptext_etl.policy import Policy
from dptext_etl.runner.anchoring import remember
from dptext_etl.runner.progress import Checkpoint, Listener, Meter, nothing
from dptext_etl.runner.publish.manifest import draft
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.staged import StagedRun

log = logging.getLogger("dptext_etl.runner")

NOTE = "fired.txt"
"""Mark of a staging folder without texts; `dptext clean` removes the rest."""
_DRAFT = "manifest.draft.json"
_AGAIN = "remove the staging folder by hand: it may hold raw text"

Judge = Callable[[StagedRun, Candidate, Callable[[int], object]], tuple[Verdict, ...]]
"""Check the hashes of the staged files, give their rows to every gate, and report the number of rows."""


def judge_here(staged: StagedRun, candidate: Candidate, count: Callable[[int], object]) -> tuple[Verdict, ...]:
    """Judge a staged run in this process; the hashes of its files are compared meanwhile."""
    staging = Staging(staged.layout.staging)
    with ThreadPoolExecutor(threads(), thread_name_prefix="dptext-hash") as pool:
        compared = [pool.submit(staging.require, shard) for shard in staged.shards]
        if staging.storage.remote:
            wait(compared)  # the comparison fetches them
        try:
            verdicts = evaluate(candidate, count)
        finally:
            for one in compared:  # a changed file is reported, not the gate that fails over it
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
    if not staged.shards or staged.other:
        return ()
    with staged.profile.stage("gates"):
        return _check(staged, judge, progress, checkpoint)


def _check(staged: StagedRun, judge: Judge, progress: Listener | None, checkpoint: Checkpoint) -> tuple[Verdict, ...]:
    policy = staged.policy
    staging = Staging(staged.layout.staging)
    recomputed: dict[str, Counter[str]] = {}
    for shard in staged.shards:
        for column, counts in shard.recomputed.items():
            recomputed.setdefault(column, Counter()).update(counts)
    manifest = staging.folder / _DRAFT  # the gates search it, too
    content = draft(staged, (), (), 0, {}).text().encode()
    files.write(manifest, content, action="staging the manifest")
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False) as ledger:
        rows = sum(shard.counts["rows"] for shard in staged.shards) + sum(len(plan.rows) for plan in staged.canaries)
        meter = Meter("gates", rows, progress)
        verdicts = judge(
            staged,
            Candidate(
                policy=policy,
                parts=staged.parts,
                rewritten=tuple(staging.post(shard) for shard in staged.shards if shard.post),
                canaries=staged.canaries,
                ledger=ledger,
                refs=staged.refs,
                texts=(manifest,),
                copies=copies_of(staged),
                recomputed=recomputed,
                scratch=staging.folder,
            ),
            meter.add,
        )
        fired = [verdict.name for verdict in verdicts if not verdict.passed]
        if fired:
            log.error("gates fired: %s; the release name is revoked", ", ".join(fired))
            ledger.releases.revoke(next(iter(staged.refs.values())), ", ".join(fired)[:200])
            remember(ledger, staged.layout.memory, policy)  # a restored copy would not know of it
            strip(staging, policy)
        telemetry.judged(policy.dataset, policy.release, verdicts)
        checkpoint("gated")
    return verdicts


def copies_of(staged: StagedRun) -> dict[str, CopyCount]:
    return total_copies(shard.copies for shard in staged.shards)


def reports(staged: StagedRun) -> list[Mapping[str, object]]:
    """Compare counts of the run with their bounds, and count failures of models, for people inside the boundary."""
    if staged.policy.synthetic is not None:  # nothing is compared with a raw text
        return []
    with staged.profile.stage("reports"):
        counts, policy = copies_of(staged), staged.policy
        copied = (*copy_reports(policy, counts), *ngram_reports(policy, counts))
        failed = model_failures(shard.failures for shard in staged.shards)
        again = rewriting_reports(policy, (shard.post for shard in staged.shards))
        return [*(item.verdict().as_dict() for item in copied), *(item.as_dict() for item in (*failed, *again))]


def strip(staging: Staging, policy: Policy) -> None:
    """Remove the staged texts of all records except canary rows, and all bytes that were kept for replays.

    A gate that failed has found a defect, so staged texts may be raw. Ids, kept columns, draw counts, records and the
    texts of canary rows stay: they show the failure, and hold no one's text.
    """
    clear, texts = {policy.id, *policy.kept_columns, CANARY}, {item.name for item in policy.columns}
    storage = staging.storage
    with seam("removing staged texts", InputError, _AGAIN):
        storage.delete(*storage.glob("kept-*"))
        if policy.synthetic is not None:  # record and manifest hold the sums, whose noise may be wrong
            staging.clear()
            (staging.folder / _DRAFT).unlink(missing_ok=True)
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
