"""Judge a staged synthetic table, and publish it without ids, with its statistic in the manifest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dptext_etl import telemetry
from dptext_etl.checks import Candidate, Verdict, evaluate, require
from dptext_etl.errors import LedgerError, counted
from dptext_etl.families.aggregate.summing import published_facts
from dptext_etl.guarantee import FINE, MICRO
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.policy.synthetic import CLAIM
from dptext_etl.runner import left_out
from dptext_etl.runner.amounts import equal_spends
from dptext_etl.runner.anchoring import require_same_ledger
from dptext_etl.runner.claims import policy_notes
from dptext_etl.runner.progress import Checkpoint, nothing
from dptext_etl.runner.publish import tables
from dptext_etl.runner.publish.gating import NOTE
from dptext_etl.runner.publish.manifest import Manifest, same_content
from dptext_etl.runner.publish.parts import Writer
from dptext_etl.runner.publish.publication import Published, finish
from dptext_etl.runner.publish.versions import alone_at
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.summary import NOTHING_SPENT, RunSummary, dropped_note, remaining, summary_of
from dptext_etl.runner.synthetic.attempt import RECORD, Drawn, StagedTable, SyntheticAttempt

log = logging.getLogger("dptext_etl.runner")


class Step(NamedTuple):
    """What the steps of a run share while no other run of the release is under way."""

    staged: StagedTable
    ledger: Ledger
    staging: Staging


def judge_table(step: Step, checkpoint: Checkpoint = nothing) -> tuple[Verdict, ...]:
    """Evaluate the gates of a staged table; if one fires, revoke the release name, and remove the table.

    There are none where another machine's table is published.
    """
    staged, ledger, staging = step
    attempt, policy = staged.attempt, staged.policy
    if staged.other:
        return ()
    path = staging.storage.local_path(staged.drawn.path.name)
    verdicts = evaluate(Candidate(policy, (path,), (), None, {}, scratch=staging.folder))
    fired = ", ".join(verdict.name for verdict in verdicts if not verdict.passed)
    if fired:
        log.error("gates fired: %s; the release name is revoked", fired)
        ledger.revoke(staged.ref, fired[:200])
        attempt.remember(ledger)
        _clear(staging)
        note = b"A gate fired. The table was removed; `dptext clean` removes the rest.\n"
        staging.storage.write(NOTE, note, action="removing a staged table")
    telemetry.judged(policy.dataset, policy.release, verdicts)
    checkpoint("gated")
    return verdicts


def _clear(staging: Staging) -> None:
    """Remove a staged table and its statistic; lists of records over the cap stay."""
    staging.storage.renew_lock()
    staging.storage.delete(RECORD, *staging.storage.glob("synthetic.*"))


def _claim(attempt: SyntheticAttempt, drawn: Drawn) -> dict[str, Any]:
    """State what is claimed of the table, and its statistic; all of it is public."""
    return {**claim_of(attempt), "statistic": published_facts(drawn.noisy)}


def claim_of(attempt: SyntheticAttempt) -> dict[str, Any]:
    """State what is claimed of a table before it is drawn."""
    synthetic, statistic = attempt.synthetic, attempt.statistic
    spend = statistic.charge(CLAIM)
    cost = {"epsilon": spend.eps_approx / MICRO, "delta": spend.delta / FINE}
    names = {} if synthetic.labels is None else {"label": synthetic.labels.column, "names": synthetic.names}
    return {
        "name": synthetic.column,
        "mechanism": synthetic.mechanism.name,
        "parameter": synthetic.mechanism.epsilon,
        "unit": CLAIM.unit,
        "unit_epsilon": cost["epsilon"],
        "unit_delta": cost["delta"],
        "class": CLAIM.guarantee_class.value,
        "disclosures": [],
        "assumptions": sorted(CLAIM.assumptions),
        "longest_text_words": statistic.n_max,
        "largest_epsilon": cost["epsilon"],
        "largest_delta": cost["delta"],
        "largest_rho": spend.rho / MICRO,
        "cfg": statistic.cfg(),
        "synthetic": {"rows": synthetic.rows, **names},
    }


def publish_table(step: Step, verdicts: Sequence[Verdict], checkpoint: Checkpoint = nothing) -> Published:
    """Publish a table whose gates passed, if its policy says so."""
    staged, layout = step.staged, step.staged.attempt.layout
    if staged.other:
        before = Manifest.read(layout)
        if before is None:
            msg, hint = "what was published is gone; nothing was published", "bring its files back, then run again"
            raise LedgerError(msg, hint)
        note = "already published; this machine would draw a few other rows from the same statistic"
        return Published(before.version, layout.sink, before.digest, before.rows, changed=False, note=note)
    require(verdicts)
    if not staged.policy.publish:
        note = f"not published (publish = false): the table stays staged in {layout.staging.url}"
        return Published(None, None, None, 0, changed=False, note=note)
    with alone_at(layout) as hold:
        published = _publish(step, verdicts, checkpoint, hold)
        left_out.note(step.staging.storage, published.manifest, staged.rows, verdicts)
        return published


def _publish(step: Step, verdicts: Sequence[Verdict], checkpoint: Checkpoint, hold: Callable[[], None]) -> Published:
    staged, ledger, staging = step
    attempt, policy, layout, rows = staged.attempt, staged.policy, staged.attempt.layout, staged.drawn.rows
    before = Manifest.read(layout)
    with Writer(layout, staging, 1 if before is None else before.version + 1) as writer:
        for start in range(0, rows.height, policy.shard_rows):
            writer.add_rows(rows.slice(start, policy.shard_rows))
            hold()
        checkpoint("parts written")
        manifest = Manifest(
            policy.dataset,
            policy.release,
            layout.partition,
            writer.version,
            layout.sink_format,
            None,
            dict.fromkeys(rows.columns, "String"),
            [_claim(attempt, staged.drawn)],
            [verdict.name for verdict in verdicts],
            writer.parts,
            staged.origin,
        )
        known = before is not None and before.digest in ledger.published(staged.ref, layout.place).values()
        same = before is not None and known and same_content(before, manifest)
        manifest = before if same and before is not None else manifest
        _record(attempt, ledger, staged.ref, manifest)
        checkpoint("recorded")
        published = finish(writer, layout, before, manifest, lambda: _clear(staging), hold, checkpoint, same=same)
        tables.record(layout, manifest, ledger, [staged.ref])
        attempt.remember(ledger)
        return published


def _record(attempt: SyntheticAttempt, ledger: Ledger, ref: ReleaseRef, manifest: Manifest) -> None:
    """Record the publication before readers can see it; what holds forgotten people is not published."""
    require_same_ledger(ledger, attempt.layout, attempt.policy)
    place = attempt.layout.place
    if ledger.count_forgotten(ref) and manifest.digest not in ledger.published(ref, place).values():
        msg = "the table was summed over records that were forgotten since; nothing was published"
        raise LedgerError(msg, "publish a table without them under a new release name; all others are charged again")
    ledger.record_publication(ref, manifest.name, manifest.digest, manifest.rows, sink=place)
    attempt.remember(ledger)


def published_before(attempt: SyntheticAttempt, ledger: Ledger, ref: ReleaseRef, drawn: Drawn) -> Manifest | None:
    """Return what is published of this statistic under this policy, though this machine draws other rows from it."""
    before = Manifest.read(attempt.layout)
    if before is None or before.digest not in ledger.published(ref, attempt.layout.place).values():
        return None
    return before if before.columns == [_claim(attempt, drawn)] else None


_AGAIN = "in the source again and not counted"


def summarize_table(
    staged: StagedTable, verdicts: Sequence[Verdict], published: Published, seconds: float
) -> RunSummary:
    attempt, rows = staged.attempt, staged.rows
    listed = f"their ids are listed in {attempt.layout.staging.url} alone"
    most = attempt.synthetic.per_subject
    reasons = {
        "quarantined": ("record over the cap does", "records over the cap do", f"not count; {listed}"),
        "over_contribution": ("record does", "records do", f"not count: per_subject = {most} of a person do"),
        "forgotten": ("record that was forgotten is", "records that were forgotten are", _AGAIN),
    }
    notes = [f"{counted(rows[name], *whose)} {what}" for name, (*whose, what) in reasons.items() if rows.get(name)]
    notes += [*dropped_note(staged.dropped), *([] if rows["new"] else [NOTHING_SPENT]), *policy_notes(staged.policy)]
    return summary_of(
        staged.policy,
        attempt.layout,
        verdicts,
        published,
        seconds,
        rows=rows,
        draws=0,
        spends=equal_spends(attempt.statistic.charge(CLAIM).as_dict(), rows["released"]),
        left=remaining(staged.policy),
        notes=notes,
    )
