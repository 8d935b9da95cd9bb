"""Describe the lineage of a run: which column of a source reached which column of an output, and how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from dptext_etl.policy import Policy

Way = Literal["id", "kept", "released"]


@dataclass(frozen=True, order=True)
class Edge:
    """Says where one output column comes from.

    Attributes:
        source: Column of the raw table.
        output: Column of the published table.
        way: "id", "kept" (both in clear) or "released" (through a mechanism).
        by: Name of the mechanism, where released.
        cfg: Its configuration hash, where released.
    """

    source: str
    output: str
    way: Way
    by: str | None = None
    cfg: str | None = None


@dataclass(frozen=True)
class Lineage:
    """Says where every output column of a run comes from.

    Attributes:
        edges: One per output column.
        dropped: Columns of the raw table that went nowhere.
    """

    edges: tuple[Edge, ...]
    dropped: tuple[str, ...] = ()

    @classmethod
    def declared(cls, policy: Policy, source_columns: Iterable[str] = ()) -> Lineage:
        """Return what a policy says must happen to the columns of its source."""
        edges = [Edge(policy.id, policy.id, "id")]
        edges += [Edge(name, name, "kept") for name in policy.keep]
        edges += [
            Edge(item.column, item.column, "released", item.mechanism.name, item.mechanism.cfg())
            for item in policy.column_policies()
            if item.column is not None
        ]
        edges += [
            Edge(item.column, spec.intermediate, "released", item.mechanism.name, item.mechanism.cfg())
            for spec, item in zip(policy.columns, policy.column_policies(), strict=True)
            if spec.intermediate is not None and item.column is not None
        ]
        named = {edge.source for edge in edges}
        return cls(tuple(edges), tuple(name for name in source_columns if name not in named))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The output columns, in order."""
        return tuple(edge.output for edge in self.edges)

    def as_dict(self) -> dict[str, Any]:
        """The same facts as JSON can hold them: output column -> where it comes from."""
        columns = {
            edge.output: {"source": edge.source, "way": edge.way, "by": edge.by, "cfg": edge.cfg} for edge in self.edges
        }
        return {"columns": columns, "dropped": list(self.dropped)}
