"""Find the raw table and the published one of a policy, and what the release cost, for a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from dptext_etl.errors import PolicyError
from dptext_etl.policy import Policy
from dptext_etl.policy.synthetic import no_rows
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish import own_ids
from dptext_etl.runner.publish.manifest import Manifest, published_manifest
from dptext_etl.runner.source.table import Files
from dptext_etl_eval.evidence import Evidence, Listener, evaluate
from dptext_etl_eval.pairs import Pairs, join
from dptext_etl_eval.report import refuse_published


def columns_of(
    policy: Policy, out: Path, *, released: str | None = None, partition: str | None = None, **given: Any
) -> Iterator[tuple[str, Pairs, dict[str, Any]]]:
    """Yield name, pairs and cost of every text column of a policy, and of what is published next to a rewritten one.

    What post-processing made of a release follows no law of its mechanism, so measures that take the mechanism's law
    look at the column of `keep_intermediate` alone.
    """
    if policy.synthetic is not None:
        raise no_rows(policy.dataset)
    layout = Layout.of(policy, partition)
    place = released or layout.sink
    refuse_published(out, place)
    subject = given.pop("subject", None) or (policy.subject if policy.unit == "subject" else None)
    for column, intermediate in zip(
        policy.column_policies(), (item.intermediate for item in policy.columns), strict=True
    ):
        name = str(column.column)
        frame, cost = claimed(place, name, policy.storage_options)
        if policy.ids != "keep":
            frame = _with_own_ids(frame, policy, layout)
        raw = Files.find(layout).scan(all_text=True)
        more = {**given, "subject": subject, "id": policy.id, "text": name}
        if name == given.get("text_pair"):  # the second text of its own pairs: the label is measured at the first
            more |= {"text_pair": None, "label": None}
        yield name, join(raw, frame, **more, mechanism=None if column.postprocess else column.mechanism), cost
        if intermediate is not None:
            yield intermediate, join(raw, frame, **more, released_text=intermediate, mechanism=column.mechanism), cost


def evidence_of(
    policy: Policy, out: Path, *, progress: Listener | None = None, public: str | None = None, **given: Any
) -> Iterator[Evidence]:
    """Measure every text column of a policy, or its synthetic table or unlinked release as a whole."""
    if policy.synthetic is not None:
        from dptext_etl_eval.synthetic import evaluate_table

        yield evaluate_table(policy, out, public=public, progress=progress, **given)
        return
    if public is not None:
        raise PolicyError(
            "--public is compared with synthetic tables alone", "`dptext rehearse` measures on public texts"
        )
    if policy.unlinked is not None:
        from dptext_etl_eval.unlinked import evaluate_unlinked

        yield evaluate_unlinked(policy, out, progress=progress, **given)
        return
    seeds = given.pop("seeds", 1)
    for name, pairs, cost in columns_of(policy, out, **given):
        yield evaluate(pairs, column=name, cost=cost, progress=progress, seeds=seeds)


def _with_own_ids(frame: pl.LazyFrame, policy: Policy, layout: Layout) -> pl.LazyFrame:
    """Put the records' own ids, which staging holds, into a published table."""
    manifest = published_manifest(layout)
    own = pl.concat(own_ids.of_parts(layout.staging, policy.ledger, (part.sha256 for part in manifest.parts)))
    return frame.collect().select(own.alias(policy.id), pl.exclude(policy.id)).lazy()


def table(place: str, storage: dict[str, Any] | None = None) -> Any:
    """Return a table of files, to be read later."""
    return Files.at(place, storage).scan(all_text=True)


def claimed(place: str, column: str, options: dict[str, str] | None = None) -> tuple[Any, dict[str, Any]]:
    """Return a released table and what its manifest claims of a column; a plain file claims nothing."""
    layout = Layout.of_sink(place, options or {})
    manifest = None if Path(place).is_file() else Manifest.read(layout)
    if manifest is None:
        return table(place, layout.storage_options), {}
    if any("statistic" in item for item in manifest.columns):
        msg = "a synthetic table is published there, and no row of it belongs to a record"
        raise PolicyError(msg, "give its policy: `dptext evaluate POLICY`")
    if any("unlinked" in item for item in manifest.columns):
        msg = "an unlinked release is published there, and no row of it belongs to a record"
        raise PolicyError(msg, "give its policy: `dptext evaluate POLICY --label COLUMN`")
    entry = next((item for item in manifest.columns if item["name"] == column), {})
    facts = {name.replace("_", " "): value for name, value in entry.items() if name != "name"}
    return scan_published(place, options), {**facts, "manifest sha256": manifest.digest}
