"""Find the raw table and the published one of a policy, and the cost of the release, for a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from dptext_etl import keys
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.ledger import Ledger
from dptext_etl.policy import Policy
from dptext_etl.policy.synthetic import no_rows
from dptext_etl.runner import scan_published
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.manifest import claims, published_manifest
from dptext_etl.runner.publish.parts import ids_of_parts
from dptext_etl.runner.shard.staging import Staging, staging_key
from dptext_etl.runner.source.table import Files
from dptext_etl_eval.baselines import Asked
from dptext_etl_eval.evidence import Evidence, Listener, evaluate
from dptext_etl_eval.pairs import Pairs, join
from dptext_etl_eval.raw_reports import log_request
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
        table, costs = claimed(place, policy, layout.partition)
        if policy.ids != "keep":
            manifest = published_manifest(layout)
            ids = pl.concat(ids_of_parts(layout.staging, policy.ledger, (part.sha256 for part in manifest.parts)))
            table = table.collect().select(ids.alias(policy.id), pl.exclude(policy.id)).lazy()
    else:
        table, costs = staged(policy, layout)
    for column, intermediate in zip(
        policy.column_policies(), (item.intermediate for item in policy.columns), strict=True
    ):
        name = str(column.column)
        cost = costs.get(name, {})
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
    """Measure every text column of a policy, or its synthetic table or shuffled release as a whole."""
    if policy.synthetic is not None:
        from dptext_etl_eval.synthetic import evaluate_table

        yield evaluate_table(policy, out, free_guesses=free_guesses, tested=tested, progress=progress, **given)
        return
    free_guesses = free_guesses or Asked()
    if tested is not None:
        raise PolicyError("--tested is for synthetic tables: other releases are compared row by row", "leave it out")
    if policy.shuffled is not None:
        if free_guesses.options:
            names = ", ".join(free_guesses.options)
            msg = f"{names}: guesses of labels, and of a shuffled release only shares are counted"
            raise PolicyError(msg, "`dptext rehearse` compares them on public texts")
        from dptext_etl_eval.shuffled import evaluate_shuffled

        yield evaluate_shuffled(policy, out, progress=progress, **given)
        return
    seeds = given.pop("seeds", 1)
    for name, pairs, cost in columns_of(policy, out, **given):
        free = free_guesses.read(name, given.get("label"))
        yield evaluate(replace(pairs, free=free), column=name, cost=cost, progress=progress, seeds=seeds)


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
        return Files.at(place, layout.storage_options).scan(all_text=True), {}
    if any("statistic" in item for item in manifest.columns):
        msg = "a synthetic table is published there, and no row of it belongs to a record"
        raise PolicyError(msg, "give its policy: `dptext evaluate POLICY`")
    if any("shuffled" in item for item in manifest.columns):
        msg = "a shuffled release is published there, and no row of it belongs to a record"
        raise PolicyError(msg, "give its policy: `dptext evaluate POLICY --label COLUMN`")
    if policy is not None:
        manifest.require_of(policy, partition)
    return scan_published(place, options), _facts(manifest.columns, {"manifest sha256": manifest.digest})


def staged(policy: Policy, layout: Layout) -> tuple[pl.LazyFrame, dict[str, dict[str, Any]]]:
    """Return the rows that a run staged, without canary rows, and the policy's claims for every column.

    A policy that publishes nothing stages its rows, such as a faithful mechanism's.

    Raises:
        InputError: Nothing of this release and configuration is staged.
    """
    hint = "`dptext run POLICY` stages its rows; with publish = false, they stay in staging"
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
        releases = ledger.releases.find_all(policy)
    if missing := [item.column for item in policy.column_policies() if item.column not in releases]:
        names = ", ".join(f"{name!r}" for name in missing)
        msg = f"the ledger has no release {policy.release!r} of {policy.dataset!r} with this configuration of {names}"
        raise InputError(msg, hint)
    staging = Staging(layout.staging, staging_key(keys.resolve(policy.key), policy.dataset, layout.staging))
    shards = staging.shards()
    if not shards:
        raise InputError(f"nothing is staged of the release {policy.release!r} of {policy.dataset!r}", hint)
    log_request(policy, layout.staging, "evaluate")
    with seam("reading the staged rows", InputError, hint):
        rows = pl.concat([staging.outcome(shard) for shard in shards], how="diagonal_relaxed")
    facts = _facts(claims(policy), {"published": "no: these are the rows of a staged run"})
    return rows.filter(~pl.col(CANARY)).drop(CANARY).lazy(), facts


def _facts(columns: list[dict[str, Any]], more: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the claims for columns, in words, by their names."""
    return {
        str(item["name"]): {name.replace("_", " "): value for name, value in item.items() if name != "name"} | more
        for item in columns
    }
