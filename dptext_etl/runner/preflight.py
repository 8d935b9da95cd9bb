"""Refuse a run before anything is charged. A plan asks the same functions, so that it meets every refusal of a run.

They come in one order: places, source, canary rows, then what the ledger pins, and at last what it would answer to the
rows. Refusals depend on counts, spends and balances, and on which texts changed; never on what a text says.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import polars as pl

from dptext_etl import files
from dptext_etl.delta_policy import refuse_more_records
from dptext_etl.errors import InputError
from dptext_etl.ledger import Ledger, ReleaseRef, Scope
from dptext_etl.ledger.caps import limits
from dptext_etl.ledger.id_key import resolve_id_key
from dptext_etl.ledger.storage.store import require_writable
from dptext_etl.ledger.types import NEW
from dptext_etl.mechanism import stated_records
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner.claims import register
from dptext_etl.runner.outlook import Foreseen, Outlook, ledger_of, look
from dptext_etl.runner.progress import Meter
from dptext_etl.runner.publish.publication import require_enough
from dptext_etl.runner.publish.versions import require_sink
from dptext_etl.runner.shard.attempt import UNDER_WAY, Attempt, refuse_over_cap, refuse_too_few
from dptext_etl.runner.shard.charging import Column
from dptext_etl.runner.shard.replay import require_earlier_texts
from dptext_etl.runner.source.arranging import forms_of
from dptext_etl.runner.source.examined import Examined

ROW_BYTES, DRAW_BYTES = 256, 4
"""The least that a run writes for a record in a column, in ledger and staging together, and for a draw."""

Look = Callable[[list[Column], Ledger | None, Any], Foreseen]
"""Takes rows of a source through an `Outlook`."""
Keep = Callable[[list[Column], Ledger], object]


def require_places(attempt: Attempt) -> None:
    """Refuse places that cannot be written to. Nothing is made."""
    layout = attempt.layout
    if not layout.staging.remote:
        files.require_own(layout.staging.folder)
    require_sink(layout, making=False)
    require_writable(attempt.policy.ledger.url)


def require_cap(attempt: Attempt, ledger: Ledger | None) -> None:
    """Refuse a cap that the ledger would not pin. Nothing is pinned."""
    policy = attempt.policy
    if ledger is not None:
        ledger.require_cap(Scope.of(policy), policy.cap, lowering=attempt.accept_lower_cap)
    elif policy.cap is not None:
        limits(policy.cap)


def columns_of(attempt: Attempt, ledger: Ledger | None, source: Examined[Any]) -> list[Column]:
    """Return the text columns with their releases, and refuse what the ledger would not pin. Nothing is pinned."""
    policy, scope = attempt.policy, Scope.of(attempt.policy)
    if ledger is None:
        if policy.ledger.id_key is not None:
            resolve_id_key(policy.ledger.id_key)
        return _columns(attempt, [_unpinned(item) for item in attempt.columns])
    refs = [register(ledger, policy, item, source.table.id_type, pin=False) for item in attempt.columns]
    names = [item.name for item in policy.columns]
    ledger.require_forms(scope, names, forms_of(source.table.schema, policy))
    return _columns(attempt, refs)


def _unpinned(item: ColumnPolicy) -> ReleaseRef:
    return ReleaseRef(NEW, item.dataset, item.column or "", item.release, item.mechanism.cfg())


def _columns(attempt: Attempt, refs: list[ReleaseRef]) -> list[Column]:
    return [Column(item, ref, item.release_key()) for item, ref in zip(attempt.columns, refs, strict=True)]


def foresee(attempt: Attempt, source: Examined[Any], looking: Look, keep: Keep | None = None) -> int:
    """Refuse a run that could not end, before it charges anything; return how many published texts changed since.

    `keep` brings together the earlier released texts of changed records, where the policy publishes them again.
    """
    with ledger_of(attempt.policy) as ledger:
        require_cap(attempt, ledger)
        columns = columns_of(attempt, ledger, source)
        new = ledger is None and attempt.policy.cap is None  # nothing is released, and nothing can be over a cap
        found = Foreseen() if new else looking(columns, ledger, source.rows)
        stale = 0 if source.known is None else looking(columns, ledger, source.known).changed - found.changed
        refuse(attempt, source, columns, ledger, found, stale)
        if keep is not None and ledger is not None and found.changed and attempt.policy.on_changed == "keep":
            keep(columns, ledger)
        return stale


def refuse(  # noqa: PLR0917
    attempt: Attempt,
    source: Examined[Any],
    columns: list[Column],
    ledger: Ledger | None,
    found: Foreseen,
    stale: int,
) -> None:
    """Refuse a run by what it will find; `stale` rows changed that an incremental run leaves as they are."""
    policy, layout = attempt.policy, attempt.layout
    refuse_changed(policy, found.changed + stale, found.unkept)
    if found.changed and policy.on_changed == "keep":
        require_earlier_texts(layout, policy)
    if attempt.refusing:
        refuse_over_cap(found.over_cap)
    for item in columns:
        bound = stated_records(item.policy.mechanism)
        if bound is not None:
            held = 0 if ledger is None or item.ref.id == NEW else ledger.records(item.ref)
            refuse_more_records(held + found.charged.get(item.name, 0), bound, str(item.ref))
    if policy.unlinked is not None and found.answers:
        refuse_too_few(policy, found.drawn)
    if policy.publish:
        require_enough(policy, rows_left(policy, source, found), source.held)
    require_space(attempt, len(columns) * source.wanted, found.words)


def rows_left(policy: Policy, source: Examined[Any], found: Foreseen) -> dict[str, int]:
    """Count the rows that will be released and left out, as the summary of the run will."""
    changed = found.changed if policy.on_changed == "quarantine" else 0
    gone = found.answers.get("FORGOTTEN", 0)
    rows = {
        "released": source.wanted - found.over_cap - changed - gone,
        "quarantined": found.over_cap,
        "without_subject": source.nameless,
        "changed_left_out": changed,
    }
    return {name: count for name, count in rows.items() if count or name in {"released", "quarantined"}}


def stale_rows(
    policy: Policy, columns: list[Column], ledger: Ledger | None, source: Examined[pl.LazyFrame], found: Foreseen
) -> int:
    """Count the published records of an incremental source whose texts changed."""
    if source.known is None:
        return 0
    return look(Outlook(policy, columns, ledger), source.known, Meter("plan", None, None)).changed - found.changed


def left_out(policy: Policy, source: Examined[Any], found: Foreseen) -> dict[str, int]:
    """Count the rows that will be left out, by reason."""
    return {name: count for name, count in rows_left(policy, source, found).items() if name != "released"}


def refuse_changed(policy: Policy, changed: int, unkept: int) -> None:
    """Refuse records whose texts changed, unless the policy says what becomes of them."""
    listed = "Nothing was charged; a run lists their ids in its staging folder alone"
    if changed and policy.on_changed == "refuse":
        msg = f"the texts of {changed} records changed since this release took them; it holds one text per record id"
        hint = (
            'on_changed = "keep" publishes their earlier released texts again; "quarantine" leaves them out, and '
            '"release_again" charges their new texts: both show which texts changed, so a release takes them from its '
            f"first run on. Changed data, or another key, also goes under a new name, at full spend. {listed}"
        )
        raise InputError(msg, hint, {"records": changed})
    if unkept and policy.on_changed == "keep":
        msg = f"the texts of {unkept} of {changed} changed records were never released: there is nothing to keep"
        hint = f"bring their texts back, or take a new release name. {listed}"
        raise InputError(msg, hint, {"records": unkept})


def require_space(attempt: Attempt, cells: int, words: int) -> None:
    """Refuse a run that writes more than there is room for; what it writes at least follows from counts and draws."""
    least, layout = cells * ROW_BYTES + words * DRAW_BYTES, attempt.layout
    if layout.staging.remote:
        return
    place = next(
        path for path in (layout.staging.folder.absolute(), *layout.staging.folder.absolute().parents) if path.exists()
    )
    if shutil.disk_usage(place).free < least:
        msg = f"the run writes {least / 2**20:.1f} MiB at least, and there is less room in {layout.staging.url}"
        raise InputError(msg, "make room, or name another place as staging; nothing was charged")


def require_idle(attempt: Attempt) -> None:
    """Refuse where another run of this release is under way; nothing is made or held."""
    attempt.layout.staging.require_unlocked(UNDER_WAY)
