"""Judge whether a plan releases raw text as a policy says: the rules that the guards of Polars and Spark share.

A guard follows columns from the sources of a plan. For each it knows whether it holds raw text, and whether it is a
function of columns of its own row: only such a text may be released, next to the record id of its row, and in one form
per plan. Anything else would be drawn for several ids (an aggregate, a broadcast, a join by position) or several times
for one id (two forms of one text), and the noise would average away. A null text stays null, so a guard also follows
what makes a value null: a text that may be null although its source is not would reveal a predicate on the raw text.

Specification: docs/spec/privacy.md#trusted-ids.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from dptext_etl.errors import GateError, PolicyError
from dptext_etl.guarantee import Disclosure
from dptext_etl.policy.column_policy import ColumnPolicy
from dptext_etl.policy.policy_like import PolicyLike, columns_and_id

_number = count()


@dataclass(frozen=True)
class Rows:
    """The rows of a column: rows of one source, or of several sources that were concatenated."""

    number: int  # distinguishes these rows from all others
    parts: tuple[frozenset[Rows], ...] = ()  # for concatenated rows, the alternatives of each part


def _common(left: frozenset[Rows], right: frozenset[Rows]) -> frozenset[Rows]:
    """Return the rows that two columns share: the same rows in the same order."""
    common = set()
    for one in left:
        for other in right:
            if one.number == other.number:
                parts = tuple(_common(*pair) for pair in zip(one.parts, other.parts, strict=True))
                common |= {Rows(one.number, parts)} if all(parts) else set()
    return frozenset(common)


def next_number() -> int:
    return next(_number)


def new_rows() -> frozenset[Rows]:
    """Return new rows: of a source, or of a step after which no row is a row of a source."""
    return frozenset({Rows(next(_number))})


_PUBLISHED = "a published table counts as raw if its column has the raw name: guard the release, then add the table"
"""Ends the hint of a refusal of raw text in the output."""
_CHOOSE = 'choose rows by ids and other columns, or make the text empty inside the release: .otherwise(lit(""))'
"""Hint of a refusal of raw text that decides about rows."""


@dataclass(frozen=True)
class Content:
    """The content of a column of a plan."""

    raw: frozenset[str] = frozenset()  # names of the raw columns that it holds or is made from
    form: str | None = None  # digest of the function of columns of its own row that it is; None if it may mix rows
    source: str | None = None  # name of the source's column, if it is that column unchanged
    # the rows that it belongs to, several after a join on equal ids; None for a constant, which fits all rows
    rows: frozenset[Rows] | None = frozenset()
    fields: tuple[tuple[str, Content], ...] = ()  # contents of the fields of a struct, where they are known
    cells: frozenset[str] = frozenset()  # raw cells of its row that it is made from
    # conditions under which it is null, none of which depends on the content of a raw cell: "this cell is null", or a
    # condition on values that are not raw. If none holds, it is not null. If it is made from one cell, and that cell is
    # not null, it is null exactly if another condition holds. None if it may be null although its source is not
    nulls: frozenset[str] | None = None

    @classmethod
    def column(
        cls, name: str, raw: Iterable[str], rows: frozenset[Rows], fields: Sequence[tuple[str, Content]] = ()
    ) -> Content:
        form = _digest("column", name)
        itself, raw = frozenset({form}), frozenset(raw)
        return cls(raw, form, name, rows, tuple(fields), itself if raw else frozenset(), itself)

    @classmethod
    def constant(cls, value: str, *, null: bool = True) -> Content:
        form = _digest("constant", value)
        return cls(form=form, rows=None, nulls=frozenset({form} if null else ()))

    @classmethod
    def made_from(cls, parts: Iterable[Content]) -> Content:
        """Return the content of an expression that may mix rows."""
        return cls(frozenset().union(*(part.raw for part in parts)))

    @classmethod
    def of_row(
        cls,
        how: str,
        parts: Sequence[Content],
        fields: Sequence[tuple[str, Content]] = (),
        nulls: frozenset[str] | None = None,
    ) -> Content:
        """Return the content of a function that gives each row its value only from values of the same row.

        Without `nulls`, the function may give its own nulls.
        """
        mixed, rows = cls.made_from(parts), None
        for part in parts:
            if part.form is None:
                return mixed
            if part.rows is not None:
                rows = part.rows if rows is None else _common(rows, part.rows)
        form = None if rows is not None and not rows else _digest(how, *(str(part.form) for part in parts))
        if form is None:
            return mixed
        if nulls is None and not mixed.raw:
            nulls = frozenset({form})
        return cls(mixed.raw, form, None, rows, tuple(fields), _cells(parts), nulls)

    def field(self, name: str) -> Content:
        content = dict(self.fields).get(name)
        return Content.of_row(f"field {name}", [self]) if content is None else content

    def disclosed(self, how: str) -> Content:
        """Return whether the column is null, or is not, where the policy discloses that."""
        return replace(Content.of_row(how, [self], (), frozenset()), raw=frozenset(), cells=frozenset())

    def outer(self, number: int) -> Content:
        """Return the column after a step that may add rows in which all columns of its input are null.

        Raw cells are null there, too, so this changes only cells that are not raw.
        """
        nulls = self.nulls if self.raw or self.nulls is None else self.nulls | {_digest("absent", str(number))}
        return replace(self, nulls=nulls, fields=tuple((name, field.outer(number)) for name, field in self.fields))

    def joined(self, other: Content) -> Content:
        """Return the column after a join in which it equals a column of other rows."""
        if self.form is None or self.form != other.form or self.rows is None or other.rows is None:
            return self
        return replace(self, rows=self.rows | other.rows)

    def either(self, other: Content) -> Content:
        """Return the content of a column that comes from one of two columns."""
        raw = self.raw | other.raw
        if self.form is None or self.form != other.form or self.rows is None or other.rows is None:
            return Content(raw)
        nulls = _null_by_choice("either", [self, other])
        return replace(self, raw=raw, rows=_common(self.rows, other.rows), nulls=nulls)


def null_if_any(parts: Sequence[Content]) -> frozenset[str] | None:
    """Return when a value is null that is null exactly if one of some values is."""
    if any(part.nulls is None for part in parts):
        return None
    return frozenset().union(*(part.nulls or () for part in parts))


def null_if_all(parts: Sequence[Content]) -> frozenset[str] | None:
    """Return when the first of some values that is not null is null."""
    cells, followed = _cells(parts), [part for part in parts if part.nulls is not None]
    if not all(part.nulls for part in followed):
        return frozenset()
    if len(followed) < len(parts) and len(cells) > 1:
        return None
    if any(not part.nulls - cells for part in followed if part.nulls is not None):
        return cells
    return _null_by_choice("coalesce", parts)


def null_by_case(condition: Content, parts: Sequence[Content]) -> frozenset[str] | None:
    """Return when one of two values is null, which a condition chooses; a condition that is null counts as false."""
    if not condition.raw:
        return _null_by_choice(str(condition.form), parts)
    nulls, cells = null_if_any(parts), _cells([condition, *parts])
    others = {part.nulls - cells for part in parts if part.nulls is not None}
    return nulls if not nulls or (len(cells) == 1 and len(others) == 1) else None


def _null_by_choice(how: str, parts: Sequence[Content]) -> frozenset[str] | None:
    """Return when one of some values is null, which anything except raw text chooses."""
    nulls, cells = null_if_any(parts), _cells(parts)
    others = sorted({tuple(sorted(part.nulls - cells)) for part in parts if part.nulls is not None})
    if nulls is None or len(others) == 1:
        return nulls
    return nulls & cells | {_digest("choice", how, json.dumps(others))}


def _cells(parts: Iterable[Content]) -> frozenset[str]:
    return frozenset().union(*(part.cells for part in parts))


def _digest(*parts: str) -> str:
    """Return a short name of a form, however long its constants are."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def concatenated(number: int, parts: Sequence[Content]) -> Content:
    """Return the content of a column whose rows come from several inputs."""
    first, mixed = parts[0], Content.made_from(parts)
    rows = [part.rows for part in parts if part.rows is not None]
    if first.form is None or len({part.form for part in parts}) != 1 or len(rows) != len(parts):
        return mixed
    row_sets = frozenset({Rows(number, tuple(rows))})
    nulls = _null_by_choice(f"concatenated {number}", parts)
    return Content(mixed.raw, first.form, first.source, row_sets, (), _cells(parts), nulls)


