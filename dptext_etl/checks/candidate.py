"""Describe the release that gates judge: its files, its canary rows, and what the run did to columns.

Staged shards hold released rows, and canary rows with a mark, in one Parquet file per shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pyarrow.parquet as pq

from dptext_etl.checks.canaries import CANARY, CanaryPlan, policy_tokens
from dptext_etl.families.by_word import WordByWord, by_word
from dptext_etl.families.choice import ChoiceMechanism
from dptext_etl.keys import canonical_ids
from dptext_etl.policy import Policy

if TYPE_CHECKING:
    from dptext_etl.checks.reports import CopyCount
    from dptext_etl.checks.sink import PublishedManifest
    from dptext_etl.ledger import Ledger
    from dptext_etl.ledger.types import ReleaseRef


class Stage(StrEnum):
    """When a release is judged."""

    STAGED = "staged"
    """Before publication: the rows stand in the staging folder, canary rows among them."""
    PUBLISHED = "published"
    """After publication: no canary rows, no staging, no raw data."""


@dataclass(frozen=True)
class Candidate:
    """A release, as gates see it.

    Attributes:
        policy: Its policy.
        parts: Staged Parquet files, with their marked canary rows; none where a published table is judged.
        canaries: The canary rows that were planted, one plan per shard; none after publication.
        ledger: The ledger, open; None where nothing is looked up.
        refs: Registered release of each text column.
        texts: Other files to search for canaries: the manifest or its draft, logs.
        lineage: What the run did to columns; None where it did what the policy declares.
        copies: Copy counts of the whole run by text column; they decide only where the policy sets
            `copy_gate_false_alarm`.
        recomputed: Canary rows of the whole run that were computed twice, and those that agree, by text column.
        stage: When it is judged.
        manifest: The manifest of a published folder; None for anything else.
        scratch: Folder where gates may keep digests that do not fit into memory; None for the system's folder of
            temporary files.
        rewritten: Files of what post-processing made of the parts, as it is to be published, canary rows included.
        counted: Rows of all parts, where someone has counted them; None counts them in the files.
    """

    policy: Policy
    parts: tuple[Path, ...]
    canaries: tuple[CanaryPlan, ...]
    ledger: Ledger | None
    refs: Mapping[str, ReleaseRef]
    texts: tuple[Path | bytes, ...] = ()
    lineage: Lineage | None = None
    copies: Mapping[str, CopyCount] = field(default_factory=dict)
    recomputed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    stage: Stage = Stage.STAGED
    manifest: PublishedManifest | None = None
    scratch: Path | None = None
    counted: int | None = None
    rewritten: tuple[Path, ...] = ()

    @classmethod
    def published(
        cls,
        policy: Policy,
        ledger: Ledger | None = None,
        refs: Mapping[str, ReleaseRef] | None = None,
        manifest: PublishedManifest | None = None,
    ) -> Candidate:
        texts = () if manifest is None else (manifest.content,)
        return cls(policy, (), (), ledger, refs or {}, texts, stage=Stage.PUBLISHED, manifest=manifest)

    @property
    def rows(self) -> int:
        """Rows of all parts, canary rows included."""
        return sum(map(count, self.parts)) if self.counted is None else self.counted

    def pseudo_words(self) -> dict[str, frozenset[str]]:
        """Return the words of out-of-vocabulary canaries, by text column.

        Those that were planted, for a staged run. After publication, all that follow from the policy's key.
        """
        if self.stage is Stage.PUBLISHED:
            tokens = policy_tokens(self.policy, self.policy.column_policies()[0].secret)
            return {name: frozenset(words) for name, words in tokens.items()}
        planted = [row for plan in self.canaries for row in plan.rows if row.kind == "out_of_vocabulary"]
        return {
            item.name: frozenset(word for row in planted for word in row.words[item.name])
            for item in self.policy.columns
        }


def word_columns(policy: Policy) -> dict[str, WordByWord]:
    """Return the mechanisms of the text columns whose words are drawn one by one."""
    columns = ((item.column or "", by_word(item.mechanism)) for item in policy.column_policies())
    return {name: mechanism for name, mechanism in columns if mechanism is not None}


def choice_columns(policy: Policy) -> dict[str, ChoiceMechanism]:
    """Return the mechanisms of the text columns that are released as whole public texts; a synthetic table has none."""
    if policy.synthetic is not None:
        return {}
    columns = ((item.column or "", item.mechanism) for item in policy.column_policies())
    return {name: mechanism for name, mechanism in columns if isinstance(mechanism, ChoiceMechanism)}


def as_released(batch: pl.DataFrame, policy: Policy) -> pl.DataFrame:
    """Return published rows as mechanisms released them, as far as a policy keeps that next to what was made of it."""
    rewritten = [item.name for item in policy.columns if item.postprocess and item.name in batch.columns]
    released = {str(item.intermediate): item.name for item in policy.columns if item.intermediate in batch.columns}
    return batch.drop(rewritten).rename(released)


@dataclass(frozen=True, order=True)
class Edge:
    """Says where one output column comes from."""

    source: str  # column of the raw table
    output: str  # column of the published table
    way: Literal["id", "kept", "released"]  # "id", "kept" (both in clear) or "released" (through a mechanism)
    by: str | None = None  # name of the mechanism, where released
    cfg: str | None = None  # its configuration hash, where released


Lineage = tuple[Edge, ...]
"""Says where every output column of a run comes from, in order."""


def declared_lineage(policy: Policy) -> Lineage:
    """Return what a policy says must happen to the columns of its source; none of them reaches a synthetic table."""
    if policy.synthetic is not None:
        return ()
    columns = [(spec, item.mechanism) for spec, item in zip(policy.columns, policy.column_policies(), strict=True)]
    return (
        Edge(policy.id, policy.id, "id"),
        *(Edge(name, name, "kept") for name in policy.kept_columns),
        *(Edge(spec.name, spec.name, "released", made.name, made.cfg()) for spec, made in columns),
        *(
            Edge(spec.name, spec.intermediate, "released", made.name, made.cfg())
            for spec, made in columns
            if spec.intermediate is not None
        ),
    )


BATCH_ROWS = 20_000
"""Rows that are held in memory at a time."""


def canary_rows(batch: pl.DataFrame) -> pl.DataFrame:
    """Return the marked rows of a batch. Most batches hold none, or nothing else: that is known without a query."""
    marks = batch[CANARY]
    if not marks.any():
        return batch.clear()
    return batch if marks.all(ignore_nulls=False) else batch.filter(marks)


def other_rows(batch: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a batch that are not marked, also where a mark is missing."""
    marks = batch[CANARY]
    if not marks.any():
        return batch
    return batch.clear() if marks.all(ignore_nulls=False) else batch.filter(~marks.fill_null(value=False))


def with_id(batch: pl.DataFrame, name: str) -> pl.DataFrame:
    ids = batch[name]
    return batch.filter(ids.is_not_null()) if ids.null_count() else batch


def canary_texts(batch: pl.DataFrame, id_column: str, names: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the canonical id and the released texts of every canary row of a batch that has an id."""
    marked = with_id(canary_rows(batch), id_column)
    present = [name for name in names if name in marked.columns]
    ids = canonical_ids(marked[id_column].to_arrow()).to_pylist()
    for canonical, row in zip(ids, marked.iter_rows(named=True), strict=True):
        yield canonical, {name: row[name] for name in present}


def count(part: Path) -> int:
    """Count the rows of a shard, canary rows included."""
    return int(pq.read_metadata(part).num_rows)


def batches(*parts: Path) -> Iterator[pl.DataFrame]:
    """Read shards in order, in batches of at most `BATCH_ROWS` rows; one without rows gives its columns."""
    for part in parts:
        if not count(part):
            yield pl.DataFrame(schema=pl.read_parquet_schema(part))
        yield from pl.scan_parquet(part).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)
