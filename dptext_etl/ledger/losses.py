"""Freeze datasets whose ledger was lost or restored, and settle the loss (docs/spec/privacy.md#lost-ledger)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dptext_etl.errors import LedgerError
from dptext_etl.guarantee import Micro
from dptext_etl.ledger.database import Database
from dptext_etl.ledger.freezing import Loss
from dptext_etl.ledger.types import (
    Anchor,
    require_plain,
)


class Losses:
    """Frozen datasets, and losses of charges. Every method is one transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def freeze(
        self,
        dataset: str,
        reason: str,
        *,
        in_use: Sequence[str] = (),
        missing: Anchor | None = None,
        groups: Sequence[str] = (),
        alone: bool = False,
    ) -> None:
        """Freeze a dataset: until it is thawed, nothing in it is registered, charged, committed or published.

        Where charges may be forgotten, they may be forgotten in every scope that the dataset shares. So its groups
        freeze with it, for all periods, and all datasets in them.
        """
        require_plain(reason, "freeze")
        if alone and (in_use or missing is not None or groups):
            raise LedgerError("a dataset freezes alone only where nothing was lost", "leave `alone` out")
        loss = None if alone else Loss(in_use, missing, groups)
        with self._db.store.transaction():
            self._db.freezes.freeze(dataset, reason, loss)

    def thaw(
        self, dataset: str, lost: Mapping[str, float], *, reason: str | None = None
    ) -> dict[str, dict[str, Micro]]:
        """Let a frozen dataset and all that froze with it go on.

        Their releases are revoked, and their caps are lowered by what may have been lost. The journal keeps the reason.

        Specification: docs/spec/privacy.md#lost-ledger.
        """
        if reason is not None:
            require_plain(reason, "thaw")
        with self._db.store.transaction():
            return self._db.freezes.thaw(dataset, lost, reason)

    def frozen(self) -> list[str]:
        """List the frozen datasets."""
        with self._db.store.snapshot():
            return sorted(self._db.standing.frozen())

    def sharing(self, dataset: str, groups: Iterable[str] = ()) -> tuple[set[str], set[str]]:
        """Return the datasets and groups that share a scope with a dataset, directly or by way of others."""
        with self._db.store.snapshot():
            return self._db.freezes.sharing(dataset, groups)

    def count(self, dataset: str, since: int = 0) -> int:
        """Count how often charges of a dataset were found to be missing; keep it next to an anchor, for `settled`."""
        with self._db.store.snapshot():
            return len(self._db.freezes.missed(dataset, since))

    def settled(self, dataset: str, missing: Anchor, losses: int | None = None) -> bool:
        """Return whether the loss of an anchor was settled: the dataset was frozen for it and thawed since."""
        with self._db.store.snapshot():
            return self._db.freezes.settled(dataset, missing, losses)
