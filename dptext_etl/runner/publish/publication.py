"""Publish a staged run: drop canary rows, write parts under a new version, replace one small manifest."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from dptext_etl.checks import Verdict, require
from dptext_etl.errors import PolicyError
from dptext_etl.ledger import Ledger
from dptext_etl.runner import durable
from dptext_etl.runner.anchoring import remember
from dptext_etl.runner.checkpoint import Checkpoint, nothing
from dptext_etl.runner.computed import Places, together
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.publish.manifest import Manifest, Part, draft
from dptext_etl.runner.publish.parts import Writer
from dptext_etl.runner.shard.replaying import replays
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.incremental import continues
from dptext_etl.runner.staged import StagedRun

log = logging.getLogger("dptext_etl.runner")


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


def publish(
    staged: StagedRun,
    verdicts: Sequence[Verdict],
    *,
    progress: Listener | None = None,
    checkpoint: Checkpoint = nothing,
) -> Published:
    """Publish a staged run if all its gates passed and its policy says so.

    Args:
        staged: The staged run.
        verdicts: The verdicts of `check`.
        progress: Called with counts, rate and the time that is left.
        checkpoint: Called after every step, for tests.

    Raises:
        GateError: A gate failed, or none was evaluated; nothing is published.
        LedgerError: The release is revoked or not publishable.
        InputError: There is no room or access, or staged files are gone; readers still see the version before.
    """
    layout, policy = staged.layout, staged.policy
    if staged.shards:
        require(verdicts)
    if not policy.publish:
        note = f"not published (publish = false): {staged.rows['released']} rows stay staged in {layout.staging}"
        return Published(None, None, None, 0, changed=False, note=note)
    meter = Meter("publish", staged.rows["released"], progress)
    with durable.alone(layout.staging, "of this release is under way"), _alone_at_sink(layout):
        return _publish(staged, verdicts, meter, checkpoint)


def _publish(staged: StagedRun, verdicts: Sequence[Verdict], meter: Meter, checkpoint: Checkpoint) -> Published:
    layout, staging = staged.layout, Staging(staged.layout.staging)
    before = Manifest.read(layout)
    kept = _continued(staged, before)
    if not staged.rows["released"]:
        return _seen(layout, before, "there are no new rows to publish")
    with Writer(layout, staging, 1 if before is None else before.version + 1) as writer:
        for shard in staged.shards:
            if shard.counts["rows"]:
                writer.add(shard)
            meter.add(shard.counts["rows"])
        checkpoint("parts written")
        older = before.computed if before is not None and kept else {}
        manifest = _drafted(staged, verdicts, (*kept, *writer.parts), writer.version, older)
        same = before is not None and not kept and _same(before, manifest)
        if same and before is not None:
            manifest, restored = before, writer.restore(before.parts)
        else:
            writer.finish()
            restored = 0
        checkpoint("version written")
    _record(staged, manifest)
    checkpoint("recorded")
    if not same:
        manifest.write(layout)
    checkpoint("manifest written")
    if replays(staged.policy):
        staging.set_aside()
    staging.clear()
    checkpoint("cleared")
    if same:
        return _seen(layout, before, _unchanged(restored))
    log.info("published version %d: %d rows", manifest.version, manifest.rows)
    note = f"published version {manifest.version}: {manifest.rows} rows in {len(manifest.parts)} parts"
    return Published(manifest.version, layout.sink, manifest.digest, manifest.rows, changed=True, note=note)


def _alone_at_sink(layout: Layout) -> AbstractContextManager[None]:
    """Let one release at a time publish to a folder; object stores have no locks."""
    if layout.remote_sink:
        return nullcontext()
    return durable.alone(Path(layout.sink), "is publishing to this sink")


def _continued(staged: StagedRun, before: Manifest | None) -> tuple[Part, ...]:
    """Return the published parts that stay, for an incremental run."""
    adds = before is not None and continues(staged.policy, staged.layout, before)
    if staged.base != (before.digest if before is not None and adds else None):
        raise PolicyError("another run has published here since this run was staged", "run the same policy again")
    return before.parts if before is not None and adds else ()


def _drafted(
    staged: StagedRun, verdicts: Sequence[Verdict], parts: tuple[Part, ...], version: int, older: Places
) -> Manifest:
    schema = Staging(staged.layout.staging).schema(staged.shards[0])
    gates = [verdict.name for verdict in verdicts]
    computed = together([older, staged.computed])
    return draft(staged.policy, staged.layout, schema, gates=gates, parts=parts, version=version, computed=computed)


def _record(staged: StagedRun, manifest: Manifest) -> None:
    """Record the publication before readers can see it, so that a revoked release never becomes visible."""
    ledger = staged.policy.ledger
    with Ledger.open(ledger.url, ledger.id_key, create=False) as book:
        book.record_publication(list(staged.refs.values()), _name(manifest), manifest.digest, manifest.rows)
        remember(book, staged.layout, staged.policy.release)


def _same(before: Manifest, now: Manifest) -> bool:
    """Return whether readers would see the same bytes with the same description."""

    def content(manifest: Manifest) -> tuple[object, ...]:
        parts = [(part.rows, part.sha256) for part in manifest.parts]
        names = (manifest.dataset, manifest.release, manifest.partition, manifest.file_format, manifest.id)
        return (*names, list(manifest.schema.items()), manifest.columns, manifest.gates, parts)

    return content(before) == content(now)


def _seen(layout: Layout, before: Manifest | None, note: str) -> Published:
    """Return what readers still see."""
    if before is None:
        return Published(None, None, None, 0, changed=False, note=note)
    said = f"already published: {note}"
    return Published(before.version, layout.sink, before.digest, before.rows, changed=False, note=said)


def _unchanged(restored: int) -> str:
    return "nothing changed" + (f"; {restored} damaged or missing parts were written again" if restored else "")


def _name(manifest: Manifest) -> str:
    """Name a publication in the ledger: unique over partitions and sinks, the same when a killed run goes on."""
    where = "" if manifest.partition is None else f"{manifest.partition}/"
    return f"{where}v{manifest.version}-{manifest.digest[:12]}"
