"""Judge a staged run, then publish it: drop canary rows, draft a version, tell the ledger, let readers see it."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import polars as pl
import pyarrow as pa

from dptext_etl import files, telemetry
from dptext_etl.accounting.shuffling import COUNT
from dptext_etl.checks import Candidate, Verdict, evaluate, require
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.sink_files import Manifest, Part
from dptext_etl.checks.text_counts import copy_reports, model_failures, rewriting_reports, total_copies
from dptext_etl.data_types import by_name, kind_of, plain_type
from dptext_etl.device import threads
from dptext_etl.errors import BudgetError, InputError, LedgerError, PolicyError, bare, counted, seam
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.policy import LedgerSpec, Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Checkpoint, Listener, Meter, nothing
from dptext_etl.runner.publish import versions
from dptext_etl.runner.publish.manifest import claims, continues, is_whole, note_excluded, scan
from dptext_etl.runner.publish.parts import HiddenIds, Writer, ids_of_parts, keep_id_lists, write_shuffled
from dptext_etl.runner.publish.versions import alone_at, expire, show
from dptext_etl.runner.shard.attempt import ledger_of_run, remember, require_same_ledger
from dptext_etl.runner.shard.computing import replays
from dptext_etl.runner.shard.staging import NOTE, ColumnHardware, StagedRun, StagedShard, Staging, merge_hardware
from dptext_etl.runner.source.table import READ_HINT, Files, batches

_DRAFT = "manifest.draft.json"
_BATCH_ROWS = 1 << 18
_AGAIN = "remove the staging folder by hand: it may hold raw text"

Judge = Callable[[StagedRun, Candidate, Callable[[int], object]], tuple[Verdict, ...]]
"""Check the hashes of the staged files, give their rows to every gate, and report the number of rows."""


def judge_here(staged: StagedRun, candidate: Candidate, count: Callable[[int], object]) -> tuple[Verdict, ...]:
    """Judge a staged run in this process; the hashes of its files are compared meanwhile."""
    staging = Staging(staged.layout.staging)
    with ThreadPoolExecutor(threads(), thread_name_prefix="dptext-hash") as pool:
        compared = [pool.submit(staging.require, shard) for shard in staged.shards]
        if staging.storage.remote:
            wait(compared)  # the comparison fetches them
        try:
            verdicts = evaluate(candidate, count)
        finally:
            for comparison in compared:  # a changed file is reported, not the gate that fails over it
                comparison.result()
    for shard in staged.shards:
        staged.profile.count("gates", rows=shard.counts["rows"], size=staging.path(shard).stat().st_size)
    return verdicts


@bare
def check(
    staged: StagedRun,
    *,
    ledger: Ledger | None = None,
    judge: Judge = judge_here,
    progress: Listener | None = None,
    checkpoint: Checkpoint = nothing,
) -> tuple[Verdict, ...]:
    """Evaluate all gates over a staged run; if one fires, revoke the release name and remove texts from staging.

    Args:
        staged: The staged run.
        ledger: The ledger of the run, if it is open already.
        judge: Evaluates the gates; `Engine.judge` of the engine that staged the run.
        progress: Called with the number of rows that are judged, or None.
        checkpoint: Called after the step, for tests.

    Returns:
        The verdicts of all gates; none if nothing is staged.

    Raises:
        InputError: A staged file has changed.
        LedgerError: The ledger cannot be opened.
    """
    if not staged.shards or staged.other:
        return ()
    policy, staging = staged.policy, Staging(staged.layout.staging)
    recomputed: dict[str, Counter[str]] = {}
    for shard in staged.shards:
        for column, counts in shard.recomputed.items():
            recomputed.setdefault(column, Counter()).update(counts)
    rows = sum(shard.counts["rows"] for shard in staged.shards) + sum(len(plan.rows) for plan in staged.canaries)
    meter = Meter("gates", rows, progress)
    with staged.profile.stage("gates"):
        manifest = staging.folder / _DRAFT  # the gates search it, too; the next attempt writes it again
        content = draft(staged, (), (), 0, {}).text().encode()
        files.write(manifest, content, action="staging the manifest", durable=False)
        with ledger_of_run(policy, ledger) as opened:
            candidate = Candidate(
                policy=policy,
                parts=staged.parts,
                rewritten=tuple(staging.post(shard) for shard in staged.shards if shard.post),
                canaries=staged.canaries,
                ledger=opened,
                refs=staged.refs,
                texts=(manifest,),
                copies=total_copies(shard.copies for shard in staged.shards),
                recomputed=recomputed,
                scratch=staging.folder,
            )
            verdicts = judge(staged, candidate, meter.add)
            fired = [verdict.name for verdict in verdicts if not verdict.passed]
            if fired:
                log.error("gates fired: %s; the release name is revoked", ", ".join(fired))
                opened.releases.revoke(next(iter(staged.refs.values())), ", ".join(fired)[:200])
                remember(opened, policy)  # a restored copy would not know of it
                strip(staging)
            judging = [(verdict.name, verdict.passed) for verdict in verdicts if verdict.applicable]
            telemetry.judged(policy.dataset, policy.release, judging)
            checkpoint("gated")
    return verdicts


def reports(staged: StagedRun) -> list[Mapping[str, object]]:
    """Compare counts of the run with their bounds, and count failures of models, for people inside the boundary."""
    if staged.policy.synthetic is not None:  # nothing is compared with a raw text
        return []
    with staged.profile.stage("reports"):
        counts, policy = total_copies(shard.copies for shard in staged.shards), staged.policy
        copied = (*copy_reports(policy, counts), *copy_reports(policy, counts, ngrams=True))
        failed = model_failures(shard.failures for shard in staged.shards)
        again = rewriting_reports(policy, (shard.post for shard in staged.shards))
        return [*(item.verdict().as_dict() for item in copied), *(item.as_dict() for item in (*failed, *again))]


def strip(staging: Staging) -> None:
    """Remove all staged rows, and all bytes that were kept for replays.

    A gate that failed has found a defect, so staged texts may be raw. The quarantine lists stay.
    """
    storage = staging.storage
    with seam("removing staged texts", InputError, _AGAIN):
        storage.delete(*storage.glob("kept-*"))
        staging.clear()
        (staging.folder / _DRAFT).unlink(missing_ok=True)
        note = b"A gate fired. Staged rows were removed; `dptext clean` removes the rest.\n"
        storage.write(NOTE, note, action="removing staged texts")


log = logging.getLogger("dptext_etl.runner")

_WHY = {"quarantined": "over the cap", "without_subject": "without a person", "changed_excluded": "with a changed text"}
"""Why rows are excluded. Counts follow only from balances, spends, and ids, and, if the policy consents, from which
texts changed; never from the contents of a text (docs/spec/privacy.md#over-cap)."""

Write = Callable[[Writer, Iterable[StagedShard], Callable[[int], object]], None]
"""Writes staged shards as parts of a version, and says now and then how many more rows are written."""


@dataclass(frozen=True)
class Published:
    """The result of a publication."""

    version: int | None  # the version that readers see now; None if nothing is published
    path: str | None  # folder or URL of the published table; None if nothing is published
    manifest: str | None  # SHA-256 of the manifest; None if nothing is published
    rows: int  # rows that readers see now
    changed: bool  # whether this run made a new version
    note: str  # the outcome, in a sentence


@bare
def publish(
    staged: StagedRun,
    verdicts: Sequence[Verdict],
    *,
    ledger: Ledger | None = None,
    write: Write = Writer.add,
    progress: Listener | None = None,
    checkpoint: Checkpoint = nothing,
) -> Published:
    """Publish a staged run if all its gates passed and its policy says so.

    Args:
        staged: The staged run.
        verdicts: The verdicts that `check` returned.
        ledger: The ledger of the run, if it is open already.
        write: Writes staged shards; `Engine.write` of the engine that staged the run.
        progress: Called with the number of rows that are written, or None.
        checkpoint: Called after every step, for tests.

    Returns:
        The version that readers see now, with its row count and the SHA-256 of its manifest.

    Raises:
        GateError: A gate failed.
        BudgetError: Fewer rows than `min_released` would be published.
        LedgerError: The ledger does not allow the publication, such as after a revocation.
    """
    layout, policy = staged.layout, staged.policy
    if staged.other:
        before = Manifest.read(layout)
        if before is None:
            msg = "the published table is gone; nothing was published"
            raise LedgerError(msg, "bring its files back, then run again")
        rows = "this machine would draw a few other rows from the same statistic"
        return unchanged(layout, before, rows if staged.shards else "all records are in the published table")
    if staged.shards:
        require(verdicts)
    if not policy.publish:
        stays = counted(staged.rows["released"], "row stays", "rows stay")
        return unchanged(layout, None, f"not published (publish = false): {stays} staged in {layout.staging.url}")
    meter = Meter("publish", sum(shard.counts["rows"] for shard in staged.shards), progress)
    # staging is locked before the sink: a second attempt at this release is refused before it touches the sink
    with (
        staged.profile.stage("publish"),
        layout.staging.lock("of this release is under way"),
        alone_at(layout) as (before, renew_lock),
        ledger_of_run(policy, ledger) as opened,
    ):

        def advance(rows: int = 0) -> None:
            renew_lock()
            if rows:
                meter.add(rows)

        published = _publish(staged, verdicts, opened, before, write=write, advance=advance, checkpoint=checkpoint)
        if layout.logged:
            manifest = Manifest.read(layout)
            if manifest is not None and is_recorded(opened, layout, manifest.digest, staged.refs.values()):
                versions.record(layout, manifest, opened, staged.refs.values())
                remember(opened, policy)
        note_excluded(layout.staging, published.manifest, staged.rows, verdicts)
        return published


def _publish(
    staged: StagedRun,
    verdicts: Sequence[Verdict],
    ledger: Ledger,
    before: Manifest | None,
    *,
    write: Write,
    advance: Callable[..., None],
    checkpoint: Checkpoint,
) -> Published:
    layout, policy, staging = staged.layout, staged.policy, Staging(staged.layout.staging, staged.staging_key)
    held = before is not None and is_recorded(ledger, layout, before.digest, staged.refs.values())
    recorded = before if held else None
    again = "; the manifest was written again" if recorded is not None and recorded.restore(layout) else ""
    kept = _continued(staged, before, recorded)
    require_enough(policy, staged.rows, sum(part.rows for part in kept))
    if not staged.rows["released"]:
        if before is not None:
            show(layout, before)
        return unchanged(layout, before, f"there are no new rows to publish{again}")
    most, version = (policy.shard_rows, policy.shard_bytes), 1 if before is None else before.version + 1
    with Writer(layout, staging, version, most, hidden=HiddenIds.of(policy), kept=kept) as writer:
        _write_parts(staged, staging, writer, write, advance)
        checkpoint("parts written")
        older = before.computed if before is not None and kept else {}
        manifest = draft(staged, verdicts, writer.parts, writer.version, older)
        same = recorded is not None and not kept and same_content(recorded, manifest)
        if recorded is not None and not kept:
            if not same and _only_order(staged, recorded, manifest, writer.drafts):
                show(layout, recorded)
                staging.clear()
                return unchanged(layout, recorded, f"nothing changed but the order of rows{again}")
            manifest = recorded if same else manifest
        # recorded before readers can see it, so that a revoked release never becomes visible
        require_same_ledger(ledger, layout, policy, before)
        _refuse_forgotten(staged, ledger, manifest)
        refs = list(staged.refs.values())
        ledger.releases.record_publication(refs, manifest.name, manifest.digest, manifest.rows, sink=layout.place)
        remember(ledger, policy)
        checkpoint("recorded")
        # files, then the manifest, then the folder: a reader who follows a manifest always finds its files
        restored = writer.restore(manifest.parts, advance) if same else 0
        if not same:
            writer.finish(advance)
        checkpoint("version written")
        manifest.write_classifier(layout, classifier_of(policy, staged.shards))
        if not same:
            manifest.write(layout, before)
        checkpoint("manifest written")
        show(layout, manifest)
        expire(layout, manifest, before)
        checkpoint("shown")
        keep_id_lists(staging.storage, (part.sha256 for part in manifest.parts), writer.lists)
        if replays(policy):
            staging.set_aside()
        staging.clear()
        checkpoint("cleared")
    if same:
        more = f"; {restored} damaged or missing parts were written again" if restored else ""
        return unchanged(layout, before, f"nothing changed{more}{again}")
    rows, parts = counted(manifest.rows, "row"), counted(len(manifest.parts), "part")
    log.info("published version %d: %d rows", manifest.version, manifest.rows)
    note = f"published version {manifest.version}: {rows} in {parts}"
    return Published(manifest.version, layout.sink, manifest.digest, manifest.rows, changed=True, note=note)


def _write_parts(
    staged: StagedRun, staging: Staging, writer: Writer, write: Write, advance: Callable[[int], object]
) -> None:
    policy = staged.policy
    filled = [shard for shard in staged.shards if shard.counts["rows"]]
    total = sum(shard.counts["rows"] for shard in filled)
    if policy.shuffled is not None:
        write_shuffled(writer, staging, filled, policy, policy.shuffled)
        advance(total)
    elif policy.synthetic is not None:
        for rows in staging.read(filled[0]).iter_slices(policy.shard_rows):
            writer.add_rows(rows)
        advance(total)
    else:
        write(writer, filled, advance)
    staged.profile.count("publish", rows=total, size=writer.size)


def _continued(staged: StagedRun, before: Manifest | None, recorded: Manifest | None) -> tuple[Part, ...]:
    """Return the published parts that an incremental run adds to; only a manifest that the ledger knows is added to."""
    base = before if before is not None and continues(staged.policy, staged.layout, before) else None
    if staged.base != (None if base is None else base.digest):
        raise PolicyError("another run has published here since this run was staged", "run the same policy again")
    if base is not None and recorded is None:
        refuse_foreign(staged.layout)
    return () if base is None else base.parts


def refuse_unrecorded(
    layout: Layout, spec: LedgerSpec, base: str, ledger: Ledger | None, refs: Sequence[ReleaseRef]
) -> None:
    """Refuse to add rows to a manifest that the ledger did not record, or that holds forgotten records.

    `base` is the digest of the manifest.
    """
    if ledger is None or not is_recorded(ledger, layout, base, refs):
        refuse_foreign(layout)
    refuse_forgotten_base(layout, spec, ledger, refs)


def refuse_foreign(layout: Layout) -> NoReturn:
    """Refuse to add rows to a table that no run published."""
    msg = f"the manifest of {layout.sink} is none that the ledger recorded: it was changed, or replaced"
    raise LedgerError(msg, "`dptext check` says more; incremental = false publishes every row again at no cost")


def is_recorded(ledger: Ledger, layout: Layout, digest: str, refs: Iterable[ReleaseRef]) -> bool:
    """Return whether the ledger recorded that all releases were published in a sink with this manifest."""
    return all(digest in ledger.releases.published(ref, layout.place).values() for ref in refs)


def is_released(
    policy: Policy,
    layout: Layout,
    ledger: Ledger | None,
    refs: Mapping[str, ReleaseRef],
    shard: StagedShard | None = None,
) -> bool:
    """Return whether an intact table of a synthetic release is published: of the statistic of a shard, or of any."""
    before = Manifest.read(layout) if policy.publish else None
    if before is None or ledger is None:
        return False
    held, wanted = before.columns, claims(policy) if shard is None else claims_of(policy, [shard])
    if shard is None:
        held, wanted = ([{**claim, "statistic": None} for claim in columns] for columns in (held, wanted))
    return held == wanted and is_whole(layout, before) and is_recorded(ledger, layout, before.digest, refs.values())


def _refuse_forgotten(staged: StagedRun, ledger: Ledger, manifest: Manifest) -> None:
    """Refuse to publish records that were forgotten since they were staged (docs/spec/privacy.md#forgotten)."""
    policy = staged.policy
    if not ledger.people.forgets(policy.dataset):
        return
    if policy.synthetic is not None:
        (ref,) = staged.refs.values()
        if ledger.people.count_forgotten(ref) and not is_recorded(ledger, staged.layout, manifest.digest, [ref]):
            msg = "the table was summed over records that were forgotten since; nothing was published"
            hint = "publish a table without them under a new release name; all others are charged again"
            raise LedgerError(msg, hint)
        return
    if staged.base is not None:
        refuse_forgotten_base(staged.layout, policy.ledger, ledger, staged.refs.values())
    count, staging = 0, Staging(staged.layout.staging)
    for shard in staged.shards:
        records = staging.read(shard).filter(~pl.col(CANARY))
        count += int(ledger.people.forgotten(policy.dataset, canonical_ids(records[policy.id].to_arrow())).sum())
    if count:
        gone = counted(count, "of the staged records was", "of the staged records were")
        msg = f"{gone} forgotten since this run staged them; nothing was published"
        raise LedgerError(msg, "run the same policy again: it leaves them out, and charged records cost nothing again")


def published_ids(layout: Layout, spec: LedgerSpec, manifest: Manifest) -> Iterator[pl.Series]:
    """Yield the canonical ids of published rows, if they are known; null where forgotten in another table."""
    if manifest.ids != "keep":
        yield from ids_of_parts(layout.staging, spec, (part.sha256 for part in manifest.parts))
    elif manifest.id is not None:
        for batch in batches(scan(layout, manifest).select(by_name(manifest.id)), _BATCH_ROWS):
            yield pl.Series(canonical_ids(batch[manifest.id].to_arrow()), dtype=pl.String)


def forgotten_among(ledger: Ledger, dataset: str, ids: pl.Series, units: pl.Series | None = None) -> pl.Series:
    """Return which records are forgotten; ids of some that were are null (`blank_ids`)."""
    ids = ids.alias("id")
    gone, there = ids.is_null().to_numpy(writable=True), ids.is_not_null()
    hashes = None if units is None else pa.array(units.filter(there).to_list(), pa.binary(32))
    gone[there.to_numpy()] = ledger.people.forgotten(dataset, canonical_ids(ids.drop_nulls().to_arrow()), hashes)
    return pl.Series(gone, dtype=pl.Boolean)


def refuse_forgotten_base(layout: Layout, spec: LedgerSpec, ledger: Ledger, refs: Iterable[ReleaseRef]) -> None:
    """Refuse to add to a version that holds forgotten records (docs/spec/privacy.md#forgotten).

    Its ids are read only if the release ever held a record that is forgotten now.
    """
    manifest = Manifest.read(layout)
    if manifest is None or not any(ledger.people.count_forgotten(ref) for ref in refs):
        return
    published = published_ids(layout, spec, manifest)
    count = sum(int(forgotten_among(ledger, manifest.dataset, ids).sum()) for ids in published)
    if count:
        are = counted(count, "row of the published table is", "rows of the published table are")
        msg = f"{are} of people or records that were forgotten in another release or sink"
        raise LedgerError(msg, "`dptext forget` removes them: name the same people for this policy, too")


def _only_order(staged: StagedRun, before: Manifest, now: Manifest, drafts: Sequence[Path]) -> bool:
    """Return whether a run of Spark would change the order of rows and where parts end, and nothing else."""
    policy, layout = staged.policy, staged.layout
    drawn = any(staged.rows.get(name) for name in ("new", "resumed", "changed_released"))
    if drawn or replays(policy) or policy.ids != "keep" or not any(shard.by_ids for shard in staged.shards):
        return False
    if not same_content(replace(before, parts=()), replace(now, parts=())):
        return False
    if layout.remote_sink or before.rows != now.rows or not is_whole(layout, before):
        return False

    def sums(paths: Iterable[str]) -> tuple[int, ...]:
        """Add up 64-bit hashes of rows, which no order changes."""
        row = pl.struct(by_name(name) for name in before.schema)
        frame = Files(tuple(paths), before.file_format, {}).scan(all_text=True)
        totals = frame.select(row.hash(seed).sum().alias(str(seed)) for seed in (0, 1)).collect(engine="streaming")
        return tuple(totals.row(0))

    with seam("comparing with the published table", InputError, READ_HINT):
        return sums(layout.part(part.path) for part in before.parts) == sums(map(str, drafts))


def unchanged(layout: Layout, before: Manifest | None, note: str) -> Published:
    """Return the version that readers still see."""
    if before is None:
        return Published(None, None, None, 0, changed=False, note=note)
    note = f"already published: {note}"
    return Published(before.version, layout.sink, before.digest, before.rows, changed=False, note=note)


def require_enough(policy: Policy, rows: Mapping[str, int], kept: int = 0) -> None:
    """Refuse a version that would hold fewer rows than `min_released` says."""
    counts = {reason: rows.get(name, 0) for name, reason in _WHY.items()}
    released, selection = rows["released"] + kept, sum(counts.values())
    if not selection or released >= Fraction(repr(policy.min_released)) * (released + selection):
        return
    why = " or ".join(reason for reason, count in counts.items() if count)
    msg = (
        f"{selection} of {released + selection} rows would be excluded ({why}); the policy publishes only if "
        f"a share of {policy.min_released:g} of them is there (min_released). "
        "Nothing was published, and nothing was replaced"
    )
    hint = "is the cap right? `dptext ledger remaining` shows balances; a smaller min_released publishes fewer rows"
    fields = {"excluded": selection, "rows": released + selection, "min_released": policy.min_released}
    raise BudgetError(msg, hint, fields)


def draft(
    staged: StagedRun, verdicts: Iterable[Verdict], parts: tuple[Part, ...], version: int, older: ColumnHardware
) -> Manifest:
    """Put together the manifest of a version of a staged run; models of kept parts computed on `older`."""
    policy, layout = staged.policy, staged.layout
    schema, hidden = Staging(layout.staging).schema(staged.shards[0]), HiddenIds.of(policy)
    if policy.shuffled is not None:
        names = policy.shuffled.columns(policy.columns[0].name)
        schema = pl.Schema({name: pl.Int64() if name == COUNT else pl.String() for name in names})
    schema = schema if hidden is None else hidden.schema(schema)
    columns = {claim["name"]: claim for claim in claims_of(policy, staged.shards)}
    for name, hardware in merge_hardware([older, *(shard.computed for shard in staged.shards)]).items():
        columns[name]["computed"] = hardware
    return Manifest(
        policy.dataset,
        policy.release,
        layout.partition,
        version,
        layout.sink_format,
        None if policy.one_table or policy.ids == "drop" else policy.id,
        {name: kind_of(plain_type(dtype, rename=True)) for name, dtype in schema.items()},
        [*columns.values()],
        [verdict.name for verdict in verdicts],
        parts,
        staged.origin,
        policy.ids,
        staged.exact,
        {item.column: item.rule for item in policy.kept if item.rule},
        hashlib.sha256(content).hexdigest() if (content := classifier_of(policy, staged.shards)) else None,
        policy.audience,
    )


def classifier_of(policy: Policy, shards: Iterable[StagedShard]) -> bytes:
    """Return the file of the classifier of a synthetic table; empty without labels, and for other releases."""
    if policy.synthetic is None or policy.synthetic.labels is None:
        return b""
    from dptext_etl.families.aggregate import linear_discriminant
    from dptext_etl.runner.shard.summing import statistic_of

    (shard,) = shards
    return linear_discriminant(statistic_of(policy, shard), policy.synthetic.names).content()


def claims_of(policy: Policy, shards: Iterable[StagedShard]) -> list[dict[str, Any]]:
    """State the claims on every column, with the noisy statistic that a synthetic table was drawn from."""
    if policy.synthetic is None:
        return claims(policy)
    from dptext_etl.families.aggregate.contributions import published_facts
    from dptext_etl.runner.shard.summing import statistic_of

    return [
        {**claim, "statistic": published_facts(statistic_of(policy, shard))}
        for claim, shard in zip(claims(policy), shards, strict=True)
    ]


def same_content(before: Manifest, now: Manifest) -> bool:
    """Return whether readers would see the same bytes with the same description."""

    def content(manifest: Manifest) -> dict[str, object]:
        parts = [(part.rows, part.sha256) for part in manifest.parts]
        schema = [*manifest.schema.items()]  # in order
        return {**asdict(manifest), "version": None, "source": None, "schema": schema, "parts": parts}

    return content(before) == content(now)
