"""Publish a staged run: canary rows go, parts are written under a new version, one small manifest file is replaced."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from dptext_etl.checks.gates import Verdict, require
from dptext_etl.errors import PolicyError
from dptext_etl.ledger import Ledger
from dptext_etl.runner import durable
from dptext_etl.runner.incremental import continues
from dptext_etl.runner.manifest import Manifest, draft
from dptext_etl.runner.parts import Writer
from dptext_etl.runner.progress import Listener, Meter
from dptext_etl.runner.shards import Checkpoint
from dptext_etl.runner.stage import StagedRun, nothing
from dptext_etl.runner.staging import Staging

log = logging.getLogger("dptext_etl.runner")


@dataclass(frozen=True)
class Published:
    """What became of a run.

    Attributes:
        version: Version that readers now see; None if nothing is published.
        path: Folder or URL of the published table; None if nothing is published.
        manifest: SHA-256 of the manifest; None if nothing is published.
        rows: Rows that readers now see.
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
        staged: The run.
        verdicts: What `check` said of it.
        progress: Called with counts, rate and what is left.
        checkpoint: Called after every step, for tests.

    Raises:
        GateError: A gate failed, or none was evaluated; nothing is published.
        LedgerError: The release is burnt or not publishable.
        InputError: No room or access, or staged files are gone; readers still see the version before.
    """
    layout, policy = staged.layout, staged.policy
    if staged.shards:
        require(verdicts)
    if not policy.publish:
        note = f"not published (publish = false): {staged.rows['released']} rows stay staged in {layout.staging}"
        return Published(None, None, None, 0, changed=False, note=note)
    staging = Staging(layout.staging)
    with durable.alone(staging.folder):
        before = Manifest.read(layout)
        adds = continues(policy, layout, before)
        if adds != (staged.base is not None) or (before is not None and adds and before.digest != staged.base):
            raise PolicyError("something else was published since this run was staged", "run the same policy again")
        kept = before.parts if before is not None and adds else ()
        if not staged.rows["released"]:
            return _unchanged(staged, before, "there are no new rows to publish")
        meter = Meter("publish", staged.rows["released"], progress)
        version = 1 if before is None else before.version + 1
        with Writer(layout, staging, version) as writer:
            for shard in staged.shards:
                if shard.counts["rows"]:
                    writer.add(shard)
                meter.add(shard.counts["rows"])
            checkpoint("parts written")
            schema = staging.schema(staged.shards[0])
            gates = [verdict.name for verdict in verdicts]
            manifest = draft(policy, layout, schema, gates=gates, parts=(*kept, *writer.parts), version=version)
            same = before is not None and not adds and _same(before, manifest)
            if same and before is not None:
                restored = writer.restore(before.parts)
                manifest = before
            else:
                writer.finish()
            checkpoint("version written")
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False) as ledger:
            ledger.published(list(staged.refs.values()), _name(manifest), manifest.digest, manifest.rows)
        checkpoint("recorded")
        if not same:
            manifest.write(layout)
        checkpoint("manifest written")
        staging.clear()
        checkpoint("cleared")
    if same:
        note = "already published: nothing changed" + (
            f"; {restored} damaged or missing parts were written again" if restored else ""
        )
        return Published(manifest.version, layout.sink, manifest.digest, manifest.rows, changed=False, note=note)
    log.info("published version %d: %d rows", manifest.version, manifest.rows)
    note = f"published version {manifest.version}: {manifest.rows} rows in {len(manifest.parts)} parts"
    return Published(manifest.version, layout.sink, manifest.digest, manifest.rows, changed=True, note=note)


def _same(before: Manifest, now: Manifest) -> bool:
    """Whether readers would see the same bytes, described in the same words."""

    def content(manifest: Manifest) -> tuple[object, ...]:
        parts = [(part.rows, part.sha256) for part in manifest.parts]
        names = (manifest.dataset, manifest.release, manifest.partition, manifest.file_format, manifest.id)
        return (*names, list(manifest.schema.items()), manifest.columns, manifest.gates, parts)

    return content(before) == content(now)


def _unchanged(staged: StagedRun, before: Manifest | None, note: str) -> Published:
    layout = staged.layout
    if before is None:
        return Published(None, None, None, 0, changed=False, note=note)
    said = f"already published: {note}"
    return Published(before.version, layout.sink, before.digest, before.rows, changed=False, note=said)


def _name(manifest: Manifest) -> str:
    """Name a publication in the ledger: unique over partitions and sinks, the same when a killed run goes on."""
    where = "" if manifest.partition is None else f"{manifest.partition}/"
    return f"{where}v{manifest.version}-{manifest.digest[:12]}"
