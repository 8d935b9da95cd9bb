"""Say when a shard may use what the shards of a run share: the ledger, and what watches the run.

Shards that come one after the other need no waiting; those in parallel take turns (`engines.local`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from dptext_etl.errors import DPTextError

Step = Literal["reserve", "commit"]
"""The steps that write to the ledger. Shards reserve in their order, and commit in their order."""

Result = TypeVar("Result")


class StoppedError(DPTextError):
    """A shard stops because one before it has failed; the error of that one is what users see."""


class Turns:
    """Let every shard go at once.

    Attributes:
        side_by_side: Whether a shard may be computed while another one is.
    """

    side_by_side = False

    def take(self, step: Step | None, index: int, work: Callable[[], Result]) -> Result:
        """Do some work when it is its turn, and return its result."""
        del step, index
        return work()
