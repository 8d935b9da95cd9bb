"""Pin the forms of ids: another type or other fields would give a unit another hash, and a balance that starts at zero.

Record ids are pinned per column, because a release holds one text per record. The ids of the units that have a budget
are pinned per scope name, because balances add up there: of subjects, or of records where the unit is the record. The
names of the columns of ids are pinned per scope name and dataset, as far as callers know them.

Specification: docs/spec/stream.md#record-id, docs/spec/privacy.md#same-unit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dptext_etl.artifacts import canon
from dptext_etl.errors import LedgerError
from dptext_etl.id_forms import COMPOSITE, IdForm
from dptext_etl.ledger.storage.journal import Journal
from dptext_etl.ledger.storage.store import Store
from dptext_etl.ledger.terms import Event, IdForms, Scope

PREFIX = "form/"
"""What the names of pinned forms begin with in the table `meta`."""
COLUMN = "name"
"""What the place of a column's name begins with, where one is pinned instead of a form."""
_ROLES = ("record", "subject")
_HINT = "bring the column into the pinned form: another one would give everybody a new budget"
_ORDER = "bring the fields into the pinned order: dptext runs do so by themselves"


class Forms:
    """The pinned forms of one ledger."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._journal = journal

    def pinned(self, scope: Scope, columns: Sequence[str]) -> dict[str, IdForm]:
        """Return what is pinned of the ids of a table: "record" and "subject", as far as known."""
        found: dict[str, IdForm] = {}
        for place in _places(scope, columns):
            form = self._find(place)
            if form is not None:
                found.setdefault(place[-1], form)
        return found

    def require(self, scope: Scope, columns: Sequence[str], forms: IdForms | None, *, pin: bool = True) -> None:
        """Refuse ids of another form than the pinned one, and pin what is not pinned yet."""
        for place in _places(scope, columns):
            before = self._find(place)
            now = None if forms is None else getattr(forms, place[-1])
            if now is None:
                if before is not None:
                    msg = f"the {_named(place)} are pinned as {before}; this call does not say what it brings"
                    raise LedgerError(msg, "give the forms of the ids: Ledger.reserve(…, forms=IdForms(…))")
                continue
            if before is None:
                self._refuse_other_kind(place, scope, now)
            elif before != now and not refines(before, now):
                hint = _ORDER if before.orders(now) else _HINT
                raise LedgerError(f"the {_named(place)} are pinned as {before}, got {now}", hint)
            if pin and before != now:
                self._pin(place, now.written())
        self._require_columns(scope, {} if forms is None else forms.columns, pin=pin)

    def _require_columns(self, scope: Scope, columns: Mapping[str, str], *, pin: bool) -> None:
        """Refuse ids of another column than the pinned one, and pin what is not pinned yet."""
        for role, now in columns.items():
            place = (COLUMN, scope.name, scope.dataset, role)
            found = self._store.row("select value from meta where name=?", (name(place),))
            if found is None:
                if pin:
                    self._pin(place, now)
            elif (before := json.loads(found[0])) != now:
                msg = f"the {role} ids of {scope.dataset} are pinned as column {before!r}, got column {now!r}"
                hint = "another column may give everybody a new budget: name the pinned one, or accept the change by "
                raise LedgerError(msg, f"{hint}name: `dptext ledger accept-units {scope.dataset}`")

    def forget(self, dataset: str, scopes: Sequence[str]) -> None:
        """Forget what is pinned of the units of a dataset, after the journal says that it may change."""
        for place in places_of_units(dataset, scopes):
            self._store.execute("delete from meta where name=?", (name(place),))

    def _refuse_other_kind(self, place: tuple[str, ...], scope: Scope, now: IdForm) -> None:
        """Refuse records of another type than releases state whose ids were charged before forms were pinned."""
        if place != ("scope", scope.name, "record"):
            return
        rows = self._store.rows(
            "select distinct id_type from release join batch on batch.release = release.id"
            " join scope on scope.id = batch.scope where scope.name=?",
            (scope.name,),
        )
        kinds = sorted(kind for (kind,) in rows)
        if kinds and now.kind not in kinds:
            raise LedgerError(f"the {_named(place)} are pinned as {' or '.join(kinds)}, got {now}", _HINT)

    def _find(self, place: tuple[str, ...]) -> IdForm | None:
        found = self._store.row("select value from meta where name=?", (name(place),))
        return None if found is None else IdForm.parse(json.loads(found[0]))

    def _pin(self, place: tuple[str, ...], form: Any) -> None:
        self._journal.append(Event.ID_FORM, place=list(place), form=form)
        self._store.execute("insert or replace into meta values(?,?)", (name(place), canon(form).decode()))


def name(place: Sequence[str]) -> str:
    """Return the name under which the table `meta` holds the form that is pinned for a place."""
    return PREFIX + canon(list(place)).decode()


def places_of_units(dataset: str, scopes: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the places of all that is pinned of the units of a dataset in some scopes."""
    named = [(COLUMN, scope, dataset, role) for scope in scopes for role in _ROLES]
    return named + [("scope", scope, role) for scope in scopes for role in _ROLES]


def _places(scope: Scope, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    yield ("scope", scope.name, scope.unit)
    for column in columns:
        yield ("column", scope.dataset, column, "record")


def _named(place: tuple[str, ...]) -> str:
    return f"{place[-1]} ids of {place[1] if place[0] == 'scope' else '.'.join(place[1:-1])}"


def refines(before: IdForm, now: IdForm) -> bool:
    """Return whether the new form says the fields of a composite that was pinned without them."""
    return before.kind == now.kind == COMPOSITE and not before.fields and now.complete
