"""Judge whether a plan releases raw text as a policy says: the rules that the guards of Polars and Spark share.

A guard follows columns from the sources of a plan. For each it knows whether it holds raw text, and whether it still is
one column of a source, row by row: only such a column may be released, beside the record ids of its own rows. Anything
else would be drawn for several ids (an aggregate, a broadcast, a join by position), and the noise would average away.

Specification: docs/spec/privacy.md#trusted-ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Self

from dptext_etl.errors import GateError, PolicyError
from dptext_etl.guarantee import Disclosure
from dptext_etl.policy.column_policy import ColumnPolicy
from dptext_etl.policy.dataset_policy import Policy
from dptext_etl.policy.resolving import PolicyLike, resolve

_number = count()


@dataclass(frozen=True)
class Rows:
    """The rows of a column: those of one source, or of several sources that were concatenated.

    Attributes:
        name: Number that distinguishes these rows from all others.
        parts: For concatenated rows, the alternatives of each part.
    """

    name: int
    parts: tuple[frozenset[Rows], ...] = ()

    def same(self, other: Rows) -> bool:
        """Say whether both are the same rows in the same order."""
        return self.name == other.name and all(_share(*both) for both in zip(self.parts, other.parts, strict=True))


def _share(these: frozenset[Rows], those: frozenset[Rows]) -> bool:
    return any(one.same(other) for one in these for other in those)


def new_rows() -> frozenset[Rows]:
    """Return new rows: of a source, or of a step after which no row is a row of a source."""
    return frozenset({Rows(next(_number))})


@dataclass(frozen=True)
class Held:
    """The content of a column of a plan.

    Attributes:
        raw: True if it is raw text, or made from it.
        source: Name of the source's column that it equals row by row, apart from cleaning; None for anything else.
        form: Description of the cleaning; empty for an unchanged column.
        rows: The rows that it belongs to; several names after a join on equal ids.
    """

    raw: bool = False
    source: str | None = None
    form: str = ""
    rows: frozenset[Rows] = frozenset()

    @classmethod
    def made_from(cls, parts: Iterable[Self]) -> Held:
        """Return the content of an expression that is no longer a single column."""
        return Held(any(part.raw for part in parts))

    def cleaned(self, how: str) -> Held:
        """Return the column after a step that changes each row alone."""
        return replace(self, form=f"{how}({self.form})")

    def beside(self, other: Held) -> Held:
        """Return the column after a join in which it equals a column of other rows."""
        same = self.source is not None and self.source == other.source and self.form == other.form
        return replace(self, rows=self.rows | other.rows) if same else self

    def either(self, other: Held) -> Held:
        """Return the content of a column that comes from one of two columns."""
        if (self.source, self.form) == (other.source, other.form):
            return replace(self, raw=self.raw or other.raw, rows=self.rows & other.rows)
        return Held(self.raw or other.raw)


def below_each_other(name: int, parts: Sequence[Held]) -> Held:
    """Return the content of a column whose rows come from several inputs.

    Args:
        name: Number of this union, which is the same for all its columns.
        parts: Contents of the column in each input.
    """
    raw = any(part.raw for part in parts)
    if len({(part.source, part.form) for part in parts}) != 1 or parts[0].source is None:
        return Held(raw)
    return Held(raw, parts[0].source, parts[0].form, frozenset({Rows(name, tuple(part.rows for part in parts))}))


def next_number() -> int:
    """Return a new number for concatenated rows."""
    return next(_number)


class Releases:
    """The releases that a plan may hold.

    Args:
        policy: The policy of the dataset or of the column. None has no budget, id or release name, so only the path of
            the text is judged.
        id: Column of record ids, if the policy is that of one column.
        raw: More raw columns.

    Attributes:
        raw: Names of all raw columns.

    Raises:
        PolicyError: The policy has no column or id, or is for benchmarks; or there are neither a policy nor raw
            columns.
    """

    def __init__(self, policy: PolicyLike | None, id: str | None, raw: Sequence[str] | str) -> None:  # noqa: A002
        names = [raw] if isinstance(raw, str) else list(raw)
        self._columns, self._id = _told(policy, id)
        self.raw = frozenset(names) | self._columns.keys()
        self._named = frozenset(names)
        self._forms: dict[str, str] = {}
        if not self.raw:
            raise PolicyError("the guard knows no raw column", "give guard(plan, policy=…), or raw=[…]")

    def missing(self, seen: Iterable[str]) -> frozenset[str]:
        """Return the raw columns that no source has."""
        absent = self.raw - frozenset(seen)
        return absent & self._named if self.raw & frozenset(seen) else absent

    def nulls_are_told(self, text: Held) -> bool:
        """Say whether the policy discloses which rows of a column are null, so that a plan may say so, too.

        Args:
            text: Content of the column.
        """
        policy = None if text.source is None or text.form else self._policy_of(text.source)
        return policy is not None and Disclosure.NULLNESS in policy.mechanism.guarantee.disclosures

    def _policy_of(self, text: str) -> ColumnPolicy | None:
        return next((item for name, item in self._columns.items() if name.casefold() == text.casefold()), None)

    def require(
        self, text: Held, ids: Held, described: dict[str, Any] | None, same: Callable[[ColumnPolicy], bool]
    ) -> None:
        """Refuse a release of raw text that is not the policy's.

        Args:
            text: Content of the release's text argument.
            ids: Content of its id argument.
            described: The mechanism in the plan as plain data; None if the plan does not name it.
            same: Says whether a column's policy makes the release in the plan.

        Raises:
            GateError: The release is not the policy's; the message says what differs.
        """
        if text.source is None:
            raise GateError("a release takes text that is no longer one column of its own row", _ROW)
        if ids.source is None or ids.form:
            msg = "a release takes computed record ids, and a person who chooses ids can average the noise of a text"
            raise GateError(msg, "give the unchanged id column of the source")
        if not _share(text.rows, ids.rows):
            raise GateError("a release takes text and record ids from different rows", _ROW)
        if described is None or described.get("mode") != "strict":
            raise GateError(
                "a release in the plan is for benchmarks (mode faithful), or does not say what it is", _TAKE
            )
        self._require_policy(text.source, ids.source, same)
        if self._forms.setdefault(text.source, text.form) != text.form:
            msg = f"column {text.source!r} is released in several forms; a release holds one text per record"
            raise GateError(msg, "clean the column in one way, before all of its releases")

    def _require_policy(self, text: str, ids: str, same: Callable[[ColumnPolicy], bool]) -> None:
        if not self._columns:
            return
        policy = self._policy_of(text)
        if policy is None:
            raise GateError(f"the policy has no text column {text!r}, and the plan releases it", _TAKE)
        if ids.casefold() != str(self._id).casefold():
            raise GateError(f"a release takes {ids!r} as record id, and the policy names {self._id!r}", _TAKE)
        if not same(policy):
            msg = f"the release of {text!r} differs from the policy's in dataset, release, mechanism, key or nonce"
            raise GateError(msg, _TAKE)


_ROW = (
    "release the source's column in its place: no aggregate, window, explode or broadcast; casts, fills and trims may"
)
_TAKE = "make the release from the policy itself: privatize(policy, id=…), register(…, policy), register_view(…)"


def _told(policy: PolicyLike | None, ids: str | None) -> tuple[dict[str, ColumnPolicy], str | None]:
    """Return a policy's text columns by name, and its id column."""
    if policy is None:
        return {}, None
    if isinstance(policy, ColumnPolicy):
        if policy.column is None or ids is None:
            raise PolicyError(
                "the policy of one column names no id column, and must name its own column",
                'give guard(plan, policy=…, id="…"), or the policy of the dataset',
            )
        columns = [policy]
    else:
        whole: Policy = resolve(policy)
        columns, ids = whole.column_policies(), ids if ids is not None else whole.id
    for column in columns:
        if not column.mechanism.publishable:
            msg = f"column {column.column!r}: a {column.mechanism.mode} mechanism is for benchmarks"
            raise PolicyError(msg, "a guard stands before what leaves the boundary: take strict mode")
    return {str(column.column): column for column in columns}, ids
