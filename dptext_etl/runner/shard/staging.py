"""Keep computed but unpublished rows inside the boundary, under seals: files of shards, records, staged runs.

Anyone who can write to a staging folder can replace a file and every hash next to it, but cannot seal the result.

Two attempts at one shard (a task that is retried, or that runs twice at once) never write the same file. The names of
their files hold a tag of each attempt, and the driver of the run decides whose files count.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_etl import keys
from dptext_etl._kernel import Secret
from dptext_etl.artifacts import canon
from dptext_etl.checks.canaries import CANARY, CanaryPlan, plans_as_dicts, plans_of
from dptext_etl.checks.text_counts import reading_page
from dptext_etl.errors import InputError, KeyReferenceError, seam
from dptext_etl.files import literal, sha256
from dptext_etl.ledger import ReleaseRef
from dptext_etl.mechanism import Released
from dptext_etl.policy import Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Profile
from dptext_etl.storage import Storage

_LABEL = b"dptext/staging/v1\0"
_TAIL = len(', "seal": "') + 64 + len('"}')


def staging_key(secret: Secret, dataset: str, storage: Storage) -> bytes:
    """Return the key that seals the files of one table, release, and partition, whose folders `storage` names."""
    table = storage.parent.parent
    return secret.derive("seal", _LABEL + canon([dataset, table.name, storage.parent.name, storage.name]))


def sealed(key: bytes, kind: str, facts: Mapping[str, Any]) -> bytes:
    """Write facts as one line of JSON that ends with a seal over everything before it."""
    return _sealed(key, kind, json.dumps(facts).encode())  # in one line: C code writes long records


def opened(key: bytes, kind: str, content: bytes | None) -> dict[str, Any] | None:
    """Read the output of `sealed`; None if there is nothing, or if no holder of the key wrote it for this use."""
    body = (content or b"")[:-_TAIL] + b"}"
    if content is None or not hmac.compare_digest(content, _sealed(key, kind, body)):
        return None
    facts: dict[str, Any] = json.loads(body)
    return facts


def _sealed(key: bytes, kind: str, body: bytes) -> bytes:
    if not key:
        msg = "files of staging are sealed under a key"
        raise ValueError(msg)
    seal = hmac.digest(key, canon([kind]) + body, "sha256").hex()
    return body[:-1] + f', "seal": "{seal}"}}'.encode()


_VERSION = 5

Hardware = Mapping[str, str]
"""A device and a number type. Scores of models differ in their last digits between them, so records name them."""
ColumnHardware = Mapping[str, Sequence[Hardware]]
"""Where models computed, by text column, sorted; columns without a model are excluded."""


def merge_hardware(parts: Iterable[ColumnHardware]) -> ColumnHardware:
    """Unite the hardware of several shards, each once, in order."""
    merged: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    for part in parts:
        for column, items in part.items():
            merged.setdefault(column, set()).update(tuple(sorted(item.items())) for item in items)
    return {column: [dict(item) for item in sorted(items)] for column, items in merged.items() if items}


@dataclass(frozen=True)
class StagedShard:
    """The record of one staged file."""

    index: int  # number of the shard in its run
    sha256: str  # hash of the file
    draws: str  # hash of the file of its draw counts
    # hash of the inputs of the file (keyed hashes of texts, kept values); a resumed run compares it
    inputs: str
    counts: Mapping[str, int]  # integers: rows by kind, words
    spends: Mapping[str, int]  # sums and maxima in whole steps (`guarantee.steps`), by name
    # texts that equal their originals, by column (`checks.leaks`); stays inside the boundary
    copies: Mapping[str, Mapping[str, Any]]
    computed: ColumnHardware = field(default_factory=dict)  # where the texts' models computed; none without a model
    # failures of models, by column: `texts`, and `draws` that were uniform; none where none failed, and inside the
    # boundary
    failures: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # canary rows that were computed twice (`rows`), that agree (`equal`), and that got the release of another text
    # (`moved`), by column
    recomputed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    statistic: str = ""  # the noisy sums that a synthetic table was drawn from, in base64; empty for released texts
    # how texts were read, by column (`checks.text_counts.count_reading`); stays in staging
    read: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tag: str = ""  # part of the file names of one attempt; empty where attempts cannot meet
    # the post-processed texts: `sha256` of the file next to it, `chains` by column, how many texts a model
    # `failed` on, by column, and `copies` among its results, as above; none where nothing is post-processed, or before
    # it was
    post: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """The name of its files, without their suffixes."""
        return stem_of(self.index, self.tag)

    @property
    def by_ids(self) -> bool:
        """Whether only ids and counts decided which rows it holds, as on Spark; otherwise raw texts filled it."""
        return bool(self.tag)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        values = dict(facts)
        if values.pop("version") != _VERSION:
            msg = "another version of the record"
            raise ValueError(msg)
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        facts = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("computed", "failures", "recomputed", "statistic", "read", "post"):  # excluded where empty
            if not facts[name]:
                del facts[name]
        return {"version": _VERSION, **facts}


def stem_of(index: int, tag: str = "") -> str:
    return f"shard-{index:05d}{tag and f'-{tag}'}"


class WholeTable(NamedTuple):
    """The records of a table that a release charges, in numbers (docs/spec/shuffled.md#one-batch)."""

    records: int  # records, those without a text included
    draws: int  # records with a draw
    digest: str  # sum of their identities modulo 2^256, 64 hex digits
    labels: dict[str, int] | None = None  # records with a draw by label; None without labels


class KeptShard(NamedTuple):
    """A shard that was kept for replays."""

    frame: pl.DataFrame  # its rows, canary rows included
    draws: pl.DataFrame | None  # draws made, one column per text column; None where no record vouches for them
    computed: ColumnHardware  # where the texts' models computed
    posts: tuple[pl.DataFrame, ...] = ()  # the post-processed texts of its rows, a frame for each time


def write_draws(released: Released) -> pl.Series:
    """Return the draw counts of a column: numbers, or a struct of `positions` and `steps`, shape (rows,)."""
    positions = pl.Series("positions", released.positions, dtype=pl.UInt32)
    if released.steps is None:
        return positions
    return pl.DataFrame([positions, pl.Series("steps", released.steps, dtype=pl.UInt32)]).to_struct()


def read_draws(written: pl.Series) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32] | None]:
    """Read the output of `write_draws`: charged draws, and those really made or None, shape (rows,)."""
    if not isinstance(written.dtype, pl.Struct):
        return written.to_numpy(), None
    return written.struct.field("positions").to_numpy(), written.struct.field("steps").to_numpy()


