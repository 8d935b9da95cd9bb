"""Look at all rows of a run before any of them is charged, and refuse a run that could not end.

Nothing is drawn or charged, and the ledger is only read. A plan goes through the same steps in the same order as a run,
by the same functions (`Attempt.check`): places, source, canary rows, pinned terms, and the ledger's answers to rows.
Refusals depend on counts, spends, and balances, on which texts changed, and on whether a column that is published
unchanged holds texts (`runner.source.examine`); on nothing else in a text.

A run stages and judges the tables of all audiences before it publishes any of them: a gate that fires revokes the
release for all.
"""

from __future__ import annotations

import math
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic

import polars as pl

from dptext_etl import column, files, object_stores
from dptext_etl.checks.canaries import CanaryPlan, canary_sets, plan_canaries
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.errors import DiskError, InputError, LedgerError, PolicyError, counted, seam
from dptext_etl.guarantee import MICRO, Disclosure, refuse_more_records
from dptext_etl.ledger import Ledger, ReleaseRef, Scope, anchor_files
from dptext_etl.ledger.caps import limits
from dptext_etl.ledger.ledger import require_writable
from dptext_etl.ledger.people import refuse_other_units
from dptext_etl.ledger.releases import refuse_other_table
from dptext_etl.ledger.storage.hashed_ids import resolve_id_key
from dptext_etl.ledger.storage.store import POSTGRES, resolve_url, sqlite_path
from dptext_etl.ledger.types import NEW
from dptext_etl.mechanism import stated_records, worst_spend
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.policy.policy_like import together
from dptext_etl.runner.forecast import Expected, ledger_of
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener
from dptext_etl.runner.publish.manifest import register
from dptext_etl.runner.publish.publication import refuse_unrecorded, require_enough
from dptext_etl.runner.publish.versions import PUBLISHING, require_sink
from dptext_etl.runner.shard.attempt import (
    UNDER_WAY,
    Attempt,
    refuse_no_records,
    refuse_other_records,
    refuse_over_cap,
    refuse_too_few,
    require_environment,
    require_same_ledger,
)
from dptext_etl.runner.shard.charging import PAIRS, Column, at_most
from dptext_etl.runner.shard.computing import keep_published, replays, require_earlier_texts
from dptext_etl.runner.shard.shard import refuse_other_persons
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.examine import Examined, examine, refuse_copies
from dptext_etl.runner.source.roles import Rows, Table, forms_of, open_table, table_of
from dptext_etl.runner.table_check import refuse_traceable, require_untraceable, selection_facts, shows_more, trace

_ROW_BYTES, _DRAW_BYTES = 256, 4
"""The least that a run writes for a new record in a column, in ledger and staging together, and for a new draw."""


def require_places(attempt: Attempt) -> None:
    """Refuse places that cannot be written to, or where another run is at work. Nothing is made."""
    layout, policy = attempt.layout, attempt.policy
    if not layout.staging.remote:
        files.require_own(layout.staging.folder)
    require_sink(layout, making=False)
    places = [layout.staging, layout.memory]
    if policy.publish:
        layout.described.require_unlocked(PUBLISHING, planning=attempt.planning)
        places += [layout.published, layout.described] if layout.logged else [layout.published]
    for place in places:
        if place.remote:
            object_stores.require_writable(place.url, dict(place.options))
    if policy.publish and (table := layout.table_format) is not None:
        table.require_writable()
    require_writable(policy.ledger.url)
    anchor_files.require_place(policy.ledger, policy.storage_options)
    layout.staging.require_unlocked(UNDER_WAY, planning=attempt.planning)


def planned_canaries(attempt: Attempt, source: Examined[Any]) -> list[CanaryPlan]:
    """Refuse a source with too few rows, or too many, and plan its canary rows; a synthetic table has none."""
    policy, (column, *_) = attempt.policy, attempt.columns
    if policy.synthetic is not None:
        refuse_more_records(source.wanted, stated_records(column.mechanism), f"column {column.column!r}")
        return []
    if policy.labels is None:  # else the preview names the labels that have too few
        refuse_too_few(policy, source.wanted)
    dtype, sets = source.table.schema[policy.id], canary_sets(source.first, source.wanted, source.least)
    return plan_canaries(policy, dtype, source.present, attempt.secret, sets, attempt.partition)


