"""Remove people from everything that the policies of a folder publish or stage.

The plan is made first, and changes nothing. It is refused if a person is unknown, if a source still holds records of
theirs, or if a policy does not say whose records it publishes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from dptext_etl.checks.sink_files import MANIFEST, TABLE, Manifest
from dptext_etl.errors import InputError, PolicyError, bare
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.ledger import ledger_exists
from dptext_etl.policy import PARTITION, Policy, tables_of
from dptext_etl.runner.layout import Layout, is_remote
from dptext_etl.runner.publish.forgetting import (
    AS_IN_TABLE,
    forget_drafts,
    forget_table,
    identified,
    listed,
    look_up,
    subject_ids,
)
from dptext_etl.runner.shard.attempt import require_audiences
from dptext_etl.storage import Storage

Outcome = Literal["removed", "withdrawn", "statistic stays", "not published", "not in it"]


@dataclass(frozen=True)
class ErasedTable:
    policy: str  # path of the policy file
    dataset: str  # its dataset
    release: str  # its release
    audience: str | None  # whose table it is; None for the policy's own table
    partition: str | None  # the partition, if the policy has partitions
    # rows are removed; a shuffled release is withdrawn as a whole; a synthetic table keeps its statistic; the table is
    # not published, so only staging changes; or it holds none of these people
    outcome: Outcome
    records: int  # published rows of these people; of a table without ids, their records in its release
    version: int | None = None  # the version that readers see afterwards; None in a dry run
    deleted: list[str] = field(default_factory=list)  # names of older versions whose files were deleted
    staged: int = 0  # files in staging that were removed, or written without these people


@dataclass(frozen=True)
class Erasure:
    """The plan of an erasure, or its result."""

    dry_run: bool  # whether nothing was changed
    people: int  # number of subjects and records that were named
    places: list[ErasedTable]  # one entry per published table of the policies
    # publications that a ledger records under names that no policy here has: look for their files
    elsewhere: list[dict[str, Any]]
    noted: int = 0  # records that the ledgers newly note as forgotten


class _PublishedTable(NamedTuple):
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
    progress: Callable[[ErasedTable], None] | None = None,
) -> Erasure:
    """Remove people from every table that the policies in a file, or in a folder at any depth, publish."""
    policies = [(file, table) for file, policy in _policies(where) for table in tables_of(policy)]
    if subjects and any(policy.unit == "record" for _, policy in policies):
        names = ", ".join(sorted(file.name for file, policy in policies if policy.unit == "record"))
        msg = f'{names}: unit is "record", so the ledger does not know whose records they are; nothing was changed'
        hint = "call `dptext forget POLICY --record ID` for these policies, and move them to another folder"
        raise PolicyError(msg, hint)
    tables, elsewhere = _tables_of(policies, list(subjects), list(records))
    seen: dict[tuple[str, str, str | None], str] = {}  # a copy of a policy that was kept describes its table wrongly
    for table in tables:
        policy = table.policy
        other = seen.setdefault((policy.sink, policy.release, table.partition), str(table.file))
        if other != str(table.file):
            msg = f"{other} and {table.file} publish release {policy.release} to one place; nothing was changed"
            raise PolicyError(msg, "keep the one that published it, and move the other to another folder")
    places = [_outcome(table) for table in tables]
    plan = Erasure(True, len({*subjects}) + len({*records}), places, elsewhere)
    if dry_run:
        return plan
    erased, noted = [], 0
    for table, place in zip(tables, places, strict=True):
        changed, more = place, 0
        named: dict[str, Any] = {"partition": table.partition, "subjects": table.subjects, "records": table.records}
        if (table.subjects or table.records) and place.outcome == "not published":
            more, staged = forget_drafts(table.policy, **named)
            changed = replace(place, staged=staged)
        elif table.subjects or table.records:
            done = forget_table(table.policy, checked=True, **named)
            if place.outcome == "not in it" and done.removed:  # another table removed their ids from staging before
                changed = replace(place, outcome="removed", records=done.removed)
            changed = replace(changed, version=done.version, deleted=done.versions, staged=done.staged)
            more = done.noted
        erased.append(changed)
        noted += more
        if progress is not None:
            progress(changed)
    return replace(plan, dry_run=False, places=erased, noted=noted)


def _policies(where: Path) -> Iterator[tuple[Path, Policy]]:
    """Yield the policies of a folder; other TOML files have no dataset."""
    files = sorted(where.rglob("*.toml")) if where.is_dir() else [where]
    chosen = [file for file in files if file == where or _has_dataset(file)]
    if not chosen:
        raise PolicyError(f"there is no policy file in {where}", "name the folder that holds them, or one policy file")
    for file in chosen:
        yield file, Policy.load(file)


def _has_dataset(file: Path) -> bool:
    try:
        return "dataset" in tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False


def _tables_of(
    policies: list[tuple[Path, Policy]], subjects: list[str], records: list[str]
) -> tuple[list[_PublishedTable], list[dict[str, Any]]]:
    """Find the published tables of these people, and publications that no policy here names; refuse unknown people."""
    here = {(policy.dataset, policy.release) for _, policy in policies}
    tables, elsewhere = list[_PublishedTable](), dict[tuple[str, str], dict[str, Any]]()
    seen_subjects, seen_records = np.zeros(len(subjects), bool), np.zeros(len(records), bool)
    for file, policy in policies:
        if not ledger_exists(policy.ledger.url):  # it never ran
            continue
        partitions = partitions_of(policy)
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            require_audiences(ledger, policy)
            layouts = (Layout.of(policy, partition) for partition in partitions)
            known_subjects, known_records = look_up(policy, layouts, ledger, subject_ids(policy, subjects), records)
            names, rows = list(compress(subjects, known_subjects)), list(compress(records, known_records))
            ids = pa.array(rows, pa.large_string())
            for entry in ledger.people.publications_of(policy.dataset, ids, subject_ids(policy, names)):
                name = policy.dataset, entry["release"]
                if partitions and name not in here:
                    counts = {"versions": entry["versions"], "records": entry["records"]}
                    elsewhere[name] = {"dataset": name[0], "release": name[1], **counts}
        seen_subjects |= known_subjects
        seen_records |= known_records
        tables += [_PublishedTable(file, policy, partition, names, rows) for partition in partitions]
    unknown = int((~seen_subjects).sum()), int((~seen_records).sum())
    if any(unknown):
        msg = f"none of these policies knows {unknown[0]:,} of {len(subjects):,} subjects and {unknown[1]:,} of "
        raise InputError(f"{msg}{len(records):,} records; nothing was changed", AS_IN_TABLE)
    return tables, [*elsewhere.values()]


def partitions_of(policy: Policy) -> list[str | None]:
    """Return the partitions that are published or staged; None means the whole table."""
    if PARTITION not in policy.sink:
        return [None]
    head, _, tail = policy.sink.rstrip("/").partition(PARTITION)
    above, _, begins = head.rpartition("/")
    if is_remote(policy.sink):
        names = Storage.open(above, policy.storage_options).names()
        ends = rf"/(?:{TABLE}/)?{re.escape(MANIFEST)}"
    else:
        root = Path(above or ".")
        names = [path.relative_to(root).as_posix() for path in root.rglob("*")] if root.is_dir() else []
        ends = rf"(?:\.manifest\.json|\.staging|/{TABLE}/manifest\.json)"
    rest = re.escape(tail).replace(re.escape(PARTITION), "(?P=name)")
    pattern = re.compile(rf"{re.escape(begins)}(?P<name>[\w=+-][\w=+.-]*?){rest}{ends}", re.ASCII)
    partitions = {match["name"] for match in map(pattern.fullmatch, names) if match}
    partitions |= {folder.name for folder in Layout.of(policy, "_").memory.subfolders()}

    def is_ours(name: str) -> bool:  # sinks of other policies may lie in the same folder
        layout = Layout.of(policy, name)
        return Manifest.of_release(policy, layout) is not None or layout.staging.folder.is_dir()

    return [*sorted(filter(is_ours, partitions))]


def _outcome(table: _PublishedTable) -> ErasedTable:
    policy = table.policy
    layout = Layout.of(policy, table.partition)
    manifest = Manifest.of_release(policy, layout)
    outcome: Outcome = "not in it"
    count = 0
    if table.subjects or table.records:
        named = subject_ids(policy, table.subjects)
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            people = listed(policy, layout, manifest, ledger, named, table.records, missing=False)
            ids = pa.array(sorted(people.records), pa.large_string())
            publications = ledger.people.publications_of(policy.dataset, ids, named)
        people.require_gone_from_source()
        if manifest is None:
            outcome = "not published"
        elif not identified(manifest):
            count = max((entry["records"] for entry in publications if entry["release"] == policy.release), default=0)
            outcome = ("statistic stays" if policy.synthetic is not None else "withdrawn") if count else outcome
        elif people.published:
            outcome, count = "removed", len(people.published)
    named = policy.dataset, policy.release, policy.audience
    return ErasedTable(str(table.file), *named, table.partition, outcome, count)
