"""Ask models with public texts whether they work, before a shard is charged and after it is computed.

The schedule follows from what the ledger holds and never from what became of a text (docs/spec/privacy.md#probe).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dptext_etl.ledger import Ledger
from dptext_etl.runner.shard.charging import Charged, Column
from dptext_etl.runner.shard.replaying import Kept


def before(columns: Sequence[Column], ledger: Ledger, charged: Charged, canary: npt.NDArray[np.bool_]) -> None:
    """Probe the models of columns that a shard brings something new to; none is needed for what is only replayed.

    Args:
        columns: The text columns.
        ledger: The ledger of the run.
        charged: The charges of the shard.
        canary: Marks of the canary rows, shape (rows,).

    Raises:
        PolicyError: A model fails on public texts.
    """
    for column in columns:
        mechanism = column.policy.mechanism
        if mechanism.reproducible or ledger.committed(column.ref, charged.ids, canary=canary).mask.all():
            continue
        mechanism.probe()


def after(columns: Sequence[Column], held: Mapping[str, Kept | None], rows: int) -> None:
    """Probe the models of columns that were computed.

    Raises:
        PolicyError: A model fails on public texts: what it made is not staged.
    """
    for column in columns:
        kept = held.get(column.name)
        if kept is None or kept.missing(rows).any():
            column.policy.mechanism.probe()