def require_models(columns: Iterable[ColumnPolicy], expected: Expected) -> None:
    """Refuse models that fail on public texts, where any text is still to be computed (docs/spec/privacy.md#probe)."""
    if not expected.computed:
        return
    for item in columns:
        column.probe(item.mechanism)
        with seam("probing the model", hint="is the model of the post-processing intact? Nothing was charged"):
            for step in item.postprocess:
                step.probe()


def require_cap(attempt: Attempt, ledger: Ledger | None) -> None:
    """Refuse a cap that the ledger would not pin: pin it in a rehearsal."""
    policy = attempt.policy
    if ledger is not None:
        with ledger.rehearsal():
            ledger.agree_on_cap(Scope.of(policy), policy.cap, lowering=attempt.accept_lower_cap)
    elif policy.cap is not None:
        limits(policy.cap)


def columns_of(attempt: Attempt, ledger: Ledger | None, source: Examined[Any]) -> list[Column]:
    """Return the text columns with their releases; refuse those that the ledger would not pin, in a rehearsal."""
    policy, refs = attempt.policy, dict[str, ReleaseRef]()
    if ledger is not None:
        with ledger.rehearsal():
            for item in attempt.columns:
                register(ledger, policy, item, source.table.id_type)
        forms = forms_of(source.table.schema, policy)
        ledger.require_forms(Scope.of(policy), [item.name for item in policy.columns], forms)
    elif policy.ledger.id_key is not None:
        resolve_id_key(policy.ledger.id_key)
    for item in attempt.columns:
        pinned = None if ledger is None else ledger.releases.find(item)
        names = item.dataset, item.column or "", item.release, item.mechanism.cfg()
        refs[item.column or ""] = pinned or ReleaseRef(NEW, *names, item.nonce)
    return Column.all(attempt.columns, refs)


def refuse_late_disclosure(policy: Policy, ledger: Ledger | None) -> None:
    """Refuse to show which texts changed in a release whose versions promised not to show it.

    Specification: docs/spec/privacy.md#release-again.
    """
    if ledger is None or not policy.discloses_changes:
        return
    for name, ref in ledger.releases.find_all(policy).items():
        if Disclosure.CHANGED not in ledger.releases.disclosures(ref):
            msg = f"{ref} promises that no version shows which texts changed, and its published versions rely on it; "
            msg += f'on_changed = "{policy.on_changed}" would show it'
            cost = at_most(worst_spend(policy.column_policy(name).mechanism).eps_approx / MICRO)
            records = counted(ledger.records(ref), "record")
            hint = 'on_changed = "keep" publishes the earlier released texts at no cost. A new release name charges '
            raise LedgerError(msg, f"{hint}{records} again, each epsilon {cost} at most")


class Reader(ABC, Generic[Rows]):
    """Reads a source before anything is charged: the half of an engine that a plan has, too."""

    @abstractmethod
    def open(self, policy: Policy, layout: Layout) -> Table[Rows]:
        """Open the raw table and check its columns, before anything is written or charged.

        Args:
            policy: The policy of the run.
            layout: The places of the run.

        Returns:
            The table, with the types of its columns.

        Raises:
            PolicyError: The table cannot be read, or lacks a column of the policy.
        """

    @abstractmethod
    def examine(self, table: Table[Rows], policy: Policy, layout: Layout, progress: Listener | None) -> Examined[Rows]:
        """Check ids and subjects; in an incremental run, leave out rows that are published already.

        Args:
            table: The table that `open` returned.
            policy: The policy of the run.
            layout: The places of the run.
            progress: Called with the number of rows that are checked, or None.

        Returns:
            The rows of the run, with counts of the rows that are excluded.

        Raises:
            InputError: Ids are missing or repeated.
        """


