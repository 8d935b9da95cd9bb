"""Gate `published_files`: the files of a published folder are those that its manifest lists, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from dptext_etl.checks.candidate import Candidate, Stage
from dptext_etl.checks.gate import Gate
from dptext_etl.checks.manifest import PublishedManifest
from dptext_etl.checks.verdict import Verdict
from dptext_etl.files import sha256
from dptext_etl.policy import Policy


class PublishedFiles(Gate):
    """Compares the files of a folder with its manifest, and the manifest with the policy.

    Args:
        policy: The policy that the folder was published under.
        manifest: Its manifest.
    """

    catches = (
        "Published files that were edited, cut, swapped or added after their gates, or that belong to another release."
    )
    stages = frozenset({Stage.PUBLISHED})
    order = 10

    def __init__(self, policy: Policy, manifest: PublishedManifest) -> None:
        super().__init__(policy)
        self._manifest = manifest

    @classmethod
    def over(cls, candidate: Candidate) -> Sequence[Self]:
        """Judge folders only: a single file or a table has no manifest."""
        return () if candidate.manifest is None else (cls(candidate.policy, candidate.manifest),)

    def verdict(self) -> Verdict:
        """Count files and settings that differ."""
        parts, facts, policy = self._manifest.parts, self._manifest.facts, self.policy
        paths = [self._manifest.file(part) for part in parts]
        changed = sum(
            path is not None and sha256(path) != part["sha256"] for path, part in zip(paths, parts, strict=True)
        )
        folders = {path.parent for path in paths if path is not None}
        configured = {column.column: column.mechanism.cfg() for column in policy.column_policies()}
        stated = {column.get("name"): column.get("cfg") for column in facts.get("columns", [])}
        counts = {
            "files": len(paths),
            "missing": sum(path is None for path in paths),
            "changed": changed,
            "unlisted": sum(item not in paths for folder in folders for item in folder.iterdir()),
            "other_release": int((facts.get("dataset"), facts.get("release")) != (policy.dataset, policy.release)),
            "other_configuration": len(set(configured.items()) ^ set(stated.items())),
        }
        wrong = {name: count for name, count in counts.items() if count and name != "files"}
        said = f"all {len(paths)} files are those of the manifest"
        if wrong:
            said = "; ".join(f"{name.replace('_', ' ')}: {count}" for name, count in wrong.items())
        return self.outcome(counts, said, passed=bool(paths) and not wrong)
