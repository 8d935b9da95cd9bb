"""Recognize a run whose input is, byte for byte, that of the run before, and do not compute it again.

What may be trusted is in the specification (docs/spec/privacy.md#unchanged). A keyed hash of all that a run depends on
lies in the staging folder, inside the boundary, next to the digest of the manifest that the run published. If both
hold, the published files are whole and the ledger knows them, every step of a run would find what is there. In every
other case the run goes through all its steps.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any, Protocol, Self

import dptext_etl
from dptext_etl._kernel import Secret
from dptext_etl.artifacts import canon
from dptext_etl.checks.candidate import Stage
from dptext_etl.checks.gate import judges
from dptext_etl.errors import InputError, seam
from dptext_etl.ledger import Ledger, ReleaseRef, Scope
from dptext_etl.policy import Policy
from dptext_etl.runner.amounts import combined, shown
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.outlook import ledger_of
from dptext_etl.runner.profile import Profile
from dptext_etl.runner.publish.manifest import Manifest, is_whole
from dptext_etl.runner.publish.versions import alone_at, show
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.table import READ_HINT, Files
from dptext_etl.runner.summary import NOTHING_SPENT, RunSummary

log = logging.getLogger("dptext_etl.runner")

FILE = "unchanged.json"
_VERSION = 1
_PIECE = 1 << 20
_LABEL = b"dptext/input/v1\0"
_NOTE = "source and policy are those of this version, byte for byte, so nothing was computed again"


class Attempted(Protocol):
    """One attempt at a run, whatever it releases."""

    @property
    def policy(self) -> Policy:
        """Return the policy of the run."""

    @property
    def partition(self) -> str | None:
        """Return the name of the partition, or None."""

    @property
    def layout(self) -> Layout:
        """Return the places of the run."""

    @property
    def secret(self) -> Secret:
        """Return the noise secret."""

    @property
    def began(self) -> float:
        """Return when it began, on the monotonic clock."""

    def configurations(self) -> list[str]:
        """Return hashes of all that releases depend on."""

    def alone(self) -> AbstractContextManager[Staging]:
        """Make the folders of the run and lock them for this process."""

    def pinned(self, ledger: Ledger, id_type: str) -> Sequence[ReleaseRef]:
        """Pin the cap and the releases."""


@dataclass(frozen=True)
class Input:
    """All that a run depends on.

    Attributes:
        attempt: The attempt at the run.
        files: The files of its source; they lie in folders.
        marks: Size, times and number of every file, as the file system has them.
        profile: What it took to read them, and to look at what is published.
    """

    attempt: Attempted
    files: Files
    marks: tuple[tuple[int, ...], ...]
    profile: Profile = field(default_factory=Profile)
    _unwanted: Event = field(default_factory=Event)

    @classmethod
    def of(cls, attempt: Attempted, files: Files) -> Self:
        """Look at the files of a source; their bytes are read when someone asks for them."""
        found = cls(attempt, files, _marks(files))
        found.profile.count("open", size=sum(mark[0] for mark in found.marks))
        return found

    @cached_property
    def seal(self) -> str:
        """Return a keyed hash of policy, software and file bytes (docs/spec/stream.md#input-seal), 64 hex digits."""
        attempt, policy = self.attempt, self.attempt.policy
        with self.profile.stage("open"), seam("reading the source", InputError, READ_HINT):
            facts = {
                "software": dptext_etl.__version__,
                "policy": policy.model_dump(mode="json"),
                "partition": attempt.partition,
                "cfg": attempt.configurations(),
                "gates": [gate.name for gate in judges(policy, Stage.STAGED)],
                "files": [[path, self._digest(path)] for path in self.files.paths],
            }
        return attempt.secret.derive("seal", _LABEL + canon(facts)).hex()

    def _digest(self, path: str) -> str:
        whole = hashlib.sha256()
        with Path(path).open("rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                if self._unwanted.is_set():
                    raise InputError("the run failed, so no one asks for this file's hash any more", READ_HINT)
                whole.update(piece)
        return whole.hexdigest()

    def recognised(self, id_type: Callable[[], str]) -> RunSummary | None:
        """Return the summary of a run that has nothing to do, or None where all steps must be gone through."""
        noted = _noted(self.attempt.layout.staging.read(FILE))
        if noted is None or noted["seal"] != self.seal:
            return None
        layout, policy = self.attempt.layout, self.attempt.policy
        with self.profile.stage("publish"), self.attempt.alone():
            manifest = Manifest.read(layout)
            if manifest is None or manifest.digest != noted["manifest"] or not is_whole(layout, manifest):
                return None
            with Ledger.open(policy.ledger.url, policy.ledger.id_key) as ledger:
                if noted["since"] is not None and ledger.freed(noted["since"]):
                    return None
                for ref in self.attempt.pinned(ledger, id_type()):
                    if manifest.digest not in set(ledger.published(ref).values()) - ledger.retired(ref):
                        return None
                    if policy.synthetic is not None and ledger.count_forgotten(ref):
                        return None  # its source may hold them still: all steps say so
                left = ledger.remaining(Scope.of(policy)).as_dict()
            with alone_at(layout):
                show(layout, manifest)
        log.info("the input is that of version %d: nothing is computed again", manifest.version)
        found, seconds = _again(noted["summary"], incremental=policy.incremental), time.monotonic() - self.attempt.began
        return replace(
            found,
            version=manifest.version,
            remaining=left,
            published_rows=manifest.rows,
            seconds=round(seconds, 3),
            draws_per_second=round(found.draws / seconds, 1),
            profile=self.profile.as_list(),
        )

    def noting(self, run: Callable[[], RunSummary]) -> RunSummary:
        """Carry out a run, read the bytes of its files next to it, and note what it published."""
        with ledger_of(self.attempt.policy) as ledger:
            since = 0 if ledger is None else ledger.number()
        with ThreadPoolExecutor(1, thread_name_prefix="dptext-seal") as beside:
            reading = beside.submit(lambda: self.seal)
            try:
                summary = run()
            except BaseException:
                self._unwanted.set()
                raise
        self._keep(summary, since, read=reading.exception() is None and self._as_it_was)
        return summary

    @property
    def _as_it_was(self) -> bool:
        """Whether no file of the source changed since it was looked at first."""
        try:
            return _marks(self.files) == self.marks
        except InputError:
            return False

    def _keep(self, summary: RunSummary, since: int, *, read: bool) -> None:
        """Note what was published from this input; where records were left out, also after which event that was."""
        staging = self.attempt.layout.staging
        if summary.manifest is None or not read:
            staging.delete(FILE)
            return
        said, left_out = (
            replace(summary, profile=[]).as_dict(),
            summary.rows["quarantined"] or "forgotten" in summary.rows,
        )
        facts = {"version": _VERSION, "seal": self.seal, "manifest": summary.manifest, "summary": said}
        facts["since"] = since if left_out else None
        staging.write(FILE, json.dumps(facts).encode(), action="noting what was published")


def _again(summary: Mapping[str, Any], *, incremental: bool) -> RunSummary:
    """Return what a run over the same input says of itself, whatever the first one said: nothing is new now."""
    found = RunSummary(**summary)
    said = "there are no new rows to publish" if incremental else "nothing changed"
    notes = [
        f"already published: {said}; {_NOTE}",
        *(note for note in found.notes[1:] if note != NOTHING_SPENT),
        NOTHING_SPENT,
    ]
    if incremental:
        rows = {**dict.fromkeys(found.rows, 0), "read": found.rows["read"], "already_published": found.rows["read"]}
        found = replace(found, draws=0, spend=shown(combined(())), gates=[], reports=[])
    else:
        asked = sum(found.rows.get(name, 0) for name in ("new", "resumed", "replayed", "changed_released"))
        rows = {name: count for name, count in found.rows.items() if name != "changed_released"}
        rows |= {"new": 0, "resumed": 0, "replayed": asked}
    return replace(found, rows=rows, changed=False, notes=notes)


def _marks(files: Files) -> tuple[tuple[int, ...], ...]:
    """Return what changes whenever a file is written: it shows a file that changed while a run read it."""
    with seam("reading the source", InputError, READ_HINT):
        found = [Path(path).stat() for path in files.paths]
    return tuple((item.st_size, item.st_mtime_ns, item.st_ctime_ns, item.st_ino) for item in found)


def _noted(content: bytes | None) -> dict[str, Any] | None:
    """Read what `Input.keep` wrote; None where it wrote nothing, or is damaged: then all steps are gone through."""
    try:
        facts = json.loads(content or b"null")
        _again(facts["summary"], incremental=False)
        facts.setdefault("since", None)  # older versions noted no run that left records out
        return dict(facts) if facts["version"] == _VERSION and isinstance(facts["seal"], str) else None
    except (ValueError, KeyError, TypeError):
        return None
