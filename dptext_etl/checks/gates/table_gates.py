"""Gates of tables: the columns, files, rows, and labels that the policy and the manifest state."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from dptext_etl.accounting.shuffling import COUNT, OTHER
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.gate import Candidate, Gate, Stage, declared_lineage
from dptext_etl.checks.published import changed, published_types
from dptext_etl.checks.sink_files import Part, place_of
from dptext_etl.checks.verdict import Verdict
from dptext_etl.data_types import carries
from dptext_etl.errors import GateError, counted
from dptext_etl.files import sha256
from dptext_etl.policy import PARTITION, Policy


class RawColumnAbsent(Gate):
    """Compares names and types with the policy.

    Names that the policy does not know are counted, not quoted: a pivot can turn raw text into column names.
    """

    catches = (
        "A raw text column, or one derived from it, that travels along under its own or another name, as a forgotten "
        "`drop` or a `select *` after a join leaves it."
    )
    stages = frozenset(Stage)
    order = 20
    problems = ("missing", "unknown", "mistyped")

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        policy, marked = self.policy, candidate.stage is Stage.STAGED
        self._texts = [name for item in policy.columns for name in (item.name, item.intermediate) if name is not None]
        self._later = any(item.postprocess for item in policy.columns)
        self._expected = {*(edge.output for edge in declared_lineage(policy)), *([CANARY] if marked else [])}
        if policy.shuffled is not None and not marked:
            self._expected = {*policy.shuffled.columns(policy.columns[0].name)}
        if policy.synthetic is not None:
            self._texts, self._expected = [*policy.synthetic.columns], {*policy.synthetic.published_columns}
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
        mistyped = set[str]()  # no strings where they should be, or of another type than in the first part
        for schema in schemas:
            mistyped |= {name for name in self._texts if schema.get(name, pl.String()) != pl.String}
            if schema.get(CANARY, pl.Boolean()) != pl.Boolean:
                mistyped.add(CANARY)
            if self.policy.shuffled is not None and not schema.get(COUNT, pl.Int64()).is_integer():
                mistyped.add(COUNT)
            if self._types is not None:
                mistyped |= changed(schema, self.policy, self._types)
            both = self._expected & set(schema) & set(schemas[0])
            mistyped |= {name for name in both if schema[name] != schemas[0][name]}
        wrong = {"missing": len(missing), "unknown": len(unknown), "mistyped": len(mistyped)}
        counts = {"columns": len(self._expected), **wrong}
        problems = []
        if missing:
            problems.append(f"missing: {', '.join(map(repr, sorted(missing)))}")
        if unknown:
            problems.append(
                f"{counted(len(unknown), 'column')} that the policy does not publish (names not repeated here)"
            )
        if mistyped:
            problems.append(f"of another type than expected: {', '.join(map(repr, sorted(mistyped)))}")
        if not schemas:
            problems.append("there are no parts")
        message = "; ".join(problems) or f"{counted(counts['columns'], 'column')}, as the policy says"
        return self.outcome(counts, message, passed=not problems)


_NAME = re.compile(r"(?:(?P<partition>.+)/)?v(?P<number>\d+)-[0-9a-f]+")
"""How publications are named in the ledger (`runner.publish.publication`)."""


class PublishedFiles(Gate):
    """Compares the files of a folder with its manifest, and the manifest with the policy and the ledger."""

    catches = (
        "Published files that were edited, cut, swapped or added after their gates, or that belong to another release; "
        "a manifest that was written again to fit them, or to claim less; a shuffled release of people who were "
        "forgotten."
    )
    stages = frozenset({Stage.PUBLISHED})
    order = 10

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:  # noqa: ARG003  (synthetic tables, too)
        return ()

    def verdict(self) -> Verdict | tuple[Verdict, ...]:
        """Judge folders only: a single file or a table has no manifest."""
        manifest, folder, ledger = self.candidate.manifest, self.candidate.sink, self.candidate.ledger
        if manifest is None or folder is None:
            return ()
        if ledger is None:
            raise GateError("the ledger is not open, so the manifest cannot be looked up")
        parts, policy = manifest.parts, self.policy
        refs, digest = self.candidate.refs.values(), manifest.digest
        sink = place_of(policy.sink.replace(PARTITION, manifest.partition or ""))
        as_written = self.candidate.texts == (manifest.text().encode(),)  # else it says the same in other bytes
        recorded = bool(refs) and all(digest in ledger.releases.published(ref, sink).values() for ref in refs)
        paths = [folder.of_part(part) for part in parts]
        listing = folder.listing(manifest)
        names = list(zip(paths, listing or paths, strict=True))  # each file, and what readers of the folder see of it
        listed = {path for pair in names for path in pair if path is not None}
        folders = {path.parent for path in listed}
        configured: dict[str | None, tuple[str, str | None]]
        if policy.synthetic is None:
            configured = {item.column: (item.mechanism.cfg(), item.chain) for item in policy.column_policies()}
        else:
            configured = {policy.synthetic.column: (policy.statistic.cfg(), None)}
        stated = {column.get("name"): (column.get("cfg"), column.get("chain")) for column in manifest.columns}
        counts = {
            "files": len(paths),
            "missing": sum(not all(path and path.is_file() for path in pair) for pair in names),
            "changed": _changed(names, parts),
            "shown_otherwise": 0 if folder.listed is None else len(folder.listed ^ {part.path for part in parts}),
            "changed_classifier": int(not manifest.holds_classifier(folder)),
            "unlisted": sum(item not in listed for path in folders if path.is_dir() for item in path.iterdir()),
            "other_release": int((manifest.dataset, manifest.release) != (policy.dataset, policy.release)),
            "other_configuration": len(set(configured.items()) ^ set(stated.items())),
            "unrecorded_manifest": int(not (recorded and as_written)),
            "retired_manifest": int(any(digest in ledger.releases.retired(ref, sink) for ref in refs)),
            "types_with_names_or_categories": sum(map(carries, manifest.schema.values())),
        }
        if policy.shuffled is not None and manifest.rows:  # it holds no ids, and is one table
            counts["forgotten"] = max((ledger.people.count_forgotten(ref) for ref in refs), default=0)
        wrong = {name: count for name, count in counts.items() if count and name != "files"}
        message = f"all {len(paths):,} files are in the manifest, which the ledger recorded"
        # recorded versions of this partition with a higher number: an older one put back shows here
        versions = {version for ref in refs for version in ledger.releases.published(ref)}
        newer = 0
        for name in filter(None, map(_NAME.fullmatch, versions)):
            newer += name["partition"] == manifest.partition and int(name["number"]) > manifest.version
        counts["newer_recorded"] = newer
        if newer:
            message += f"; it knows {newer:,} newer versions, of this sink or another"
        if wrong:
            message = "; ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in wrong.items())
        return self.outcome(counts, message, passed=bool(paths) and not wrong)


def _changed(names: Sequence[tuple[Path | None, Path | None]], parts: Sequence[Part]) -> int:
    """Count files that hold other bytes under one of their names; two names of one file are read once."""
    changed = 0
    for pair, part in zip(names, parts, strict=True):
        there = [path for path in pair if path is not None and path.is_file()]
        once = there[:1] if len(there) == 2 and there[0].samefile(there[1]) else there
        changed += any(sha256(path) != part.sha256 for path in once)
    return changed


class RowCount(Gate):
    """Counts rows of synthetic tables: their number is public, and never the number of private records."""

    catches = "Rows that were added to a synthetic table, excluded, or drawn as often as there are private records."
    stages = frozenset(Stage)
    order = 15

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self.state = {"rows": 0}

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return None if policy.synthetic is None else ()

    def rows(self, batch: pl.DataFrame) -> None:
        self.state["rows"] += batch.height

    def verdict(self) -> Verdict:
        rows, wanted = self.state["rows"], self.policy.table_rows
        message = f"{counted(rows, 'row')}, of {wanted:,} that the policy says"
        return self.outcome({"rows": rows, "wanted": wanted}, message, passed=rows == wanted)


class LabelsInList(Gate):
    """Compares every label of a synthetic table or a shuffled release with the public list."""

    catches = "Labels of private records that the public list does not name, and rows without a label."
    stages = frozenset(Stage)
    order = 72
    problems = ("outside",)

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self.state = {"rows": 0, "outside": 0}
        self._names: tuple[str, ...] = ()
        self._listed: set[tuple[str | None, ...]] = set()
        if self.policy.synthetic is not None and self.policy.synthetic.labels is not None:
            self._names = self.policy.synthetic.labels.all_columns
            self._listed = {*self.policy.synthetic.labels.cells.values()}
        if self.policy.labels is not None:
            self._names = (self.policy.labels.column,)
            unpublished = (OTHER, None) if candidate.stage is Stage.STAGED else ()
            self._listed = {(value,) for value in (*self.policy.labels.values, *unpublished)}

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:
        return None if policy.synthetic is None and policy.labels is None else ()

    def rows(self, batch: pl.DataFrame) -> None:
        self.state["rows"] += batch.height
        if any(batch.schema.get(name) != pl.String for name in self._names):
            self.state["outside"] += batch.height
        elif self._names:
            for *cell, often in batch.group_by(self._names).len().iter_rows():
                self.state["outside"] += often * (tuple(cell) not in self._listed)

    def verdict(self) -> Verdict:
        rows, outside = self.state["rows"], self.state["outside"]
        message = f"all {rows:,} rows have a listed label, or need none"
        if outside:
            message = f"{outside:,} of {rows:,} rows have a label that the policy does not list"
        return self.outcome(self.state, message, passed=not outside)
