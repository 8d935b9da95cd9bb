"""Gate `raw_column_absent` requires that a release has exactly the columns and types that its policy publishes."""

from __future__ import annotations

from typing import Any

import polars as pl

from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.candidate import Candidate, Stage, declared_lineage
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.checks.published import changed, published_types
from dptext_etl.errors import counted
from dptext_etl.families.unlinked import COUNT
from dptext_etl.policy import Policy


class RawColumnAbsent(Gate):
    """Compares names, types and lineage with the policy.

    Names that the policy does not know are counted, not quoted: a pivot can turn raw text into column names.
    """

    catches = (
        "A raw text column, or one derived from it, that travels along under its own or another name, as a forgotten "
        "`drop` or a `select *` after a join leaves it; a text column that never went through its mechanism."
    )
    stages = frozenset(Stage)
    order = 20

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        policy, marked = self.policy, candidate.stage is Stage.STAGED
        declared = declared_lineage(policy)
        lineage = declared if candidate.lineage is None else candidate.lineage
        self._texts = [name for item in policy.columns for name in (item.name, item.intermediate) if name is not None]
        self._later = any(item.postprocess for item in policy.columns)
        self._expected = {*(edge.output for edge in declared), *([CANARY] if marked else [])}
        if policy.unlinked is not None and not marked:
            self._expected = {*policy.unlinked.columns(policy.columns[0].name)}
        if policy.synthetic is not None:
            self._texts, self._expected = [*policy.synthetic.columns], {*policy.synthetic.columns}
        self._wrong_edges = len(set(lineage) ^ set(declared))
        self._types = None if marked else published_types(policy, candidate.manifest)
        self.state: dict[str, Any] = {"schemas": {}}  # the columns and types of parts, each once, in order

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:  # noqa: ARG003  (synthetic tables, too)
        return ()

    def rows(self, batch: pl.DataFrame) -> None:
        """Take the columns of a batch, unless post-processing makes others of them."""
        if not self._later:
            self.rewritten_rows(batch)

    def rewritten_rows(self, batch: pl.DataFrame) -> None:
        self.state["schemas"].setdefault(tuple(batch.schema.items()))

    def verdict(self) -> Verdict:
        schemas = [dict(items) for items in self.state["schemas"]]
        missing = {name for schema in schemas for name in self._expected - set(schema)}
        unknown = {name for schema in schemas for name in set(schema) - self._expected}
        mistyped = {name for schema in schemas for name in self._mistyped(schema, schemas[0])}
        counts = {"columns": len(self._expected), "missing": len(missing), "unknown": len(unknown)}
        counts |= {"mistyped": len(mistyped), "wrong_lineage": self._wrong_edges}
        problems = []
        if missing:
            problems.append(f"missing: {_names(missing)}")
        if unknown:
            problems.append(
                f"{counted(len(unknown), 'column')} that the policy does not publish (names not repeated here)"
            )
        if mistyped:
            problems.append(f"of another type than expected: {_names(mistyped)}")
        if self._wrong_edges:
            problems.append(
                f"{counted(self._wrong_edges, 'column was', 'columns were')} made otherwise than the policy says"
            )
        if not schemas:
            problems.append("there are no parts")
        message = "; ".join(problems) or f"{counted(counts['columns'], 'column')}, as the policy says"
        return self.outcome(counts, message, passed=not problems)

    def _mistyped(self, schema: dict[str, pl.DataType], first: dict[str, pl.DataType]) -> set[str]:
        """Return the columns of a part that are no strings where they should be, or of another type than the first."""
        wrong = {name for name in self._texts if schema.get(name, pl.String()) != pl.String}
        if schema.get(CANARY, pl.Boolean()) != pl.Boolean:
            wrong.add(CANARY)
        if self.policy.unlinked is not None and not schema.get(COUNT, pl.Int64()).is_integer():
            wrong.add(COUNT)
        if self._types is not None:
            wrong |= changed(schema, self.policy, self._types)
        both = self._expected & set(schema) & set(first)
        return wrong | {name for name in both if schema[name] != first[name]}


def _names(names: set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
