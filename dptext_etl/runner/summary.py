"""Summarize what a run did, in numbers, for people, logs and JSON; never a text or an id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dptext_etl import html_tables
from dptext_etl.checks import Verdict
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.policy import Policy
from dptext_etl.runner.amounts import combined, given_back, shown
from dptext_etl.runner.publish.publication import Published
from dptext_etl.runner.staged import StagedRun

NOTHING_SPENT = "nothing was spent: no record was new to this release"


_CHANGED = {
    "changed_kept": "their earlier released texts are published",
    "changed_left_out": "they were left out",
    "changed_released": "they were charged for their new texts as well",
}


@dataclass(frozen=True)
class RunSummary:
    """The outcome of a run.

    Attributes:
        dataset: Name of the dataset.
        release: Name of the release.
        partition: Name of the partition, or None.
        version: Version that readers now see, or None.
        changed: Whether this run made a new version.
        rows: read, already_published, new, resumed, replayed, quarantined, forgotten (if any), released, null; and if
            there are any, without_subject, changed_kept, changed_left_out, changed_released.
        draws: Draws made for the released rows, over all text columns, without canary rows: one of a word, a token or a
            text, as the mechanism draws.
        seconds: Duration of the run.
        draws_per_second: Draws over seconds.
        spend: By component, the sum over the released records and the largest record; log10_odds of the largest.
        remaining: Quantiles of what units have used and have left in the scope, in millionths (`Ledger.remaining`).
        gates: The verdicts.
        reports: Copy counts of the whole run and their bounds; they stay inside the boundary.
        published: Folder or URL of the published table, or None.
        published_rows: Rows that readers now see.
        manifest: SHA-256 of the manifest, or None.
        staging: The staging folder, inside the boundary.
        notes: Further facts, in sentences.
        profile: What each stage took: name, seconds, cpu_seconds, rows, bytes, peak_memory (`runner.profile`). Of a
            run in several processes, the stages of the last one.
    """

    dataset: str
    release: str
    partition: str | None
    version: int | None
    changed: bool
    rows: dict[str, int]
    draws: int
    seconds: float
    draws_per_second: float
    spend: dict[str, Any]
    remaining: dict[str, Any]
    gates: list[dict[str, Any]]
    reports: list[dict[str, Any]]
    published: str | None
    published_rows: int
    manifest: str | None
    staging: str
    notes: list[str]
    profile: list[dict[str, Any]] = field(default_factory=list)

    def __repr__(self) -> str:
        passed = sum(gate["passed"] for gate in self.gates)
        said = f"{self.dataset} {self.release}, {self.rows['released']} rows released, {self.rows['new']} new"
        return f"RunSummary({said}, {passed} of {len(self.gates)} gates passed, version {self.version})"

    def _repr_html_(self) -> str:
        """Show the outcome in a notebook."""
        largest = self.spend.get("largest_record", {})
        about = {
            "published": self.published,
            "version": self.version,
            "rows readers see": self.published_rows,
            **self.rows,
            "largest epsilon of a record": largest.get("eps_approx"),
            "notes": " · ".join(self.notes),
        }
        gates = [(gate["name"], "passed" if gate["passed"] else "FAILED", gate["message"]) for gate in self.gates]
        shown = html_tables.facts(f"{self.dataset} {self.release}", about)
        beyond = [(item["name"], "BEYOND CHANCE", item["message"]) for item in self.reports if not item["passed"]]
        reports = html_tables.table("reports", ("report", "", "outcome"), beyond) if beyond else ""
        return shown + html_tables.table("gates", ("gate", "", "outcome"), gates) + reports

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as JSON can hold them."""
        return asdict(self)


def remaining(policy: Policy) -> dict[str, Any]:
    """Return what is left of the budget in the scope of a policy; publishing takes nothing from it."""
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
        return ledger.remaining(Scope.of(policy)).as_dict()


def summarise(
    staged: StagedRun,
    verdicts: tuple[Verdict, ...],
    published: Published,
    seconds: float,
    *,
    reported: Sequence[Mapping[str, Any]],
    left: dict[str, Any],
) -> RunSummary:
    """Summarize what a run did."""
    policy = staged.policy
    draws = sum(shard.counts["words"] for shard in staged.shards)
    spend = shown(combined(shard.spends for shard in staged.shards))
    return RunSummary(
        dataset=policy.dataset,
        release=policy.release,
        partition=staged.partition,
        version=published.version,
        changed=published.changed,
        rows=staged.rows,
        draws=draws,
        seconds=round(seconds, 3),
        draws_per_second=round(draws / seconds, 1) if seconds > 0 else 0.0,
        spend=spend,
        remaining=left,
        gates=[verdict.as_dict() for verdict in verdicts],
        reports=[dict(item) for item in reported],
        published=published.path,
        published_rows=published.rows,
        manifest=published.manifest,
        staging=staged.layout.staging.url,
        notes=[*_notes(staged, published), *filter(None, [given_back(spend)])],
        profile=staged.profile.as_list(),
    )


def _notes(staged: StagedRun, published: Published) -> list[str]:
    rows, notes, folder = staged.rows, [published.note], staged.layout.staging.url
    if rows["quarantined"]:
        notes.append(
            f"{rows['quarantined']} records over the cap were left out; their ids are listed in {folder} alone"
        )
    if rows.get("without_subject"):
        notes.append(f'{rows["without_subject"]} rows without a person were left out (on_null_subject = "quarantine")')
    for name, said in _CHANGED.items():
        if rows.get(name):
            notes.append(f"{rows[name]} records changed: {said}; their ids are listed in {folder} alone")
    if rows.get("over_contribution") and staged.policy.unlinked is not None:
        most = staged.policy.unlinked.per_subject
        notes.append(f"{rows['over_contribution']} records were left out: per_subject = {most} of a person take part")
    if rows.get("forgotten"):
        notes.append(
            f"{rows['forgotten']} records that were forgotten are in the source again and were left out; take them out "
            "of it, or admit them by id with `dptext ledger readmit`"
        )
    left = sum(sum(shard.post.get("failed", {}).values()) for shard in staged.shards)
    if left:
        notes.append(f"{left} texts stayed as they were released: the model of a post-processing failed on them")
    if staged.dropped:
        notes.append(f"columns that the policy does not name were dropped unread: {', '.join(staged.dropped)}")
    if rows["read"] and not rows["new"] and not rows.get("changed_released"):
        notes.append(NOTHING_SPENT)
    if staged.policy.cap is None:
        notes.append("the policy sets no cap: what a unit can lose over several releases is not bounded")
    if staged.policy.on_null_subject == "own":
        notes.append('on_null_subject = "own": a person with k records that name no person has k times the loss')
    if staged.policy.unit == "record":
        notes.append('unit = "record": a person with k records has k times the loss')
    return notes
