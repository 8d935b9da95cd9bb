"""Run a policy from source to published table (`run`), or up to its gates (`stage`), on any engine.

An engine examines the raw table of a run, numbers its shards, and computes them. All other parts of a run (keys,
canary rows, ledger, gates, publication) are the same for all engines.
"""

from __future__ import annotations

import copy
import logging
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Self

from dptext_etl import extensions
from dptext_etl.checks import Candidate, Verdict, require
from dptext_etl.checks.canaries import CanaryPlan, prepare
from dptext_etl.device import threads
from dptext_etl.errors import LedgerError, PolicyError, bare
from dptext_etl.ledger import Ledger, Outcome, ReleaseRef
from dptext_etl.ledger.account import ChargeSteps
from dptext_etl.parallel import run_both
from dptext_etl.policy import Policy, PolicyLike, resolve
from dptext_etl.runner.forecast import Expected
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.preflight import Reader, planned_canaries, preflight, require_places
from dptext_etl.runner.progress import Checkpoint, Listener, Meter, WholeRun, nothing
from dptext_etl.runner.publish.parts import Writer
from dptext_etl.runner.publish.publication import (
    Published,
    check,
    is_released,
    judge_here,
    publish,
    reports,
    require_enough,
    strip,
)
from dptext_etl.runner.report import RunSummary, observed, remaining, summarize
from dptext_etl.runner.shard.attempt import (
    Attempt,
    pin_table,
    refuse_no_records,
    refuse_other_rows,
    refuse_other_table,
    refuse_over_cap,
    refuse_too_few,
    row_counts,
)
from dptext_etl.runner.shard.charging import PAIRS, Column
from dptext_etl.runner.shard.shard import Phase, ShardResult, outcomes, refuse_other_persons, whole_table
from dptext_etl.runner.shard.staging import StagedRun, StagedShard, Staging
from dptext_etl.runner.source.examine import Examined
from dptext_etl.runner.source.roles import Rows, wanted_columns
from dptext_etl.runner.source.table import Files, naming_file
from dptext_etl.runner.unchanged import Input


@dataclass(frozen=True)
class Work(Generic[Rows]):
    """The shards that an engine computes, with everything that it needs for them."""

    attempt: Attempt  # policy, places, columns, and the name of the attempt in the ledger
    source: Examined[Rows]
    plans: Sequence[CanaryPlan]  # sets of canary rows, in the order of their shards
    refs: Mapping[str, ReleaseRef]  # the pinned release of each text column
    staging: Staging
    checkpoint: Checkpoint
    digest: str = ""  # of the synthetic table that records are compared and committed with, 64 hex digits
    pairs: Mapping[str, int] = field(default_factory=dict)  # `Expected.pairs` of the rows; empty if not previewed
    ledger: Ledger | None = None  # the ledger of the run; None while its rows are previewed


