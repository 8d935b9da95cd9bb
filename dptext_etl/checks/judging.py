"""Judge a staged run by every gate.

Gates decide from released values, configuration, ledger presence and canary rows only. A decision that compares a real
text with its release is a disclosure without bound: it publishes y = t with probability 0 where the text is t, and
above 0 elsewhere (docs/spec/privacy.md#gates). No gate reads a raw text. `canary_words_replaced` and
`duplicates_within_chance` each fail a correct run with probability at most 1e-9; the other gates never do. With
`policy.copy_gate_false_alarm` two whole-run counts of copies decide as well, at that false-alarm bound, which is
charged as delta.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import polars as pl

from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.checks.candidate import Candidate, Stage, batches
from dptext_etl.checks.gate import Gate, Verdict, judges
from dptext_etl.device import threads
from dptext_etl.errors import GateError, seam
from dptext_etl.parallel import prefetch, sharing_threads


def evaluate(candidate: Candidate, seen: Callable[[int], object] = lambda _: None) -> tuple[Verdict, ...]:
    """Judge a staged run, one bounded batch at a time."""
    with seam("evaluating the gates", GateError, "nothing was published, and no gate has fired"):
        rows = prefetch(batches(*candidate.parts), threads())
        schemas = [pl.Schema(pl.read_parquet_schema(part)) for part in candidate.parts]
        gates = made(candidate, schemas)
        for found in schemas:
            for gate in gates:
                gate.look_at_columns(found)
        feed(gates, rows, seen)
        for part in candidate.rewritten:
            feed_rewritten(gates, part)
        search(gates, candidate)
        return _verdicts(gates)


def made(candidate: Candidate, schemas: Iterable[pl.Schema]) -> list[Gate]:
    """Make all gates of a staged run, in order; equal arguments give equal gates, whose states can be merged."""
    policy = candidate.policy
    marked = policy.synthetic is not None  # a synthetic table has neither ids nor canary rows
    marked |= all(policy.id in found and found.get(CANARY) == pl.Boolean for found in schemas)
    kinds = [kind for kind in judges(policy, Stage.STAGED) if marked or not kind.needs_markers]
    return [gate for kind in kinds for gate in kind.over(candidate)]


def feed(gates: Iterable[Gate], rows: Iterable[pl.DataFrame], seen: Callable[[int], object] = lambda _: None) -> None:
    """Give every batch of rows to every gate: gates look at two batches side by side.

    A gate sees batch after batch, in order. One that asks the ledger stays in this thread, to which the ledger's
    connection belongs.
    """
    gates, width = tuple(gates), threads()
    here = [gate for gate in gates if gate.asks_ledger or width <= 1]
    elsewhere = [gate for gate in gates if gate not in here]
    with ThreadPoolExecutor(width, thread_name_prefix="dptext-gate") as pool:
        before: Sequence[Future[None] | None] = [None] * len(elsewhere)
        under_way: deque[tuple[Sequence[Future[None]], int]] = deque()
        for batch in rows:
            looks = [pool.submit(_look, gate, batch, last) for gate, last in zip(elsewhere, before, strict=True)]
            under_way.append((looks, batch.height))
            before = looks
            for gate in here:
                gate.feed(batch)
            if len(under_way) > 1:
                _looked(*under_way.popleft(), seen)
        for gate in here:
            gate.all_fed()
        for late in under_way:
            _looked(*late, seen)


def _look(gate: Gate, batch: pl.DataFrame, before: Future[None] | None) -> None:
    """Let a gate look at a batch after the one before; that one waits for no thread, as it was asked for earlier."""
    if before is not None:
        before.result()
    with sharing_threads():
        gate.feed(batch)


def _looked(looks: Iterable[Future[None]], rows: int, seen: Callable[[int], object]) -> None:
    """Wait until all gates have looked at a batch, and say how many rows it had."""
    for look in looks:
        look.result()
    seen(rows)


def _verdicts(gates: Sequence[Gate]) -> tuple[Verdict, ...]:
    """Let every gate decide, side by side; one that asks the ledger does so in this thread."""
    with ThreadPoolExecutor(threads(), thread_name_prefix="dptext-gate") as pool:
        deciding = {gate: pool.submit(gate.verdict) for gate in gates if not gate.asks_ledger}
        here = {gate: gate.verdict() for gate in gates if gate.asks_ledger}
        return tuple(here[gate] if gate in here else deciding[gate].result() for gate in gates)


def feed_rewritten(gates: Iterable[Gate], part: Path) -> None:
    """Give a part as it is to be published, after post-processing, to the gates that judge it."""
    gates = tuple(gate for gate in gates if gate.rewritten)
    for gate in gates:
        gate.look_at_rewritten(pl.Schema(pl.read_parquet_schema(part)))
    for batch in batches(part):
        for gate in gates:
            gate.feed_rewritten(batch)


def search(gates: Iterable[Gate], candidate: Candidate) -> None:
    """Give every other file of a release to every gate."""
    for gate in gates:
        for artefact in candidate.texts:
            gate.search(artefact)
