"""Judge a published table without its raw data: `dptext check POLICY`.

Anybody who has the policy, its key and its ledger can do so at any time. The pseudo-words of the canaries follow from
the key. A canary row that was left in shows as a row that no real record paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeGuard

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_etl.checks import candidate
from dptext_etl.checks.candidate import Candidate, Stage, as_released
from dptext_etl.checks.gate import Gate, Verdict, judges
from dptext_etl.checks.judging import search
from dptext_etl.checks.sink import HINT, LocalSink, PublishedManifest, fetched
from dptext_etl.checks.table_metadata import published_types, shown, without_published
from dptext_etl.errors import GateError, InputError, bare, seam
from dptext_etl.ledger import Ledger
from dptext_etl.policy import Policy, PolicyLike, resolve
from dptext_etl.storage import Storage

Table = str | Path | pl.DataFrame


@bare
def check_published(
    released: Table,
    policy: PolicyLike,
    ledger: Ledger | None = None,
    own_ids: Callable[[Path], pl.Series] | None = None,
) -> tuple[Verdict, ...]:
    """Evaluate every gate that judges published tables.

    Args:
        released: The published folder or object-store URL, one of its files, or a table.
        policy: The policy that it was published under.
        ledger: The ledger, if it is open already.
        own_ids: Returns the records' own ids of a published file, where the policy does not publish them
            (`runner.publish.own_ids.finder`).
    """
    policy = resolve(policy)
    if policy.ids != "keep" and (own_ids is None or isinstance(released, pl.DataFrame)):
        msg = f"with ids = {policy.ids!r} only staging knows whose rows these are"
        raise InputError(msg, "`dptext check POLICY` finds them there, and judges the published folder")
    with ExitStack() as stack:
        if ledger is None:
            opened = Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True)
            ledger = stack.enter_context(opened)
        if isinstance(released, str) and "://" not in released:
            released = Path(released)
        manifest: PublishedManifest | None
        if isinstance(released, str):
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="dptext-check-")))
            manifest = fetched(Storage.open(released, policy.storage_options), folder)
        else:
            manifest = PublishedManifest.read(released) if _is_sink(released) else None
        tables: list[Table] = [released] if manifest is None else [*manifest.present()]
        refs = ledger.find_all(policy)
        release = Candidate.published(policy, ledger, refs, manifest)
        gates = [gate for kind in judges(policy, Stage.PUBLISHED) for gate in kind.over(release)]
        search(gates, release)
        with seam("evaluating the gates", GateError):
            for table in tables:
                _judge(table, gates, policy, None if manifest else published_types(policy), own_ids)
        return tuple(gate.verdict() for gate in gates)


def _is_sink(released: Table) -> TypeGuard[Path]:
    return isinstance(released, Path) and (released.is_dir() or LocalSink.at(released).manifest.is_file())


def _judge(
    table: Table,
    gates: list[Gate],
    policy: Policy,
    types: Mapping[str, str] | None,
    own_ids: Callable[[Path], pl.Series] | None,
) -> None:
    """Show a table to every gate: as it is, or as mechanisms released it, where post-processing came after them."""
    later = any(item.postprocess for item in policy.columns)
    batches = _batches(table, types)
    if policy.ids != "keep" and own_ids is not None and not isinstance(table, pl.DataFrame):
        batches = _with_ids(batches, own_ids(Path(table)), policy.id)
    for number, batch in enumerate(batches):
        released = as_released(batch, policy) if later else batch
        for gate in gates:
            if later and gate.rewritten:
                if number == 0:
                    gate.look_at_rewritten(batch.schema)
                gate.feed_rewritten(batch)
                continue
            if number == 0:
                gate.look_at_columns(released.schema)
            gate.feed(released)


def _with_ids(batches: Iterator[pl.DataFrame], ids: pl.Series, column: str) -> Iterator[pl.DataFrame]:
    """Put the records' own ids into batches of a published file, in row order."""
    start = 0
    for batch in batches:
        own = ids.slice(start, batch.height).alias(column)
        if len(own) != batch.height:
            break
        start += batch.height
        yield batch.select(own, pl.exclude(column))
    if start != len(ids):
        raise InputError("a published file and the list of its ids have other lengths", HINT)


def _batches(table: Table, types: Mapping[str, str] | None) -> Iterator[pl.DataFrame]:
    """Read a table in batches; what is next to the cells of one without a manifest is shown in the first one."""
    if isinstance(table, pl.DataFrame):
        with seam("reading the table", InputError, HINT):
            return iter([without_published(shown(table), types or {})])
    table = Path(table)
    if not table.is_file():
        raise InputError("what is to be checked is neither a folder nor a file nor a table", HINT)
    return _from_file(table, types)


def _from_file(path: Path, types: Mapping[str, str] | None) -> Iterator[pl.DataFrame]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        schema = pl.Schema(pl.read_parquet_schema(path))
        if types is not None:
            written = pq.read_schema(path)
            row = pa.table([pa.nulls(1, field.type) for field in written], schema=written)
            beside = without_published(shown(row), types).schema
            schema.update({name: kind for name, kind in beside.items() if name not in written.names})
        yield pl.DataFrame(schema=schema)
        yield from candidate.batches(path)
    elif suffix == ".csv":
        lazy = pl.scan_csv(path, infer_schema=False)
        yield from lazy.collect_batches(chunk_size=candidate.BATCH_ROWS)
    elif suffix in {".ndjson", ".jsonl"}:
        yield from pl.scan_ndjson(path, infer_schema_length=None).collect_batches(chunk_size=candidate.BATCH_ROWS)
    else:
        raise InputError(f"a published file is Parquet, CSV or NDJSON, got the suffix {suffix!r}", HINT)