UNIT = "__dptext_unit"
"""Column of the keyed hashes of units in lists of ids: `dptext forget` finds a person by it."""
_KEPT = "kept"
_CHANGED = "changed"
LISTS = ("quarantine-*.parquet", f"{_CHANGED}-*.parquet")
"""The files that list ids of records that were excluded, or whose texts changed."""
NOTE: Final = "fired.txt"
"""Mark of a staging folder without texts; `dptext clean` removes the rest."""
READING: Final = "texts.txt"
"""The report on the texts of a run: the only file that shows how many hold few known words, or are cut."""
_RECORD: Final = "shard"
VECTORS: Final = "vectors"
"""First part of the names of files of vectors, which follow from texts."""
_SOON_REMOVED: Final = "uncompressed"  # read twice and removed: a quarter of the time of lz4
_KEPT_LONG: Final = "lz4"
_AGAIN = "run the same policy again: it continues after the committed records"


class Staging:
    """The staging folder of one release and partition."""

    def __init__(self, storage: Storage, key: bytes = b"", tag: str = "") -> None:
        """Open the folder; `key` seals the records of shards (`runner.seals`), which a reader of known shards lacks."""
        self.storage, self.folder = storage, storage.folder
        self._key, self._tag = key, tag

    def path(self, shard: StagedShard) -> Path:
        return self.folder / f"{shard.stem}.parquet"

    def post(self, shard: StagedShard) -> Path:
        """Return the local path of the post-processed texts of a shard."""
        return self.folder / f"{shard.stem}.post"

    def save(
        self,
        index: int,
        frame: pl.DataFrame,
        draws: pl.DataFrame,
        inputs: str,
        facts: Mapping[str, Any],
        *,
        keeps: bool = False,
    ) -> StagedShard:
        """Write a shard, its draw counts, and then its record with `facts`; all are durable when this returns."""
        stem = stem_of(index, self._tag)
        self.storage.delete(f"{stem}.json", f"{stem}.post")
        rows = partial(frame.write_parquet, compression=_KEPT_LONG if keeps else _SOON_REMOVED)
        for name, fill in ((f"{stem}.draws", draws.write_ipc), (f"{stem}.parquet", rows)):
            # the record's write makes these names durable, too
            self.storage.write(name, fill, action="staging a shard", flush_folder=False)
        whole, counts = (sha256(self.folder / f"{stem}.{suffix}") for suffix in ("parquet", "draws"))
        return self.record(StagedShard(index, whole, counts, inputs, tag=self._tag, **facts))

    def save_post(self, shard: StagedShard, frame: pl.DataFrame, facts: Mapping[str, Any]) -> StagedShard:
        """Write the post-processed texts of a shard, then its record."""
        self.storage.write(f"{shard.stem}.post", frame.write_parquet, action="staging a shard")
        return self.record(replace(shard, post={"sha256": sha256(self.post(shard)), **facts}))

    def record(self, shard: StagedShard) -> StagedShard:
        content = sealed(self._key, _RECORD, shard.as_dict())
        self.storage.write(f"{shard.stem}.json", content, action="staging a shard")
        return shard

    def stage_first(self, name: str, facts: Mapping[str, Any]) -> None:
        """Write facts under a seal, unless another attempt has written the file."""
        self.storage.create(name, sealed(self._key, name, facts))

    def staged_facts(self, name: str) -> dict[str, Any] | None:
        """Return the facts of `stage_first`; None if there are none, or if no run under this key wrote them."""
        return opened(self._key, name, self.storage.read(name))

    def outcome(self, shard: StagedShard) -> pl.DataFrame:
        """Read a shard as it is to be published, canary rows included, and check its hash."""
        return self.read(shard, post=bool(shard.post))

    def shards(self) -> list[StagedShard]:
        """Return the shards that a run under this key left here, in order."""
        records = map(self._recorded, self.storage.glob("shard-*.json"))
        return sorted(filter(None, records), key=lambda shard: shard.index)

    def find(self, index: int, inputs: str) -> list[StagedShard]:
        """Return the intact attempts at a shard that were computed from these inputs."""
        records = filter(None, map(self._recorded, self.storage.glob(f"{stem_of(index)}*.json")))
        same = (shard for shard in records if (shard.index, shard.inputs) == (index, inputs))
        return [shard for shard in same if self._whole(_digests(shard))]

    def _recorded(self, name: str) -> StagedShard | None:
        """Read a record; None if there is none, or if no run under this key and version wrote it."""
        facts = opened(self._key, _RECORD, self.storage.read(name))
        try:
            return StagedShard.from_dict(facts or {})
        except (ValueError, KeyError, TypeError):
            return None

    def _whole(self, digests: Mapping[str, str]) -> bool:
        try:
            return all(self._holds(*item) for item in digests.items())
        except OSError:
            return False

    def _holds(self, name: str, digest: str) -> bool:
        """Return whether a file holds these bytes; one that was fetched before others wrote it is fetched again."""
        if sha256(self.storage.local_path(name)) == digest:
            return True
        return self.storage.remote and sha256(self._fresh(name)) == digest

    def holds_post(self, shard: StagedShard) -> bool:
        return self._whole({f"{shard.stem}.post": shard.post["sha256"]})

    def draws(self, shard: StagedShard) -> pl.DataFrame:
        """Read the draw counts of a staged shard, and check their hash."""
        name = f"{shard.stem}.draws"
        with seam("reading staged files", hint=_AGAIN):
            self._require(name, shard.draws)
            return pl.read_ipc(literal(self.storage.local_path(name)))

    def read(self, shard: StagedShard, *, post: bool = False) -> pl.DataFrame:
        """Read a staged shard, or its post-processed texts, and check its hash."""
        self.require(shard)
        with seam("reading staged files", hint=_AGAIN):
            return pl.read_parquet(literal(self.post(shard) if post else self.path(shard)))

    def require(self, shard: StagedShard) -> None:
        """Refuse a staged file that is gone or has changed."""
        post = {f"{shard.stem}.post": shard.post["sha256"]} if shard.post else {}
        with seam("reading staged files", hint=_AGAIN):
            for item in (_digests(shard) | post).items():
                self._require(*item)

    def _require(self, name: str, digest: str) -> None:
        if not self._holds(name, digest):
            raise InputError(f"the staged file {name} has changed since it was staged", _AGAIN)

    def schema(self, shard: StagedShard) -> pl.Schema:
        """Return the columns and types that a staged shard will be published with."""
        with seam("reading staged files", hint=_AGAIN):
            schema = self._schema(f"{shard.stem}.post" if shard.post else f"{shard.stem}.parquet")
        return pl.Schema({name: dtype for name, dtype in schema.items() if name != CANARY})

    def footer(self, shard: StagedShard) -> tuple[pl.Schema, int]:
        """Return the columns of a staged shard and the number of its rows, or refuse a damaged one."""
        name = f"{shard.stem}.parquet"
        try:
            described = self.storage.described(name)
            rows = pq.read_metadata(described if isinstance(described, Path) else pa.BufferReader(described)).num_rows
            return self._schema(name), rows
        except (OSError, ValueError):
            self.require(shard)
            raise

    def _schema(self, name: str) -> pl.Schema:
        described = self.storage.described(name)
        return pl.Schema(pl.read_parquet_schema(literal(described) if isinstance(described, Path) else described))

    def quarantine(self, index: int, ids: pl.DataFrame, units: pa.Array | None) -> None:
        """Store the ids of records over the cap and hashes of their units, inside staging only.

        An empty frame removes the list.
        """
        name, rows = f"quarantine-{index:05d}.parquet", _with_units(ids, units)
        if not ids.height:
            self.storage.delete(name)
        else:
            self.storage.write(name, rows.write_parquet, action="staging a list of records that are excluded")

    def changed(self, ids: pl.DataFrame, units: pa.Array | None = None) -> None:
        """Store ids of records whose texts changed and hashes of their units, inside staging only."""
        name, rows = f"{_CHANGED}-{secrets.token_hex(8)}.parquet", _with_units(ids, units)
        self.storage.write(name, rows.write_parquet, action="staging a list of changed records")

    def discard(self, index: int) -> None:
        self.storage.delete(*_files(stem_of(index, self._tag)))

    def report(self, shards: Collection[StagedShard]) -> None:
        """Write the report on the texts of a run, also of a run without texts."""
        page = reading_page(shard.read for shard in shards)
        self.storage.write(READING, page.encode(), action="writing the report on the texts")

    def keep_only(self, shards: Collection[StagedShard]) -> None:
        """Remove the files of all other shards and attempts, drafts and quarantine lists included."""
        self.storage.renew_lock()
        keep = {name for shard in shards for name in _files(shard.stem)}
        keep |= {f"quarantine-{shard.index:05d}.parquet" for shard in shards}
        drafts = (path.name for path in self.folder.glob(".*-*.draft"))
        names = [*_records_first(self.storage.glob("shard-*")), *self.storage.glob("quarantine-*"), *drafts]
        self.storage.delete(*(name for name in names if name not in keep))

    def clear(self) -> None:
        """Remove staged shards; quarantine lists stay."""
        self.storage.renew_lock()
        self.storage.delete(*_records_first(self.storage.glob("shard-*")))

    def set_aside(self) -> None:
        """Give staged files a second name that no run overwrites or removes; replays of models read it."""
        names = [name.removesuffix(".parquet") for name in self.storage.glob("shard-*.parquet")]
        for stem, shard in ((stem, self._recorded(f"{stem}.json")) for stem in names):
            if shard is not None:
                kept = f"{_KEPT}-{stem.split('-')[1]}-{shard.sha256[:16]}"
                if (post := self._fresh(f"{stem}.post")).exists():
                    self.storage.copy(post.name, f"{kept}-{sha256(post)[:16]}.post")
                for suffix in ("json", "draws", "parquet"):  # rows come last: with them, all is there
                    self.storage.copy(f"{stem}.{suffix}", f"{kept}.{suffix}")

    def share(self, other: Staging) -> None:
        """Keep in another folder the rows that are kept here: it publishes the same draws."""
        there = other.storage.glob(f"{_KEPT}-*")
        for name in (name for name in self.storage.glob(f"{_KEPT}-*") if name not in there):
            content = self.storage.read(name)
            shard = self._recorded(name) if name.endswith(".json") else None
            if shard is not None:
                content = sealed(other._key, _RECORD, shard.as_dict())
            if content is not None:
                other.storage.write(name, content, action="keeping released rows")

    def keeps(self, index: int, digest: str) -> bool:
        return bool(self.storage.glob(f"{_KEPT}-{index:05d}-{digest[:16]}.parquet"))

    def keep(self, index: int, digest: str, frame: pl.DataFrame) -> None:
        """Keep published rows, as if they had been set aside."""
        name = f"{_KEPT}-{index:05d}-{digest[:16]}.parquet"
        self.storage.write(name, frame.write_parquet, action="keeping published rows")

    def kept(self, index: int) -> Iterator[KeptShard]:
        """Read kept shards, the ones near `index` first. The ledger vouches for rows, records for all else."""
        names = self.storage.glob(f"{_KEPT}-*.parquet")
        rewritten = self.storage.glob(f"{_KEPT}-*.post")
        for name in sorted(names, key=lambda name: abs(int(name.split("-")[1]) - index)):
            stem = name.removesuffix(".parquet")
            with seam("reading staged files", hint=_AGAIN):
                posts = tuple(
                    pl.read_parquet(literal(self._fresh(post))) for post in rewritten if post.startswith(f"{stem}-")
                )
                rows, shard = self._fresh(name).read_bytes(), self._recorded(f"{stem}.json")
                written = self.storage.read(f"{stem}.draws") or b""
                digests = tuple(hashlib.sha256(content).hexdigest() for content in (rows, written))
                whole = shard is not None and digests == (shard.sha256, shard.draws)
                draws = pl.read_ipc(io.BytesIO(written)) if whole else None
                computed = {} if shard is None else shard.computed
                yield KeptShard(pl.read_parquet(io.BytesIO(rows)), draws, computed, posts)

    def _fresh(self, name: str) -> Path:
        return self.storage.local_path(name, fresh=True)


