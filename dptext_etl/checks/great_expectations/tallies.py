"""Count the facts that expectations judge in a released table, batch by batch, here or on the executors of Spark.

Workers of Spark import this module, so it does not import Great Expectations. A tally is made from plain data, so that
it can be sent to the batches. Its counts add up. It works with classic sessions and Spark Connect.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.checks.gate import BATCH_ROWS, Candidate, Stage, load, make, verdicts_of
from dptext_etl.checks.gates.table_gates import WordsInOutputSet
from dptext_etl.checks.published import CATEGORIES, changed, feed_published, published_types
from dptext_etl.data_types import parsed
from dptext_etl.errors import GateError, LedgerError, seam
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.ledger.storage.store import POSTGRES, resolve_url
from dptext_etl.policy import Policy

Counts = dict[str, int]
Outputs = Mapping[str, frozenset[str] | None]

BY_FILE = "file:"
"""The prefix of the name of a policy file, in the place of a policy."""
FOLDER = "DPTEXT_POLICIES"
"""Environment variable that names the folder of such files."""


def written(policy: Policy) -> str:
    """Write a policy as an expectation's argument: names, parameters and references; no storage options."""
    return json.dumps(policy.model_dump(mode="json", by_alias=True, exclude={"storage_options"}), sort_keys=True)


def read(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return an expectation's arguments with the policy written out, so that they can be sent to other machines."""
    policy = arguments["policy"]
    if not policy.startswith(BY_FILE):
        return dict(arguments)
    path = Path(os.environ.get(FOLDER, ""), policy.removeprefix(BY_FILE))
    return {**arguments, "policy": written(Policy.load(path))}


@lru_cache(maxsize=16)
def parse_policy(policy: str) -> Policy:
    """Read what `written` wrote."""
    return Policy.parse(json.loads(policy))


def _ledger(policy: Policy) -> Ledger:
    return Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True)


_CHECKED = {"rows_ledgered": "cells", "raw_column_absent": "columns"}
"""What gates judge, if not rows."""


class GateTally:
    """Counts the problems of a gate, and how many cells, columns, or rows were "checked"; closes its ledger."""

    def __init__(
        self, policy: str, gate: str, refs: Mapping[str, ReleaseRef] | None = None, outputs: Outputs | None = None
    ) -> None:
        self._policy, self._rows = parse_policy(policy), 0
        self._ledger = None if refs is None else _ledger(self._policy)
        stage = Stage.PUBLISHED
        candidate = Candidate(self._policy, (), (), self._ledger, refs or {}, stage=stage, outputs=outputs)
        self._gate = make(load(gate), candidate)

    def feed(self, table: pl.DataFrame) -> None:
        self._rows += table.height
        name = self._policy.id
        if self._policy.ids == "drop":  # the gates expect ids, and a table that shows any has an unknown column
            table = table.rename({name: f"{name} shown"}, strict=False)
            table = table.with_columns(pl.lit(None, pl.String).alias(name))
        feed_published([self._gate], table, self._policy)

    def counts(self) -> Counts:
        (verdict,) = verdicts_of(self._gate)
        checked = verdict.counts[_CHECKED[self._gate.name]] if self._gate.name in _CHECKED else self._rows
        if self._ledger is not None:
            self._ledger.close()
        return {"checked": int(checked), **{name: int(verdict.counts[name]) for name in self._gate.problems}}


def gate(policy: str, gate: str) -> Callable[[], Tally]:
    """Prepare a gate; releases and output words are looked up here, where the artifacts are."""
    refs, outputs = _registered(policy) if load(gate).reads_ledger else None, None
    if gate == WordsInOutputSet.name:
        outputs = {item.named: item.mechanism.output_words() for item in parse_policy(policy).column_policies()}
    return partial(GateTally, policy, gate, refs, outputs)


def released_text(policy: str, public: str) -> Callable[[], Tally]:
    return partial(ReleasedTextTally, policy, public, _registered(policy), published_types(parse_policy(policy)))


def _registered(policy: str) -> dict[str, ReleaseRef]:
    read = parse_policy(policy)
    read.column_policies()  # refuses a synthetic table before its ledger is read
    with _ledger(read) as ledger:
        return ledger.releases.find_all(read)


_READABLE = (pl.String, pl.Categorical, pl.Enum)
"""Types of cells that may be a released text; bytes, objects and types unknown to us never are."""


