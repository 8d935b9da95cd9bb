"""Define the words of the ledger: scopes, charges, outcomes and states (docs/spec/privacy.md#state-machine)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptext_etl.errors import LedgerError
from dptext_etl.keys import IdForm
from dptext_etl.policy import Cap, Policy

Unit = Literal["subject", "record"]
GROUP = "group:"  # the prefix of the names of groups' scopes
AGAIN = "again"  # says in a RESERVE event how many of its rows replace an earlier text of the same record
OF, UNIT = "of", "unit"  # say in a FORGET or READMIT event that it names units, not records
NEW = 0  # the number of a release that no ledger holds yet
ALL = "all"  # the period of all time
U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


Change = Literal["first", "same", "lower", "higher", "measure"]
_REASON = re.compile(r"[\w .:,()/+-]{1,200}", re.ASCII)


class Event(StrEnum):
    """An event of the journal. These names are stored and never change."""

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
    RETIRE = "RETIRE"
    BURN = "BURN"
    FREEZE = "FREEZE"
    THAW = "THAW"
    ID_FORM = "ID_FORM"
    POST = "POST"
    UNITS = "UNITS"
    FORGET = "FORGET"
    READMIT = "READMIT"
    PIN = "PIN"


DECISIONS = tuple(map(Event, ("CAP_SET", "FREEZE", "THAW", "UNITS", "FORGET", "READMIT", "BURN", "EXPIRE", "ABORT")))
"""Events that someone may have decided, so they name the user."""


class State(IntEnum):
    """The state of a reserved record. RESERVED and EXPIRED can still be committed; only RESERVED can be aborted."""

    RESERVED = 0
    COMMITTED = 1
    EXPIRED = 2
    ABORTED = 3


class Outcome(IntEnum):
    """The answer of `reserve` for one record."""

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
    FORGOTTEN = 5
    """The record or its unit was forgotten in its dataset: nothing charged or replayed; to be excluded.

    Specification: docs/spec/privacy.md#forgotten.
    """
    AGAIN = 6
    """The release held another text of this record, and replaces it by the new one: charged now, only for the new text.

    Specification: docs/spec/privacy.md#release-again.
    """


EXCLUDED = (Outcome.OVER_CAP, Outcome.FORGOTTEN)  # outcomes of records that are not released


class CommitOutcome(IntEnum):
    """The answer of `commit` for one record."""

    COMMITTED = 0
    ALREADY = 1
    """Committed before with the same digest."""
    DIVERGED = 2
    """Committed before with another digest, which stays; this row must not be published."""


@dataclass(frozen=True)
class Anchor:
    """Number and hash of the last event of a ledger at one moment.

    Keep it elsewhere: later it shows whether the ledger still holds everything up to it.
    """

    ledger: str  # the name of the ledger
    seq: int  # the number of its last event
    hash: str  # the hash of that event, 64 hex digits; it fixes all events before

    def __str__(self) -> str:
        return f"{self.ledger}:{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote."""
        ledger, _, rest = text.strip().partition(":")
        seq, _, head = rest.partition(":")
        if not seq.isdecimal() or len(head) != 64 or set(head) - set("0123456789abcdef"):
            raise LedgerError("an anchor reads LEDGER:NUMBER:HASH", "paste what `dptext ledger anchor` printed")
        return cls(ledger, int(seq), head)