class Engine(Reader[Rows]):
    """Base of engines, which compute the shards of a run. One engine serves one run at a time.

    Engines are entry points of the group `dptext_etl.engines`, whose names `dptext run --engine` accepts.
    """

    @classmethod
    @contextmanager
    def started(cls, policy: Policy, partition: str | None) -> Iterator[Self]:  # noqa: ARG003  (`open` reads the source)
        """Start the engine for a run over the source that a policy names, and stop it after the block.

        Args:
            policy: The policy of the run.
            partition: Name of the partition, or None.

        Yields:
            The engine, for one run.
        """
        yield cls()

    def files(self, layout: Layout) -> Files | None:  # noqa: ARG002  (most engines read frames)
        """Return the files that a run reads; None for a frame, or if the engine does not know them.

        Args:
            layout: The places of the run.
        """
        return None

    @abstractmethod
    def look(
        self, work: Work[Rows], meter: Meter, columns: list[Column], ledger: Ledger | None, rows: Rows
    ) -> Expected:
        """Preview a run over some rows of the source, and list the ids of changed records.

        A model that is needed and fails on public texts is refused where it will compute.

        Args:
            work: The shards; no release is pinned yet, so it has no refs.
            meter: Counts the rows that are previewed.
            columns: The text columns, with the releases that the ledger knows.
            ledger: The ledger, opened for reading; None if there is none.
            rows: The rows: `work.source.rows`, or all rows in an incremental run.

        Returns:
            The counts of the preview.
        """

    @abstractmethod
    def compute(self, work: Work[Rows], phase: Phase, meter: Meter) -> list[ShardResult]:
        """Compute all shards in a phase.

        Args:
            work: The shards.
            phase: "reserve", "compare", or "release".
            meter: Counts the rows of finished shards.

        Returns:
            One result per shard; of a table that is summed, a result may cover several shards.

        Raises:
            DPTextError: A shard is refused, or fails; a later attempt continues after the committed shards.
        """

    def close(self) -> None:
        """Remove data that the engine keeps between the steps of a run; called last, also after a refusal."""

    def judge(self, staged: StagedRun, candidate: Candidate, seen: Callable[[int], object]) -> tuple[Verdict, ...]:
        """Check the hashes of staged files and judge their rows by every gate; in this process unless overridden.

        Args:
            staged: The staged run.
            candidate: The input of the gates.
            seen: Called with the number of rows that are judged.

        Returns:
            The verdicts of all gates.
        """
        return judge_here(staged, candidate, seen)

    def write(self, writer: Writer, shards: Iterable[StagedShard], on_rows: Callable[[int], object]) -> None:
        """Write staged shards as parts of a version; in this process unless overridden.

        Args:
            writer: The writer of the version.
            shards: Staged shards, in order.
            on_rows: Called with the number of rows that are written.
        """
        writer.add(shards, on_rows)


def named(name: str) -> type[Engine[Any]]:
    """Return the engine of a name, from any installed package.

    Args:
        name: The name of the entry point, such as "polars" or "spark".

    Returns:
        The class of the engine.

    Raises:
        PolicyError: No package has an engine of this name, or its entry point names something else.
    """
    engine = extensions.loaded("engines", name)
    if not (isinstance(engine, type) and issubclass(engine, Engine)):
        package = extensions.installed("engines")[name].value
        msg = f"the entry point {name} of dptext_etl.engines must name an Engine; it names {package}"
        raise PolicyError(msg, "install another version of the package that brings it, or choose another engine")
    return engine


log = logging.getLogger("dptext_etl.runner")


@bare
def run(
    policy: PolicyLike,
    *,
    engine: Engine[Any] | None = None,
    partition: str | None = None,
    accept_lower_cap: bool = False,
    accept_fewer_rows: bool = False,
    progress: Listener | None = None,
    checkpoint: Checkpoint = nothing,
) -> RunSummary:
    """Release the text columns of a table: charge, compute, stage, commit, check, publish.

    A second run with the same policy over the same data costs nothing and gives the same bytes. If its files are those
    of the run before, byte for byte, it computes nothing (`runner.unchanged`). A run that was killed continues where it
    stopped.

    Args:
        policy: The policy, or the path of its file.
        engine: Engine that computes the shards; None computes in this process.
        partition: Name of the partition, if the policy has a place for one.
        accept_lower_cap: Lower the pinned cap to the policy's cap; otherwise a lower cap is refused.
        accept_fewer_rows: Leave out more than 10% of the published rows that the source still holds.
        progress: Called with counts, rate and remaining time, of every phase and of the whole run.
        checkpoint: Called after every step, for tests.

    Returns:
        Counts, spends, verdicts and the place of the published table.

    Raises:
        PolicyError: The policy cannot be carried out as written (exit code 5); nothing is lost.
        BudgetError: Records are over the cap and on_cap is "refuse", or fewer rows than `min_released` would be
            published (exit code 3).
        GateError: A gate failed (exit code 4): nothing is published, charges stay, and the release name is revoked.
    """
    policy, engine = resolve(policy), engine or named("polars")()
    with observed(policy, progress) as seen:
        attempt = Attempt.of(policy, partition, accept_lower_cap=accept_lower_cap, accept_fewer_rows=accept_fewer_rows)
        steps = partial(_all_steps, attempt, engine, seen.progress, checkpoint)
        source = Input.of(attempt, engine.files(attempt.layout), lambda: engine.open(policy, attempt.layout).id_type)
        return seen.done(steps() if source is None else source.recognize() or source.run(steps))