def _with_units(ids: pl.DataFrame, units: pa.Array | None) -> pl.DataFrame:
    return ids if units is None else ids.with_columns(pl.Series(UNIT, units).cast(pl.Binary))


def _files(stem: str) -> tuple[str, ...]:
    """Return the files of an attempt, in the order in which they are removed (`_records_first`)."""
    return tuple(f"{stem}.{suffix}" for suffix in ("json", "post", "draws", "parquet"))


def _digests(shard: StagedShard) -> dict[str, str]:
    return {f"{shard.stem}.parquet": shard.sha256, f"{shard.stem}.draws": shard.draws}


def _records_first(names: Iterable[str]) -> list[str]:
    """Put records before their files: a process that dies while it removes leaves no record without its files."""
    return sorted(names, key=lambda name: not name.endswith(".json"))


_STAGED_VERSION = 1
_PLAIN = ("partition", "rows", "dropped", "base", "seconds", "origin", "input", "exact", "other", "table")
"""Fields that JSON holds as they are."""


@dataclass(frozen=True)
class StagedRun:
    """A run whose rows are computed, staged and committed, but not yet judged or published.

    It holds paths, counts and public facts; `to_json` writes it for another process.
    """

    policy: Policy
    partition: str | None
    shards: tuple[StagedShard, ...]  # the staged shards, in order; none if there was nothing new
    canaries: tuple[CanaryPlan, ...] = field(repr=False)  # the sets of canary rows
    refs: dict[str, ReleaseRef]  # the pinned release of each text column
    # row counts: read, already_published, over_contribution (if any), new, resumed, replayed, quarantined, forgotten
    # (if any), released, null (texts)
    rows: dict[str, int]
    dropped: tuple[str, ...]  # columns of the source that the policy does not name, by place: "column 3"
    base: str | None  # digest of the manifest that an incremental run adds to, or None
    seconds: float  # the duration of staging
    # which version of a table of Delta Lake or Iceberg was read; None for anything else
    origin: dict[str, str] | None = None
    # the cost of the stages of the run so far
    profile: Profile = field(default_factory=Profile, repr=False, compare=False)
    # facts about the input, for the publication (`runner.unchanged`); or, if it is the same as before and nothing is
    # staged, the seal by which it was `recognized`
    input: dict[str, Any] | None = None
    exact: bool = False  # whether values of CSV columns keep their spelling under types that no policy named
    table: dict[str, Any] = field(
        default_factory=dict
    )  # findings of `runner.table_check` about the table around the texts
    other: bool = False  # whether another machine's table of the same statistic is committed and published instead

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.policy, self.partition)

    @property
    def staging_key(self) -> bytes:
        return staging_key(keys.resolve(self.policy.key), self.policy.dataset, self.layout.staging)

    @property
    def parts(self) -> tuple[Path, ...]:
        staging = Staging(self.layout.staging)
        return tuple(staging.path(shard) for shard in self.shards)


