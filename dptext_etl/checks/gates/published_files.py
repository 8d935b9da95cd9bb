"""Gate `published_files` requires that a published folder holds exactly the files of its manifest, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptext_etl.checks.candidate import Candidate, Stage
from dptext_etl.checks.gate import Gate, Verdict
from dptext_etl.checks.sink import PublishedManifest, place_of
from dptext_etl.data_types import carries
from dptext_etl.errors import GateError
from dptext_etl.files import sha256
from dptext_etl.policy import PARTITION, Policy

if TYPE_CHECKING:
    from dptext_etl.ledger import Ledger
    from dptext_etl.ledger.types import ReleaseRef


_NAME = re.compile(r"(?:(?P<partition>.+)/)?v(?P<number>\d+)-[0-9a-f]+")
"""How publications are named in the ledger (`runner.publish.publication`)."""


class PublishedFiles(Gate):
    """Compares the files of a folder with its manifest, and the manifest with the policy and the ledger."""

    catches = (
        "Published files that were edited, cut, swapped or added after their gates, or that belong to another release; "
        "a manifest that was written again to fit them, or to claim less; an unlinked release of people who were "
        "forgotten."
    )
    stages = frozenset({Stage.PUBLISHED})
    order = 10

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        self._candidate = candidate

    @classmethod
    def columns(cls, policy: Policy) -> tuple[str, ...] | None:  # noqa: ARG003  (synthetic tables, too)
        return ()

    def verdict(self) -> Verdict | tuple[Verdict, ...]:
        """Judge folders only: a single file or a table has no manifest."""
        folder, ledger = self._candidate.manifest, self._candidate.ledger
        if folder is None:
            return ()
        if ledger is None:
            raise GateError("the ledger is not open, so the manifest cannot be looked up")
        parts, manifest, policy = folder.parts, folder.facts, self.policy
        refs, digest = self._candidate.refs.values(), folder.digest
        sink = place_of(policy.sink.replace(PARTITION, manifest.get("partition") or ""))
        recorded = bool(refs) and all(digest in ledger.releases.published(ref, sink).values() for ref in refs)
        paths = [folder.file(part) for part in parts]
        shown = folder.shown()
        names = list(zip(paths, shown or paths, strict=True))  # each file, and what readers of the folder see of it
        listed = {path for pair in names for path in pair if path is not None}
        folders = {path.parent for path in listed}
        configured: dict[str | None, tuple[str, str | None]]
        if policy.synthetic is None:
            configured = {item.column: (item.mechanism.cfg(), item.chain) for item in policy.column_policies()}
        else:
            configured = {policy.synthetic.column: (policy.statistic.cfg(), None)}
        stated = {
            column.get("name"): (column.get("cfg"), column.get("chain")) for column in manifest.get("columns", [])
        }
        counts = {
            "files": len(paths),
            "missing": sum(not all(path and path.is_file() for path in pair) for pair in names),
            "changed": _changed(names, parts),
            "shown_otherwise": _differ(folder),
            "unlisted": sum(item not in listed for path in folders for item in _inside(path)),
            "other_release": int(
                (manifest.get("dataset"), manifest.get("release")) != (policy.dataset, policy.release)
            ),
            "other_configuration": len(set(configured.items()) ^ set(stated.items())),
            "unrecorded_manifest": int(not recorded),
            "retired_manifest": int(any(digest in ledger.releases.retired(ref, sink) for ref in refs)),
            "types_with_names_or_categories": sum(map(carries, map(str, manifest.get("schema", {}).values()))),
        }
        if policy.unlinked is not None and any(part["rows"] for part in parts):  # it holds no ids, and is one table
            counts["forgotten"] = max((ledger.people.count_forgotten(ref) for ref in refs), default=0)
        wrong = {name: count for name, count in counts.items() if count and name != "files"}
        message = f"all {len(paths):,} files are those of the manifest, which the ledger recorded"
        counts["newer_recorded"] = newer = _newer(folder, ledger, refs)
        if newer:
            message += f"; it knows {newer:,} newer versions, of this sink or another"
        if wrong:
            message = "; ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in wrong.items())
        if counts["types_with_names_or_categories"]:
            message += " (an older version published them; the next run publishes the table anew, without)"
        return self.outcome(counts, message, passed=bool(paths) and not wrong)


def _newer(manifest: PublishedManifest, ledger: Ledger, refs: Iterable[ReleaseRef]) -> int:
    """Count recorded versions of this partition with a higher number: an older one put back shows here."""
    partition, mine = manifest.facts.get("partition"), int(manifest.facts.get("version", 0))
    known = {version for ref in refs for version in ledger.releases.published(ref)}
    names = (_NAME.fullmatch(version) for version in known)
    return sum(name["partition"] == partition and int(name["number"]) > mine for name in names if name)


def _differ(manifest: PublishedManifest) -> int:
    """Count files that the manifest or the log of a table lists, and the other one does not."""
    return 0 if manifest.listed is None else len(manifest.listed ^ {part["path"] for part in manifest.parts})


def _changed(names: Sequence[tuple[Path | None, Path | None]], parts: Sequence[dict[str, Any]]) -> int:
    """Count files that hold other bytes under one of their names; two names of one file are read once."""
    changed = 0
    for pair, part in zip(names, parts, strict=True):
        there = [path for path in pair if path is not None and path.is_file()]
        once = there[:1] if len(there) == 2 and there[0].samefile(there[1]) else there
        changed += any(sha256(path) != part["sha256"] for path in once)
    return changed


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
