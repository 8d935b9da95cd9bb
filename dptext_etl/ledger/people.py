"""Keep the rules about ids (forms, units, forgotten people), and forget and readmit people.

Another type or other fields of an id would give a unit another hash, and a balance that starts at zero. The form of
record ids is pinned per column, because a release holds one text per record; the form of the ids of units per scope
name, because balances add up there; the names of the columns of ids per scope name and dataset, as far as callers know
them. A balance belongs to a unit, so a known record that arrives under another unit is refused, until someone accepts
by name that the records of a dataset may have other units, and says how much a unit may have been charged under another
one. A record or a unit is forgotten as its keyed hash, in a sealed batch of the journal.

The loss of a ledger is settled here, too: it freezes datasets, and thawing lowers their caps.

Specification: docs/spec/stream.md#record-id, docs/spec/privacy.md#same-unit, docs/spec/privacy.md#forgotten,
docs/spec/privacy.md#lost-ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dptext_etl.arrays import to_numpy
from dptext_etl.errors import LedgerError, counted
from dptext_etl.guarantee import ADDITIVE, PURE, Micro, exact, micro, millionths, steps
from dptext_etl.keys import IdForm
from dptext_etl.ledger.holdings import Database
from dptext_etl.ledger.storage.hashed_ids import WIDTH, Bytes, HashedIds, WantedIds, binaries, hashed_ids, matrix
from dptext_etl.ledger.types import (
    GROUP,
    OF,
    UNIT,
    Anchor,
    Event,
    IdForms,
    Mask,
    ReleaseRef,
    Scope,
    require_plain,
)

_LARGEST_LOSS = 10**12
_HINT = "bring the column into the pinned form: another one would give everyone a new budget"


def pinned_forms(db: Database, scope: Scope, columns: Sequence[str]) -> dict[str, IdForm]:
    forms: dict[str, IdForm] = {}
    for place, form in _pinned(db, scope, columns):
        if form is not None:
            forms.setdefault(place[-1], form)
    return forms


def require_forms(db: Database, scope: Scope, columns: Sequence[str], forms: IdForms | None) -> None:
    """Refuse ids of another form or column than the pinned one, and pin forms that are not pinned yet."""
    for place, before in _pinned(db, scope, columns):
        now = None if forms is None else getattr(forms, place[-1])
        what = f"{place[-1]} ids of {place[1] if place[0] == 'scope' else '.'.join(place[1:-1])}"
        if now is None:
            if before is not None:
                msg = f"the {what} are pinned as {before}; this call states no form"
                raise LedgerError(msg, "give the forms of the ids: Ledger.reserve(…, forms=IdForms(…))")
            continue
        if before is None:
            if place == ("scope", scope.name, "record"):
                # Refuse units of another type than releases state whose ids were charged before forms were pinned
                contents = db.contents.latest()
                charged = (item for item in contents.batches.values() if contents.scopes[item.scope].name == scope.name)
                kinds = sorted({contents.releases[item.key[0]].id_type for item in charged})
                if kinds and now.kind not in kinds:
                    raise LedgerError(f"the {what} are pinned as {' or '.join(kinds)}, got {now}", _HINT)
            db.journal.append(Event.ID_FORM, place=place, form=now.written())
        elif before != now:
            order = "bring the fields into the pinned order: dptext runs do so by themselves"
            got = f"{now}, its fields under other names" if str(before) == str(now) else str(now)
            raise LedgerError(f"the {what} are pinned as {before}, got {got}", order if before.orders(now) else _HINT)
    for role, column in ({} if forms is None else forms.columns).items():
        place = ("name", scope.name, scope.dataset, role)
        before = db.contents.latest().forms.get(place)
        if before is None:
            db.journal.append(Event.ID_FORM, place=place, form=column)
        elif before != column:
            msg = f"the {role} ids of {scope.dataset} are pinned as column {before!r}, got column {column!r}"
            hint = "another column may give everyone a new budget: name the pinned one, or accept the change by "
            raise LedgerError(msg, f"{hint}name: `dptext ledger accept-units {scope.dataset}`")


def _pinned(db: Database, scope: Scope, columns: Sequence[str]) -> Iterator[tuple[tuple[str, ...], IdForm | None]]:
    """Iterate over the places of the forms of units and of record ids, and the forms that are pinned there."""
    for place in ("scope", scope.name, scope.unit), *(("column", scope.dataset, name, "record") for name in columns):
        form = db.contents.latest().forms.get(place)
        yield place, None if form is None else IdForm.parse(form)


def refuse_other_units(scope: Scope, moved: int, records: int) -> None:
    """Refuse records that were charged to another unit before."""
    if moved:
        per = "to another subject before" if scope.unit == "subject" else "before, to a subject"
        were = "was" if moved == 1 else "were"
        msg = f"{moved:,} of {counted(records, 'record')} {were} charged {per}; none is charged now"
        hint = "a record keeps its unit, so that no new variant of an id starts a balance at zero: bring the old ids "
        then = f"back, or accept the change by name: `dptext ledger accept-units {scope.dataset}`"
        raise LedgerError(msg, hint + then, {"records": moved, "of": records})


class ForgottenIds(NamedTuple):
    """Who is forgotten in a dataset now, as keyed hashes of 32 bytes."""

    records: set[bytes]
    units: dict[bytes, int]  # units whose records are all forgotten, with the events that forgot them
    readmitted: dict[bytes, int]  # records, with the last such events: an earlier FORGET of a unit spares them


def forgotten(db: Database, dataset: str) -> ForgottenIds:
    contents = db.contents.latest()
    events = (contents.generation, *contents.forgets.get(dataset, ()))
    before = db.forgotten.get(dataset)
    if before is not None and before[0] == events:
        people: ForgottenIds = before[1]
        return people
    people = ForgottenIds(set(), {}, {})
    for seq in events[1:]:
        facts = db.journal.facts(seq)
        hashes = _set(db.journal.read(seq, ["record"], facts)["record"])
        forgets, of_units = facts["event"] == Event.FORGET, facts.get(OF) == UNIT
        if of_units and forgets:
            people.units.update(dict.fromkeys(hashes, seq))
        elif of_units:
            for unit in hashes:
                people.units.pop(unit, None)
        elif forgets:
            people.records.update(hashes)
        else:
            people.records.difference_update(hashes)
            people.readmitted.update(dict.fromkeys(hashes, seq))
    db.forgotten[dataset] = events, people
    return people


def are_forgotten(db: Database, dataset: str, records: HashedIds, units: HashedIds | None = None) -> Mask:
    """Return which records of a dataset are forgotten, by themselves or with their units, shape (records,)."""
    people = forgotten(db, dataset)
    mask = _among(records, people.records)
    if units is not None and people.units:
        at = np.flatnonzero(_among(units, people.units) & ~mask)
        since, again = (
            {name[:16]: seq for name, seq in events.items()} for events in (people.units, people.readmitted)
        )
        pairs = zip(units.take(at).as_bytes(), records.take(at).as_bytes(), strict=True)
        mask[at] = [since[unit.tobytes()] > again.get(record.tobytes(), 0) for unit, record in pairs]
    return mask


def _among(ids: HashedIds, names: Collection[bytes]) -> Mask:
    mask: Mask = np.zeros(ids.size, np.bool_)
    mask[WantedIds(hashed_ids(as_rows(names))).find(ids)[0]] = True
    return mask


def charged_to(db: Database, dataset: str, subjects: Bytes) -> Bytes:
    """Return the hashed ids of all records that were ever charged to some subjects, in any release of a dataset."""
    wanted, records = _set(subjects), [np.zeros((0, WIDTH), np.uint8)]
    for batch in db.contents.latest().batches_of(dataset) if wanted else ():
        columns = db.journal.read(batch.seq, ["record", "unit"])
        records.append(columns["record"][[row.tobytes() in wanted for row in columns["unit"]]])
    return np.concatenate(records)


def _note(db: Database, kind: Event, dataset: str, named: set[bytes], **facts: str) -> int:
    if named:
        db.journal.append_rows(kind, {"record": as_rows(named)}, dataset=dataset, **facts)
    return len(named)


def _set(rows: Bytes) -> set[bytes]:
    return {row.tobytes() for row in rows}


def as_rows(hashes: Collection[bytes]) -> Bytes:
    return np.frombuffer(b"".join(sorted(hashes)), np.uint8).reshape(-1, WIDTH)


class People:
    """People and their records in a ledger, as keyed hashes. Every method is one transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def forget(self, dataset: str, records: pa.Array, subjects: pa.Array) -> int:
        """Note records and subjects as forgotten in a dataset: nothing of them is released until `readmit`.

        It returns how many records were not noted before: those given, and those that were charged to the subjects.

        Specification: docs/spec/privacy.md#forgotten.
        """
        db, hashed, units = self._db, self._db.id_key.records(records).hashes, self._db.id_key.subjects(subjects)
        with db.store.transaction():
            past = forgotten(db, dataset)
            wanted = _set(hashed) | _set(charged_to(db, dataset, units))
            last = max(past.readmitted.values(), default=0)
            new = {unit for unit in _set(units) if past.units.get(unit, 0) <= last}
            _note(db, Event.FORGET, dataset, new, **{OF: UNIT})
            return _note(db, Event.FORGET, dataset, wanted - past.records)

    def would_forget(
        self, dataset: str, records: pa.Array, subjects: pa.Array, refs: Iterable[ReleaseRef]
    ) -> tuple[int, bool]:
        """Return how many records `forget` would note, and whether releases hold any that is forgotten then."""
        db, hashed, units = self._db, self._db.id_key.records(records).hashes, self._db.id_key.subjects(subjects)
        with db.store.snapshot():
            past = forgotten(db, dataset).records
            wanted = _set(hashed) | _set(charged_to(db, dataset, units))
            hashes = hashed_ids(as_rows(wanted | past))
            held = hashes.size and any(db.look_up(ref, hashes).present.any() for ref in refs)
            return len(wanted - past), bool(held)

    def readmit(self, dataset: str, records: pa.Array, reason: str, subjects: pa.Array | None = None) -> int:
        """Let forgotten records and subjects of a dataset be released again, and return how many records there are."""
        require_plain(reason, "readmission")
        db, wanted = self._db, _set(self._db.id_key.records(records).hashes)
        hashed = db.id_key.subjects(pa.array([], pa.large_string()) if subjects is None else subjects)
        units = _set(hashed)
        with db.store.transaction():
            db.store.require_steward()
            db.contents.latest().refuse_frozen(dataset)
            people = forgotten(db, dataset)
            if missing := len(wanted - people.records) + len(units - people.units.keys()):
                whom = f"{len(wanted) + len(units):,} {'records and subjects' if units else 'records'}"
                msg = f"{missing:,} of {whom} are not forgotten in {dataset}; nothing was changed"
                raise LedgerError(msg, "name records and subjects by their ids, as for `dptext forget`")
            wanted |= people.records & _set(charged_to(db, dataset, hashed))
            _note(db, Event.READMIT, dataset, units, reason=reason, **{OF: UNIT})
            return _note(db, Event.READMIT, dataset, wanted, reason=reason)

    def forgotten(self, dataset: str, ids: pa.Array, units: pa.Array | None = None) -> Mask:
        """Return which records of a dataset are forgotten, shape (records,).

        With `units`, as `unit_hashes` returns them, these are records that may never have been charged.
        """
        records = self._db.id_key.records(ids).ids
        unit_ids = None if units is None else hashed_ids(matrix(units.fill_null(bytes(WIDTH)), "units"))
        with self._db.store.snapshot():
            return are_forgotten(self._db, dataset, records, unit_ids)

    def forgets(self, dataset: str) -> bool:
        """Return whether any record of a dataset is forgotten."""
        with self._db.store.snapshot():
            return bool(forgotten(self._db, dataset).records)

    def count_forgotten(self, ref: ReleaseRef) -> int:
        """Return how many records of a release are forgotten in its dataset."""
        with self._db.store.snapshot():
            hashes = hashed_ids(as_rows(forgotten(self._db, ref.dataset).records))
            return int(self._db.look_up(ref, hashes).present.sum()) if hashes.size else 0

    def of_subjects(self, dataset: str, subjects: pa.Array, ids: pa.Array) -> Mask:
        """Return which records were ever charged to some subjects, in any release of a dataset, shape (records,)."""
        hashes, records = self._db.id_key.subjects(subjects), self._db.id_key.records(ids).ids
        with self._db.store.snapshot():
            return _among(records, _set(charged_to(self._db, dataset, hashes)))

    def known_subjects(self, dataset: str, subjects: pa.Array) -> Mask:
        """Return which subjects any record of a dataset was ever charged to, or are forgotten, shape (subjects,)."""
        hashes = self._db.id_key.subjects(subjects)
        wanted = _set(hashes)
        with self._db.store.snapshot():
            known = set(forgotten(self._db, dataset).units)
            for batch in self._db.contents.latest().batches_of(dataset):
                known |= _set(self._db.journal.read(batch.seq, ["unit"])["unit"]) & wanted
        return _among(hashed_ids(hashes), known)

    def known_records(self, dataset: str, ids: pa.Array) -> Mask:
        """Return which records any release of a dataset holds, or are forgotten, shape (records,)."""
        records = self._db.id_key.records(ids).ids
        wanted = WantedIds(records)
        with self._db.store.snapshot():
            mask = are_forgotten(self._db, dataset, records)
            for ref in self._db.releases.of_dataset(dataset):
                mask |= self._db.look_up(ref, records, wanted).present
        return mask

    def unit_hashes(self, subjects: pa.Array) -> pa.Array:
        """Return the keyed hashes of subjects as the ledger keeps them, fixed-size binary (32), null where unknown."""
        unknown = to_numpy(subjects.is_null())
        return binaries(self._db.id_key.subjects(subjects, unknown), ~unknown)

    def publications_of(self, dataset: str, ids: pa.Array, subjects: pa.Array) -> list[dict[str, Any]]:
        """List the releases of a dataset with publications that were not retired and hold any of these people.

        Returns:
            Per release: `release`, `column`, `versions` (their names), and `records`, how many records are theirs.
        """
        db, entries = self._db, []
        hashes, records = db.id_key.subjects(subjects), db.id_key.records(ids).hashes
        with db.store.snapshot():
            wanted = hashed_ids(np.unique(np.concatenate([records, charged_to(db, dataset, hashes)]), axis=0))
            for ref in db.releases.of_dataset(dataset):
                versions = sorted(db.releases.published(ref))
                count = int(db.look_up(ref, wanted).present.sum()) if versions and wanted.size else 0
                if count:
                    names = {"release": ref.release, "column": ref.column}
                    entries.append(names | {"versions": versions, "records": count})
        return entries

    def accept_units(self, dataset: str, lost: Mapping[str, float], reason: str) -> dict[str, dict[str, Micro]]:
        """Let the records that a dataset holds arrive under other units, and its columns of ids be named anew.

        The caps of the dataset are lowered by the amount that a unit may have been charged under another name.

        Specification: docs/spec/privacy.md#same-unit.
        """
        require_plain(reason, "change of units")
        db = self._db
        with db.store.transaction():
            db.store.require_steward()
            db.contents.latest().refuse_frozen(dataset)
            scopes = sorted({item.name for item in db.contents.scopes_of(dataset)})
            if not scopes:
                raise LedgerError(f"the ledger holds no record of the dataset {dataset}", "name it as the policy does")
            lost = checked_losses(lost)
            lowered = lower(db, {dataset}, lost, reason)
            db.journal.append(Event.UNITS, dataset=dataset, scopes=scopes, lost=in_micro(lost), reason=reason)
            return lowered


