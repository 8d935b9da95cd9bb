"""Summarize a run in numbers, for people, logs, and JSON. A summary holds no text and no id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dptext_etl.checks import Verdict
from dptext_etl.checks.verdict import status, tally
from dptext_etl.errors import counted
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.policy import Policy
from dptext_etl.runner.publish.manifest import policy_notes
from dptext_etl.runner.publish.publication import Published
from dptext_etl.runner.shard.attempt import ledger_of_run
from dptext_etl.runner.shard.charging import refund_notes, spend_facts, total_spends
from dptext_etl.runner.shard.staging import READING, StagedRun

_TITLES = {"quarantined": "excluded over the cap", "over_contribution": "excluded beyond per_subject"}
NO_BUDGET_USED = "no budget used: no record was new to this release"


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
            there are any, without_subject, changed_kept, changed_excluded, changed_released.
        draws: Draws made for the released rows, over all text columns, without canary rows: one of a word, a token or a
            text, as the mechanism draws.
        seconds: Duration of the run.
        draws_per_second: Draws over seconds.
        spend: By component, the sum over the released records and the largest record; log10_odds of the largest.
        remaining: Quantiles of the use and the rest of units in the scope, in millionths (`Ledger.remaining`).
        gates: The verdicts.
        reports: Copy counts of the whole run and their bounds; they stay inside the boundary.
        published: Folder or URL of the published table, or None.
        published_rows: Rows that readers now see.
        manifest: SHA-256 of the manifest, or None.
        staging: The staging folder, inside the boundary.
        notes: Further facts, in sentences.
        profile: The cost of each stage: name, seconds, cpu_seconds, rows, bytes, peak_memory (`runner.progress`). Of a
            run in several processes, the stages of the last one.
        table: Findings about the table around the texts: `traceable`, rows that kept columns single out;
            `spellings` of persons; `selection`, rows that caps keep and that are excluded from each period.
        audiences: The tables of audiences: audience, version, path, manifest, rows, changed, note, gates.
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
    table: dict[str, Any] = field(default_factory=dict)
    audiences: list[dict[str, Any]] = field(default_factory=list)

    def __repr__(self) -> str:
        rows = f"{counted(self.rows['released'], 'row')} released, {self.rows['new']:,} new"
        return f"RunSummary({self.dataset} {self.release}, {rows}, gates: {tally(self.gates)}, version {self.version})"

    def _repr_html_(self) -> str:
        """Show the outcome in a notebook."""
        from dptext_etl import html_output

        largest = self.spend.get("largest_record", {})
        about = {
            "published": self.published,
            "version": self.version,
            "rows readers see": self.published_rows,
            **shown_rows(self.rows),
            "largest epsilon of a record": largest.get("eps_approx"),
            "notes": " · ".join(self.notes),
        }
        gates = [(gate["name"], status(gate), gate["message"]) for gate in self.gates]
        head = html_output.facts(f"{self.dataset} {self.release}", about)
        beyond = [(item["name"], "BEYOND CHANCE", item["message"]) for item in self.reports if not item["passed"]]
        reports = html_output.table("reports", ("report", "", "outcome"), beyond) if beyond else ""
        return head + html_output.table("gates", ("gate", "", "outcome"), gates) + reports

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as JSON can hold them."""
        return dict(vars(self))


def shown_rows(rows: Mapping[str, int]) -> dict[str, int]:
    """Return counts of rows under the names that people see."""
    return {_TITLES.get(name, name.replace("_", " ")): count for name, count in rows.items()}


def remaining(policy: Policy, ledger: Ledger | None = None) -> dict[str, Any]:
    """Return the remaining budget in the scope of a policy; publishing spends nothing."""
    with ledger_of_run(policy, ledger) as opened:
        return opened.remaining(Scope.of(policy)).as_dict()


def summarize(
    staged: StagedRun,
    verdicts: Sequence[Verdict],
    published: Published,
    seconds: float,
    *,
    reported: Sequence[Mapping[str, Any]],
    left: dict[str, Any],
    audiences: Sequence[tuple[StagedRun, Sequence[Verdict], Published]] = (),
) -> RunSummary:
    policy, layout, spends = staged.policy, staged.layout, total_spends(shard.spends for shard in staged.shards)
    draws = sum(shard.counts["words"] for shard in staged.shards)
    return RunSummary(
        dataset=policy.dataset,
        release=policy.release,
        partition=layout.partition,
        version=published.version,
        changed=published.changed,
        rows=staged.rows,
        draws=draws,
        seconds=round(seconds, 3),
        draws_per_second=round(draws / seconds, 1) if seconds > 0 else 0.0,
        spend=spend_facts(spends),
        remaining=left,
        gates=[verdict.as_dict() for verdict in verdicts],
        reports=[dict(item) for item in reported],
        published=published.path,
        published_rows=published.rows,
        manifest=published.manifest,
        staging=layout.staging.url,
        notes=[published.note, *_notes(staged), *policy_notes(policy), *refund_notes(spends)],
        profile=staged.profile.as_list(),
        table=staged.table,
        audiences=[
            {"audience": run.policy.audience, **asdict(done), "gates": [verdict.as_dict() for verdict in judged]}
            for run, judged, done in audiences
        ],
    )


_NAMELESS = 'excluded (on_null_subject = "quarantine")'


_CLASSIFIER_FIRST = (
    "label texts with the classifier of the release (`dptext label`) before you train on its table; `dptext evaluate` "
    "compares both with guesses that need no private text, and says which of them loses"
)


def _notes(staged: StagedRun) -> list[str]:
    rows, folder = staged.rows, staged.layout.staging.url
    listed = f"only a file in {folder} lists their ids"
    most = staged.policy.records_per_subject
    again = "in the source again and excluded; remove them from it, or admit them by id with `dptext ledger readmit`"
    take = f"excluded: per_subject = {most} of a person count"
    reasons = {
        "quarantined": ("record over the cap was", "records over the cap were", f"excluded; {listed}"),
        "without_subject": ("row without a person was", "rows without a person were", _NAMELESS),
        "changed_kept": ("record", "records", f"changed: their earlier released texts are published; {listed}"),
        "changed_excluded": ("record", "records", f"changed: they were excluded; {listed}"),
        "changed_released": ("record", "records", f"changed: they were charged for their new texts as well; {listed}"),
        "over_contribution": ("record was", "records were", take),
        "forgotten": ("record that was forgotten is", "records that were forgotten are", again),
    }
    notes = [f"{counted(rows[name], *whose)} {what}" for name, (*whose, what) in reasons.items() if rows.get(name)]
    failed = sum(sum(shard.post.get("failed", {}).values()) for shard in staged.shards)
    if failed:
        notes.append(f"{counted(failed, 'text')} stayed as released: the model of a post-processing failed there")
    if staged.policy.synthetic is not None and staged.policy.synthetic.labels is not None:
        notes.insert(0, _CLASSIFIER_FIRST)
    if staged.policy.synthetic is None:
        notes.append(f"a report on the texts is in {staged.layout.staging.location(READING)}")
    if staged.dropped:
        notes.append(f"columns that the policy does not name were dropped unread: {', '.join(staged.dropped)}")
    if rows["read"] and not rows["new"] and not rows.get("changed_released"):
        notes.append(NO_BUDGET_USED)
    return notes
