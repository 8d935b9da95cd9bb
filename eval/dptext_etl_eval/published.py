"""Find the raw table and the published one of a policy, and the cost of the release, for a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from dptext_etl.errors import PolicyError
from dptext_etl.policy import Policy
from dptext_etl.policy.synthetic import no_rows
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import Manifest, published_manifest
from dptext_etl.runner.publish.parts import ids_of_parts
from dptext_etl.runner.source.table import Files
from dptext_etl_eval.baselines import Asked
from dptext_etl_eval.evidence import Evidence, Listener, evaluate
from dptext_etl_eval.pairs import Pairs, join
from dptext_etl_eval.report import refuse_published


def columns_of(
    policy: Policy, out: Path, *, released: str | None = None, partition: str | None = None, **given: Any
) -> Iterator[tuple[str, Pairs, dict[str, Any]]]:
    """Yield name, pairs and cost of every text column of a policy, and of columns published next to a rewritten one.

    What post-processing made of a release follows no law of its mechanism, so measures that use the mechanism's law
    look only at the column of `keep_intermediate`.
    """
    if policy.synthetic is not None:
        raise no_rows(policy.dataset)
    layout = Layout.of(policy, partition)
    place = released or layout.sink
    refuse_published(out, place)
    subject = given.pop("subject", None) or (policy.subject if policy.unit == "subject" else None)
    if policy.publish or released is not None:
        if released is None:
            published_manifest(layout)  # refuses a sink without one
        table, claims = claimed(place, policy, layout.partition)
        if policy.ids != "keep":
            manifest = published_manifest(layout)
            ids = pl.concat(ids_of_parts(layout.staging, policy.ledger, (part.sha256 for part in manifest.parts)))
            table = table.collect().select(ids.alias(policy.id), pl.exclude(policy.id)).lazy()
    else:
        table, claims = staged(policy, layout)
    for column, intermediate in zip(
        policy.column_policies(), (item.intermediate for item in policy.columns), strict=True
    ):
        name = str(column.column)
        cost = claims.get(name, {})
        raw = Files.find(layout).scan(all_text=True)
        more = {**given, "subject": subject, "id": policy.id, "text": name}
        if name == given.get("text_pair"):  # the second text of its own pairs: the label is measured at the first
            more |= {"text_pair": None, "label": None}
        yield name, join(raw, table, **more, mechanism=None if column.postprocess else column.mechanism), cost
        if intermediate is not None:
            yield intermediate, join(raw, table, **more, released_text=intermediate, mechanism=column.mechanism), cost


def evidence_of(
    policy: Policy,
    out: Path,
    *,
    free_guesses: Asked | None = None,
    tested: str | None = None,
    progress: Listener | None = None,
    **given: Any,
) -> Iterator[Evidence]:
    """Measure every text column of a policy, or its synthetic table or unlinked release as a whole."""
    if policy.synthetic is not None:
        from dptext_etl_eval.synthetic import evaluate_table

        yield evaluate_table(policy, out, free_guesses=free_guesses, tested=tested, progress=progress, **given)
        return
    free_guesses = free_guesses or Asked()
    if tested is not None:
        raise PolicyError("--tested is for synthetic tables: other releases are compared row by row", "leave it out")
    if policy.unlinked is not None:
        if free_guesses.options:
            names = ", ".join(free_guesses.options)
            msg = f"{names}: guesses of labels, and of an unlinked release only shares are counted"
            raise PolicyError(msg, "`dptext rehearse` compares them on public texts")
        from dptext_etl_eval.unlinked import evaluate_unlinked

        yield evaluate_unlinked(policy, out, progress=progress, **given)
        return
    seeds = given.pop("seeds", 1)
    for name, pairs, cost in columns_of(policy, out, **given):
        free = free_guesses.read(name, given.get("label"))
        yield evaluate(replace(pairs, free=free), column=name, cost=cost, progress=progress, seeds=seeds)


def table_of(place: str, storage: dict[str, Any] | None = None) -> Any:
    """Return a table of files, to be read later."""
    return Files.at(place, storage).scan(all_text=True)


def claimed(
    place: str, policy: Policy | None = None, partition: str | None = None
) -> tuple[Any, dict[str, dict[str, Any]]]:
    """Return a released table, and the claims of its manifest for every column; a plain file claims nothing.

    Raises:
        InputError: A policy is given, and the table is of another release or configuration.
    """
    options = {} if policy is None else policy.storage_options
    layout = Layout.of_sink(place, options)
    manifest = None if Path(place).is_file() else Manifest.read(layout)
    if manifest is None:
        return table_of(place, layout.storage_options), {}
    if any("statistic" in item for item in manifest.columns):
        msg = "a synthetic table is published there, and no row of it belongs to a record"
        raise PolicyError(msg, "give its policy: `dptext evaluate POLICY`")
    if any("unlinked" in item for item in manifest.columns):
        msg = "an unlinked release is published there, and no row of it belongs to a record"
        raise PolicyError(msg, "give its policy: `dptext evaluate POLICY --label COLUMN`")
    if policy is not None:
        manifest.require_of(policy, partition)
    return scan_published(place, options), _facts(manifest.columns, {"manifest sha256": manifest.digest})


def staged(policy: Policy, layout: Layout) -> tuple[Any, dict[str, dict[str, Any]]]:
    """Return the rows that a run staged without publishing, and the policy's claims for every column."""
    from dptext_etl_eval.staged import staged_rows

    rows, claims = staged_rows(policy, layout)
    return rows, _facts(claims, {"published": "no: these are the rows of a staged run"})


def _facts(columns: list[dict[str, Any]], more: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the claims for columns, in words, by their names."""
    return {
        str(item["name"]): {name.replace("_", " "): value for name, value in item.items() if name != "name"} | more
        for item in columns
    }
