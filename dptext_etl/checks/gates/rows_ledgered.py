"""Gate `rows_ledgered` requires that every released cell has a committed spend, and the bytes that were committed.

The committed positions also say whether a cell may be null and, where the length is disclosed, how many words it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_numpy
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.candidate import Candidate, Stage, with_id
from dptext_etl.checks.comparison import ANY, Bounds, LedgerComparison, Mismatches
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.column import output_digests
from dptext_etl.errors import GateError, counted
from dptext_etl.families.by_word import by_word
from dptext_etl.guarantee import Disclosure
from dptext_etl.keys import canonical_ids
from dptext_etl.mechanism import Mechanism
from dptext_etl.policy import Policy


class _Key(NamedTuple):
    """A text column, and the chain of post-processing that made its cells; None for what a mechanism released."""

    column: str
    chain: str | None


class RowsLedgered(Gate):
    """Looks up every row by (release, record id), and compares the digest of its bytes with the committed one."""

    catches = (
        "Text that no one paid for: rows that skipped the ledger, a second draw of a record by a retry or another "
        "machine, bytes edited after the commit, texts moved to other rows, raw text in the released column's place; "
        "cells that are null, empty, cut or longer because of what the raw text says; and published rows of people who "
        "were forgotten."
    )
    stages = frozenset(Stage)
    order = 80

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        if candidate.ledger is None:
            raise GateError("the ledger is not open, so no row can be looked up")
        policy, ledger, refs = candidate.policy, candidate.ledger, candidate.refs
        published = candidate.stage is Stage.PUBLISHED
        self._forgetting = ledger if published and ledger.people.forgets(policy.dataset) else None
        self._columns = [item.name for item in policy.columns]
        self._chains = {item.column or "": item.chain for item in policy.column_policies() if item.chain is not None}
        self._known = {
            _Key(name, chain): LedgerComparison(ledger.lookup(refs[name], chain), candidate.scratch)
            for name in self._columns
            for chain in {None, self._chains.get(name)}
            if name in refs
        }
        self._policies = {item.column or "": item for item in policy.column_policies()}
        self._unregistered = sum(name not in refs for name in self._columns)
        self.state = {"cells": 0, "uncommitted": 0, "different": 0, "forgotten": 0}
        self.state |= {f"{key.column}/{key.chain or ''}": cells for key, cells in self._known.items()}

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return (policy.id, CANARY) if policy.synthetic is None else None

    def rows(self, batch: pl.DataFrame) -> None:
        """Take a batch of rows; marked canary rows are looked up as such."""
        self._take(batch, {_Key(name, None): name for name in self._columns})

    def rewritten_rows(self, batch: pl.DataFrame) -> None:
        """Take a batch of rows after post-processing: what it made of texts, and what is kept next to that."""
        columns = {_Key(name, self._chains.get(name)): name for name in self._columns}
        columns |= {_Key(item.name, None): item.intermediate for item in self.policy.columns if item.intermediate}
        self._take(batch, columns)

    def _take(self, batch: pl.DataFrame, columns: Mapping[_Key, str]) -> None:
        if self.policy.id not in batch.columns:
            self.state["cells"] += batch.height
            self.state["uncommitted"] += batch.height
            return
        if self._forgetting is not None:
            ids = canonical_ids(with_id(batch, self.policy.id)[self.policy.id].to_arrow())
            self.state["forgotten"] += int(self._forgetting.people.forgotten(self.policy.dataset, ids).sum())
        for key, name in columns.items():
            if key in self._known and name in batch.columns:
                self.state["cells"] += batch.height
                rows = with_id(batch, self.policy.id)
                self.state["uncommitted"] += batch.height - rows.height
                if rows.schema[name] == pl.String:
                    self._hold(key, name, rows)
                else:
                    self.state["different"] += rows.height

    def verdict(self) -> Verdict:
        cells, forgotten = self.state["cells"], self.state["forgotten"]
        problems = Mismatches(self.state["uncommitted"], self.state["different"])
        for comparison in self._known.values():
            problems = problems.plus(comparison.counts())
        counts = {"cells": cells, **problems._asdict(), "unregistered_columns": self._unregistered}
        counts |= {"forgotten": forgotten} if forgotten else {}
        passed = not (any(problems) or self._unregistered or forgotten)
        message = f"all {cells:,} cells are committed with these bytes"
        if not passed:
            message = f"of {cells:,} cells {problems.uncommitted:,} have no commit, "
            message += f"{problems.different:,} hold other bytes"
        if problems.misshapen:
            message += f", {problems.misshapen:,} are null or of a length that their committed positions rule out"
        if forgotten:
            message += f"; {counted(forgotten, 'row is', 'rows are')} of people or records that were forgotten"
        if self._unregistered:
            message += f"; {counted(self._unregistered, 'column has', 'columns have')} no registered release"
        return self.outcome(counts, message, passed=passed)

    def _hold(self, key: _Key, name: str, rows: pl.DataFrame) -> None:
        if not rows.height:
            return
        canary = np.zeros(rows.height, np.bool_)
        if CANARY in rows.columns:
            marks = rows[CANARY]
            canary = (marks.fill_null(value=False) if marks.null_count() else marks).to_numpy()
        ids = canonical_ids(rows[self.policy.id].to_arrow())
        column = self._policies[key.column]
        bounds = positions_of(None if key.chain else column.mechanism, rows[name])
        self._known[key].add(ids, output_digests(column, ids, rows[name]), canary, bounds)


def positions_of(mechanism: Mechanism | None, texts: pl.Series) -> Bounds:
    """Return the least and the largest number of positions that released texts may have, shape (texts, 2).

    A null has none, and every other text has some, unless it is empty (docs/spec/privacy.md#input-policy). Where word i
    is released for word i and the length is disclosed, positions are words; words that are kept in clear have none.
    """
    words = np.zeros(len(texts), np.uint32)
    bounds = np.full((len(texts), 2), (0, ANY), np.uint32)
    if mechanism is not None and mechanism.mode == "strict":
        words = to_numpy(pa.array(_kernel.spaced_words(texts)))
        bounds[:, 0] = words > 0
    words_of = None if mechanism is None else by_word(mechanism)
    if words_of is not None and words_of.mode == "strict":  # faithful mode keeps more
        keeps = words_of.word_disclosures & {Disclosure.STOPWORDS, Disclosure.SENS_CLASS}
        if words_of.hides_length:
            bounds[:, 0] = words
        else:
            bounds[:, 0], bounds[:, 1] = 0 if keeps else words, words
    if texts.null_count():
        bounds[texts.is_null().to_numpy()] = 0
    return bounds