class LocalReader(Reader[pl.LazyFrame]):
    """Reads files in this process, or a frame in their place."""

    def __init__(self, frame: pl.LazyFrame | None = None) -> None:
        self._frame = frame

    def open(self, policy: Policy, layout: Layout) -> Table[pl.LazyFrame]:
        return open_table(policy, layout) if self._frame is None else table_of(self._frame, policy, layout)

    def examine(
        self, table: Table[pl.LazyFrame], policy: Policy, layout: Layout, progress: Listener | None
    ) -> Examined[pl.LazyFrame]:
        return examine(table, policy, layout, progress)


def preflight(
    attempt: Attempt,
    reader: Reader[Any],
    source: Examined[Any],
    look: Callable[[list[Column], Ledger | None, Any], Expected],
) -> tuple[Expected, Expected, dict[str, Any]]:
    """Refuse a run that could not end, before it charges anything.

    Return the previews of its rows, and of all rows with those that an incremental run leaves out; and facts about the
    table around the texts (`runner.table_check`).

    `look` previews some rows of the source. A plan raises only a refusal without which nothing can be counted.
    """
    policy, layout, check = attempt.policy, attempt.layout, attempt.check
    own_facts = trace(source, policy) if policy.keep and not attempt.audiences else {}
    traceable = _traced_together(attempt, reader) if attempt.audiences else own_facts
    same_ledger = partial(require_same_ledger, freezing=not attempt.planning)
    with ledger_of(policy, writing=not attempt.planning) as ledger:
        if ledger is not None:  # first: another refusal would hide that the ledger lost events
            check(same_ledger, ledger, layout, policy, source.manifest)
    with ledger_of(policy) as ledger:
        check(require_environment, policy, attempt.secret, ledger, recording=False)
        check(require_cap, attempt, ledger)
        check(refuse_late_disclosure, policy, ledger)
        columns = columns_of(attempt, ledger, source)
        refs = [item.ref for item in columns]
        check(refuse_copies, policy, source.copied)
        if traceable:
            check(require_untraceable, policy, layout, traceable, ledger, refs)
        # Nothing is released, nothing can be over a cap, and no model can fail: then no row can matter
        free = ledger is None and not (
            attempt.planning or policy.cap is not None or policy.one_table or replays(policy)
        )
        expected = Expected() if free else look(columns, ledger, source.rows)
        over_all = expected if source.every_row is None else look(columns, ledger, source.every_row)
        if source.pairs is not None and over_all.answers:
            check(refuse_other_persons, source.pairs, sum(over_all.pairs.values()) % PAIRS)
        check(refuse_other_units, Scope.of(policy), over_all.moved, over_all.records)
        if source.base is not None:
            check(refuse_unrecorded, layout, policy.ledger, source.base, ledger, refs)
        check(_refuse_changed, policy, layout, over_all.changed, expected.unkept)
        keeps = bool(expected.changed) and policy.on_changed == "keep"
        if keeps:
            check(require_earlier_texts, attempt.layouts, policy)
        if attempt.refusing:
            check(refuse_over_cap, expected.over_cap)
        for item in columns:
            committed = 0 if ledger is None or item.ref.id == NEW else ledger.records(item.ref)
            records = committed + expected.charged.get(item.name, 0)
            check(refuse_more_records, records, stated_records(item.policy.mechanism), str(item.ref))
        if policy.one_table and expected.answers:
            check(refuse_too_few, policy, expected.drawn, expected.labels)
            for ref in refs:
                check(require_whole_table, ledger, ref, expected)
        if policy.publish or policy.synthetic is not None:
            check(require_enough, policy, rows_by_outcome(policy, source, expected), source.rows_before)
        check(refuse_no_records, policy, expected.admitted)
        asking = len(columns) * source.wanted if ledger is None else sum(expected.charged.values())
        draws = 0 if expected.charged_before or expected.over_cap else expected.words
        check(_require_space, attempt, asking * _ROW_BYTES + draws * _DRAW_BYTES)
        check(refuse_fewer_rows, attempt, source, expected, partial(look, columns, ledger))
        for place in attempt.layouts if keeps and ledger is not None else ():
            check(keep_published, place, policy, columns, Staging(layout.staging), planning=attempt.planning)
        if ledger is None and attempt.planning:  # a run makes a ledger first, and freezes the dataset in it
            check(same_ledger, None, layout, policy, source.manifest)
    now = source.manifest.rows if source.manifest is not None and policy.publish else None
    checked = {
        "traceable": traceable,
        "spellings": over_all.spellings,
        "selection": selection_facts(policy, source, expected) if expected.answers else {},
        "published": {} if now is None else {"now": now, "this_run": rows_of_version(policy, source, expected)},
    }
    return expected, over_all, checked


