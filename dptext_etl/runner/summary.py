"""Summarize a run in numbers, for people, logs, and JSON; and recognize a run that has nothing to do.

A summary holds no text and no id. To recognize a run, the staging folder holds a keyed hash of its input, and the
digest of the manifest that it published. If both are equal, the published files are intact, and the ledger knows them,
then every step of a run would find its result there (docs/spec/privacy.md#unchanged). In every other case the run goes
through all its steps.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import dptext_etl
from dptext_etl.artifacts import canon
from dptext_etl.checks import Verdict
from dptext_etl.checks.gate import Stage, judges
from dptext_etl.checks.verdict import status, tally
from dptext_etl.errors import InputError, counted, seam
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.types import Event
from dptext_etl.policy import Policy
from dptext_etl.runner.forecast import ledger_of
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Profile
from dptext_etl.runner.publish.manifest import Manifest, is_whole, policy_notes
from dptext_etl.runner.publish.publication import Published
from dptext_etl.runner.publish.versions import alone_at, show
from dptext_etl.runner.shard import staging
from dptext_etl.runner.shard.attempt import Attempt, ledger_of_run
from dptext_etl.runner.shard.charging import refund_notes, spend_facts, total_spends
from dptext_etl.runner.shard.staging import READING, StagedRun
from dptext_etl.runner.source.table import READ_HINT, Files
from dptext_etl.storage import Storage

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
            `spellings` of persons; `selection`, rows that caps keep and that are excluded of each period.
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


log = logging.getLogger("dptext_etl.runner")

Done = TypeVar("Done")

FILE = "unchanged.json"
_VERSION = 3
_KIND = "unchanged"
INPUT_LABEL = b"dptext/input/v1\0"
_EXCLUDED = ("quarantined", "without_subject", "forgotten")
"""Counts of rows that an incremental run leaves out, and leaves out again."""
ADMITTING = (Event.THAW, Event.UNITS, Event.FORGET, Event.READMIT)
"""Events that may change the ledger's answers to published rows."""
FREEING = (Event.ABORT, Event.SETTLE, *ADMITTING)
"""Events after which a record that was over the same cap may fit, or one that was forgotten be admitted."""
_NOTE = "source and policy are the same as for this version, byte for byte, so nothing was computed again"


@dataclass(frozen=True)
class Input:
    attempt: Attempt
    files: Files  # of the source; they lie in folders, or are one version of a table with a log
    # size, times and number of every file, as the file system has them; none for a version, which does not change
    marks: tuple[tuple[int, ...], ...]
    profile: Profile = field(default_factory=Profile)
    _stopped: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, attempt: Attempt, files: Files) -> Self:
        """Note the state of the files of a source; their bytes are read later."""
        result = cls(attempt, files, _marks(files) if files.version is None else ())
        result.profile.count("open", size=sum(mark[0] for mark in result.marks))
        return result

    @cached_property
    def seal(self) -> str:
        """The keyed hash of policy, software, and file bytes (docs/spec/stream.md#input-seal), 64 hex digits."""
        attempt, policy = self.attempt, self.attempt.policy
        with self.profile.stage("open"), seam("reading the source", InputError, READ_HINT):
            facts = {
                "software": dptext_etl.__version__,
                "policy": policy.model_dump(mode="json"),
                "partition": attempt.partition,
                "cfg": attempt.configurations(),
                "gates": [gate.name for gate in judges(policy, Stage.STAGED)],
                "files": [[path, self._digest(path)] for path in self.files.paths],
                **({} if self.files.version is None else {"version": self.files.version.name}),
            }
        return attempt.secret.derive("seal", INPUT_LABEL + canon(facts)).hex()

    def _digest(self, path: str) -> str:
        if self.files.version is not None:
            return self.files.version.digest
        digest = hashlib.sha256()
        with Path(path).open("rb", buffering=0) as file:
            while piece := file.read(1 << 20):
                if self._stopped.is_set():
                    raise InputError("the run failed, so the hash of this file is not needed", READ_HINT)
                digest.update(piece)
        return digest.hexdigest()

    def recognize(self, id_type: Callable[[], str]) -> RunSummary | None:
        """Return the summary of a run that has nothing to do, or None where all steps must be gone through."""
        noted = _noted(self.attempt)
        if noted is None or noted["seal"] != self.seal:
            return None
        with self.profile.stage("publish"):
            summary = _still_published(self.attempt, noted, id_type)
        return None if summary is None else replace(summary, profile=self.profile.as_list())

    def run(self, every_step: Callable[[], RunSummary]) -> RunSummary:
        """Carry out a run, and note its publication."""
        summary, sealed = self.sealed(every_step)
        note(self.attempt.layout.staging, self.attempt.staging_key, summary, sealed)
        return summary

    def sealed(self, steps: Callable[[], Done]) -> tuple[Done, dict[str, Any] | None]:
        """Carry out steps and hash the files meanwhile; return the seal, too, unless a file changed.

        With the seal go hashes over some events of the ledger before.
        """
        with ledger_of(self.attempt.policy) as ledger:
            freed, admitted = (
                "" if ledger is None else ledger.reports.events_hash(*kinds) for kinds in (FREEING, ADMITTING)
            )
        with ThreadPoolExecutor(1, thread_name_prefix="dptext-seal") as thread:
            hashing = thread.submit(lambda: self.seal)
            try:
                done = steps()
            except BaseException:
                self._stopped.set()
                raise
        if hashing.exception() is not None or not self._same_files():
            return done, None
        return done, {"seal": self.seal, "freed": freed, "admitted": admitted}

    def _same_files(self) -> bool:
        try:
            if self.files.version is None:
                return _marks(self.files) == self.marks
            return Files.at(self.files.paths[0], self.files.storage).version == self.files.version
        except InputError:
            return False