class Losses:
    """Freeze datasets after their ledger was lost or restored, and thaw them when the loss is settled.

    An old copy of a ledger lacks later charges. Its balances may be too low, and its release names may be in use. The
    missing charges may be in every scope that the dataset shares with others. So freezing covers all members of its
    groups, and the groups themselves: also for datasets and periods that the copy never had. Thawing settles all of
    them at once: it revokes all their release names, and lowers each of their caps by the amount that may be missing.
    That is the same as charging the amount to everyone. Every method is one transaction.

    Specification: docs/spec/privacy.md#lost-ledger.
    """

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
            raise LedgerError("`alone` is only for a dataset without a loss", "leave `alone` out")
        db = self._db
        with db.store.transaction():
            # Texts of these releases may be out while their charges are missing, so the names are not used again.
            for release in in_use:
                db.releases.burn(dataset, release, reason)
            datasets, joined = ({dataset}, set[str]()) if alone else self.sharing(dataset, groups)
            frozen = self._frozen()
            for name in sorted(datasets):
                before = frozen.get(name, set())
                if name in frozen and joined <= before and (missing is None or str(missing) in self._missed(name)):
                    continue
                facts: dict[str, object] = {"groups": sorted(joined | before)} if joined | before else {}
                facts |= {} if missing is None else {"missing": str(missing)}
                db.journal.append(Event.FREEZE, dataset=name, reason=reason, **facts)

    def thaw(
        self, dataset: str, lost: Mapping[str, float], *, reason: str | None = None
    ) -> dict[str, dict[str, Micro]]:
        """Let a frozen dataset and all that froze with it continue.

        Their releases are revoked, and their caps are lowered by the possible loss. The journal keeps the reason.

        Specification: docs/spec/privacy.md#lost-ledger.
        """
        require_plain(reason, "thaw")
        db, lost = self._db, checked_losses(lost)
        with db.store.transaction():
            db.store.require_steward()
            frozen = self._frozen()
            if dataset not in frozen:
                msg = f"the dataset {dataset} is not frozen"
                raise LedgerError(msg, "`dptext ledger history` lists freezes and thaws")
            datasets, groups = {dataset}, frozen[dataset]
            while more := {name for name, shared in frozen.items() if shared & groups} - datasets:
                datasets |= more
                groups = groups.union(*(frozen[name] for name in more))
            lowered = lower(db, datasets, lost, reason)
            facts: dict[str, object] = {"lost": in_micro(lost)} | ({"groups": sorted(groups)} if groups else {})
            facts |= {} if reason is None else {"reason": reason}
            for name in sorted(datasets):
                for release in {item.release: None for item in db.contents.latest().releases_of(name)}:
                    db.releases.burn(name, release, "the ledger was lost or restored")
                db.journal.append(Event.THAW, dataset=name, **facts)
            return lowered

    def frozen(self) -> list[str]:
        """List the frozen datasets."""
        with self._db.store.snapshot():
            return sorted(self._frozen())

    def sharing(self, dataset: str, groups: Iterable[str] = ()) -> tuple[set[str], set[str]]:
        """Return the datasets and groups that share a scope with a dataset, directly or by way of others."""
        with self._db.store.snapshot():
            contents = self._db.contents.latest()
            named = [(contents.scopes[number].name, datasets) for number, datasets in contents.members.items()]
            pairs = [(name, scope.removeprefix(GROUP)) for scope, of in named if scope.startswith(GROUP) for name in of]
            datasets, joined = {dataset}, set(groups)
            while True:
                wider = {group for name, group in pairs if name in datasets} | joined
                more = {name for name, group in pairs if group in wider} | datasets
                if (wider, more) == (joined, datasets):
                    return datasets, joined
                joined, datasets = wider, more

    def count(self, dataset: str, since: int = 0) -> int:
        """Count how often charges of a dataset were found to be missing; keep it next to an anchor, for `settled`."""
        with self._db.store.snapshot():
            return len(self._missed(dataset, since))

    def settled(self, dataset: str, missing: Anchor, losses: int | None = None) -> bool:
        """Return whether the loss of an anchor was settled: the dataset was frozen for it and thawed since."""
        with self._db.store.snapshot():
            if dataset in self._frozen():
                return False
            missed = self._missed(dataset)
            return str(missing) in missed or (losses is not None and len(missed) > losses)

    def _frozen(self) -> dict[str, set[str]]:
        """Return the frozen datasets, each with the groups that froze with it."""
        frozen = self._db.contents.latest().frozen
        return {dataset: set(facts.get("groups", ())) for dataset, facts in frozen.items()}

    def _missed(self, dataset: str, since: int = 0) -> list[str]:
        freezes = (facts for seq, facts in self._db.contents.latest().freezes if seq > since)
        return [facts["missing"] for facts in freezes if facts["dataset"] == dataset and "missing" in facts]