def refuse_choice(contents: Iterable[Content], what: str) -> None:
    """Refuse raw text that decides about rows."""
    if any(content.raw for content in contents):
        raise GateError(f"raw text decides {what}", _CHOOSE)


class Releases:
    """The releases that a plan may hold; `raw` has the names of all raw columns."""

    def __init__(self, policy: PolicyLike | None, id: str | None, raw: Sequence[str] | str) -> None:  # noqa: A002
        names = [raw] if isinstance(raw, str) else list(raw)
        self._columns, self._id = _columns_and_id(policy, id)
        self.raw = frozenset(names) | self._columns.keys()
        self._named = frozenset(names)
        self._forms: dict[str, tuple[str, str]] = {}
        if not self.raw:
            raise PolicyError("the guard knows no raw column", "give guard(plan, policy=…), or raw=[…]")

    def judge(self, sources: Iterable[str], output: Sequence[Content], where: str, hint: str) -> None:
        """Refuse raw names that are not among the columns of the sources, and raw text in the output."""
        absent = self.raw - frozenset(sources)
        if missing := absent & self._named if self.raw & frozenset(sources) else absent:
            msg = f"no source of the plan has a column {_named(missing)}"
            raise PolicyError(msg, "use the names of raw columns in the sources")
        if raw := [content for content in output if content.raw]:
            msg = f"raw text of {raw_names(raw)} reaches the output unreleased, in {where}"
            raise GateError(msg, f"{hint}; {_PUBLISHED}")

    def discloses_nulls(self, text: Content) -> bool:
        """Say whether the policy discloses which rows of a column are null, so that a plan may say so, too."""
        policy = None if text.source is None else self._policy_of(text.source)
        return policy is not None and Disclosure.NULLNESS in policy.mechanism.guarantee.disclosures

    def _policy_of(self, text: str) -> ColumnPolicy | None:
        return next((item for name, item in self._columns.items() if name.casefold() == text.casefold()), None)

    def require(
        self, text: Content, ids: Content, described: dict[str, Any] | None, same: Callable[[ColumnPolicy], bool]
    ) -> None:
        """Refuse a release of raw text that is not the policy's."""
        if text.form is None:
            raise GateError("a release uses text that is not made only from its own row", _ROW)
        if text.nulls is None:
            msg = "a release uses text that may be null although its source is not: a null text stays null, so which "
            raise GateError(f"{msg}texts are null would depend on the content of raw texts", _EMPTY)
        if ids.source is None:
            msg = "a release uses computed record ids, and a person who chooses ids can average the noise of a text"
            raise GateError(msg, "give the unchanged id column of the source")
        if not _common(text.rows or frozenset(), ids.rows or frozenset()):
            raise GateError("a release uses text and record ids from different rows", _ROW)
        if described is None or described.get("mode") != "strict":
            msg = "a release in the plan is for benchmarks (mode faithful), or does not name its mechanism"
            raise GateError(msg, _TAKE)
        for column in self._charged(text, ids.source, same):
            drawn = (text.form, ids.source.casefold())
            if self._forms.setdefault(column, drawn) != drawn:
                msg = f"column {column!r} is released in several forms; a release holds one text per record"
                raise GateError(msg, "prepare the column in one way, before all of its releases")

    def _charged(self, text: Content, ids: str, same: Callable[[ColumnPolicy], bool]) -> list[str]:
        """Return the columns whose text a release draws: the text of its policy; without a policy, all text columns."""
        if not self._columns:
            return sorted(name.casefold() for name in text.raw)
        policies = [policy for name in sorted(text.raw) if (policy := self._policy_of(name)) is not None]
        if not policies:
            raise GateError(f"the policy has no text column {_named(text.raw)}, and the plan releases it", _TAKE)
        if ids.casefold() != str(self._id).casefold():
            raise GateError(f"a release uses {ids!r} as record id, and the policy names {self._id!r}", _TAKE)
        chosen = [str(policy.column).casefold() for policy in policies if same(policy)]
        if not chosen:
            msg = f"the release of {_named(text.raw)} differs from the policy's in dataset, release, mechanism, "
            raise GateError(f"{msg}key or nonce", _TAKE)
        return chosen


