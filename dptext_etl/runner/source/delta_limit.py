"""Refuse, before anything is charged, rows that a release has no room for: its delta was stated for fewer records."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from dptext_etl.delta_policy import refuse_more_records
from dptext_etl.keys import canonical_ids
from dptext_etl.ledger import Ledger, ReleaseRef
from dptext_etl.mechanism import stated_records
from dptext_etl.policy import Policy
from dptext_etl.runner.source.table import batches

BATCH_ROWS = 1 << 18


def require_room(
    ledger: Ledger, refs: Mapping[str, ReleaseRef], policy: Policy, frame: pl.LazyFrame, wanted: int
) -> None:
    """Refuse a run after which a release would hold more records than its delta was stated for."""
    for item in policy.column_policies():
        ref, bound = refs[item.column or ""], stated_records(item.mechanism)
        if bound is None:
            continue
        held = ledger.records(ref)
        if held + wanted > bound:  # some of these rows may be held already
            ids = (
                canonical_ids(batch.to_series().to_arrow()) for batch in batches(frame.select(policy.id), BATCH_ROWS)
            )
            new = sum(int((~ledger.known(ref, part)).sum()) for part in ids)
            refuse_more_records(held + new, bound, str(ref))
