"""Probe models with public texts before a shard is charged and after it is computed.

The schedule depends on the ledger and never on the result of a text (docs/spec/privacy.md#probe).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dptext_etl.ledger import Ledger
from dptext_etl.runner.shard.charging import Charged, Column
from dptext_etl.runner.shard.replaying import Kept


def before(columns: Sequence[Column], ledger: Ledger, charged: Charged, canary: npt.NDArray[np.bool_]) -> None:
    """Probe the models of columns for which a shard has new records; replayed records need no model."""
    for column in columns:
        mechanism, chain = column.policy.mechanism, column.policy.chain
        if not mechanism.reproducible and not ledger.committed(column.ref, charged.ids, canary=canary).mask.all():
            mechanism.probe()
        if chain is not None and not ledger.postprocessed(column.ref, chain, charged.ids, canary=canary).mask.all():
            for step in column.policy.postprocess:
                step.probe()


def after(columns: Sequence[Column], held: Mapping[str, Kept | None], rows: int) -> None:
    """Probe the models of columns that were computed."""
    for column in columns:
        kept = held.get(column.name)
        if kept is None or kept.missing(rows).any():
            column.policy.mechanism.probe()
