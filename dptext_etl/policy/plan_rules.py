"""Judge whether a plan releases raw text as a policy says: the one rule that the guards of Polars and Spark share.

A raw text column occurs in a plan only as the plain argument of the release function, and in projections that hand it
there unchanged. Any other use is refused: because of a raw text, it could fail, choose rows, or leave a null. A release
has the text and the plain record id of one row of a source, so each text is drawn once, for its own record.

Specification: docs/spec/privacy.md#trusted-ids.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dptext_etl.errors import DPTextError, GateError, PolicyError, seam
from dptext_etl.policy.column_policy import ColumnPolicy
from dptext_etl.policy.dataset_policy import Policy
from dptext_etl.policy.policy_like import PolicyLike, columns_and_id, resolve

HINT = (
    "prepare the text in the source, because a prepared text is the text of the record; choose, join, and sort rows by "
    "other columns; and release the text before other steps: privatize(policy, select=True), or register_view"
)
_ID = "give the unchanged id column of the text's source"
_SAME = "make the release from the policy itself: privatize(policy, id=…), register(…, policy), register_view(…)"
_PUBLISHED = "a published table counts as raw if its column has the raw name: guard the release, then add the table"


class OtherTextWarning(UserWarning):
    """The output of a plan holds columns of strings that the policy does not name, unchanged."""


@dataclass(frozen=True)
class Content:
    """Describe a column of a plan: the names of raw columns in it, and the column of a source that it is unchanged."""

    raw: frozenset[str] = frozenset()
    column: str | None = None  # the name of the column in its source; None if the values are computed
    rows: Any = None  # of the source; columns with equal ones are of the same rows


def mixed(contents: Iterable[Content]) -> Content:
    """Return the content of a value that may be made from columns."""
    return Content(frozenset().union(*(content.raw for content in contents)))


def concatenated(parts: Sequence[Content]) -> Content:
    """Return a column whose rows come from several inputs, where it is the same column of a source in each of them."""
    same = len({part.column for part in parts}) == 1
    return Content(mixed(parts).raw, parts[0].column, tuple(part.rows for part in parts)) if same else mixed(parts)


def refuse(contents: Iterable[Content], where: str) -> None:
    """Refuse raw text in a place that does more than hand it to a release."""
    if raw := mixed(contents).raw:
        raise GateError(f"raw text of {_named(raw)} is used in {where}, and a plan may only release it", HINT)


class PlanRules:
    """Judge the releases and the output of a plan. Names of raw columns match without their case."""

    def __init__(self, policy: PolicyLike | None, id: str | None, raw: Sequence[str] | str) -> None:  # noqa: A002
        policy = policy if policy is None or isinstance(policy, ColumnPolicy) else resolve(policy)
        columns, self._id = ([], "") if policy is None else columns_and_id(policy, id)
        for column in columns:
            if column.mechanism.mode != "strict":
                msg = f"column {column.column!r}: a {column.mechanism.mode} mechanism is for benchmarks"
                raise PolicyError(msg, "results that leave the boundary need strict mode")
        self._given = {raw} if isinstance(raw, str) else set(raw)
        self._columns = {column.named.casefold(): column for column in columns}
        self._raw = {name.casefold(): name for name in (*self._given, *(column.named for column in columns))}
        self._kept = {self._id, *policy.kept_columns} if isinstance(policy, Policy) else None
        self._found = set[str]()  # raw columns that a source has
        self._drawn = dict[str, tuple[Any, Any]]()  # the text and the id of the releases of each column
        if not self._raw:
            raise PolicyError("the guard knows no raw column", "give guard(plan, policy=…), or raw=[…]")

    def column(self, name: str, fields: Iterable[str], rows: Any) -> Content:
        """Return a column of a source by its name and the names of the fields inside it, which may be raw."""
        own, raw = (
            {self._raw[key] for key in map(str.casefold, names) if key in self._raw} for names in ([name], fields)
        )
        self._found |= own | raw
        return Content(frozenset(own | raw), name if raw <= own else None, rows)

    def judge(self, follow: Callable[[PlanRules], Iterable[tuple[Content, bool]]]) -> None:
        """Refuse raw names that no source has, and raw text in the output; warn of other strings.

        `follow` returns the content of each column of the output, and whether it holds strings.
        """
        try:
            output = list(follow(self))
        except DPTextError:
            raise
        except Exception:  # noqa: BLE001  (a plan that cannot be understood is refused, and the error may quote it)
            msg = "the plan has a step of a form that the guard does not know"
            seam("judging the plan", GateError).leave(GateError(msg, HINT))
        absent = set(self._raw.values()) - self._found
        if missing := absent & self._given if self._found else absent:
            msg = f"no source of the plan has a column {_named(missing)}"
            raise PolicyError(msg, "use the names of raw columns in the sources")
        if raw := mixed(content for content, _ in output).raw:
            where = _places(bool(content.raw) for content, _ in output)
            msg = f"raw text of {_named(raw)} reaches the output unreleased, in {where}"
            raise GateError(msg, f"{HINT}; {_PUBLISHED}")
        kept = self._kept
        others = _places(
            kept is not None and string and content.column not in {None, *kept} for content, string in output
        )
        if others:
            msg = f"the output holds strings that the policy does not name, unchanged: {others}"
            warnings.warn(f"{msg}. privatize(policy, select=True) leaves them out", OtherTextWarning, stacklevel=4)

    def require(self, text: Content, ids: Content, mode: str | None, same: Callable[[ColumnPolicy], bool]) -> None:
        """Refuse a release (by its mechanism's mode, and whether it is a policy's) of other than a text and its id."""
        if not text.raw | ids.raw:
            return
        raw, used, whole = _named(text.raw), str(ids.column), bool(self._columns)
        columns = [column for name in text.raw if (column := self._columns.get(name.casefold())) is not None]
        charged = [column.named for column in columns if same(column)] if whole else sorted(text.raw)
        other_id = whole and used.casefold() != self._id.casefold()
        differs = f"the release of {raw} differs from the policy's in dataset, release, mechanism, key or nonce"
        for refused, problem, hint in (
            (ids.raw, "raw text enters a release as an id", "ids are public: use another column"),
            (text.column is None, f"a release uses text of {raw} that is not one column of a source", HINT),
            (ids.column is None, "a release uses computed record ids, and the noise of many ids averages away", _ID),
            (ids.rows != text.rows, "a release uses text and record ids from different rows", _ID),
            (mode != "strict", "a release is for benchmarks (mode faithful), or does not name its mechanism", _SAME),
            (whole and not columns, f"the policy has no text column {raw}, and the plan releases it", _SAME),
            (other_id, f"a release uses {used!r} as record id, and the policy names {self._id!r}", _SAME),
            (not charged, differs, _SAME),
        ):
            if refused:
                raise GateError(problem, hint)
        for name in charged:
            if self._drawn.setdefault(name, (text.column, ids.column)) != (text.column, ids.column):
                msg = f"column {name!r} is released from several columns; a release holds one text per record"
                raise GateError(msg, "use one column of the source, and one id column, in all of its releases")


def _named(columns: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(columns)))


def _places(chosen: Iterable[bool]) -> str:
    """Write columns by their places, because names of a plan may be texts."""
    return ", ".join(f"column {place}" for place, this in enumerate(chosen, start=1) if this)
