"""Take people out of everything that the policies of a folder publish or stage: all partitions, releases, and ledgers.

The plan is made first, and changes nothing. It is refused if a person is unknown, if a source still holds records of
theirs, or if a policy does not say whose records it publishes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from dptext_etl.checks.sink import MANIFEST
from dptext_etl.errors import InputError, PolicyError, bare
from dptext_etl.id_forms import normalized
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.storage.store import there_is
from dptext_etl.policy import PARTITION, Policy
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.publish import forgetting
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.storage import Storage

Outcome = Literal["removed", "withdrawn", "statistic stays", "not published", "not in it"]


@dataclass(frozen=True)
class Place:
    """What happens to one published table.

    Attributes:
        policy: Path of the policy file.
        dataset: Its dataset.
        release: Its release.
        partition: The partition, if the policy has partitions.
        outcome: Rows are removed; an unlinked release is withdrawn as a whole; a synthetic table keeps its statistic;
            the table is not published, so only staging changes; or it holds none of these people.
        records: Published rows of these people; of a table without ids, their records in its release.
        version: The version that readers see afterwards; None in a dry run.
        deleted: Names of older versions whose files were deleted.
        staged: Files in staging that were removed, or written without these people.
    """

    policy: str
    dataset: str
    release: str
    partition: str | None
    outcome: Outcome
    records: int
    version: int | None = None
    deleted: list[str] = field(default_factory=list)
    staged: int = 0


@dataclass(frozen=True)
class Erasure:
    """The plan of an erasure, or its result.

    Attributes:
        dry_run: Whether nothing was changed.
        people: Number of subjects and records that were named.
        places: One entry per published table of the policies.
        elsewhere: Publications that a ledger records under names that no policy here has: look for their files.
        noted: Records that the ledgers newly note as forgotten.
    """

    dry_run: bool
    people: int
    places: list[Place]
    elsewhere: list[dict[str, Any]]
    noted: int = 0


class _Table(NamedTuple):
    """One published table, and which of the people its dataset knows."""

    file: Path
    policy: Policy
    partition: str | None
    subjects: list[str]
    records: list[str]


@bare
def erase(
    where: Path,
    *,
    subjects: Sequence[str] = (),
    records: Sequence[str] = (),
    dry_run: bool = False,
    progress: Callable[[Place], None] | None = None,
) -> Erasure:
    """Take people out of every table that the policies at `where` publish.

    Args:
        where: A policy file, or a folder with policy files, at any depth.
        subjects: Ids of people, as the subject columns hold them.
        records: Ids of records, as the id columns hold them.
        dry_run: Say what would happen, and change nothing.
        progress: Called after each table.

    Raises:
        PolicyError: There is no policy, or one charges records alone and subjects are named.
        InputError: A person is unknown to all ledgers, or a source still holds their records. Nothing was changed.
    """
    policies = list(_policies(where))
    if subjects and any(policy.unit == "record" for _, policy in policies):
        names = ", ".join(sorted(file.name for file, policy in policies if policy.unit == "record"))
        msg = f'{names}: unit is "record", so the ledger does not know whose records they are; nothing was changed'
        raise PolicyError(
            msg, "call `dptext forget POLICY --record ID` for these policies, and move them to another folder"
        )
    tables = _known(policies, list(subjects), list(records))
    _refuse_copies(tables)
    places = [_look(table) for table in tables]
    plan = Erasure(True, len({*subjects}) + len({*records}), places, _elsewhere(tables, policies))
    if dry_run:
        return plan
    done, noted = [], 0
    for table, place in zip(tables, places, strict=True):
        done.append(place)
        if table.subjects or table.records:
            changed, more = _carry_out(table, place)
            done[-1] = changed
            noted += more
        if progress is not None:
            progress(done[-1])
    return replace(plan, dry_run=False, places=done, noted=noted)


def _carry_out(table: _Table, place: Place) -> tuple[Place, int]:
    """Forget the people in one table, and return what was done, and how many records the ledger newly notes."""
    if place.outcome == "not published":
        noted, staged = forgetting.forget_drafts(
            table.policy, partition=table.partition, subjects=table.subjects, records=table.records
        )
        return replace(place, staged=staged), noted
    found = forgetting.forget(table.policy, partition=table.partition, subjects=table.subjects, records=table.records)
    if place.outcome == "not in it" and found.removed:  # another table took their ids out of staging before
        place = replace(place, outcome="removed", records=found.removed)
    return replace(place, version=found.version, deleted=found.versions, staged=found.staged), found.noted


def _policies(where: Path) -> Iterator[tuple[Path, Policy]]:
    """Yield the policies of a folder; other TOML files are none, because they have no dataset."""
    files = sorted(where.rglob("*.toml")) if where.is_dir() else [where]
    found = [file for file in files if file == where or _has_dataset(file)]
    if not found:
        raise PolicyError(f"there is no policy file in {where}", "name the folder that holds them, or one policy file")
    for file in found:
        yield file, Policy.load(file)


def _has_dataset(file: Path) -> bool:
    try:
        return "dataset" in tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False


def _known(policies: list[tuple[Path, Policy]], subjects: list[str], records: list[str]) -> list[_Table]:
    """Return all published tables with the people that their datasets know, and refuse people that none knows."""
    tables, seen_subjects, seen_records = [], np.zeros(len(subjects), bool), np.zeros(len(records), bool)
    for file, policy in policies:
        if not there_is(policy.ledger.url):  # it never ran
            continue
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            named = normalized(pa.array(subjects, pa.large_string()), policy.normalize)
            theirs = ledger.known_subjects(policy.dataset, named)
            held = ledger.known_records(policy.dataset, pa.array(records, pa.large_string()))
        seen_subjects |= theirs
        seen_records |= held
        some = [subject for subject, known in zip(subjects, theirs, strict=True) if known]
        rows = [record for record, known in zip(records, held, strict=True) if known]
        tables += [_Table(file, policy, partition, some, rows) for partition in _partitions(policy)]
    unknown = int((~seen_subjects).sum()), int((~seen_records).sum())
    if any(unknown):
        msg = f"no ledger of these policies knows {unknown[0]} of {len(subjects)} subjects and {unknown[1]} of "
        raise InputError(f"{msg}{len(records)} records; nothing was changed", "name ids as the table holds them")
    return tables


def _refuse_copies(tables: list[_Table]) -> None:
    """Refuse two policies of one published table, such as a copy that was kept: one of them describes it wrongly."""
    seen: dict[tuple[str, str, str | None], str] = {}
    for table in tables:
        policy = table.policy
        other = seen.setdefault((policy.sink, policy.release, table.partition), str(table.file))
        if other != str(table.file):
            msg = f"{other} and {table.file} publish release {policy.release} to one place; nothing was changed"
            raise PolicyError(msg, "keep the one that published it, and move the other to another folder")


def _partitions(policy: Policy) -> list[str | None]:
    """Return the partitions that are published or staged; None stands for the whole table."""
    if PARTITION not in policy.sink:
        return [None]
    head, _, tail = policy.sink.rstrip("/").partition(PARTITION)
    above, _, begins = head.rpartition("/")
    if is_remote(policy.sink):
        names = Storage.open(above, policy.storage_options).names()
        ends = rf"/{re.escape(MANIFEST)}"
    else:
        root = Path(above or ".")
        names = [path.relative_to(root).as_posix() for path in root.rglob("*")] if root.is_dir() else []
        ends = r"\.(?:manifest\.json|staging)"
    rest = re.escape(tail).replace(re.escape(PARTITION), "(?P=name)")
    pattern = re.compile(rf"{re.escape(begins)}(?P<name>[\w=+-][\w=+.-]*?){rest}{ends}", re.ASCII)
    found = {match["name"] for match in map(pattern.fullmatch, names) if match}
    if policy.staging is not None:
        found |= {folder.name for folder in Layout.of(policy, "_").staging.parent.parent.subfolders()}
    return sorted(name for name in found if _manifest(policy, name) or Layout.of(policy, name).staging.folder.is_dir())


def _manifest(policy: Policy, partition: str | None) -> Manifest | None:
    """Return the manifest of a sink if it is of this release: sinks of other policies may lie in the same folder."""
    found = Manifest.read(Layout.of(policy, partition))
    return found if found and (found.dataset, found.release) == (policy.dataset, policy.release) else None


def _look(table: _Table) -> Place:
    """Say what happens to one table, and refuse records that its source still holds."""
    policy = table.policy
    layout = Layout.of(policy, table.partition)
    manifest = _manifest(policy, table.partition)
    outcome: Outcome = "not in it"
    count = 0
    if table.subjects or table.records:
        named = normalized(pa.array(table.subjects, pa.large_string()), policy.normalize)
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            found = forgetting.listed(policy, layout, manifest, ledger, named, table.records, missing=False)
            ids = pa.array(sorted(found.records), pa.large_string())
            held = ledger.publications_of(policy.dataset, ids, named)
        found.require_gone_from_source()
        if manifest is None:
            outcome = "not published"
        elif not forgetting.identified(manifest):
            count = max((entry["records"] for entry in held if entry["release"] == policy.release), default=0)
            outcome = ("statistic stays" if policy.synthetic is not None else "withdrawn") if count else outcome
        elif found.published:
            outcome, count = "removed", len(found.published)
    return Place(str(table.file), policy.dataset, policy.release, table.partition, outcome, count)


def _elsewhere(tables: list[_Table], policies: list[tuple[Path, Policy]]) -> list[dict[str, Any]]:
    """List publications of these people that no policy here publishes now."""
    here = {(policy.dataset, policy.release) for _, policy in policies}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for table in tables:
        policy = table.policy
        named = normalized(pa.array(table.subjects, pa.large_string()), policy.normalize)
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            ids = pa.array(table.records, pa.large_string())
            for entry in ledger.publications_of(policy.dataset, ids, named):
                key = (policy.dataset, entry["release"])
                if key not in here:
                    versions = {name: entry[name] for name in ("versions", "records")}
                    found[key] = {"dataset": key[0], "release": key[1], **versions}
    return list(found.values())
