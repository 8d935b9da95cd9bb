"""The words of the ledger: scopes, charges, outcomes and states (docs/spec/privacy.md#state-machine)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.errors import LedgerError
from dptext_etl.policy import Policy

Unit = Literal["subject", "record"]
U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Event(StrEnum):
    """What the journal chains."""

    RELEASE = "RELEASE"
    CAP_SET = "CAP_SET"
    RESERVE = "RESERVE"
    REPLAY = "REPLAY"
    COMMIT = "COMMIT"
    DIVERGED = "DIVERGED"
    SETTLE = "SETTLE"
    EXPIRE = "EXPIRE"
    ABORT = "ABORT"
    PUBLISH = "PUBLISH"
    BURN = "BURN"
    FREEZE = "FREEZE"
    THAW = "THAW"


class State(IntEnum):
    """Where a reserved record stands; RESERVED and EXPIRED can still be committed, only RESERVED can be aborted."""

    RESERVED = 0
    COMMITTED = 1
    EXPIRED = 2
    ABORTED = 3


class Outcome(IntEnum):
    """What `reserve` says about a record."""

    RESERVED = 0
    """New: charged now."""
    PENDING = 1
    """The same text was reserved before and is not committed: no second charge."""
    COMMITTED = 2
    """The same text was released before: replay it, spend 0."""
    OVER_CAP = 3
    """The cap of its unit would be exceeded: nothing charged in any column; to be quarantined."""
    CHANGED = 4
    """The release holds another text of this record: nothing charged; a changed text needs a new release.

    Specification: docs/spec/privacy.md#one-text-per-release.
    """


class CommitOutcome(IntEnum):
    """What `commit` says about a record."""

    COMMITTED = 0
    ALREADY = 1
    """Committed before with the same digest."""
    DIVERGED = 2
    """Committed before with another digest, which stays; this row must not be published."""


@dataclass(frozen=True)
class Anchor:
    """The head of a ledger's journal at a moment: kept elsewhere, it shows later whether the ledger still holds it.

    Attributes:
        ledger: The ledger's own name.
        seq: Number of its last event.
        hash: Hash of that event, 64 hex digits: it fixes all events before it.
    """

    ledger: str
    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.ledger}:{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote.

        Raises:
            LedgerError: It is something else.
        """
        ledger, _, rest = text.strip().partition(":")
        seq, _, head = rest.partition(":")
        if not seq.isdecimal() or len(head) != 64 or set(head) - set("0123456789abcdef"):
            raise LedgerError("an anchor reads LEDGER:NUMBER:HASH", "paste what `dptext ledger anchor` printed")
        return cls(ledger, int(seq), head)


@dataclass(frozen=True)
class Scope:
    """Where spends of a unit add up: a dataset or a declared group, in a declared period; never a release.

    Specification: docs/spec/privacy.md#cap-scope.

    Attributes:
        dataset: The dataset that is charged.
        period: Name of the period, such as "2026".
        group: Name shared by datasets whose spends add up; the dataset itself if None.
        unit: Whose budget it is: the subject's, or the record's own. A person with k records then has k times the loss.
    """

    dataset: str
    period: str = "all"
    group: str | None = None
    unit: Unit = "subject"

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Return the scope that a policy charges."""
        if policy.cap is None:
            return cls(policy.dataset, unit=policy.unit)
        return cls(policy.dataset, policy.cap.period, policy.cap.group, policy.unit)

    @property
    def name(self) -> str:
        """The scope's name in the ledger, apart from its period."""
        return f"dataset:{self.dataset}" if self.group is None else f"group:{self.group}"

    def __str__(self) -> str:
        return f"{self.name}, period {self.period}"


@dataclass(frozen=True)
class ReleaseRef:
    """A registered release of a column: what charges and commits refer to.

    Attributes:
        id: Number in this ledger.
        dataset: Name of the dataset.
        column: Name of the column.
        release: Name of the release.
        cfg: Configuration hash that the name pins.
        nonce: Counts deliberate extra releases of one record under the name.
    """

    id: int
    dataset: str
    column: str
    release: str
    cfg: str
    nonce: int = 0

    def __str__(self) -> str:
        return f"release {self.release!r} of {self.dataset}.{self.column}"


@dataclass(frozen=True)
class Charge:
    """The worst-case spends of a batch in one column.

    Attributes:
        ref: The release that is charged.
        idem_keys: Fixed-size binary (32), one per record: identity of (release, record, configuration, text, nonce).
        n_worst: Positions that are charged, uint32, shape (records,).
        spends: Amounts by component in millionths, int64, `column.INFINITE` where infinite, shape (records,), as
            `column.spends` gives them; a missing component counts as infinite.
    """

    ref: ReleaseRef
    idem_keys: pa.Array
    n_worst: npt.ArrayLike
    spends: Mapping[str, npt.ArrayLike]


@dataclass(frozen=True)
class ReserveResult:
    """What became of a batch.

    Attributes:
        outcome: An `Outcome` per record, uint8, shape (records,).
    """

    outcome: U8

    @property
    def counts(self) -> dict[str, int]:
        """Records per outcome, by name."""
        found = np.bincount(self.outcome, minlength=len(Outcome))
        return {item.name: int(found[item]) for item in Outcome}


@dataclass(frozen=True)
class Committed:
    """What a release holds about given records.

    Attributes:
        mask: Whether the record is committed, shape (records,).
        digests: Digest of its released text, fixed-size binary (32), null where not committed.
        idem_keys: Identity of its text, fixed-size binary (32), null where not committed.
    """

    mask: Mask
    digests: pa.Array
    idem_keys: pa.Array


@dataclass(frozen=True)
class VerifyReport:
    """What `verify` found.

    Attributes:
        problems: One sentence per problem, naming the batch; empty for a sound ledger.
        counts: Events, batches, records by state, canaries.
    """

    problems: list[str]
    counts: dict[str, int]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON can hold it."""
        return {"ok": self.ok, "problems": self.problems, "counts": self.counts}
