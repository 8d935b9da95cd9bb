"""Judge a staged run by every gate.

Gates decide from released values, configuration, ledger presence and canary rows only. A decision that compares a real
text with its release is a disclosure without bound: it publishes y = t with probability 0 where the text is t, and
above 0 elsewhere (docs/spec/privacy.md#gates). No gate reads a raw text. `canaries_native` and
`duplicates_beyond_chance` each fail a correct run with probability at most 1e-9; the other gates never do. With
`policy.copy_gate_false_alarm` two whole-run counts of copies decide as well, at that false-alarm bound, which is
charged as delta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import polars as pl

from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.checks.candidate import Candidate, Stage, batches, schema
from dptext_etl.checks.catalog import judges
from dptext_etl.checks.gate import Gate
from dptext_etl.checks.verdict import Verdict
from dptext_etl.device import threads
from dptext_etl.errors import GateError, seam
from dptext_etl.side_by_side import ahead


def evaluate(candidate: Candidate, seen: Callable[[int], object] = lambda _: None) -> tuple[Verdict, ...]:
    """Judge a staged run, one bounded batch at a time.

    Args:
        candidate: The staged run.
        seen: Called with the rows of every batch that all gates have seen.

    Returns:
        The verdicts of all gates, failed ones included; `require` turns them into a decision.

    Raises:
        GateError: A gate could not be evaluated, so nothing may be published; what the library said is not repeated.
        LedgerError: The ledger cannot be read.
    """
    with seam("evaluating the gates", GateError, "nothing was published, and no gate has fired"):
        schemas = [schema(part) for part in candidate.parts]
        gates = made(candidate, schemas)
        for found in schemas:
            for gate in gates:
                gate.look_at_columns(found)
        feed(gates, chain.from_iterable(map(batches, candidate.parts)), seen)
        for part in candidate.rewritten:
            feed_rewritten(gates, part)
        search(gates, candidate)
        return tuple(gate.verdict() for gate in gates)


def made(candidate: Candidate, schemas: Iterable[pl.Schema]) -> list[Gate]:
    """Make all gates of a staged run, in order; equal arguments give equal gates, whose states can be merged.

    Args:
        candidate: The staged run.
        schemas: The columns and types of its parts.
    """
    policy = candidate.policy
    marked = all(policy.id in found and found.get(CANARY) == pl.Boolean for found in schemas)
    kinds = [kind for kind in judges(policy, Stage.STAGED) if marked or not kind.needs_markers]
    return [gate for kind in kinds for gate in kind.over(candidate)]


def feed(gates: Iterable[Gate], rows: Iterable[pl.DataFrame], seen: Callable[[int], object] = lambda _: None) -> None:
    """Give every batch of rows to every gate: gates look at it side by side, while the next batch is read.

    A gate that asks the ledger stays in this thread, to which the ledger's connection belongs.
    """
    gates, width = tuple(gates), threads()
    here = [gate for gate in gates if gate.asks_ledger or width <= 1]
    elsewhere = [gate for gate in gates if gate not in here]
    with ThreadPoolExecutor(width, thread_name_prefix="dptext-gate") as pool:
        for batch in ahead(rows, width):
            looking = [pool.submit(gate.feed, batch) for gate in elsewhere]
            for gate in here:
                gate.feed(batch)
            for look in looking:
                look.result()
            seen(batch.height)


def feed_rewritten(gates: Iterable[Gate], part: Path) -> None:
    """Give a part as it is to be published, after post-processing, to the gates that judge it."""
    gates = tuple(gate for gate in gates if gate.rewritten)
    for gate in gates:
        gate.look_at_rewritten(schema(part))
    for batch in batches(part):
        for gate in gates:
            gate.feed_rewritten(batch)


def search(gates: Iterable[Gate], candidate: Candidate) -> None:
    """Give every other file of a release to every gate."""
    for gate in gates:
        for artefact in candidate.texts:
            gate.search(artefact)