def _all_steps(attempt: Attempt, engine: Engine[Any], progress: Listener | None, checkpoint: Checkpoint) -> RunSummary:
    course = None if progress is None else WholeRun(progress)
    with ExitStack() as opened:
        engines = [engine, *(copy.copy(engine) for _ in attempt.audiences)]  # each serves one run at a time
        judged = list[tuple[StagedRun, tuple[Verdict, ...]]]()
        publications = list[Callable[[], Published]]()  # none of them begins before all tables are judged
        for item, of_table in zip((attempt, *attempt.audiences), engines, strict=True):
            staged_run, ledger = opened.enter_context(staged(item, of_table, course, checkpoint))
            ways: dict[str, Any] = {"ledger": ledger, "progress": course, "checkpoint": checkpoint}
            verdicts, _ = run_both(  # the ledger's checkpoint waits for the disk while the gates compute
                partial(check, staged_run, judge=of_table.judge, **ways), ledger.checkpoint, threads()
            )
            judged.append((staged_run, verdicts))
            if not all(verdict.passed for verdict in verdicts):  # the release is revoked: no staged text stays
                for other, _ in judged[:-1]:
                    strip(Staging(other.layout.staging, other.staging_key))
                require(verdicts)
            publications.append(partial(publish, staged_run, verdicts, write=of_table.write, **ways))
        (main, verdicts), *others = judged
        published, (reported, left) = run_both(
            publications[0], lambda: (reports(main), remaining(attempt.policy, ledger)), threads()
        )
        also = [(*table, step()) for table, step in zip(others, publications[1:], strict=True)]
    seconds = time.monotonic() - attempt.began
    return summarize(main, verdicts, published, seconds, reported=reported, left=left, audiences=also)


@bare
def stage(
    policy: PolicyLike,
    *,
    engine: Engine[Any] | None = None,
    partition: str | None = None,
    accept_lower_cap: bool = False,
    accept_fewer_rows: bool = False,
    progress: Listener | None = None,
    checkpoint: Checkpoint = nothing,
    recognize: bool = False,
) -> StagedRun:
    """Check a source, then charge, compute, stage and commit it shard by shard; `check` and `publish` come next.

    A run that was killed at any point continues where it stopped; it charges and draws nothing twice.

    Args:
        policy: The policy, or the path of its file.
        engine: Engine that computes the shards; None computes in this process.
        partition: Name of the partition, if the policy has a place for one.
        accept_lower_cap: Lower the pinned cap to the policy's cap; otherwise a lower cap is refused.
        accept_fewer_rows: Leave out more than 10% of the published rows that the source still holds.
        progress: Called with counts, rate, and remaining time of every phase.
        checkpoint: Called after every step, for tests.
        recognize: Stage nothing if the input is the same as in the run before (`runner.unchanged`); the result says so.

    Returns:
        The staged run: paths, counts, and hashes.

    Raises:
        PolicyError: The policy cannot be carried out as written.
        BudgetError: Records are over the cap, and on_cap is "refuse".
    """
    policy, engine = resolve(policy), engine or named("polars")()
    attempt = Attempt.of(policy, partition, accept_lower_cap=accept_lower_cap, accept_fewer_rows=accept_fewer_rows)
    if attempt.audiences:
        msg = "the policy has entries [[audience]], and these steps publish the policy's own table only"
        raise PolicyError(msg, "`dptext run POLICY` publishes the tables of all audiences")

    def steps() -> StagedRun:
        with staged(attempt, engine, progress, checkpoint) as (staged_run, _):
            return staged_run

    files = engine.files(attempt.layout) if recognize else None
    source = Input.of(attempt, files, lambda: engine.open(policy, attempt.layout).id_type)
    if source is None:
        return steps()
    again = source.recognize()
    if again is None:
        staged_run, sealed = source.sealed(steps)
        return replace(staged_run, input=sealed)
    table = engine.open(policy, attempt.layout)
    read = again.rows, table.dropped, None, again.seconds, table.origin, attempt.profile
    return StagedRun(policy, partition, (), (), {}, *read, input={"recognized": source.seal, "id_type": table.id_type})