class ReleasedTextTally:
    """Counts cells of text that no one released, by the column's place, and rows that were "checked"."""

    def __init__(self, policy: str, public: str, refs: Mapping[str, ReleaseRef], types: Mapping[str, str]) -> None:
        self._policy, self._refs, self._types = parse_policy(policy), refs, types
        texts = {column.name for column in self._policy.columns}
        self._public = {*json.loads(public)} - texts
        self._public |= {name + CATEGORIES for name in self._public}
        self._kept = {*self._policy.kept_columns} - texts - self._public
        self._ledger = _ledger(self._policy)
        self._chains = {item.column: item.chain for item in self._policy.column_policies()}
        self._counts: Counter[str] = Counter(checked=0)

    def feed(self, table: pl.DataFrame) -> None:
        self._counts["checked"] += table.height
        public = self._public | (self._kept - changed(table.schema, self._policy, self._types))
        rows = pl.int_range(table.height, dtype=pl.UInt32, eager=True)
        ids = pl.DataFrame(schema={"row": pl.UInt32, "id": pl.String})  # of the rows that have an id
        if self._policy.id in table.columns:
            shown_ids = table[self._policy.id].alias("id")
            there = shown_ids.is_not_null()
            canonical = pl.Series(canonical_ids(shown_ids.filter(there).to_arrow()), dtype=pl.String)
            ids = pl.DataFrame({"row": rows.filter(there), "id": canonical})
        released = self._released(ids)
        for place, column in enumerate(table.iter_columns(), start=1):
            for cells in _cells(column, rows, column.name, public):
                named = cells.join(ids, on="row")
                keys = ["id"] if column.name == self._policy.id else ["id", "digest"]  # the ledger knows the ids
                if unreleased := cells.height - named.join(released, on=keys, how="semi").height:
                    self._counts[f"unreleased_in_column_{place}"] += unreleased

    def counts(self) -> Counts:
        self._ledger.close()
        return dict(self._counts)

    def _released(self, ids: pl.DataFrame) -> pl.DataFrame:
        """Return record id and digest of every text that was committed for these records, or made of one of these."""
        wanted = ids["id"].unique()
        released = pl.DataFrame(schema={"id": pl.String, "digest": pl.Binary})
        arrow_ids = wanted.to_arrow().cast(pa.large_string())
        for name, ref in self._refs.items():
            stored, chain = [self._ledger.committed(ref, arrow_ids).digests], self._chains.get(name)
            if chain is not None:
                stored.append(self._ledger.committed(ref, arrow_ids, chain=chain).digests)
            for array in stored:
                digests = pl.Series(array.cast(pa.large_binary()), dtype=pl.Binary)
                released.vstack(pl.DataFrame({"id": wanted, "digest": digests}).drop_nulls(), in_place=True)
        return released


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
    elif isinstance(dtype, pl.List | pl.Array):
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


Tally = GateTally | ReleasedTextTally


def count_on_spark(make: Callable[[], Tally], frame: Any) -> Counts:
    names = list(frame.columns)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.environ.setdefault("DPTEXT_THREADS", "1")
        with seam("counting on an executor", GateError):
            tally = make()
            for batch in batches:
                table = pl.DataFrame(batch)
                table.columns = names
                tally.feed(table)
            counts = json.dumps(tally.counts())
        yield pa.RecordBatch.from_pydict({"counts": [counts]})

    plain = frame.toDF(*(f"c{at}" for at in range(len(names))))  # names that Spark does not parse
    with seam("counting on Spark", GateError, "the executors' logs say more"):
        rows = plain.mapInArrow(work, "counts string").collect()
    total = Counter[str]()
    for row in rows:
        total.update(json.loads(row[0]))
    return dict(total) if rows else make().counts()


def require_reach(frame: Any, url: str) -> None:
    """Refuse to look up rows in a ledger that executors may not see."""
    master = str(frame.sparkSession.conf.get("spark.master", None))
    if not resolve_url(url).startswith(POSTGRES) and not master.startswith("local"):
        msg = "a SQLite ledger is a file of one machine, and the executors of this Spark are not known to run on it"
        raise LedgerError(msg, "validate with a local master, or read the published files with Polars")


_TIME = r"\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?"
_MOMENT = rf"^(\d{{4}}-\d\d-\d\d([ T]{_TIME})?|{_TIME})$"
"""A date, a time, or both, as SQLite keeps them."""


def sql_batches(connection: Any, table: Any, policy: str) -> Iterator[pl.DataFrame]:
    """Read a table, or anything that can be selected from, in batches with rows."""
    import sqlalchemy

    query = sqlalchemy.select(sqlalchemy.text("*")).select_from(table)
    result = connection.execution_options(stream_results=True).execute(query)
    names = list(result.keys())
    read, moments = parse_policy(policy), set[str]()  # kept columns that were published with dates or times
    if connection.dialect.name == "sqlite":
        types = {name: parsed(kind) for name, kind in published_types(read).items() if name in read.kept_columns}
        moments = {name for name, dtype in types.items() if dtype is not None and dtype.is_temporal()}
    for rows in result.partitions(BATCH_ROWS):
        columns = []
        for name, cells in zip(names, zip(*rows, strict=True), strict=True):
            column = pl.Series(name, list(cells), strict=True)
            if name in moments and column.dtype == pl.String and column.str.contains(_MOMENT).all():
                column = pl.Series(name, [None] * len(cells), dtype=pl.Date)  # only its type is judged
            columns.append(column.cast(pl.String) if column.dtype == pl.Null else column)
        yield pl.DataFrame(columns)
