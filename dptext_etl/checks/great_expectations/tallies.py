"""Count what the expectations judge in a released table, batch by batch, wherever the batches are.

Workers of Spark import this module, so it stays light: it does not import Great Expectations. A tally is made from
plain data, so that it can be sent to the batches. Its counts add up.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.checks.canaries.rows import policy_tokens
from dptext_etl.checks.candidate import Candidate, Lineage, as_released
from dptext_etl.checks.gate import load
from dptext_etl.checks.gates.canary_text_absent import CanaryTextAbsent
from dptext_etl.checks.gates.raw_column_absent import RawColumnAbsent
from dptext_etl.checks.gates.rows_ledgered import RowsLedgered
from dptext_etl.checks.gates.words_in_output_set import inside_output_set
from dptext_etl.checks.table_metadata import CATEGORIES, changed, published_types, without_published
from dptext_etl.errors import InputError
from dptext_etl.keys import canonical_ids
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


_NESTED = (pl.List, pl.Array)
_READABLE = (pl.String, pl.Categorical, pl.Enum)
"""Types of cells that may be a released text; bytes, objects and types unknown to us never are."""


class ReleasedTextTally:
    """Count cells of text that no one released."""

    def __init__(self, policy: str, public: str, refs: Mapping[str, ReleaseRef], types: Mapping[str, str]) -> None:
        read = known(policy).policy
        self._id = read.id
        texts = {column.name for column in read.columns}
        self._public = {*json.loads(public)} - texts
        self._public |= {name + CATEGORIES for name in self._public}
        self._kept = {*read.keep} - texts - self._public
        self._policy, self._types = read, types
        self._ledger = Ledger.open(read.ledger.url, read.ledger.id_key, create=False, read_only=True)
        self._refs = refs
        self._chains = {item.column: item.chain for item in read.column_policies()}
        self._found: Counter[str] = Counter(checked=0)

    def feed(self, table: pl.DataFrame) -> None:
        """Look up the cells of a batch of rows."""
        if table.is_empty():  # columns of a database have no types before the first rows
            return
        self._found["checked"] += table.height
        table = without_published(table, self._types)
        public = self._public | (self._kept - changed(table.schema, self._policy, self._types))
        rows = pl.int_range(table.height, dtype=pl.UInt32, eager=True)
        ids = self._ids(table, rows)
        released = self._released(ids)
        for place, column in enumerate(table.iter_columns(), start=1):
            for cells in _cells(column, rows, column.name, public):
                named = cells.join(ids, on="row")
                keys = ["id"] if column.name == self._id else ["id", "digest"]  # ids are those that the ledger knows
                unreleased = cells.height - named.join(released, on=keys, how="semi").height
                if unreleased:
                    self._found[f"unreleased_in_column_{place}"] += unreleased

    def counts(self) -> Counts:
        """Return rows, and cells of text that no one released by the column's place; close the ledger."""
        self._ledger.close()
        return dict(self._found)

    def _ids(self, table: pl.DataFrame, rows: pl.Series) -> pl.DataFrame:
        """Return row and canonical record id of the rows that have an id."""
        if self._id not in table.columns:
            return pl.DataFrame(schema={"row": pl.UInt32, "id": pl.String})
        there = table[self._id].is_not_null()
        ids = canonical_ids(table[self._id].filter(there).to_arrow())
        return pl.DataFrame({"row": rows.filter(there), "id": pl.Series(ids, dtype=pl.String)})

    def _released(self, ids: pl.DataFrame) -> pl.DataFrame:
        """Return record id and digest of every text that was committed for these records, or made of one of these."""
        wanted = ids["id"].unique()
        found = pl.DataFrame(schema={"id": pl.String, "digest": pl.Binary})
        asked = wanted.to_arrow().cast(pa.large_string())
        for name, ref in self._refs.items():
            held, chain = [self._ledger.committed(ref, asked).digests], self._chains.get(name)
            if chain is not None:
                held.append(self._ledger.postprocessed(ref, chain, asked).digests)
            for written in held:
                digests = pl.Series(written.cast(pa.large_binary()), dtype=pl.Binary)
                found.vstack(pl.DataFrame({"id": wanted, "digest": digests}).drop_nulls(), in_place=True)
        return found


def _cells(column: pl.Series, rows: pl.Series, path: str, public: set[str]) -> Iterator[pl.DataFrame]:
    """Yield row and digest of every cell of text inside a column; no digest for a cell that cannot be a release."""
    dtype = column.dtype
    if path in public or dtype.is_numeric() or dtype.is_temporal() or dtype in (pl.Boolean, pl.Null):
        return
    if isinstance(dtype, pl.BaseExtension):
        yield from _cells(column.ext.storage(), rows, path, public)
    elif isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            yield from _cells(column.struct.field(field.name), rows, f"{path}.{field.name}", public)
    elif isinstance(dtype, _NESTED):
        inner = pl.DataFrame({"row": rows, "cell": column}).explode("cell")
        yield from _cells(inner["cell"], inner["row"], path, public)
    else:
        there = column.is_not_null()
        rows = rows.filter(there)
        digests = pl.Series([None] * len(rows), dtype=pl.Binary)
        if isinstance(dtype, _READABLE):
            texts = column.filter(there).cast(pl.String).to_arrow()
            digests = pl.Series(pa.array(_kernel.digests(texts)).cast(pa.large_binary()), dtype=pl.Binary)
        yield pl.DataFrame({"row": rows, "digest": digests})


def released_text(policy: str, public: str) -> Callable[[], Tally]:
    """Prepare the look-up of cells of a wider table; the releases are found here, because the artifacts are here."""
    return partial(ReleasedTextTally, policy, public, registered(policy), published_types(known(policy).policy))