@contextmanager
def staged(
    attempt: Attempt, engine: Engine[Any], progress: Listener | None, checkpoint: Checkpoint
) -> Iterator[tuple[StagedRun, Ledger]]:
    """Stage a run, and keep the ledger open for the block: the last one to close it waits for the disk."""
    policy, partition, profile = attempt.policy, attempt.partition, attempt.profile
    with naming_file(partial(engine.files, attempt.layout), wanted_columns(policy)), ExitStack() as opened:
        opened.callback(engine.close)
        with profile.stage("open"):
            table = engine.open(policy, attempt.layout)
            require_places(attempt)
        with attempt.alone() as staging:
            with profile.stage("examine"):
                with ThreadPoolExecutor(1, thread_name_prefix="dptext-prepare") as pool:
                    pool.submit(prepare, policy, attempt.secret)
                    source = engine.examine(table, policy, attempt.layout, progress)
                    checkpoint("checked")
                    plans = planned_canaries(attempt, source)
                staging.storage.delete(*staging.storage.glob("changed-*"))  # lists of an earlier look
                work = Work(attempt, source, plans, {}, staging, nothing)
                look = partial(engine.look, work, Meter("look", source.wanted, None))
                expected, over_all, checked = preflight(attempt, engine, source, look)
                checkpoint("prefetched")
                ledger = opened.enter_context(Ledger.open(policy.ledger.url, policy.ledger.id_key))
            profile.count("examine", rows=source.total)
            with profile.stage("open"):
                refs = attempt.register(ledger, table.id_type, source.manifest)
            checkpoint("registered")
            work = replace(work, refs=refs, checkpoint=checkpoint, pairs=expected.pairs, ledger=ledger)
            answers = Counter({name: count for name, count in expected.answers.items() if count})
            encodes = policy.synthetic is not None and policy.statistic.corpus.in_floats
            if encodes and [*answers] == ["COMMITTED"] and is_released(policy, attempt.layout, ledger, refs):
                shards, released, other = list[StagedShard](), {"released": answers.total()}, True  # nothing is encoded
            else:
                first = attempt.refusing or policy.one_table  # all rows are charged before any is computed
                reserved = _reserve_all(engine, work, ledger, progress) if first else None
                take = _texts if policy.synthetic is None else _sums
                shards, answers, released, other = take(engine, work, reserved or [], progress)
        rows = row_counts(policy, source, answers, released, stale=over_all.changed - expected.changed)
        log.info("staged: %s", rows)
        read = (rows, table.dropped, source.base, time.monotonic() - attempt.began, table.origin, profile)
        exact = (table.exact and policy.synthetic is None) or source.published_exact(policy)
        checked = {name: part for name, part in checked.items() if part}
        more: dict[str, Any] = {"exact": exact, "other": other, "table": checked}
        yield StagedRun(policy, partition, tuple(shards), tuple(plans), refs, *read, **more), ledger


Released = tuple[list[StagedShard], Counter[str], dict[str, int], bool]
"""Staged shards; records by the answer of the ledger; released rows, and null texts; and `StagedRun.other`."""


