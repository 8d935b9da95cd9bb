"""Take released texts from what was staged or published where they cannot be computed again or must stay.

The scores of a model differ in their last digits by hardware and library, so a second computation may draw other words.
The first commit is the release: committed texts are read from what was staged, row by row, and each is checked against
the digest in the ledger (docs/spec/privacy.md#digest, docs/spec/privacy.md#durable-staging). Where the policy says so,
a record whose text changed keeps its released text in the same way, so readers see no difference
(docs/spec/privacy.md#keep-changed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.arrays import to_arrow
from dptext_etl.column import release, spends, steps_of
from dptext_etl.errors import InputError, counted, seam
from dptext_etl.guarantee import PURE
from dptext_etl.keys import canonical_series
from dptext_etl.ledger import Committed, Ledger, Outcome, Postprocessed
from dptext_etl.ledger.types import I64, Mask
from dptext_etl.mechanism import Released
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish import own_ids
from dptext_etl.runner.publish.manifest import Manifest, scan
from dptext_etl.runner.shard.charging import Charged, Column
from dptext_etl.runner.shard.staging import Hardware, KeptShard, Staging, read_released, write_draws

_HINT = "are the published parts all there? What is charged is not charged twice"
_NOTHING_DRAWN = "bring back the published version, or take a new release name; nothing was drawn"

Extra = TypeVar("Extra")


def replays(policy: Policy) -> bool:
    """Return whether a run keeps the bytes that it released, because a model may give others next time."""
    columns = policy.charged_columns()
    steps = (step for column in columns for step in column.postprocess)
    return not all(item.mechanism.reproducible for item in columns) or not all(step.reproducible for step in steps)


@dataclass(frozen=True)
class Replay:
    """Rows of a column of a shard that are released already, with their bytes."""

    rows: pl.DataFrame = field(repr=False)  # columns `row` (place in the shard), `text` and `draws`
    computed: Sequence[Hardware] = ()  # where they were computed, as far as that was noted

    def missing(self, rows: int) -> npt.NDArray[np.bool_]:
        new = np.ones(rows, dtype=bool)
        new[self.rows["row"].to_numpy()] = False
        return new

    def completed(self, texts: pa.Array, ids: pa.Array, policy: ColumnPolicy) -> Released:
        """Release the missing rows, and return all rows in order."""
        new, rows, failed = self.missing(len(texts)), self.rows, None
        if new.any():
            mask = to_arrow(new)
            made = release(texts.filter(mask), ids.filter(mask), policy)
            text = pl.Series(made.text, dtype=pl.String)
            more = pl.DataFrame({"row": np.flatnonzero(new), "text": text, "draws": write_draws(made)})
            rows, failed = pl.concat([rows, more]), made.failed
        rows = rows.sort("row")
        return read_released(rows["text"], rows["draws"], failed)


def find_replay(  # noqa: PLR0917
    staging: Staging,
    index: int,
    id_column: str,
    column: ColumnPolicy,
    ids: pa.Array,
    committed: Committed,
    settled: Callable[[], tuple[Mask, I64]],
) -> Replay | None:
    """Find the bytes of committed rows in what was staged; None where nothing is committed or found."""
    if not committed.mask.any():
        return None
    name, rows, computed = column.column or "", list[pl.DataFrame](), list[Hardware]()
    drawn = _draws(column, committed.positions, settled)
    for found, shard in matches(ids, committed, (_texts(shard, id_column, name) for shard in staging.kept(index))):
        counts = found["draws"] if shard.draws is not None else drawn[found["row"]].alias("draws")
        rows.append(found.select("row", "text").with_columns(counts))
        computed.extend(shard.computed.get(name, ()) if found.height else ())
    return Replay(pl.concat(rows), computed) if rows else None


def _texts(shard: KeptShard, id_column: str, name: str) -> tuple[pl.Series, pl.DataFrame, KeptShard]:
    held = shard.frame.select(pl.col(name).alias("text"))
    if shard.draws is not None:
        held = held.with_columns(shard.draws[name].alias("draws"))
    return shard.frame[id_column], held, shard


def matches(
    ids: pa.Array, wanted: Committed | Postprocessed, kept: Iterable[tuple[pl.Series, pl.DataFrame, Extra]]
) -> Iterator[tuple[pl.DataFrame, Extra]]:
    """Yield the rows of each kept frame whose id and digest of `text` are wanted, with `row`, their place in `ids`."""
    left = pl.DataFrame({"id": ids, "row": np.arange(len(ids)), "digest": _binary(wanted.digests)}).filter(wanted.mask)
    for kept_ids, frame, extra in kept:
        if not left.height:
            return
        written = canonical_series(kept_ids)
        held = frame.with_columns(id=written, digest=_binary(pa.array(_kernel.digests(frame["text"]))))
        found = left.join(held, on=["id", "digest"], how="inner").unique("row")
        yield found, extra
        left = left.join(found, on="row", how="anti")


def with_earlier_texts(ledger: Ledger, charged: Charged, outcome: npt.NDArray[np.uint8]) -> Charged:
    """Put the identities and draws of the earlier texts in the place of those of changed texts."""
    changed = outcome == Outcome.CHANGED
    if not changed.any():
        return charged
    ids, places = charged.ids.filter(to_arrow(changed)), np.flatnonzero(changed)
    charges = []
    for item in charged.charges:
        committed = ledger.committed(item.ref, ids)
        missing = int((~committed.mask).sum())
        if missing:
            msg = f"the texts of {counted(missing, 'changed record')} were never released: there is nothing to keep"
            raise InputError(msg, "bring their texts back, or take a new release name")
        identities, n_worst = item.idem_keys.to_pylist(), np.array(item.n_worst)
        for place, identity in zip(places.tolist(), committed.idem_keys.to_pylist(), strict=True):
            identities[place] = identity
        n_worst[places] = committed.positions
        charges.append(replace(item, idem_keys=pa.array(identities, item.idem_keys.type), n_worst=n_worst))
    return replace(charged, charges=tuple(charges))


def require_found(replay: Replay | None, changed: npt.NDArray[np.bool_]) -> None:
    """Refuse to go on where the released text of a changed record is nowhere."""
    missing = int((changed if replay is None else changed & replay.missing(len(changed))).sum())
    if missing:
        msg = f"the released texts of {counted(missing, 'changed record')} are neither published nor kept in staging"
        raise InputError(msg, _NOTHING_DRAWN)


def require_earlier_texts(layout: Layout, policy: Policy) -> None:
    """Refuse to keep texts where none are published or staged."""
    glob = layout.staging.glob
    if Manifest.of_release(policy, layout) is None and not (glob("kept-*.parquet") or glob("shard-*.parquet")):
        msg = "released texts of changed records are to be kept, and none are published or kept in staging"
        raise InputError(msg, "bring back the published version, or take a new release name; nothing was charged")


def keep_published(staging: Staging, layout: Layout, policy: Policy, columns: Sequence[Column]) -> None:
    """Copy published parts of the release into staging; the ledger has the draws of their rows."""
    for index, digest, rows in _published_texts(staging, layout, policy, columns):
        staging.keep(index, digest, rows)


def require_published_texts(layout: Layout, policy: Policy, columns: Sequence[Column]) -> None:
    """Refuse published parts that cannot be read, as `keep_published` would."""
    for _ in _published_texts(Staging(layout.staging), layout, policy, columns):
        pass


def _published_texts(
    staging: Staging, layout: Layout, policy: Policy, columns: Sequence[Column]
) -> Iterator[tuple[int, str, pl.DataFrame]]:
    """Read the published parts that staging does not keep: their numbers, digests, and rows with their ids."""
    manifest = Manifest.of_release(policy, layout)
    if manifest is None:
        return
    published = {item.name: f"{item.name}_intermediate" if item.policy.postprocess else item.name for item in columns}
    shown = [*published.values()] if manifest.ids != "keep" else [policy.id, *published.values()]
    if not set(shown) <= manifest.schema.keys():
        return
    digests = (part.sha256 for part in manifest.parts)
    own = None if manifest.ids == "keep" else own_ids.of_parts(layout.staging, policy.ledger, digests)
    for index, part in enumerate(manifest.parts):
        if staging.keeps(index, part.sha256):
            continue
        with seam("reading what is published", InputError, _HINT):
            found = scan(layout, replace(manifest, parts=(part,)))
            ids = pl.col(policy.id) if own is None else pl.lit(own[index]).alias(policy.id)
            texts = (pl.col(theirs).cast(pl.String).alias(name) for name, theirs in published.items())
            rows = found.select(*texts, ids).filter(ids.is_not_null()).collect()
        yield index, part.sha256, rows


def _draws(column: ColumnPolicy, positions: I64, settled: Callable[[], tuple[Mask, I64]]) -> pl.Series:
    """Write the draws that the ledger knows of committed rows; where it settled nothing, all that were charged."""
    drawn, mechanism = pl.Series("positions", positions, dtype=pl.UInt32), column.mechanism
    if not mechanism.refundable:
        return drawn
    known, used = settled()
    costs = np.where(known, used, spends(mechanism, to_arrow(positions))[PURE])
    return pl.DataFrame([drawn, pl.Series("steps", steps_of(mechanism, costs))]).to_struct()


def _binary(digests: pa.Array) -> pl.Series:
    return pl.Series(digests.cast(pa.large_binary()))
