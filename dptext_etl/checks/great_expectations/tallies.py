"""Count what the expectations judge in a released table, batch by batch, wherever the batches are.

Workers of Spark import this module, so it stays light: it does not import Great Expectations. A tally is made from
plain data, so that it can be sent to the batches. Its counts add up.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import polars as pl

from dptext_etl.checks.canaries.words import policy_tokens
from dptext_etl.checks.candidate import Candidate, as_released
from dptext_etl.checks.catalog import load
from dptext_etl.checks.gates.canary_text_absent import CanaryTextAbsent
from dptext_etl.checks.gates.raw_column_absent import RawColumnAbsent
from dptext_etl.checks.gates.rows_ledgered import RowsLedgered
from dptext_etl.checks.gates.words_in_output_set import inside_output_set
from dptext_etl.checks.kept_types import published_types
from dptext_etl.checks.lineage import Lineage
from dptext_etl.errors import InputError
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.policy import ColumnPolicy, Policy

Counts = dict[str, int]


class Tally(Protocol):
    """Counts over the batches of a table."""

    def feed(self, table: pl.DataFrame) -> None:
        """Look at a batch of rows."""

    def counts(self) -> Counts:
        """Return how much was "checked", and how many of each problem there are; asked once."""


class Known(NamedTuple):
    """Holds a policy, and the policies of its columns by name."""

    policy: Policy
    columns: dict[str, ColumnPolicy]


BY_FILE = "file:"
"""What the name of a policy file begins with, in the place of a policy."""
FOLDER = "DPTEXT_POLICIES"
"""Environment variable that names the folder of such files."""
STORED = {"copy_gate_false_alarm": "beta", "accept_unbounded": "accept"}
"""Entries that suites, which are stored, call by another name than policies do."""


def written(policy: Policy) -> str:
    """Write a policy as an expectation's argument: names, parameters and references; no storage options."""
    entries = policy.model_dump(mode="json", by_alias=True, exclude={"storage_options"})
    return json.dumps(_renamed(entries, STORED), sort_keys=True)


