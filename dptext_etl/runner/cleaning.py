"""Remove files that neither readers nor runs need: staging of stopped runs, and files beyond a policy's retention."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from dptext_etl.errors import InputError, PolicyError, seam
from dptext_etl.ledger import Ledger
from dptext_etl.policy import Policy, PolicyLike, resolve
from dptext_etl.runner import durable
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish import versions
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.publish.showing import alone_at
from dptext_etl.runner.publish.stripping import NOTE

_DAY = 86_400.0


@dataclass
class Cleaned:
    """The paths that were removed, or would be removed.

    Attributes:
        versions: Names of published versions.
        stopped: Staging folders of runs that a gate stopped.
        staged: Files of rows that were never published.
        quarantined: Lists of records over the cap.
        kept: Files of bytes that were kept for replays.
        busy: Folders that were skipped because a run is using them.
    """

    versions: list[str] = field(default_factory=list)
    stopped: list[Path] = field(default_factory=list)
    staged: list[Path] = field(default_factory=list)
    quarantined: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    busy: list[Path] = field(default_factory=list)

    @property
    def removed(self) -> list[Path | str]:
        """All that was removed."""
        return [*self.versions, *self.stopped, *self.staged, *self.quarantined, *self.kept]


def clean(policy: PolicyLike, *, partition: str | None = None, dry_run: bool = False) -> Cleaned:
    """Remove the staging of runs that a gate stopped, and files that the policy's `retention` no longer keeps.

    The version that readers see, the ledger, and folders that a run is using stay.

    Args:
        policy: The policy, or the path of its file.
        partition: Name of the partition, if the policy has a place for one.
        dry_run: List the files, and remove nothing.

    Raises:
        InputError: Access is denied.
        LedgerError: The ledger cannot be read.
    """
    policy = resolve(policy)
    layout = Layout.of(policy, partition)
    found = Cleaned()
    revoked = _revoked(policy)
    for folder in _folders(layout):
        _alone(folder, found, lambda folder=folder: _staging(folder, policy, revoked, found, dry_run=dry_run))  # type: ignore[misc]
    if policy.retention.versions is not None:
        with alone_at(layout):
            manifest = Manifest.read(layout)
            if manifest is not None:
                found.versions += versions.unlisted(layout, manifest, newest=policy.retention.versions)
            if not dry_run:
                versions.delete(layout, found.versions)
    return found


def _folders(layout: Layout) -> Iterator[Path]:
    """Find the staging folders of all releases of a partition."""
    root = layout.staging.parent.parent
    return (path for path in sorted(root.glob(f"*/{layout.staging.name}")) if path.is_dir())


def _revoked(policy: Policy) -> set[str]:
    with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
        return {row["release"] for row in ledger.show() if row["burnt"] and row["dataset"] == policy.dataset}


def _alone(folder: Path, found: Cleaned, act: Callable[[], None]) -> None:
    try:
        with durable.alone(folder, "of this release is under way"):
            act()
    except PolicyError as problem:
        if isinstance(problem, InputError):
            raise
        found.busy.append(folder)


def _staging(folder: Path, policy: Policy, revoked: set[str], found: Cleaned, *, dry_run: bool) -> None:
    """Clean the staging folder of one release."""
    retention = policy.retention
    if (folder / NOTE).exists() or unquote(folder.parent.name) in revoked:
        found.stopped.append(folder)
        _remove([folder], dry_run=dry_run)
        return
    for days, pattern, removed in (
        (retention.staging_days, "shard-*", found.staged),
        (retention.quarantine_days, "quarantine-*", found.quarantined),
        (retention.kept_days, "kept-*", found.kept),
    ):
        if days is not None:
            old = [path for path in sorted(folder.glob(pattern)) if _age(path) > days * _DAY]
            removed.extend(old)
            _remove(old, dry_run=dry_run)


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _remove(paths: list[Path], *, dry_run: bool) -> None:
    if dry_run:
        return
    with seam("removing what is no longer kept", InputError, "the files must be yours"):
        for path in paths:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
