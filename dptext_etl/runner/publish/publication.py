"""Publish a staged run: drop canary rows, draft a version, tell the ledger, then let readers see it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import polars as pl

from dptext_etl.checks import Verdict, require
from dptext_etl.checks.canaries.rows import CANARY
from dptext_etl.errors import BudgetError, LedgerError, PolicyError, bare
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Ledger
from dptext_etl.policy import Policy
from dptext_etl.runner import left_out
from dptext_etl.runner.anchoring import remember, require_same_ledger
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Checkpoint, Listener, Meter, nothing
from dptext_etl.runner.publish import own_ids, unlinking
from dptext_etl.runner.publish.manifest import Manifest, Part, draft, same_rows
from dptext_etl.runner.publish.own_ids import Hidden
from dptext_etl.runner.publish.parts import Writer, write_here
from dptext_etl.runner.publish.versions import alone_at, show
from dptext_etl.runner.shard.records import ColumnHardware, StagedShard, merge_hardware
from dptext_etl.runner.shard.replay import replays
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.selection import continues
from dptext_etl.runner.staged import StagedRun

log = logging.getLogger("dptext_etl.runner")

_WHY = {
    "quarantined": "are over the cap",
    "without_subject": "have no person",
    "changed_left_out": "have changed texts",
}
"""Why rows are left out. Counts follow from balances, spends, and ids alone, and, where the policy consents, from which
texts changed; never from what a text says (docs/spec/privacy.md#over-cap)."""

Write = Callable[[Writer, Iterable[StagedShard], Callable[[int], object]], None]
"""Writes staged shards as parts of a version, and says now and then how many more rows are written."""


@dataclass(frozen=True)
class Published:
    """The outcome of a publication.

    Attributes:
        version: The version that readers see now; None if nothing is published.
        path: Folder or URL of the published table; None if nothing is published.
        manifest: SHA-256 of the manifest; None if nothing is published.
        rows: Rows that readers see now.
        changed: Whether this run made a new version.
        note: What happened, in a sentence.
    """

    version: int | None
    path: str | None
    manifest: str | None
    rows: int
    changed: bool
    note: str


@bare
def publish(
    staged: StagedRun,
    verdicts: Sequence[Verdict],
    *,
    write: Write = write_here,
    progress: Listener | None = None,
    checkpoint: Checkpoint = nothing,
) -> Published:
    """Publish a staged run if all its gates passed and its policy says so."""
    layout, policy = staged.layout, staged.policy
    if staged.shards:
        require(verdicts)
    if not policy.publish:
        note = f"not published (publish = false): {staged.rows['released']} rows stay staged in {layout.staging.url}"
        return Published(None, None, None, 0, changed=False, note=note)
    staging = Staging(layout.staging)
    meter = Meter("publish", staged.rows["released"], progress)
    with (
        staged.profile.stage("publish"),
        staging.storage.lock("of this release is under way"),
        alone_at(layout) as hold,
    ):
        published = _publish(staged, staging, verdicts, write, meter, checkpoint, hold)
        left_out.note(staging.storage, published.manifest, staged.rows, verdicts)
        return published


def _publish(  # noqa: PLR0917
    staged: StagedRun,
    staging: Staging,
    verdicts: Sequence[Verdict],
    write: Write,
    meter: Meter,
    checkpoint: Checkpoint,
    hold: Callable[[], None],
) -> Published:
    layout = staged.layout
    before = Manifest.read(layout)
    known = before is not None and _recorded(staged, before)
    kept = _continued(staged, before, known=known)
    require_enough(staged.policy, staged.rows, sum(part.rows for part in kept))
    if not staged.rows["released"]:
        if before is not None:
            show(layout, before)
        return seen(layout, before, "there are no new rows to publish")
    most = staged.policy.shard_rows, staged.policy.shard_bytes
    with Writer(layout, staging, 1 if before is None else before.version + 1, most, Hidden.of(staged.policy)) as writer:

        def each(rows: int) -> None:
            hold()
            meter.add(rows)

        filled = [shard for shard in staged.shards if shard.counts["rows"]]
        if staged.policy.unlinked is None:
            write(writer, filled, each)
        else:
            counts = unlinking.multiset(staging, filled, staged.policy)
            unlinking.write(writer, counts, staged.policy, staged.policy.unlinked)
            each(staged.rows["released"])
        staged.profile.count("publish", rows=staged.rows["released"], size=writer.size)
        checkpoint("parts written")
        older = before.computed if before is not None and kept else {}
        manifest = _drafted(staged, verdicts, (*kept, *writer.parts), writer.version, older)
        same = known and before is not None and not kept and same_content(before, manifest)
        if known and before is not None and not same and not kept and _only_order(staged, before, manifest, writer):
            show(layout, before)
            staging.clear()
            return seen(layout, before, "nothing changed but the order of rows")
        manifest = before if same and before is not None else manifest
        _record(staged, manifest)
        checkpoint("recorded")

        def tidy() -> None:
            own_ids.keep_only(staging.storage, (part.sha256 for part in manifest.parts), writer.lists)
            if replays(staged.policy):
                staging.set_aside()
            staging.clear()

        return finished(writer, layout, before, manifest, tidy, hold, checkpoint, same=same)


def finished(  # noqa: PLR0917
    writer: Writer,
    layout: Layout,
    before: Manifest | None,
    manifest: Manifest,
    tidy: Callable[[], None],
    hold: Callable[[], None],
    checkpoint: Checkpoint,
    *,
    same: bool,
) -> Published:
    """Let readers see a version that the ledger has recorded, then tidy up staging; every step can be repeated."""
    restored = writer.restore(manifest.parts, hold) if same else 0
    if not same:
        writer.finish(hold)
    checkpoint("version written")
    if not same:
        manifest.write(layout, before)
    checkpoint("manifest written")
    show(layout, manifest)
    checkpoint("shown")
    tidy()
    checkpoint("cleared")
    if same:
        return seen(layout, before, _unchanged(restored))
    log.info("published version %d: %d rows", manifest.version, manifest.rows)
    note = f"published version {manifest.version}: {manifest.rows} rows in {len(manifest.parts)} parts"
    return Published(manifest.version, layout.sink, manifest.digest, manifest.rows, changed=True, note=note)


def _continued(staged: StagedRun, before: Manifest | None, *, known: bool) -> tuple[Part, ...]:
    """Return the published parts that an incremental run adds to; only a manifest that the ledger knows is added to."""
    adds = before is not None and continues(staged.policy, staged.layout, before)
    if staged.base != (before.digest if before is not None and adds else None):
        raise PolicyError("another run has published here since this run was staged", "run the same policy again")
    if adds and not known:
        msg = f"the manifest of {staged.layout.sink} is none that the ledger recorded: it was changed, or replaced"
        raise LedgerError(msg, "`dptext check` says more; incremental = false publishes every row again at no cost")
    return before.parts if before is not None and adds else ()


def _recorded(staged: StagedRun, manifest: Manifest) -> bool:
    """Return whether the ledger recorded a manifest as a publication of every column of this release."""
    ledger = staged.policy.ledger
    with Ledger.open(ledger.url, ledger.id_key, create=False, read_only=True) as book:
        return all(manifest.digest in book.published(ref).values() for ref in staged.refs.values())


def _drafted(
    staged: StagedRun, verdicts: Sequence[Verdict], parts: tuple[Part, ...], version: int, older: ColumnHardware
) -> Manifest:
    unlinked = staged.policy.unlinked
    schema = Staging(staged.layout.staging).schema(staged.shards[0])
    if unlinked is not None:
        schema = unlinking.schema(staged.policy, unlinked)
    hidden = Hidden.of(staged.policy)
    schema = schema if hidden is None else hidden.schema(schema)
    gates = [verdict.name for verdict in verdicts]
    computed = merge_hardware([older, staged.computed])
    return draft(
        staged.policy,
        staged.layout,
        schema,
        gates=gates,
        parts=parts,
        version=version,
        computed=computed,
        source=staged.origin,
    )


def _record(staged: StagedRun, manifest: Manifest) -> None:
    """Record the publication before readers can see it, so that a revoked release never becomes visible."""
    ledger = staged.policy.ledger
    with Ledger.open(ledger.url, ledger.id_key, create=False) as book:
        require_same_ledger(book, staged.layout, staged.policy)
        _refuse_forgotten(staged, book)
        book.record_publication(list(staged.refs.values()), name_of(manifest), manifest.digest, manifest.rows)
        remember(book, staged.layout.memory, staged.policy)


def _refuse_forgotten(staged: StagedRun, book: Ledger) -> None:
    """Refuse to publish records that were forgotten since they were staged (docs/spec/privacy.md#forgotten)."""
    dataset, column = staged.policy.dataset, staged.policy.id
    if not book.forgets(dataset):
        return
    count, staging = 0, Staging(staged.layout.staging)
    for shard in staged.shards:
        rows = staging.read(shard)
        own = rows.filter(~pl.col(CANARY)) if CANARY in rows.columns else rows
        count += int(book.forgotten(dataset, canonical_ids(own[column].to_arrow())).sum())
    if count:
        msg = f"{count} of the staged records were forgotten since this run staged them; nothing was published"
        raise LedgerError(msg, "run the same policy again: it leaves them out, and what is charged costs nothing again")


def _only_order(staged: StagedRun, before: Manifest, now: Manifest, writer: Writer) -> bool:
    """Return whether a run of Spark would change the order of rows and where parts end, and nothing else.

    Runs in one process keep to the order of the source; they put parts of incremental runs together.
    """
    policy = staged.policy
    drawn = any(staged.rows.get(name) for name in ("new", "resumed", "changed_released"))
    if drawn or replays(policy) or policy.ids != "keep" or not any(shard.by_ids for shard in staged.shards):
        return False
    if not same_content(replace(before, parts=()), replace(now, parts=())):
        return False
    return same_rows(staged.layout, before, writer.drafts, now.rows)


def same_content(before: Manifest, now: Manifest) -> bool:
    """Return whether readers would see the same bytes with the same description."""

    def content(manifest: Manifest) -> tuple[object, ...]:
        parts = [(part.rows, part.sha256) for part in manifest.parts]
        names = (
            manifest.dataset,
            manifest.release,
            manifest.partition,
            manifest.file_format,
            manifest.id,
            manifest.ids,
        )
        return (*names, list(manifest.schema.items()), manifest.columns, manifest.gates, parts)

    return content(before) == content(now)


def seen(layout: Layout, before: Manifest | None, note: str) -> Published:
    """Return what readers still see."""
    if before is None:
        return Published(None, None, None, 0, changed=False, note=note)
    said = f"already published: {note}"
    return Published(before.version, layout.sink, before.digest, before.rows, changed=False, note=said)


def _unchanged(restored: int) -> str:
    return "nothing changed" + (f"; {restored} damaged or missing parts were written again" if restored else "")


def name_of(manifest: Manifest) -> str:
    """Name a publication in the ledger: unique over partitions and sinks, the same when a killed run goes on."""
    where = "" if manifest.partition is None else f"{manifest.partition}/"
    return f"{where}v{manifest.version}-{manifest.digest[:12]}"


def require_enough(policy: Policy, rows: Mapping[str, int], kept: int = 0) -> None:
    """Refuse a version that would hold fewer rows than `min_released` says."""
    found = {said: rows.get(name, 0) for name, said in _WHY.items()}
    released, left_out = rows["released"] + kept, sum(found.values())
    if not left_out or released >= Fraction(repr(policy.min_released)) * (released + left_out):
        return
    why = " or ".join(said for said, count in found.items() if count)
    msg = (
        f"{left_out} of {released + left_out} rows {why}; the policy publishes only if a share of "
        f"{policy.min_released:g} of them is there (min_released). Nothing was published, and nothing was replaced"
    )
    hint = "is the cap right? `dptext ledger remaining` shows balances; a smaller min_released publishes fewer rows"
    fields = {"left_out": left_out, "rows": released + left_out, "min_released": policy.min_released}
    raise BudgetError(msg, hint, fields)