def require_whole_table(ledger: Ledger | None, ref: ReleaseRef, expected: Expected) -> None:
    """Refuse records other than the pinned ones: a release that is drawn as a whole holds one table.

    Texts that changed are refused before, so the records decide.
    """
    if ledger is None or ref.id == NEW:
        return
    committed, new, pinned = ledger.records(ref), expected.answers.get("RESERVED", 0), ledger.releases.pinned_table(ref)
    if pinned is not None and (new or committed != expected.admitted):
        refuse_other_table(ref)
    if pinned is None and committed + new != expected.admitted:
        refuse_other_records(ref)


def rows_by_outcome(policy: Policy, source: Examined[Any], expected: Expected) -> dict[str, int]:
    """Count the rows that will be released and excluded, as the summary of the run will."""
    changed = expected.changed if policy.on_changed == "quarantine" else 0
    rows = {
        "released": source.wanted - expected.over_cap - changed - expected.answers.get("FORGOTTEN", 0),
        "quarantined": expected.over_cap,
        "without_subject": source.nameless,
        "changed_excluded": changed,
    }
    return {name: count for name, count in rows.items() if count or name in {"released", "quarantined"}}


MOST_LOST = 0.1
"""The largest share of published rows that a run leaves out although the source holds them, without consent."""


def rows_of_version(policy: Policy, source: Examined[Any], expected: Expected) -> int:
    """Count the rows that readers will see after a run."""
    if policy.synthetic is not None:
        return policy.table_rows
    if policy.shuffled is not None:
        return expected.drawn
    return source.rows_before + rows_by_outcome(policy, source, expected)["released"]


def refuse_fewer_rows(
    attempt: Attempt, source: Examined[Any], expected: Expected, look: Callable[[Any], Expected]
) -> None:
    """Refuse to lose published rows that the source still holds, and that no one forgot, for example over the cap.

    Specification: docs/spec/boundary.md#inside-only.
    """
    policy, manifest = attempt.policy, source.manifest
    if attempt.accept_fewer_rows or manifest is None or source.base is not None or policy.synthetic is not None:
        return
    rows = rows_by_outcome(policy, source, expected)
    excluded = source.beyond + sum(rows.values()) - rows["released"]
    forms = [column.get("shuffled", {}).get("form", "rows") for column in manifest.columns]
    by_record = not any("synthetic" in column for column in manifest.columns) and "counts" not in forms
    if not excluded or not policy.publish or not by_record:
        return
    version_rows = rows_of_version(policy, source, expected)
    held = min(manifest.rows, source.total - expected.answers.get("FORGOTTEN", 0))
    lost = held - version_rows  # at least; exact where records can be found
    if manifest.id == policy.id or manifest.ids == "drop":
        with suppress(InputError):  # its files, or the lists of its ids, may be gone
            held, lost = _lost(source, manifest, expected, excluded, look)
    if lost > MOST_LOST * held:
        msg = f"{lost:,} of {held:,} published rows that the source still holds would be excluded; published now: "
        msg += f"{manifest.rows:,} rows; this run: {version_rows:,}. Nothing was charged"
        hint = (
            "a new key or release name charges every record again, and those over the cap are excluded; keep the key "
            "and the name, or wait for a new period. `dptext run --accept-fewer-rows` publishes the smaller table"
        )
        raise PolicyError(msg, hint, {"rows": lost, "published": manifest.rows})