def lower(
    db: Database, datasets: set[str], lost: Mapping[str, float], reason: str | None
) -> dict[str, dict[str, Micro]]:
    """Lower every cap of some datasets, each once, and return the caps that hold now, in millionths, by scope."""
    contents = db.contents.latest()
    first = {number: min(of & datasets) for number, of in contents.members.items() if of & datasets}
    lowered = {}
    for number, name in sorted(first.items()):
        pinned = contents.scopes[number]
        if missing := set(pinned.components) - set(lost):
            listed = " and ".join(sorted(missing))
            msg = f"a cap of {name} counts {listed}: state how much of it may be missing in a balance"
            raise LedgerError(msg, "add the component to the losses, 0 if none of it is missing")
        if pinned.measure is not None:
            # Up: the cap falls by the stated loss or more.
            taken = [ceil(exact(lost[part]) * steps(part)) for part in pinned.components]
            limits = [max(0, limit - less) for limit, less in zip(pinned.limits, taken, strict=True)]
            db.scopes.pin(pinned, pinned._replace(limits=tuple(limits)), name, reason)
            lowered[f"{pinned.name}, period {pinned.period}"] = {
                part: millionths(part, limit) for part, limit in zip(pinned.components, limits, strict=True)
            }
    return lowered


def checked_losses(lost: Mapping[str, float]) -> dict[str, float]:
    if not {*lost} <= {*ADDITIVE}:
        raise LedgerError("a loss is of a component that no cap has", f"the components are {', '.join(ADDITIVE)}")
    for amount in lost.values():
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 <= amount <= _LARGEST_LOSS:
            raise LedgerError(f"a loss is a number from 0 to {_LARGEST_LOSS:,}", f"for example {{'{PURE}': 40.0}}")
    return {name: float(amount) for name, amount in lost.items()}


def in_micro(lost: Mapping[str, float]) -> dict[str, int]:
    return {name: int(micro(amount)) for name, amount in lost.items()}
