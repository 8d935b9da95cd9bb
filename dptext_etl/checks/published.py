"""Judge a published table without its raw data: `dptext check RELEASED --policy POLICY`.

It can be run at any time, by anybody who has the policy, its key and its ledger: the pseudo-words of the canaries
follow from the key, and a canary row that was left in is a row without a committed spend of a real record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from dptext_etl.checks import candidate
from dptext_etl.checks.canaries.words import policy_tokens
from dptext_etl.checks.gates import one_text_per_record, raw_column_absent, rows_ledgered, words_in_output_set
from dptext_etl.checks.gates.canaries_foreign import ForeignGate
from dptext_etl.checks.gates.judging import Look
from dptext_etl.checks.gates.one_text_per_record import OnceGate
from dptext_etl.checks.gates.raw_column_absent import ColumnsGate
from dptext_etl.checks.gates.rows_ledgered import LedgerGate
from dptext_etl.checks.gates.words_in_output_set import WordsGate
from dptext_etl.checks.lineage import Lineage
from dptext_etl.checks.verdict import Verdict
from dptext_etl.errors import GateError, InputError, seam
from dptext_etl.files import sha256
from dptext_etl.ledger import Ledger
from dptext_etl.policy import Policy

MANIFEST = "manifest.json"
FILES = "published_files"
FILES_CATCHES = (
    "Published files that were edited, cut, swapped or added after their gates, or that belong to another release."
)

_HINT = "give the folder that `dptext run` published, one of its files, or a table"


def catalogue() -> dict[str, str]:
    """Return the gates that a published folder is judged by, and what each catches; none needs canary rows."""
    gates = {
        FILES: FILES_CATCHES,
        raw_column_absent.NAME: raw_column_absent.CATCHES,
        ForeignGate.name: ForeignGate.catches,
    }
    return gates | {gate.NAME: gate.CATCHES for gate in (words_in_output_set, rows_ledgered, one_text_per_record)}


def check_published(released: Path | pl.DataFrame, policy: Policy, ledger: Ledger | None = None) -> tuple[Verdict, ...]:
    """Evaluate every gate that needs no raw text and no staging.

    Args:
        released: The published folder (its manifest says which files count), one published file, or a table.
        policy: The policy that it was published under.
        ledger: Its ledger, open; None opens the policy's, to read only.

    Returns:
        One verdict per gate: columns, canary words, output words, ledger, records once; for a folder also its files.

    Raises:
        InputError: Nothing to check, or files that cannot be read.
        KeyReferenceError: The policy's key cannot be resolved.
        LedgerError: The ledger cannot be read.
    """
    with ExitStack() as stack:
        if ledger is None:
            opened = Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True)
            ledger = stack.enter_context(opened)
        columns = policy.column_policies()
        foreign = ForeignGate(policy, policy_tokens(policy, columns[0].secret))
        files = None
        if isinstance(released, Path) and released.is_dir():
            manifest = _Manifest.read(released)
            files = manifest.verdict(policy)
            foreign.search(released / MANIFEST)
            tables: list[Path | pl.DataFrame] = [*manifest.present()]
        else:
            tables = [released]
        found = {spec.name: ledger.find(column) for spec, column in zip(policy.columns, columns, strict=True)}
        refs = {name: ref for name, ref in found.items() if ref is not None}
        names = ColumnsGate(policy, Lineage.declared(policy), marked=False)
        looks: list[Look] = [foreign, WordsGate(policy), LedgerGate(policy, ledger, refs), OnceGate(policy)]
        with seam("evaluating the gates", GateError):
            for table in tables:
                _look(table, names, looks)
        said = (names.verdict(), *(look.verdict() for look in looks))
        return said if files is None else (files, *said)


def _look(table: Path | pl.DataFrame, names: ColumnsGate, looks: list[Look]) -> None:
    for number, batch in enumerate(_batches(table)):
        if number == 0:
            names.feed(batch.schema)
        for look in looks:
            look.feed(batch)


def _batches(table: Path | pl.DataFrame) -> Iterator[pl.DataFrame]:
    if isinstance(table, pl.DataFrame):
        return iter([table])
    if not table.is_file():
        raise InputError("what is to be checked is neither a folder nor a file nor a table", _HINT)
    return _from_file(table)


def _from_file(path: Path) -> Iterator[pl.DataFrame]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield pl.DataFrame(schema=candidate.schema(path))
        yield from candidate.batches(path)
    elif suffix == ".csv":
        lazy = pl.scan_csv(path, infer_schema=False)
        yield from lazy.collect_batches(chunk_size=candidate.BATCH_ROWS)
    elif suffix in {".ndjson", ".jsonl"}:
        yield from pl.scan_ndjson(path, infer_schema_length=None).collect_batches(chunk_size=candidate.BATCH_ROWS)
    else:
        raise InputError(f"a published file is Parquet, CSV or NDJSON, got the suffix {suffix!r}", _HINT)


@dataclass(frozen=True)
class _Manifest:
    """What a published folder says about itself."""

    folder: Path
    facts: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> _Manifest:
        with seam(f"reading {MANIFEST}", InputError, _HINT):
            facts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            for part in facts["parts"]:
                _ = part["path"], int(part["rows"]), part["sha256"]
            return cls(folder, facts)

    @property
    def parts(self) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = self.facts["parts"]
        return parts

    def present(self) -> list[Path]:
        return [path for part in self.parts if (path := self._path(part)) is not None]

    def verdict(self, policy: Policy) -> Verdict:
        """Compare the files with the manifest, and the manifest with the policy."""
        paths = [self._path(part) for part in self.parts]
        changed = sum(
            path is not None and sha256(path) != part["sha256"] for path, part in zip(paths, self.parts, strict=True)
        )
        folders = {path.parent for path in paths if path is not None}
        extra = sum(item not in paths for folder in folders for item in folder.iterdir())
        configured = {column.column: column.mechanism.cfg() for column in policy.column_policies()}
        stated = {column.get("name"): column.get("cfg") for column in self.facts.get("columns", [])}
        foreign = (self.facts.get("dataset"), self.facts.get("release")) != (policy.dataset, policy.release)
        counts = {
            "files": len(paths),
            "missing": sum(path is None for path in paths),
            "changed": changed,
            "unlisted": extra,
            "other_release": int(foreign),
            "other_configuration": len(set(configured.items()) ^ set(stated.items())),
        }
        wrong = {name: count for name, count in counts.items() if count and name != "files"}
        said = f"all {len(paths)} files are those of the manifest"
        if wrong:
            said = "; ".join(f"{name.replace('_', ' ')}: {count}" for name, count in wrong.items())
        return Verdict(FILES, bool(paths) and not wrong, counts, said, FILES_CATCHES)

    def _path(self, part: dict[str, Any]) -> Path | None:
        """Return a part's file, or None if it is missing or lies outside the folder."""
        relative = PurePosixPath(part["path"])
        path = self.folder / relative
        inside = not relative.is_absolute() and ".." not in relative.parts
        return path if inside and path.is_file() else None