def to_json(staged: StagedRun) -> str:
    """Write counts, hashes, and names of a staged run, without its policy, a text, or a key."""
    facts = {
        "version": _STAGED_VERSION,
        "key": _key_mark(staged.policy),
        "shards": [shard.as_dict() for shard in staged.shards],
        "canaries": plans_as_dicts(staged.canaries),
        "refs": {name: asdict(ref) for name, ref in staged.refs.items()},
        **{name: getattr(staged, name) for name in _PLAIN},
    }
    return json.dumps(facts, indent=1)


def from_json(text: str, policy: Policy) -> StagedRun:
    facts = json.loads(text)
    if facts["version"] != _STAGED_VERSION:
        msg = "another version of the record"
        raise ValueError(msg)
    if facts["key"] != _key_mark(policy):
        msg = "the noise key is not the key that the rows were staged under"
        raise KeyReferenceError(msg, "give the key of the staging step, or stage again")
    partition = facts["partition"]
    shards = tuple(StagedShard.from_dict(shard) for shard in facts["shards"])
    canaries: tuple[CanaryPlan, ...] = ()
    if facts["canaries"]:
        dtype = Staging(Layout.of(policy, partition).staging).schema(shards[0])[policy.id]
        canaries = plans_of(facts["canaries"], policy, partition, dtype)
    refs = {name: ReleaseRef(**ref) for name, ref in facts["refs"].items()}
    plain = {name: facts[name] for name in _PLAIN} | {"dropped": tuple(facts["dropped"])}
    return StagedRun(policy=policy, shards=shards, canaries=canaries, refs=refs, **plain)


def _key_mark(policy: Policy) -> str:
    """Hash the noise key, so that two keys can be distinguished and nothing else is known of them."""
    return hashlib.sha256(keys.resolve(policy.key).derive("canary", b"dptext/staged/v1")).hexdigest()