def _lost(
    source: Examined[Any], manifest: Manifest, expected: Expected, excluded: int, look: Callable[[Any], Expected]
) -> tuple[int, int]:
    """Count the rows of the source that are published now, and how many of these a run would leave out."""
    held = source.total - source.without(source.table.frame, manifest)[1]
    if excluded <= MOST_LOST * held:
        return held, 0
    gone, forgotten = look(source.mark(source.rows, manifest)).held if expected.records else (0, 0)
    if source.beyond or source.nameless:
        gone += held - (source.wanted - source.without(source.rows, manifest)[1])
    return held - forgotten, gone


def _refuse_changed(policy: Policy, layout: Layout, changed: int, unkept: int) -> None:
    """Refuse records whose texts changed, unless the policy allows changes."""
    if changed and (policy.synthetic is not None or policy.labels is not None):
        since = "since this release charged them; it holds one table as a whole"
        msg = f"the texts or labels of {counted(changed, 'record')} changed {since}"
        hint = "nothing was drawn; changed data, or another key, go under a new name, at full spend"
        raise InputError(msg, hint, {"records": changed})
    listed = f"Nothing was charged; only a file in {layout.staging.url} (changed-*.parquet) lists their ids"
    if changed and policy.on_changed == "refuse":
        msg = f"the texts of {counted(changed, 'record')} changed since this release charged them; it holds one text "
        msg += "per record id"
        hint = (
            'on_changed = "keep" publishes their earlier released texts again, at no cost; "quarantine" leaves them '
            'out, and "release_again" charges their new texts: both show which texts changed, so set them before the '
            f"first run of a release. Changed data, or another key, also goes under a new name, at full spend. {listed}"
        )
        raise InputError(msg, hint, {"records": changed})
    if unkept and policy.on_changed == "keep":
        msg = f"the texts of {unkept:,} of {counted(changed, 'changed record')} were never released"
        hint = f"bring their texts back, or use a new release name. {listed}"
        raise InputError(f"{msg}: there is nothing to keep", hint, {"records": unkept})


def _require_space(attempt: Attempt, least: int) -> None:
    staging, url = attempt.layout.staging, resolve_url(attempt.policy.ledger.url)
    if staging.remote or url.startswith(POSTGRES):
        return
    places = (place.absolute() for place in (staging.folder, sqlite_path(url)))
    folder, other = (next(above for above in (place, *place.parents) if above.exists()) for place in places)
    if disk_of(folder) == disk_of(other) and shutil.disk_usage(folder).free < least:
        size = math.floor(least / 2**20 * 10) / 10
        msg = f"the run writes {size} MiB at least, and there is less room in {staging.url}"
        raise DiskError(msg, "make room, or name another place as staging; nothing was charged")


def disk_of(place: Path) -> int:
    return place.stat().st_dev


def _traced_together(attempt: Attempt, reader: Reader[Any]) -> dict[str, Any]:
    """Return the facts about the kept columns of all tables together; refuse those that newly single out many rows."""
    tables, check = (attempt, *attempt.audiences), attempt.check
    for other in attempt.audiences:
        check(reader.open, other.policy, other.layout)
        check(require_places, other)
    policy = together(item.policy for item in tables)
    source = reader.examine(reader.open(policy, attempt.layout), policy, attempt.layout, None)
    check(refuse_copies, policy, source.copied)
    facts = trace(source, policy) if policy.keep else {}
    manifests = [Manifest.of_release(item.policy, item.layout) for item in tables]
    shown = zip(tables, manifests, strict=True)
    if any(manifest is None or shows_more(item.policy, manifest) for item, manifest in shown):
        check(refuse_traceable, facts)
    return facts
