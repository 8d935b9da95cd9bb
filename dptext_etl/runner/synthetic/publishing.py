"""Judge a staged synthetic table, and publish it without ids, with its statistic in the manifest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from dptext_etl.checks import Candidate, Verdict, evaluate
from dptext_etl.errors import LedgerError
from dptext_etl.families.aggregate.summing import published_facts
from dptext_etl.guarantee import FINE, MICRO
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.runner.anchoring import require_same_ledger
from dptext_etl.runner.checkpoint import Checkpoint
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.gating import NOTE
from dptext_etl.runner.publish.manifest import Manifest, same_content
from dptext_etl.runner.publish.parts import Writer
from dptext_etl.runner.publish.publication import Published, finish
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.synthetic.attempt import Attempt
from dptext_etl.runner.synthetic.staging import RECORD, Drawn
from dptext_etl.synthetic import CLAIM

log = logging.getLogger("dptext_etl.runner")


def judge(attempt: Attempt, ledger: Ledger, ref: ReleaseRef, staging: Staging, drawn: Drawn) -> tuple[Verdict, ...]:
    """Evaluate the gates of a staged table; if one fires, revoke the release name, and remove the table."""
    path = staging.storage.local_path(drawn.path.name)
    verdicts = evaluate(Candidate(attempt.policy, (path,), (), None, {}, scratch=staging.folder))
    fired = [verdict.name for verdict in verdicts if not verdict.passed]
    if fired:
        log.error("gates fired: %s; the release name is revoked", ", ".join(fired))
        ledger.revoke(ref, ", ".join(fired)[:200])
        attempt.remember(ledger)
        clear(staging)
        note = b"A gate fired. The table was removed; `dptext clean` removes the rest.\n"
        staging.storage.write(NOTE, note, action="removing a staged table")
    return verdicts


def clear(staging: Staging) -> None:
    """Remove a staged table and its statistic; lists of records over the cap stay."""
    staging.storage.renew_lock()
    staging.storage.delete(RECORD, *staging.storage.glob("synthetic.*"))


def claim(attempt: Attempt, drawn: Drawn) -> dict[str, Any]:
    """State what is claimed of the table, and its statistic; all of it is public."""
    return {**claim_of(attempt), "statistic": published_facts(drawn.noisy)}


def claim_of(attempt: Attempt) -> dict[str, Any]:
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


def publish(  # noqa: PLR0917
    attempt: Attempt,
    ledger: Ledger,
    ref: ReleaseRef,
    staging: Staging,
    drawn: Drawn,
    verdicts: Sequence[Verdict],
    origin: dict[str, str] | None,
    checkpoint: Checkpoint,
    hold: Callable[[], None],
) -> Published:
    """Publish a table whose gates passed; call it alone at the sink."""
    layout, most = attempt.layout, attempt.policy.shard_rows
    before = Manifest.read(layout)
    with Writer(layout, staging, 1 if before is None else before.version + 1) as writer:
        for start in range(0, drawn.rows.height, most):
            writer.add_rows(drawn.rows.slice(start, most))
            hold()
        checkpoint("parts written")
        manifest = _drafted(attempt, drawn, verdicts, writer, origin)
        known = before is not None and before.digest in ledger.published(ref).values()
        same = before is not None and known and same_content(before, manifest)
        manifest = before if same and before is not None else manifest
        _record(attempt, ledger, ref, manifest)
        checkpoint("recorded")
        return finish(writer, layout, before, manifest, lambda: clear(staging), hold, checkpoint, same=same)


def _drafted(
    attempt: Attempt, drawn: Drawn, verdicts: Sequence[Verdict], writer: Writer, origin: dict[str, str] | None
) -> Manifest:
    policy, layout = attempt.policy, attempt.layout
    return Manifest(
        policy.dataset,
        policy.release,
        layout.partition,
        writer.version,
        layout.sink_format,
        None,
        dict.fromkeys(drawn.rows.columns, "String"),
        [claim(attempt, drawn)],
        [verdict.name for verdict in verdicts],
        writer.parts,
        origin,
    )


def _record(attempt: Attempt, ledger: Ledger, ref: ReleaseRef, manifest: Manifest) -> None:
    """Record the publication before readers can see it; what holds forgotten people is not published."""
    require_same_ledger(ledger, attempt.layout, attempt.policy)
    if ledger.count_forgotten(ref) and manifest.digest not in ledger.published(ref).values():
        msg = "the table was summed over records that were forgotten since; nothing was published"
        raise LedgerError(msg, "publish a table without them under a new release name; all others are charged again")
    ledger.record_publication(ref, manifest.name, manifest.digest, manifest.rows)
    attempt.remember(ledger)


def published_before(attempt: Attempt, ledger: Ledger, ref: ReleaseRef, drawn: Drawn) -> Manifest | None:
    """Return what is published of this statistic under this policy, though this machine draws other rows from it."""
    before = Manifest.read(attempt.layout)
    if before is None or before.digest not in ledger.published(ref).values():
        return None
    return before if before.columns == [claim(attempt, drawn)] else None


def seen_before(layout: Layout) -> Published:
    """Return what is published of a statistic from which this machine would draw other rows."""
    before = Manifest.read(layout)
    if before is None:
        raise LedgerError("what was published is gone; nothing was published", "bring its files back, then run again")
    note = "already published; this machine would draw a few other rows from the same statistic"
    return Published(before.version, layout.sink, before.digest, before.rows, changed=False, note=note)
