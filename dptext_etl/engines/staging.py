"""Stage and commit the shards of a raw table, which are all steps of a run before its gates."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

from dptext_etl.engines.engine import Engine, Work
from dptext_etl.engines.local.engine import LocalEngine
from dptext_etl.errors import bare
from dptext_etl.ledger import Ledger, Outcome
from dptext_etl.ledger.storage.store import MissingLedgerError, there_is
from dptext_etl.policy import Policy, PolicyLike, resolve
from dptext_etl.runner.anchoring import require_same_ledger
from dptext_etl.runner.preflight import preflight, require_places
from dptext_etl.runner.progress import Checkpoint, Listener, Meter, nothing
from dptext_etl.runner.shard.attempt import (
    Attempt,
    pin_table,
    refuse_other_rows,
    refuse_other_table,
    refuse_over_cap,
    refuse_too_few,
    row_counts,
)
from dptext_etl.runner.shard.canaries import plan_canaries, prepare
from dptext_etl.runner.shard.replay import keep_published
from dptext_etl.runner.shard.results import Phase, ShardResult, outcomes, refuse_other_persons, whole_table
from dptext_etl.runner.staged import StagedRun

log = logging.getLogger("dptext_etl.runner")


@contextmanager
def staged(
    attempt: Attempt, engine: Engine[Any], progress: Listener | None, checkpoint: Checkpoint
) -> Iterator[tuple[StagedRun, Ledger]]:
    """Do what `stage` does, and keep the ledger open for the block: the last one to close it waits for the disk."""
    policy, partition, profile = attempt.policy, attempt.partition, attempt.profile
    with ExitStack() as opened:
        with profile.stage("open"):
            table = engine.open(policy, attempt.layout)
            require_places(attempt)
        with attempt.alone() as staging:
            with profile.stage("examine"), ThreadPoolExecutor(1, thread_name_prefix="dptext-beside") as beside:
                prepared = beside.submit(prepare, policy, attempt.secret)
                source = engine.examine(table, policy, attempt.layout, progress)
                refuse_too_few(policy, source.wanted)
                checkpoint("checked")
                present, numbers = partial(engine.present, source), engine.canary_sets(source, policy)
                prepared.result()
                plans = plan_canaries(policy, table.schema[policy.id], present, attempt.secret, numbers, partition)
                staging.no_changes()
                _require_head(attempt)
                look = partial(engine.look, attempt, source, plans, staging, Meter("look", source.wanted, None))
                stale = preflight(attempt, source, look, partial(keep_published, staging, attempt.layout, policy))
                checkpoint("foreseen")
                ledger = beside.submit(_open, policy, opened)
            profile.count("examine", rows=source.total)
            with profile.stage("open"):
                refs = attempt.register(ledger.result(), table.id_type)
            checkpoint("registered")
            work = Work(attempt, source, plans, refs, staging, checkpoint)
            before = _reserve_all(engine, work, progress) if attempt.charges_first else None
            done = _computed(engine, work, "release", progress)
            if before is not None and policy.unlinked is not None:
                refuse_other_table(whole_table(before), whole_table(done))
            kept = sorted((item.staged for item in done), key=lambda shard: shard.index)
            staging.keep_only(kept)
        answers = outcomes(done if before is None else before)
        rows = row_counts(policy, source, answers, kept, stale)
        log.info("staged: %s", rows)
        seconds = time.monotonic() - attempt.began
        read = (rows, table.dropped, source.base, seconds, table.origin, profile)
        yield StagedRun(policy, partition, tuple(kept), tuple(plans), refs, *read), ledger.result()


@bare
def stage(
    policy: PolicyLike,
    *,
    engine: Engine[Any] | None = None,
    partition: str | None = None,
    accept_lower_cap: bool = False,
    progress: Listener | None = None,
    checkpoint: Checkpoint = nothing,
) -> StagedRun:
    """Check a source, then charge, compute, stage and commit it shard by shard; `check` and `publish` come next.

    A run that was killed at any point continues where it stopped; it charges and draws nothing twice.
    """
    attempt = Attempt.of(resolve(policy), partition, accept_lower_cap=accept_lower_cap)
    with staged(attempt, engine or LocalEngine(), progress, checkpoint) as (found, _):
        return found


def _require_head(attempt: Attempt) -> None:
    """Freeze a ledger that lost events, before any other refusal hides it."""
    spec = attempt.policy.ledger
    if there_is(spec.url):
        with suppress(MissingLedgerError), Ledger.open(spec.url, spec.id_key, create=False) as ledger:
            require_same_ledger(ledger, attempt.layout, attempt.policy)


def _open(policy: Policy, until: ExitStack) -> Ledger:
    """Open the ledger, or make it: that waits for the disk, while others compute. Shards open it again."""
    return until.enter_context(Ledger.open(policy.ledger.url, policy.ledger.id_key))


def _computed(engine: Engine[Any], work: Work[Any], phase: Phase, progress: Listener | None) -> list[ShardResult]:
    """Take all shards through a phase, and refuse a source that changed in the meantime."""
    wanted = work.source.wanted
    done = engine.compute(work, phase, Meter(phase, wanted, progress)) if work.plans else []
    refuse_other_rows(wanted, sum(item.rows for item in done))
    return done


def _reserve_all(engine: Engine[Any], work: Work[Any], progress: Listener | None) -> list[ShardResult]:
    """Charge a whole run before any shard is computed, or give all reservations back."""
    try:
        done = _computed(engine, work, "reserve", progress)
        if work.attempt.refusing:
            refuse_over_cap(outcomes(done)[Outcome.OVER_CAP.name])
        refuse_other_persons(work.source.pairs, done)
        pin_table(work.attempt, work.refs, whole_table(done))
    except BaseException:
        spec = work.attempt.policy.ledger
        with Ledger.open(spec.url, spec.id_key) as ledger:
            work.attempt.give_back(ledger)
        raise
    return done