def _texts(engine: Engine[Any], work: Work[Any], reserved: list[ShardResult], progress: Listener | None) -> Released:
    """Release the texts of every record: charge (unless all are), compute, stage, and commit shard by shard."""
    done = _compute(engine, work, "release", progress)
    if work.attempt.policy.shuffled is not None:
        refuse_other_table(whole_table(reserved), whole_table(done))
    shards = sorted((item.staged for item in done if item.staged is not None), key=lambda shard: shard.index)
    work.staging.keep_only(shards)
    work.staging.report(shards)
    counts = {
        title: sum(shard.counts[name] for shard in shards) for title, name in (("released", "rows"), ("null", "null"))
    }
    return shards, outcomes(reserved or done), counts, False


def _sums(engine: Engine[Any], work: Work[Any], reserved: list[ShardResult], progress: Listener | None) -> Released:
    """Draw the table of the sums that are pinned, stage it, and commit every record with its digest."""
    from dptext_etl.runner.shard import summing

    policy, pinned, answers = work.attempt.policy, whole_table(reserved), outcomes(reserved)
    shard = summing.draw(policy, work.staging, summing.whole_sum(policy, reserved), pinned.records)
    work.checkpoint("staged")
    work = replace(work, digest=summing.digest_of_table(policy, work.staging, shard))
    committed = answers[Outcome.COMMITTED.name]
    other = committed > 0 and not all(item.agrees for item in _compute(engine, work, "compare", None))
    if other and not is_released(policy, work.attempt.layout, work.ledger, work.refs, shard):
        msg = "the release holds another table: other rows or names, or one that another machine drew"
        hint = "the first commit is the release; use a new release name, or draw rows from its statistic"
        raise LedgerError(f"{msg}; nothing was published", hint)
    if not other and committed < pinned.records:
        refuse_other_table(pinned, whole_table(_compute(engine, work, "release", progress)))
    return [shard], answers, {"released": pinned.records}, other


def _compute(engine: Engine[Any], work: Work[Any], phase: Phase, progress: Listener | None) -> list[ShardResult]:
    """Compute all shards in a phase, and refuse a source that changed in the meantime."""
    wanted, before = work.source.wanted, work.source.pairs if work.source.every_row is None else None
    done = engine.compute(work, phase, Meter(phase, wanted, progress)) if wanted else []
    refuse_other_rows(wanted, sum(item.rows for item in done))
    if work.pairs:
        before = sum(work.pairs.values()) % PAIRS
    if before is not None and phase != "compare":
        refuse_other_persons(before, sum(item.pairs for item in done) % PAIRS)
    return done


def _reserve_all(engine: Engine[Any], work: Work[Any], ledger: Ledger, progress: Listener | None) -> list[ShardResult]:
    """Charge a whole run before any shard is computed, or give all reservations back."""
    policy, sums = work.attempt.policy, ""
    try:
        if policy.synthetic is not None:  # lists of an attempt whose shards were others
            work.staging.storage.delete(*work.staging.storage.glob("quarantine-*"))
        done = _compute(engine, work, "reserve", progress)
        over, table = outcomes(done)[Outcome.OVER_CAP.name], whole_table(done)
        if work.attempt.refusing:
            refuse_over_cap(over)
        if policy.synthetic is not None:
            from dptext_etl.runner.shard import summing

            nameless = work.source.nameless
            require_enough(policy, {"released": table.records, "quarantined": over, "without_subject": nameless})
            refuse_no_records(policy, table.records)
            total = summing.whole_sum(policy, done)
            table, sums = table._replace(digest=total.digest.hex()), summing.digest_of_sums(policy, total)
        if policy.one_table:
            refuse_too_few(policy, table.draws, table.labels)
            pin_table(work.attempt, ledger, work.refs, table, sums)
    except BaseException:
        ChargeSteps.of(ledger, work.attempt.job, policy).give_back()
        raise
    if policy.one_table:
        work.checkpoint("pinned")
    return done
