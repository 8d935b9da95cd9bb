"""Publish the earlier released text of a record whose text changed, where the policy says so; nothing is drawn.

What readers see of such a record is the same whether its text changed or not
(docs/spec/privacy.md#keep-changed). The bytes come from what is published, or from what staging kept, and are those of
the digest in the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dptext_etl.arrays import to_arrow
from dptext_etl.errors import InputError, seam
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Committed, Ledger, Outcome, ReleaseRef
from dptext_etl.policy import ColumnPolicy, Policy
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish import own_ids
from dptext_etl.runner.publish.manifest import Manifest
from dptext_etl.runner.shard.charging import Charged, Column
from dptext_etl.runner.shard.replaying import Kept
from dptext_etl.runner.shard.staging import Staging
from dptext_etl.runner.source.selection import scan_parts

_HINT = "are the published parts all there? What is charged is not charged twice"


def as_released(ledger: Ledger, charged: Charged, outcome: npt.NDArray[np.uint8]) -> Charged:
    """Put the identities and draws of the earlier texts in the place of those of changed texts.

    Raises:
        InputError: The release holds no committed text of a changed record.
    """
    changed = outcome == Outcome.CHANGED
    if not changed.any():
        return charged
    ids, places = charged.ids.filter(to_arrow(changed)), np.flatnonzero(changed)
    charges = []
    for item in charged.charges:
        held = ledger.committed(item.ref, ids)
        if not held.mask.all():
            msg = (
                f"the texts of {int((~held.mask).sum())} changed records were never released: there is nothing to keep"
            )
            raise InputError(msg, "bring their texts back, or take a new release name")
        identities, n_worst = item.idem_keys.to_pylist(), np.array(item.n_worst)
        for place, identity in zip(places.tolist(), held.idem_keys.to_pylist(), strict=True):
            identities[place] = identity
        n_worst[places] = _positions(ledger, item.ref, ids)
        charges.append(replace(item, idem_keys=pa.array(identities, item.idem_keys.type), n_worst=n_worst))
    return replace(charged, charges=tuple(charges))


def only(committed: Committed, rows: npt.NDArray[np.bool_]) -> Committed:
    """Leave out all but some rows of what is committed."""
    mask = committed.mask & rows
    return Committed(mask, *(_only(column, mask) for column in (committed.digests, committed.idem_keys)))


def require_kept(found: Kept | None, changed: npt.NDArray[np.bool_]) -> None:
    """Refuse to go on where the released text of a changed record is nowhere."""
    missing = int((changed if found is None else changed & found.missing(len(changed))).sum())
    if missing:
        msg = f"the released texts of {missing} changed records are neither published nor kept in staging"
        raise InputError(msg, "bring back the published version, or take a new release name; nothing was drawn")


def require_bytes(layout: Layout, policy: Policy) -> None:
    """Refuse to keep texts where none are published or staged."""
    glob = layout.staging.glob
    if _published(layout, policy) is None and not (glob("kept-*.parquet") or glob("shard-*.parquet")):
        msg = "released texts of changed records are to be kept, and none are published or kept in staging"
        raise InputError(msg, "bring back the published version, or take a new release name; nothing was charged")


def _published(layout: Layout, policy: Policy) -> Manifest | None:
    manifest = Manifest.read(layout)
    own = manifest is not None and (manifest.dataset, manifest.release) == (policy.dataset, policy.release)
    return manifest if own else None


def set_published_aside(
    staging: Staging, layout: Layout, policy: Policy, columns: Sequence[Column], ledger: Ledger
) -> None:
    """Copy published parts of the release into staging, with the draws that the ledger has of them."""
    manifest = _published(layout, policy)
    if manifest is None:
        return
    names = {item.name: _released_as(item.policy) for item in columns}
    shown = list(names.values()) if manifest.ids != "keep" else [policy.id, *names.values()]
    if not set(shown) <= manifest.schema.keys():
        return
    digests = (part.sha256 for part in manifest.parts)
    own = None if manifest.ids == "keep" else own_ids.of_parts(layout.staging, digests)
    for index, part in enumerate(manifest.parts):
        if staging.keeps(index, part.sha256):
            continue
        with seam("reading what is published", InputError, _HINT):
            found = scan_parts(replace(manifest, parts=(part,)), layout, shown)
            ids = pl.col(policy.id) if own is None else pl.lit(own[index]).alias(policy.id)
            texts = (pl.col(theirs).cast(pl.String).alias(name) for name, theirs in names.items())
            rows = found.select(*texts, ids).filter(ids.is_not_null()).collect()
        ids = canonical_ids(rows[policy.id].to_arrow())
        draws = {item.name: _draws(item.policy, _positions(ledger, item.ref, ids)) for item in columns}
        staging.keep(index, part.sha256, rows, pl.DataFrame(draws))


def _positions(ledger: Ledger, ref: ReleaseRef, ids: pa.Array) -> npt.NDArray[np.uint32]:
    lookup = ledger.lookup(ref)
    return lookup.digests(lookup.places(lookup.keyed(ids)))[2].astype(np.uint32)


def _released_as(column: ColumnPolicy) -> str:
    """Return the published column that holds what the mechanism released."""
    name = column.column or ""
    return f"{name}_intermediate" if column.postprocess else name


def _draws(column: ColumnPolicy, positions: npt.NDArray[np.uint32]) -> pl.Series:
    drawn = pl.Series("positions", positions, dtype=pl.UInt32)
    if not column.mechanism.refundable:
        return drawn
    return pl.DataFrame([drawn, drawn.alias("steps")]).to_struct()


def _only(column: pa.Array, mask: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(
        [value if kept else None for value, kept in zip(column.to_pylist(), mask, strict=True)], column.type
    )
