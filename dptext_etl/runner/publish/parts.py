"""Write the files of a version where no reader looks, then put them in place in one step.

A part may hold other ids than the records' own, or none. A file in staging then lists the canonical ids of its rows, in
their order. The name of the list holds the hashes of the part and of the ids, and a seal over both under the ledger's
id key (docs/spec/stream.md#id-lists). Two parts of equal bytes have a list each, and either fits either. A null is a
record that was forgotten in another table and is still in this one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple, Self

import polars as pl
import pyarrow as pa
from polars import selectors

from dptext_etl import _kernel, files, keys
from dptext_etl.accounting.shuffling import COUNT, OTHER, Shuffled
from dptext_etl.artifacts import canon
from dptext_etl.checks.canaries import CANARY
from dptext_etl.checks.sink_files import Part, part_name
from dptext_etl.data_types import all_plain, by_name
from dptext_etl.device import threads
from dptext_etl.errors import InputError, counted, seam
from dptext_etl.file_formats import FORMATS
from dptext_etl.files import literal, sha256
from dptext_etl.ledger import Ledger
from dptext_etl.parallel import map_in_order
from dptext_etl.policy import LedgerSpec, Policy
from dptext_etl.policy.terms import FASTEST, Compression
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.shard.charging import ANY_SIZE, cut
from dptext_etl.runner.shard.staging import StagedShard, Staging
from dptext_etl.storage import Storage

_LABEL = b"dptext/published-id/v1\0"
_LIST_LABEL = b"dptext/id-list/v1\0"
_DIGITS = 32
_END = "__dptext_end"
_LISTS_AGAIN = (
    "they are in the staging folder of this release and partition, inside the boundary: is it that folder? A run of "
    "the same policy with incremental = false writes them again, at no cost"
)


def keyed_ids(key: str, dataset: str, release: str, ids: pa.Array, audience: str | None = None) -> pl.Series:
    """Return the hashes of canonical ids that a release publishes in their place (docs/spec/stream.md#published-ids).

    Args:
        key: Reference to the noise secret.
        dataset: Name of the dataset.
        release: Name of the release.
        ids: Canonical ids, shape (ids,).
        audience: Name of the audience, whose ids are under a separate key; None for the policy's own table.
    """
    named = [dataset, release] if audience is None else [dataset, release, audience]
    secret = keys.resolve(key).derive("seal", _LABEL + canon(named))
    hashed = pa.array(_kernel.hash_ids(_kernel.Secret.from_bytes(secret), "rec", ids))
    return pl.Series(hashed).cast(pl.Binary).bin.encode("hex")


@dataclass(frozen=True)
class HiddenIds:
    """How a release publishes ids in the place of the records' own."""

    mode: Literal["drop", "keyed"]  # "drop" publishes none, "keyed" a keyed hash
    column: str  # the column of ids
    key: str  # reference to the secret
    dataset: str
    release: str
    ledger: LedgerSpec  # the ledger whose id key seals lists
    audience: str | None = None  # whose ids they are

    @classmethod
    def of(cls, policy: Policy) -> HiddenIds | None:
        if policy.ids == "keep":
            return None
        return cls(policy.ids, policy.id, policy.key, policy.dataset, policy.release, policy.ledger, policy.audience)

    def schema(self, schema: pl.Schema) -> pl.Schema:
        if self.mode == "keyed":
            return pl.Schema({**schema, self.column: pl.String()})
        return pl.Schema({name: dtype for name, dtype in schema.items() if name != self.column})

    def arranged(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return rows in the order of the keyed hashes of their ids, with these ids, and as readers see them.

        The order says nothing of the source.
        """
        ids = keys.canonical_series(frame[self.column]).to_arrow()
        keyed = keyed_ids(self.key, self.dataset, self.release, ids, self.audience).alias("id")
        order = keyed.arg_sort()
        frame = frame[order]
        if self.mode == "drop":
            return frame, frame.select(by_name(name) for name in frame.columns if name != self.column)
        return frame, frame.with_columns(keyed[order].alias(self.column))


def _write_list(staging: Storage, spec: LedgerSpec, part: str, ids: pl.Series, *, action: str) -> str:
    whole = _hash(ids)
    with Ledger.open(spec.url, spec.id_key, create=False, read_only=True) as ledger:
        name = f"ids-{part}-{whole}-{_seal(ledger, part, whole)}.ids"
    staging.write(name, ids.alias("id").to_frame().write_parquet, action=action)
    return name


def _hash(ids: pl.Series) -> str:
    return hashlib.sha256(canon(ids.to_list())).hexdigest()[:_DIGITS]


def _seal(ledger: Ledger, part: str, whole: str) -> str:
    return ledger.seal(_LIST_LABEL + canon([part, whole]))[:_DIGITS]


def _lists(staging: Storage, spec: LedgerSpec) -> dict[str, list[str]]:
    """Return the names of all sealed lists, by the hash of their parts as names hold it."""
    by_part, names = dict[str, list[str]](), staging.glob("ids-*-*-*.ids")
    if names:
        with Ledger.open(spec.url, spec.id_key, create=False, read_only=True) as ledger:
            for name in names:
                _, part, whole, *seal = name.removesuffix(".ids").split("-")
                if hmac.compare_digest("-".join(seal), _seal(ledger, part, whole)):
                    by_part.setdefault(part, []).append(name)
    return by_part


def id_lists(staging: Storage, spec: LedgerSpec, digests: Iterable[str]) -> list[str]:
    """Return the names of the lists of published parts, given by their hashes, in row order."""
    parts, every = [digest[:_DIGITS] for digest in digests], _lists(staging, spec)
    by_part = {part: every.get(part, []) for part in parts}
    for part, count in Counter(parts).items():
        if len(by_part[part]) > count:  # of a run that was killed: another list may name other people
            raise InputError("staging holds more lists of ids than parts of equal bytes are published", _LISTS_AGAIN)
    return [_next_list(by_part[part]) for part in parts]


def _next_list(lists: list[str]) -> str:
    if not lists:
        raise InputError("the records' own ids of a published part are not in staging", _LISTS_AGAIN)
    return lists.pop(0)


def ids_of_parts(staging: Storage, spec: LedgerSpec, digests: Iterable[str]) -> list[pl.Series]:
    """Return the records' own ids of published parts, given by their hashes, in row order; null where forgotten."""
    return [read_ids(staging, name) for name in id_lists(staging, spec, digests)]


def read_ids(staging: Storage, name: str) -> pl.Series:
    """Read a list, and refuse one that holds other ids than its name says."""
    with seam("reading the ids of a published part", InputError, _LISTS_AGAIN):
        ids = pl.read_parquet(literal(staging.local_path(name, fresh=True)))["id"]
        if _hash(ids) != name.split("-")[2]:
            raise InputError("a list of the ids of a published part has changed since it was written", _LISTS_AGAIN)
        return ids


def id_finder(staging: Storage, spec: LedgerSpec) -> Callable[[Path], pl.Series]:
    """Return a function that finds the records' own ids of published files; call it once per file."""
    lists = cache(lambda: _lists(staging, spec))

    def find(path: Path) -> pl.Series:
        ids = read_ids(staging, _next_list(lists().get(sha256(path)[:_DIGITS], [])))
        if ids.null_count():
            whose = counted(ids.null_count(), "row of a published part is", "rows of a published part are")
            msg = f"{whose} of people who were forgotten in another table"
            raise InputError(msg, "`dptext forget` removes them from this table: name the same people")
        return ids

    return find


def keep_id_lists(staging: Storage, digests: Iterable[str], written: Collection[str]) -> None:
    """Remove the lists of all other parts; lists just written come before older ones of parts of equal bytes."""
    left = Counter(digest[:_DIGITS] for digest in digests)
    for name in sorted(staging.glob("ids-*.ids"), key=lambda name: name not in written):
        digest = name.split("-")[1]
        left[digest] -= 1
        if left[digest] < 0:
            staging.delete(name)


def blank_ids(staging: Storage, spec: LedgerSpec, is_forgotten: Callable[[pl.Series], pl.Series]) -> int:
    """Remove forgotten ids from the lists of other releases, and return how many lists held one; rows stay in order.

    Lists that no run sealed go: no one reads them.
    """
    sealed, changed = {name for names in _lists(staging, spec).values() for name in names}, 0
    staging.delete(*(name for name in staging.glob("ids-*.ids") if name not in sealed))
    for name in sorted(sealed):
        ids = read_ids(staging, name)
        present = ids.drop_nulls()
        forgotten = set(present.filter(is_forgotten(present)))
        if forgotten:
            left = pl.Series("id", [None if record in forgotten else record for record in ids], dtype=pl.String)
            _write_list(staging, spec, name.split("-")[1], left, action="removing records from staging")
            staging.delete(name)
            changed += 1
    return changed


_ELSEWHERE = ".elsewhere"
"""Ends the name of a folder where other machines draft parts; it is next to the drafts, and no version holds it."""
_WIDTH = 2
"""Parts that are written at a time, at most: each is in memory."""
_WHOLE = "`dptext check` says more; incremental = false publishes every row again at no cost"
_AGAIN = "is there room and access? Readers still see the version before; run the same policy again"

Move = Callable[[Sequence[tuple[str, str, str]], Callable[[], object]], int]
"""Moves parts from the store of staging to the store of the sink.

It gets the name of each, the name of its object and its hash, and a function to call now and then. It returns how many
objects were missing or held other bytes.
"""


class _Draft(NamedTuple):
    """A part that is written, under its final name in the folder of drafts, or as an object `source` of staging."""

    name: str
    rows: int
    sha256: str
    source: str | None = None


class Writer:
    """Write the parts of one version.

    Only their owner can read drafts, until the ledger has recorded the publication. A local sink then gets them
    by one rename. An object store gets its objects one by one, under names that no other version has: no manifest names
    them yet, so no reader sees them.
    """

    def __init__(
        self,
        layout: Layout,
        staging: Staging,
        version: int,
        most: tuple[int, int] = (ANY_SIZE, ANY_SIZE),
        *,
        hidden: HiddenIds | None = None,
        kept: tuple[Part, ...] = (),
    ) -> None:
        self._layout = layout
        self._kept = kept  # parts of the version before that stay, in front of those that are written
        self._staging = staging
        self.version = version
        self._most = most  # rows and bytes of a part
        self.hidden = hidden
        self.lists: set[str] = set()  # names of the lists of the records' own ids that were kept inside
        self.staging = staging.storage
        self.format, self.compression = layout.sink_format, layout.compression
        self._written: list[_Draft] = []
        self.size = 0  # bytes of these parts
        self._move: Move | None = None
        drafts = f".v{version}-{secrets.token_hex(8)}.incomplete"
        self._folder = staging.folder / "parts" if layout.remote_sink else layout.local.versions / drafts

    def __enter__(self) -> Self:
        self._remove_drafts()
        with seam("writing a version", InputError, _AGAIN):
            self._folder.mkdir(mode=files.PRIVATE_FOLDER)
            for part, new in zip(self._kept, self.parts, strict=True) if self._layout.plain else ():
                path = Path(self._layout.part(part.path))
                if not path.is_file():
                    raise InputError(f"the published file {part.path} is missing", _WHOLE)
                files.link(path, self._folder / Path(new.path).name, mode=files.PUBLIC_FILE, flush_folder=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._remove_drafts()

    @property
    def published(self) -> Storage:
        return self._layout.published

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts so far; folders in object stores are named after their contents."""
        folder, kept = f"v{self.version}", self._kept
        if self._layout.plain:
            names = (self._final(number, part.sha256) for number, part in enumerate(kept))
            kept = tuple(replace(part, path=f"{folder}/{name}") for part, name in zip(kept, names, strict=True))
        if self._layout.remote_sink:
            content = "".join(draft.sha256 for draft in self._written)
            folder += f"-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
        return *kept, *(Part(f"{folder}/{draft.name}", draft.rows, draft.sha256) for draft in self._written)

    @property
    def drafts(self) -> tuple[Path, ...]:
        return tuple(self._folder / draft.name for draft in self._written if draft.source is None)

    def add(self, shards: Iterable[StagedShard], advance: Callable[[int], object]) -> None:
        """Write the rows of staged shards in their order, without canary rows, and report the rows of each part.

        Shards of this process end where raw texts fill them, so parts are cut anew: its end follows only from published
        rows (docs/spec/privacy.md#structure). A shard of Spark is a part.
        """

        def cut_anew() -> Iterator[pl.DataFrame]:
            for by_ids, group in groupby(shards, key=lambda shard: shard.by_ids):
                rows = (rows_of(self._staging, shard) for shard in group)
                yield from rows if by_ids else cut(rows, *self._most)

        first = len(self._written)
        places = ((rows, self._folder / self._name(number)) for number, rows in enumerate(cut_anew(), first))
        for path, rows, digest, kept in map_in_order(self._add, places, min(threads(), _WIDTH)):
            self.take(path, rows, digest, kept)
            advance(rows)

    def _add(self, place: tuple[pl.DataFrame, Path]) -> tuple[Path, int, str, str]:
        rows, path = place
        return path, *write_part(rows, path, self.format, self.staging, self.hidden, compression=self.compression)

    def add_rows(self, frame: pl.DataFrame) -> None:
        self.take(*self._add((frame, self._folder / self._name(len(self._written)))))

    def elsewhere(self) -> Path:
        """Make a folder where other machines draft parts; unused drafts are removed with the drafts of this process.

        It is next to these, so that an attempt that outlives the writer leaves nothing in them.
        """
        folder = self._folder.with_name(f"{self._folder.name}{_ELSEWHERE}").absolute()
        with seam("writing a version", InputError, _AGAIN):
            folder.mkdir(mode=files.PRIVATE_FOLDER)
        return folder

    def take(self, path: Path, rows: int, digest: str, kept: str) -> None:
        """Add a part that `write_part` drafted, here or elsewhere, as the next one."""
        first = len(self._kept) if self._layout.plain else 0
        with seam("adding a part", InputError, _AGAIN):
            target = path.rename(self._folder / self._final(first + len(self._written), digest))
            self._written.append(_Draft(target.name, rows, digest))
            self.size += target.stat().st_size
        self.lists.add(kept)

    def take_objects(self, objects: Iterable[tuple[str, int, str, str, int]], move: Move) -> None:
        """Add parts that lie in the store of staging (object, rows, hash, list, bytes); `move` publishes them."""
        for source, rows, digest, kept, size in objects:
            self._written.append(_Draft(self._name(len(self._written)), rows, digest, source))
            self.size += size
            self.lists.add(kept)
        self._move = move

    def _name(self, number: int) -> str:
        return f"part-{number:05d}.{self.format}"

    def _final(self, number: int, digest: str) -> str:
        """Name a part of a folder by its hash, too; versions in stores and tables have separate folders."""
        return part_name(number, digest, self.format) if self._layout.plain else self._name(number)

    def finish(self, advance: Callable[[], object] = lambda: None) -> None:
        """Put the version where the manifest will point. Call it when the ledger has recorded the publication."""
        if self._layout.remote_sink:
            self._upload(self.parts[len(self._kept) :], advance)
            return
        target = self._layout.local.versions / f"v{self.version}"
        with seam("putting a version in place", InputError, _AGAIN):
            for path in self.drafts:
                path.chmod(files.PUBLIC_FILE)
            files.flush(self._folder)  # once for all parts
            self._folder.chmod(target.parent.stat().st_mode & 0o777)
            files.remove(target)  # of a run that was killed before its manifest: no reader was pointed at it
            self._folder.rename(target)
            files.flush(target.parent)

    def restore(self, published: tuple[Part, ...], advance: Callable[[], object] = lambda: None) -> int:
        """Restore missing or damaged parts from the parts just written, and return how many."""
        if self._layout.remote_sink:
            return self._upload(published, advance)
        restored, sink = 0, self._layout.local
        for part, draft in zip(published, self.drafts, strict=True):
            whole = True
            for target in [sink.path / draft.name, sink.versions / part.path][not self._layout.plain :]:
                if target.is_file() and files.sha256(target) == part.sha256:
                    continue
                with seam("restoring a part", InputError, _AGAIN):
                    target.parent.mkdir(exist_ok=True)
                    draft.chmod(files.PUBLIC_FILE)
                    again = draft.with_name(f"{draft.name}.again")  # a run that dies leaves nothing in the sink
                    files.link(draft, again, mode=files.PUBLIC_FILE, flush_folder=False)
                    again.replace(target)
                    files.flush(target.parent)
                whole = False
            restored += not whole
        return restored

    def _upload(self, parts: tuple[Part, ...], advance: Callable[[], object]) -> int:
        """Write the objects that are missing or hold other bytes, check the result in the store, and count them."""
        both = list(zip(parts, self._written, strict=True))
        if self._move is not None:
            return self._move([(str(draft.source), part.path, part.sha256) for part, draft in both], advance)
        store, written = self.published, 0
        for part, draft in both:
            advance()
            if store.sha256(part.path) == part.sha256:
                continue
            store.put(part.path, self._folder / draft.name)
            if store.sha256(part.path) != part.sha256:
                msg = f"the object store does not hold {part.path} as it was written"
                raise InputError(msg, "readers still see the version before; run the same policy again")
            written += 1
        return written

    def _remove_drafts(self) -> None:
        if self.staging.remote:
            self.staging.delete(*self.staging.glob("draft-*"))
        for path in self._folder.parent.glob("parts*" if self._layout.remote_sink else ".v*.incomplete*"):
            shutil.rmtree(path, ignore_errors=True)


def rows_of(staging: Staging, shard: StagedShard) -> pl.DataFrame:
    """Return the rows of a staged shard as they are published, without its canary rows."""
    return staging.outcome(shard).filter(~pl.col(CANARY)).drop(CANARY)


def write_part(
    frame: pl.DataFrame,
    path: Path,
    file_format: str,
    staging: Storage,
    hidden: HiddenIds | None,
    *,
    compression: Compression = FASTEST,
) -> tuple[int, str, str]:
    """Write rows, keep the ids inside that readers do not see, and return rows, hash, and the name of their list."""
    frame, public = (frame, frame) if hidden is None else hidden.arranged(frame)
    public = all_plain(public.lazy(), public.schema, rename=True).collect()
    fill = FORMATS[file_format].writer(public.rechunk().lazy(), compression)
    files.write(path, fill, action="writing a part", flush_folder=False)
    digest = files.sha256(path)
    if hidden is None:
        return frame.height, digest, ""
    ids = keys.canonical_series(frame[hidden.column])
    own = _write_list(staging, hidden.ledger, digest[:_DIGITS], ids, action="keeping the ids of a part")
    return frame.height, digest, own


def write_shuffled(
    writer: Writer, staging: Staging, shards: Iterable[StagedShard], policy: Policy, shuffled: Shuffled
) -> None:
    """Write a shuffled release as a multiset of texts, or of labels with texts: no ids, no order, no other columns.

    They are sorted by their bytes, and a part holds `shard_rows` rows: the bytes depend only on the multiset
    (docs/spec/shuffled.md#published).
    """
    text, most = policy.columns[0].name, policy.shard_rows
    names = [*policy.kept_columns, text]  # the column of labels, if there is one
    cells = [by_name(name) for name in names]
    counted = [pl.DataFrame(schema={**dict.fromkeys(names, pl.String), COUNT: pl.Int64})]
    for shard in shards:
        rows = staging.read(shard).filter(~pl.col(CANARY) & by_name(text).is_not_null())
        rows = rows.with_columns(cell.fill_null(OTHER) for cell in cells)
        counted.append(rows.group_by(cells).agg(pl.len().cast(pl.Int64).alias(COUNT)))
    counts = pl.concat(counted).group_by(cells).agg(pl.col(COUNT).sum()).sort(cells)
    if shuffled.form == "counts":
        for start in range(0, max(counts.height, 1), most):
            writer.add_rows(counts.slice(start, most))
        return
    counts = counts.with_columns(pl.col(COUNT).cum_sum().alias(_END))
    for start in range(0, max(int(counts[COUNT].sum()), 1), most):
        # how often a text occurs in the rows from `start` up to `start + most`
        inside = pl.min_horizontal(_END, start + most) - pl.max_horizontal(pl.col(_END) - pl.col(COUNT), start)
        chosen = counts.with_columns(inside.alias(COUNT)).filter(pl.col(COUNT) > 0)
        writer.add_rows(chosen.select(cell.repeat_by(COUNT) for cell in cells).explode(selectors.by_name(names)))