def recognized(attempt: Attempt, seal: str, id_type: str) -> RunSummary:
    """Return the summary of a run whose input was recognized by its seal; refuse it if anything changed since."""
    noted = _noted(attempt)
    summary = None
    if noted is not None and noted["seal"] == seal:
        summary = _still_published(attempt, noted, lambda: id_type)
    if summary is None:
        msg = "the published table has changed since its unchanged source was recognized, or a record was forgotten"
        raise InputError(msg, "run the same policy again, from its first step")
    return summary


def _still_published(attempt: Attempt, noted: Mapping[str, Any], id_type: Callable[[], str]) -> RunSummary | None:
    """Return the summary of a noted run if its published table is unchanged and the same rows would be excluded."""
    layout, policy = attempt.layout, attempt.policy
    digests = [item["manifest"] for item in noted["summary"].get("audiences", [])]
    with attempt.alone():
        manifest = _intact(layout, noted["manifest"])
        others = [_intact(item.layout, digest) for item, digest in zip(attempt.audiences, digests, strict=True)]
        if manifest is None or None in others:
            return None
        with Ledger.open(policy.ledger.url, policy.ledger.id_key) as ledger:
            if ledger.reports.events_hash(*ADMITTING) != noted["admitted"]:
                return None
            if noted["freed"] not in {None, ledger.reports.events_hash(*FREEING)}:
                return None
            for ref in attempt.register(ledger, id_type(), manifest).values():
                places = [layout.place, *(item.layout.place for item in attempt.audiences)]
                for place, digest in zip(places, [manifest.digest, *digests], strict=True):
                    if digest not in ledger.releases.published(ref, place).values():
                        return None
                if policy.synthetic is not None and ledger.people.count_forgotten(ref):
                    return None  # its source may hold them still: all steps say so
            left = ledger.remaining(Scope.of(policy)).as_dict()
        with alone_at(layout):
            if manifest.restore(layout):
                log.info("the manifest says the same as before in other bytes, and was written again")
            show(layout, manifest)
    log.info("the input is the same as for version %d: nothing is computed again", manifest.version)
    summary, seconds = _again(noted["summary"], incremental=policy.incremental), time.monotonic() - attempt.began
    return replace(
        summary,
        version=manifest.version,
        remaining=left,
        published_rows=manifest.rows,
        table={**summary.table, "published": {"now": manifest.rows, "this_run": manifest.rows}},
        seconds=round(seconds, 3),
        draws_per_second=round(summary.draws / seconds, 1),
    )


def _intact(layout: Layout, digest: str) -> Manifest | None:
    """Return the manifest of a sink if it is this one and all its files are there."""
    manifest = Manifest.read(layout)
    return manifest if manifest is not None and manifest.digest == digest and is_whole(layout, manifest) else None


def note(folder: Storage, key: bytes, summary: RunSummary, sealed: Mapping[str, Any] | None) -> None:
    """Note the publication of an input, and hashes over events before, sealed under `key`."""
    if summary.manifest is None or sealed is None:
        folder.delete(FILE)
        return
    facts = {
        "version": _VERSION,
        "seal": sealed["seal"],
        "manifest": summary.manifest,
        "summary": replace(summary, profile=[]).as_dict(),
        "admitted": sealed["admitted"],
        "freed": sealed["freed"] if summary.rows["quarantined"] or "forgotten" in summary.rows else None,
    }
    folder.write(FILE, staging.sealed(key, _KIND, facts), action="noting the publication")


def _again(summary: Mapping[str, Any], *, incremental: bool) -> RunSummary:
    """Return the summary of a second run over the same input: nothing is new now."""
    earlier = RunSummary(**summary)
    outcome = "there are no new rows to publish" if incremental else "nothing changed"
    notes = [
        f"already published: {outcome}; {_NOTE}",
        *(note for note in earlier.notes[1:] if note != NO_BUDGET_USED),
        NO_BUDGET_USED,
    ]
    if incremental:
        same = {name: count for name, count in earlier.rows.items() if name in {*_EXCLUDED, "changed_kept", "read"}}
        there = same["read"] - sum(same.get(name, 0) for name in _EXCLUDED)
        rows = {**dict.fromkeys(earlier.rows, 0), **same, "already_published": there}
        earlier = replace(earlier, draws=0, spend=spend_facts(total_spends(())), gates=[], reports=[])
    else:
        replayed = sum(earlier.rows.get(name, 0) for name in ("new", "resumed", "replayed", "changed_released"))
        rows = {name: count for name, count in earlier.rows.items() if name != "changed_released"}
        rows |= {"new": 0, "resumed": 0, "replayed": replayed}
    return replace(earlier, rows=rows, changed=False, notes=notes)


def _marks(files: Files) -> tuple[tuple[int, ...], ...]:
    """Return marks that change whenever a file is written: they show a file that changed while a run read it."""
    with seam("reading the source", InputError, READ_HINT):
        stats = [Path(path).stat() for path in files.paths]
    return tuple((item.st_size, item.st_mtime_ns, item.st_ctime_ns, item.st_ino) for item in stats)


def _noted(attempt: Attempt) -> dict[str, Any] | None:
    """Read the output of `note`; None if it is missing, was changed, or has another version."""
    facts = staging.opened(attempt.staging_key, _KIND, attempt.layout.staging.read(FILE)) or {}
    try:
        _again(facts["summary"], incremental=False)
        whole = {"manifest", "admitted", "freed"} <= set(facts) and isinstance(facts["seal"], str)
        return facts if whole and facts["version"] == _VERSION else None
    except (ValueError, KeyError, TypeError):
        return None