def _named(columns: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(columns)))


_ROW = (
    "prepare the text from columns of its own row, by functions that the guard knows (docs/polars.md, docs/spark.md), "
    "and not by an aggregate, a window, an explode, a broadcast or a column of another table; or write a table first"
)
_EMPTY = (
    'make the text empty instead of null: .fill_null("") around it, .otherwise(lit("")) after when and then, or '
    "coalesce(text, '') in SQL"
)
_TAKE = "make the release from the policy itself: privatize(policy, id=…), register(…, policy), register_view(…)"


def _columns_and_id(policy: PolicyLike | None, ids: str | None) -> tuple[dict[str, ColumnPolicy], str | None]:
    if policy is None:
        return {}, None
    columns, ids = columns_and_id(policy, ids)
    for column in columns:
        if column.mechanism.mode != "strict":
            msg = f"column {column.column!r}: a {column.mechanism.mode} mechanism is for benchmarks"
            raise PolicyError(msg, "results that leave the boundary need strict mode")
    return {str(column.column): column for column in columns}, ids


def raw_names(contents: Iterable[Content]) -> str:
    """Write the raw columns that flow into contents for a message; plans may name other columns after texts."""
    return ", ".join(repr(name) for name in sorted(frozenset().union(*(content.raw for content in contents))))
