"""Run a policy over a Polars frame, read published tables, and label texts by published classifiers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from dptext_etl import keys
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.corpora import Corpus
from dptext_etl.data_types import by_name
from dptext_etl.engines import LocalEngine, run
from dptext_etl.errors import DPTextError, InputError, PolicyError, bare, counted
from dptext_etl.families.aggregate import Classifier
from dptext_etl.keys import IdForm
from dptext_etl.policy import PARTITION, Policy, PolicyLike, run_policy
from dptext_etl.runner import RunSummary, open_classifier, scan_published
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.progress import Listener
from dptext_etl.runner.publish.parts import keyed_ids
from dptext_etl.runner.source.roles import form_of, pinned_forms, shown_columns, table_of


@bare
def run_frame(
    frame: pl.DataFrame | pl.LazyFrame,
    policy: PolicyLike,
    *,
    id: str | None = None,  # noqa: A002  (the argument's name is the column's role)
    subject: str | None = None,
    partition: str | None = None,
    accept_lower_cap: bool = False,
    accept_fewer_rows: bool = False,
    progress: Listener | None = None,
    **entries: Any,
) -> RunSummary:
    """Release the text columns of a frame as a whole run: charge, compute, stage, commit, check, publish.

    Every record gets the same text and the same charge as from `dptext_etl.run`. A second call with the same rows costs
    nothing; a run that was killed continues where it stopped. A lazy frame is read several times, in batches.

    Args:
        frame: The raw table; every evaluation must give the same rows in the same order.
        policy: A policy, the path of one, or the policy of one column, with the other entries of a run in `entries`.
            The run does not read its source.
        id: Column of the record ids, if the frame uses another name than the policy.
        subject: Column of the subjects, if the frame uses another name than the policy.
        partition: Name of the partition, if the policy has a place for one.
        accept_lower_cap: Lower the pinned cap to the policy's cap; otherwise a lower cap is refused.
        accept_fewer_rows: Leave out more than 10% of the published rows that the source still holds.
        progress: Called with counts, rate and remaining time, of every phase and of the whole run.
        entries: Entries of the policy to set: `sink`, `ledger`, `cap`, `keep`, `unit`, …

    Returns:
        Counts, spends, verdicts, and the place of the published table.

    Raises:
        InputError: The frame does not fit the policy; no budget used.
        PolicyError: The run cannot be carried out as written; nothing is lost.
        BudgetError: Records are over the cap, and on_cap is "refuse".
        GateError: A gate failed: nothing is published, charges stay, and the release name is revoked.
    """
    named = {"id": id, "subject": subject, **entries}
    whole = run_policy(policy, {name: value for name, value in named.items() if value is not None})
    warn_of_other_ids(whole, whole.id, frame)
    return run(
        whole,
        engine=LocalEngine(frame.lazy()),
        partition=partition,
        accept_lower_cap=accept_lower_cap,
        accept_fewer_rows=accept_fewer_rows,
        progress=progress,
    )


def released(sink: str, storage_options: Mapping[str, str] | None = None, *, verify: bool = True) -> pl.LazyFrame:
    """Scan the current version of a published table, and check first that its files match its manifest.

    Args:
        sink: Folder or object-store URL of the table, which is the policy's sink.
        storage_options: Options for object stores; values may be "env:NAME".
        verify: Read every file once and compare its hash.

    Returns:
        A lazy frame in row order, of the version that was current at the call.

    Raises:
        InputError: Nothing is published there, or a file is not the one that was published.
    """
    return scan_published(sink, storage_options, verify=verify)


@bare
def label(text: str | pl.Expr, classifier: Classifier | str | Path, corpus: Corpus | str | None = None) -> pl.Expr:
    """Return the label of every text of a column, strings; null where the text is null.

    It reads your own texts and costs nothing. Nothing of it is a release: labels of private texts are private.

    Args:
        text: The column of texts, by name or as an expression.
        classifier: The classifier, or the place of its release (`open_classifier`).
        corpus: The corpus of the classifier, or its folder; by default the installed one of that name.
    """
    opened = classifier if isinstance(classifier, Classifier) else open_classifier(classifier)

    def labels(texts: pl.Series) -> pl.Series:
        return pl.Series(texts.name, opened.label(texts.cast(pl.String).to_arrow(), corpus), pl.String)

    column = by_name(text) if isinstance(text, str) else text
    return column.map_batches(labels, return_dtype=pl.String, is_elementwise=True)


def read_columns(frame: pl.LazyFrame, policy: Policy) -> pl.LazyFrame:
    """Return the columns that a run of a policy reads, with kept columns as it publishes them."""
    if policy.per_subject is not None:
        msg = "per_subject needs all rows of a person, and an expression sees rows in batches"
        raise PolicyError(msg, "publish by a run (`run_frame`), or give a policy without per_subject")
    return table_of(frame, policy.model_copy(update={"incremental": False}), Layout("", "")).frame


def as_published(rows: pl.LazyFrame, policy: Policy) -> pl.LazyFrame:
    """Return released rows of `read_columns` as a run publishes them: without subjects, and with ids as `ids` says."""
    if policy.unit == "subject" and policy.subject is not None and policy.on_null_subject != "own":
        person = by_name(policy.subject)
        if policy.on_null_subject == "refuse":
            person = person.map_batches(_require_persons, return_dtype=pl.Boolean, is_elementwise=True)
        rows = rows.filter(person.is_not_null())
    if policy.ids != "keep":  # the order of the keyed ids says nothing of the source

        def keyed(ids: pl.Series) -> pl.Series:
            hashed = keyed_ids(policy.key, policy.dataset, policy.release, keys.canonical_series(ids).to_arrow())
            return hashed.alias(ids.name)

        ids = by_name(policy.id)
        rows = rows.with_columns(ids.map_batches(keyed, return_dtype=pl.String, is_elementwise=True)).sort(ids)
    return rows.select(map(by_name, shown_columns(policy)))


def _require_persons(persons: pl.Series) -> pl.Series:
    if nulls := persons.null_count():
        hint = 'fill the column of subjects, or write on_null_subject = "quarantine", which leaves these rows out'
        raise InputError(counted(nulls, "row of a batch has no subject", "rows of a batch have no subject"), hint)
    return persons.is_not_null()


class OtherIdsWarning(UserWarning):
    """Record ids have another type than the ids of a release of the same name."""


def warn_of_other_ids(policy: Policy, name: str, frame: pl.DataFrame | pl.LazyFrame) -> None:
    """Warn if the ledger pins ids of another type than `name` has in a frame, or the published table shows them."""
    try:
        pinned = pinned_forms(policy).get("record")
        if pinned is None and PARTITION not in policy.sink and not is_remote(policy.sink) and policy.ids == "keep":
            manifest = Manifest.read(Layout.of_sink(policy.sink, {}))
            if manifest is not None and (manifest.dataset, manifest.release) == (policy.dataset, policy.release):
                written = manifest.schema.get(policy.id, "")
                kind = "integer" if written.lstrip("U").startswith("Int") else "string" if written == "String" else None
                pinned = None if kind is None else IdForm(kind)
        dtype = None if pinned is None else frame.lazy().collect_schema().get(name)
        now = None if dtype is None else form_of(dtype)
    except (DPTextError, pl.exceptions.PolarsError):  # the call itself reports the problem
        return
    if pinned is None or now is None or pinned.kind == now.kind:
        return
    msg = (
        f"ids in column {name!r} are {now.kind} here, and {pinned.kind} in {policy.dataset}, release {policy.release}: "
        "the texts differ from the texts of that release. Bring the column into that type; of a CSV file, "
        f"pl.read_csv(…, schema_overrides={{{name!r}: pl.String}}) reads strings, as the command line does"
    )
    warnings.warn(msg, OtherIdsWarning, stacklevel=2)