def read(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return an expectation's arguments with the policy written out, so that they can be sent to other machines."""
    policy = arguments["policy"]
    if not policy.startswith(BY_FILE):
        return dict(arguments)
    path = Path(os.environ.get(FOLDER, ""), policy.removeprefix(BY_FILE))
    return {**arguments, "policy": written(Policy.load(path))}


@lru_cache(maxsize=16)
def known(policy: str) -> Known:
    """Read what `written` wrote."""
    read = Policy.parse(_renamed(json.loads(policy), {stored: name for name, stored in STORED.items()}))
    return Known(read, {spec.name: column for spec, column in zip(read.columns, read.column_policies(), strict=True)})


def _renamed(entries: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Rename entries of a policy and of its columns."""
    whole = {names.get(name, name): value for name, value in entries.items()}
    columns = [{names.get(name, name): value for name, value in column.items()} for column in whole["column"]]
    return {**whole, "column": columns}


def columns(schema: pl.Schema, policy: str) -> Counts:
    """Compare the columns of a table with those that a policy publishes."""
    read = known(policy).policy
    gate = RawColumnAbsent(read, Lineage.declared(read), marked=False, types=published_types(read))
    (gate.look_at_rewritten if _later(read) else gate.look_at_columns)(schema)
    found = gate.verdict().counts
    return {"checked": len(schema), **{name: int(found[name]) for name in ("missing", "unknown", "mistyped")}}


def _later(policy: Policy) -> bool:
    """Return whether post-processing comes after a mechanism."""
    return any(item.postprocess for item in policy.columns)


class CanaryTally:
    """Counts pseudo-words of the policy's canaries, in any writing."""

    def __init__(self, policy: str) -> None:
        read, by_name = known(policy)
        self._gate = CanaryTextAbsent(read, policy_tokens(read, next(iter(by_name.values())).secret))
        self._rows = 0

    def feed(self, table: pl.DataFrame) -> None:
        """Search a batch of rows."""
        self._rows += table.height
        self._gate.feed(table)

    def counts(self) -> Counts:
        """Return rows and hits."""
        return {"checked": self._rows, "hits": int(self._gate.verdict().counts["hits"])}


class LedgerTally:
    """Counts cells without a commit, and cells with other bytes than were committed."""

    def __init__(self, policy: str, refs: Mapping[str, ReleaseRef]) -> None:
        read = known(policy).policy
        self._ledger = Ledger.open(read.ledger.url, read.ledger.id_key, create=False, read_only=True)
        self._gate = RowsLedgered(read, self._ledger, refs)

    def feed(self, table: pl.DataFrame) -> None:
        """Look up a batch of rows."""
        (self._gate.feed_rewritten if _later(self._gate.policy) else self._gate.feed)(table)

    def counts(self) -> Counts:
        """Return cells and problems, and close the ledger."""
        counts = {name: int(count) for name, count in self._gate.verdict().counts.items()}
        self._ledger.close()
        return {"checked": counts.pop("cells"), **counts}


class WordTally:
    """Counts texts with a word outside the output words of their column's mechanism."""

    def __init__(self, column: str, words: tuple[str, ...]) -> None:
        self._column = column
        self._words = pl.Series(words, dtype=pl.String)
        self._rows = self._outside = 0

    def feed(self, table: pl.DataFrame) -> None:
        """Look at a batch of rows."""
        if self._column not in table.columns:
            raise InputError("the table has no such column")
        self._rows += table.height
        self._outside += int((~inside_output_set(table[self._column], self._words)).sum())

    def counts(self) -> Counts:
        """Return rows, and rows outside."""
        return {"checked": self._rows, "rows_outside": self._outside}


class GateTally:
    """Counts what a gate calls problems."""

    def __init__(self, policy: str, gate: str) -> None:
        self._policy = known(policy).policy
        self._gates = load(gate).over(Candidate.published(self._policy))
        self._rows = 0

    def feed(self, table: pl.DataFrame) -> None:
        """Give a batch of rows to the gate."""
        self._rows += table.height
        released = as_released(table, self._policy) if _later(self._policy) else table
        for gate in self._gates:
            gate.feed(released)

    def counts(self) -> Counts:
        """Return rows and problems."""
        found: Counter[str] = Counter(checked=self._rows)
        for gate in self._gates:
            counts = gate.verdict().counts
            found.update({name: int(counts[name]) for name in gate.problems})
        return dict(found)


def gate(policy: str, gate: str) -> Callable[[], Tally]:
    """Prepare counting the problems of a gate."""
    return partial(GateTally, policy, gate)


def canaries(policy: str) -> Callable[[], Tally]:
    """Prepare a search for canaries."""
    return partial(CanaryTally, policy)


def ledgered(policy: str) -> Callable[[], Tally]:
    """Prepare looking up rows in the ledger; the releases are found here, where the artifacts are."""
    return partial(LedgerTally, policy, registered(policy))


def registered(policy: str) -> dict[str, ReleaseRef]:
    """Return the registered release of each text column that has one."""
    read, by_name = known(policy)
    with Ledger.open(read.ledger.url, read.ledger.id_key, create=False, read_only=True) as ledger:
        found = {name: ledger.find(column) for name, column in by_name.items()}
    return {name: ref for name, ref in found.items() if ref is not None}


def words(policy: str, column: str) -> Callable[[], Tally]:
    """Prepare comparing the words of a column."""
    allowed = known(policy).columns[column].mechanism.output_words()
    if allowed is None:
        raise InputError("the mechanism has no fixed output words")
    return partial(WordTally, column, tuple(sorted(allowed)))


def count(make: Callable[[], Tally], table: pl.DataFrame) -> Counts:
    """Count over a table in memory."""
    tally = make()
    tally.feed(table)
    return tally.counts()


def added(parts: list[Counts]) -> Counts:
    """Add up the counts of batches."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)