@dataclass(frozen=True)
class Scope:
    """Where the spends of a unit add up: in a dataset or a declared group, over a declared period; never per release.

    Attributes:
        dataset: The dataset that is charged.
        period: The name of the period, such as "2026".
        group: The name that several datasets share whose spends add up; None means only the dataset.
        unit: Who has the budget: the subject, or each record. Per record, a person with k records has k times the loss.

    Specification: docs/spec/privacy.md#cap-scope.
    """

    dataset: str
    period: str = "all"
    group: str | None = None
    unit: Unit = "subject"

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Return the scope that a policy charges."""
        return cls.under(policy.dataset, policy.cap, policy.unit)

    @classmethod
    def under(cls, dataset: str, cap: Cap | None, unit: Unit) -> Self:
        """Return the scope of a dataset under a cap, or without one."""
        return cls(dataset, unit=unit) if cap is None else cls(dataset, cap.period, cap.group, unit)

    @classmethod
    def named(cls, name: str, dataset: str, period: str, unit: Unit) -> Self:
        """Return the scope of a dataset by its name in the ledger."""
        return cls(dataset, period, name.removeprefix(GROUP) if name.startswith(GROUP) else None, unit)

    @classmethod
    def of_cap(cls, pinned: Mapping[str, Any]) -> Self:
        """Return the scope of an entry of `Reports.caps`."""
        return cls.named(pinned["scope"], pinned["datasets"][0], pinned["period"], pinned["unit"])

    @property
    def name(self) -> str:
        """The name of the scope in the ledger, without its period."""
        return f"dataset:{self.dataset}" if self.group is None else f"{GROUP}{self.group}"

    def __str__(self) -> str:
        return f"{self.name}, period {self.period}"


@dataclass(frozen=True)
class ReleaseRef:
    """A registered release of a column: what charges and commits refer to."""

    id: int  # number in this ledger
    dataset: str  # name of the dataset
    column: str  # name of the column
    release: str  # name of the release
    cfg: str  # configuration hash that the name pins
    nonce: int = 0  # counts deliberate extra releases of one record under the name

    def __str__(self) -> str:
        return f"release {self.release!r} of {self.dataset}.{self.column}"


@dataclass(frozen=True)
class Charge:
    """The worst-case spends of a batch in one column.

    Attributes:
        ref: The release that is charged.
        idem_keys: The identity of (release, record, configuration, text, nonce), fixed-size binary (32), one per
            record.
        n_worst: The positions that are charged, uint32, shape (records,).
        spends: Amounts by component in its steps (`guarantee.steps`), int64, shape (records,), as `column.spends`
            returns them: `column.INFINITE` where infinite. A missing component counts as infinite.
    """

    ref: ReleaseRef
    idem_keys: pa.Array
    n_worst: npt.ArrayLike
    spends: Mapping[str, npt.ArrayLike]


@dataclass(frozen=True)
class IdForms:
    """The forms of the ids of a batch, before they were written as canonical strings."""

    record: IdForm
    subject: IdForm | None = None  # None where there are none
    columns: Mapping[str, str] = field(default_factory=dict)  # names of their columns, by "record" and "subject"


def counts_of(outcomes: U8) -> dict[str, int]:
    """Count records per outcome, by name."""
    counts = np.bincount(outcomes, minlength=len(Outcome))
    return {item.name: int(counts[item]) for item in Outcome}


@dataclass(frozen=True)
class Committed:
    """The committed state of some records in a release."""

    mask: Mask  # whether the record is committed, shape (records,)
    digests: pa.Array  # digest of the released text, fixed-size binary (32), null where the record is not committed
    idem_keys: pa.Array  # identity of the text, fixed-size binary (32), null where the record is not committed
    positions: I64  # draws of the released text, 0 where the record is not committed, shape (records,)
    settled: Mask  # whether the ledger gave a part of the charge back (docs/spec/privacy.md#expost), shape (records,)
    used: I64  # the pure epsilon that settled records used, in millionths, 0 for others, shape (records,)


@dataclass(frozen=True)
class CapChange:
    """The change that a policy would make to the cap of a scope."""

    scope: str  # the scope in words
    change: Change  # "lower" in some component, "higher" in some component, or "measure"
    pinned: dict[str, float]  # the pinned cap by component, in units of epsilon, rho or delta
    asked: dict[str, float]  # the cap of the policy, likewise

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as JSON can hold them."""
        return asdict(self)

    def __str__(self) -> str:
        pair = ((f"{name} {amount:g}" for name, amount in cap.items()) for cap in (self.pinned, self.asked))
        before, after = map(" and ".join, pair)
        then = {
            "lower": "a run with it needs --accept-lower-cap; a lowered cap stays low",
            "higher": "a run with it is refused; `dptext ledger set-cap` raises a cap on purpose",
            "measure": "a run with it is refused: a scope keeps its measure; a new period may have another",
        }[self.change]
        return f"the cap of {self.scope} is pinned at {before}; this policy asks for {after}: {then}"


@dataclass(frozen=True)
class VerifyReport:
    """The result of `verify`."""

    problems: list[str]  # one sentence per problem, which names the batch; empty for a sound ledger
    counts: dict[str, int]  # numbers of events, batches, canaries, and records by state

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as JSON can hold them."""
        return {"ok": self.ok, "problems": self.problems, "counts": self.counts}


def require_plain(reason: str | None, what: str) -> None:
    """Refuse a reason that could hold a text."""
    if reason is not None and not _REASON.fullmatch(reason):
        allowed = "at most 200 letters, digits, blanks and . : , ( ) / + -"
        msg = f"the reason of a {what} must be short and plain: {allowed}"
        raise LedgerError(msg, "shorten the reason, and leave quotes and special characters out")
