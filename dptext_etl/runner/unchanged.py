"""Recognize a run that has nothing to do.

To recognize it, the staging folder holds a keyed hash of its input, and the digest of the manifest that it published.
If both are equal, the published files are intact, and the ledger knows them, then every step of a run would find its
result there (docs/spec/privacy.md#unchanged). In every other case the run goes through all its steps.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import dptext_etl
from dptext_etl.artifacts import canon
from dptext_etl.checks.gate import Stage, judges
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.errors import InputError, seam
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.ledger.types import Event
from dptext_etl.runner.forecast import ledger_of
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.progress import Profile
from dptext_etl.runner.publish.manifest import is_whole
from dptext_etl.runner.publish.versions import alone_at, show
from dptext_etl.runner.report import NO_BUDGET_USED, RunSummary
from dptext_etl.runner.shard import staging
from dptext_etl.runner.shard.attempt import Attempt
from dptext_etl.runner.shard.charging import spend_facts, total_spends
from dptext_etl.runner.source.table import READ_HINT, Files
from dptext_etl.storage import Storage

log = logging.getLogger("dptext_etl.runner")

Done = TypeVar("Done")

FILE = "unchanged.json"
_VERSION = 4
"""Of the noted facts: another one for other fields of `RunSummary`."""
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
    id_type: Callable[[], str]  # opens the source, and returns the type of its ids
    profile: Profile = field(default_factory=Profile)
    _stopped: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, attempt: Attempt, files: Files | None, id_type: Callable[[], str]) -> Self | None:
        """Note the state of the files of a source, whose bytes are read later; None if nothing can be recognized."""
        if files is None or not attempt.policy.publish:
            return None
        if files.version is None and is_remote(attempt.layout.source):  # objects have no marks
            return None
        result = cls(attempt, files, _marks(files) if files.version is None else (), id_type)
        result.profile.count("open", size=sum(mark[0] for mark in result.marks))
        return result

    @cached_property
    def seal(self) -> str:
        """The keyed hash of policy, software, and file bytes (docs/spec/stream.md#input-seal), 64 hex digits."""
        attempt, policy = self.attempt, self.attempt.policy
        with self.profile.stage("open"), seam("reading the source", InputError, READ_HINT):
            chains = [column.chain for column in attempt.columns if column.chain is not None]
            facts = {
                "software": dptext_etl.__version__,
                "policy": policy.model_dump(mode="json"),
                "partition": attempt.partition,
                "cfg": [column.mechanism.cfg() for column in attempt.columns] + chains,
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

    def recognize(self) -> RunSummary | None:
        """Return the summary of a run that has nothing to do, or None where all steps must be gone through."""
        noted = _noted(self.attempt)
        if noted is None or noted["seal"] != self.seal:
            return None
        with self.profile.stage("publish"):
            summary = _still_published(self.attempt, noted, self.id_type)
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
        same = False
        with suppress(InputError):
            if self.files.version is None:
                same = _marks(self.files) == self.marks
            else:
                same = Files.at(self.files.paths[0], self.files.storage).version == self.files.version
        intact = same and hashing.exception() is None
        return done, {"seal": self.seal, "freed": freed, "admitted": admitted} if intact else None


def recognized(attempt: Attempt, seal: str, id_type: str) -> RunSummary:
    """Return the summary of a run whose input was recognized by its seal; refuse it if anything changed since."""
    noted = _noted(attempt)
    same = noted is not None and noted["seal"] == seal
    summary = _still_published(attempt, noted, lambda: id_type) if noted and same else None
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
    others = (note for note in earlier.notes[1:] if note != NO_BUDGET_USED)
    notes = [f"already published: {outcome}; {_NOTE}", *others, NO_BUDGET_USED]
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
    facts = staging.opened(attempt.staging_key, _KIND, attempt.layout.staging.read(FILE))
    return facts if facts is not None and facts.get("version") == _VERSION else None
