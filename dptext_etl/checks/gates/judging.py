"""Gates decide about publication, from released values, configuration, ledger presence and canaries only.

A decision that compares a real text with its release is a disclosure without bound: it publishes y = t with
probability 0 where the text is t, and above 0 elsewhere (docs/spec/privacy.md#gates). Nothing here reads a raw text. A
correct run fails with probability at most 1e-9 at each of `canaries_native` and `duplicates_beyond_chance`; every other
gate never fails one. With `policy.beta` the whole-run counts of copies join (`leaks`), at a false-alarm bound that is
charged as delta.

Later gates are more small classes with `feed` and `verdict`, added to `_looks`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import polars as pl

from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.checks.candidate import Candidate, batches, schema
from dptext_etl.checks.gates import one_text_per_record, raw_column_absent, rows_ledgered, words_in_output_set
from dptext_etl.checks.gates.canaries_foreign import ForeignGate
from dptext_etl.checks.gates.canaries_native import NativeGate
from dptext_etl.checks.gates.canaries_present import PresentGate
from dptext_etl.checks.gates.duplicates_beyond_chance import DuplicatesGate
from dptext_etl.checks.gates.one_text_per_record import OnceGate
from dptext_etl.checks.gates.raw_column_absent import ColumnsGate
from dptext_etl.checks.gates.rows_ledgered import LedgerGate
from dptext_etl.checks.gates.words_in_output_set import WordsGate
from dptext_etl.checks.lineage import Lineage
from dptext_etl.checks.reports import copies
from dptext_etl.checks.reports.copies import copies_verdict
from dptext_etl.checks.verdict import Verdict, require
from dptext_etl.errors import GateError, seam
from dptext_etl.policy import Policy

__all__ = ["Candidate", "Verdict", "catalogue", "evaluate", "require"]


class Look(Protocol):
    """A gate over rows: fed in batches, asked once."""

    def feed(self, batch: pl.DataFrame) -> None:
        """Look at a batch of rows."""

    def verdict(self) -> Verdict:
        """Say what was found."""


def catalogue(policy: Policy) -> dict[str, str]:
    """Return the gates that a run of the policy is judged by, and what each catches; known before it runs."""
    gates = {raw_column_absent.NAME: raw_column_absent.CATCHES}
    gates |= {gate.name: gate.catches for gate in (ForeignGate, PresentGate, NativeGate, DuplicatesGate)}
    gates |= {gate.NAME: gate.CATCHES for gate in (words_in_output_set, rows_ledgered, one_text_per_record)}
    return gates | ({} if policy.beta is None else {copies.NAME: copies.CATCHES, copies.RUNS: copies.RUNS_CATCHES})


def evaluate(candidate: Candidate) -> tuple[Verdict, ...]:
    """Judge a staged run, one bounded batch at a time.

    Args:
        candidate: The staged run.

    Returns:
        One verdict per gate, failed ones included; `require` turns them into a decision.

    Raises:
        GateError: A gate could not be evaluated, so nothing may be published; what the library said is not repeated.
        LedgerError: The ledger cannot be read.
    """
    policy = candidate.policy
    with seam("evaluating the gates", GateError, "nothing was published, and no gate has fired"):
        columns = ColumnsGate(policy, candidate.lineage or Lineage.declared(policy), marked=True)
        schemas = [schema(part) for part in candidate.parts]
        for found in schemas:
            columns.feed(found)
        foreign = ForeignGate(policy, _planted(candidate), sum(len(plan.ids("foreign")) for plan in candidate.canaries))
        rows: list[Look] = [
            PresentGate(policy, candidate.canaries),
            NativeGate(policy, candidate.canaries),
            DuplicatesGate(policy, candidate.canaries, candidate.rows),
            WordsGate(policy),
            LedgerGate(policy, candidate.ledger, candidate.refs),
            OnceGate(policy),
        ]
        readable = all(policy.id in found and found.get(CANARY) == pl.Boolean for found in schemas)
        looks = [foreign, *rows] if readable else [foreign]  # without ids and markers there is nothing to look up
        run(looks, candidate.parts)
        for artefact in candidate.texts:
            foreign.search(artefact)
        return (columns.verdict(), *(look.verdict() for look in looks), *copies_verdict(policy, candidate.copies))


def _planted(candidate: Candidate) -> dict[str, set[str]]:
    foreign = [row for plan in candidate.canaries for row in plan.rows if row.kind == "foreign"]
    return {item.name: {word for row in foreign for word in row.words[item.name]} for item in candidate.policy.columns}


def run(looks: Iterable[Look], parts: Iterable[Path]) -> None:
    """Feed every batch of every part to every gate."""
    looks = list(looks)
    for part in parts:
        for batch in batches(part):
            for look in looks:
                look.feed(batch)
