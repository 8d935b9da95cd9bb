"""Show balances, releases, and caps to people, and select the facts that may be published."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from dptext_etl.accounting import MEASURES, log10_odds
from dptext_etl.column import INFINITE
from dptext_etl.guarantee import MICRO, PURE, Micro, millionths, steps
from dptext_etl.ledger.caps import LARGEST, limits
from dptext_etl.ledger.contents import COUNTS, Batch, Contents, Key, Pinned, Release
from dptext_etl.ledger.holdings import Database, LedgerPlan
from dptext_etl.ledger.storage.hashed_ids import SATURATED, Index, UnitSums, WantedIds, concatenated, fold, hashed_ids
from dptext_etl.ledger.storage.journal import ALL_IDS, IdRange, id_ranges
from dptext_etl.ledger.types import DECISIONS, I64, Event, ReleaseRef, Scope, State
from dptext_etl.policy import Cap

_STATES = {State.RESERVED: "pending", State.COMMITTED: "committed", State.EXPIRED: "expired", State.ABORTED: "aborted"}
QUANTILES = {"min": 0.0, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}


@dataclass(frozen=True)
class Remaining:
    """Used and remaining amounts of the units of a scope, in millionths."""

    scope: str  # the scope in words
    unit: str  # "subject" or "record"
    measure: str | None  # the measure that the cap counts; None without a cap, and pure epsilon is shown
    limits: dict[str, Micro]  # the cap by component; empty without a cap
    units: int  # the number of units with a charge or a reservation
    exhausted: int  # the number of units that have reached the cap in some component
    used: dict[str, dict[str, Micro | str]]  # quantiles of used amounts, by component; "inf" where no bound is known
    left: dict[str, dict[str, Micro]]  # quantiles of remaining amounts, by component; empty without a cap
    asked: list[dict[str, dict[str, Micro | str]]]  # one entry per unit in `subjects`: used and left by component

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as JSON can hold them."""
        return asdict(self)


def remaining(db: Database, scope: Scope, subjects: pa.Array | None) -> Remaining:
    pinned = db.scopes.find(scope)
    names = tracked_components(pinned)
    limited = dict(zip(names, pinned.limits, strict=False))
    histograms: dict[str, Counter[int]] = {name: Counter() for name in names}
    units = exhausted = 0
    for _, values in used_by_unit(db, pinned):
        units += values.shape[1]
        exhausted += int((pinned.limits <= values.T).any(axis=1).sum()) if limited else 0
        for name, amounts in zip(names, values, strict=True):
            histograms[name].update(amounts.tolist())
    left: dict[str, Counter[int]] = {name: Counter() for name in limited}
    for name, limit in limited.items():
        for amount, count in histograms[name].items():
            left[name][max(0, limit - amount)] += count
    by_subject = []
    if subjects is not None:
        amounts_by_name = used(db, scope, subjects)
        for row in zip(*(amounts.tolist() for amounts in amounts_by_name.values()), strict=True):
            entry: dict[str, dict[str, Micro | str]] = {}
            for name, amount in zip(amounts_by_name, row, strict=True):
                entry[name] = {"used": _finite(name, amount)}
                if limited:
                    entry[name]["left"] = millionths(name, max(0, limited[name] - amount))
            by_subject.append(entry)
    return Remaining(
        str(scope),
        pinned.unit,
        pinned.measure,
        {name: millionths(name, limit) for name, limit in limited.items()},
        units,
        exhausted,
        {name: {at: _finite(name, x) for at, x in quantiles(table).items()} for name, table in histograms.items()},
        {name: {at: millionths(name, x) for at, x in quantiles(table).items()} for name, table in left.items()},
        by_subject,
    )


Cost = Callable[[Mapping[str, Any] | None, I64], Mapping[str, I64]]
"""Returns what records of that many positions cost in a column, by component in its steps.

It gets the facts of the release that counted the positions, or None if they must not decide.
"""


def tracked_components(pinned: Pinned) -> tuple[str, ...]:
    """Return the components that a scope adds up: the components of its cap, or pure epsilon without a cap."""
    return pinned.components or (PURE,)


def used_by_unit(db: Database, pinned: Pinned) -> Iterator[UnitSums]:
    """Iterate over units and used amounts by tracked component, in groups; each unit occurs once."""
    names = tracked_components(pinned)
    contents = db.contents.latest()
    batches = contents.of_scope.get(pinned.id, ())
    for within in id_ranges(sum(contents.batches[seq].rows for seq in batches)):
        yield _added(len(names), (fold(*part) for _, part in _charged(db, batches, names, within)))


def _charged(
    db: Database, batches: Iterable[int], names: tuple[str, ...], within: IdRange = ALL_IDS
) -> Iterator[tuple[Batch, UnitSums]]:
    """Iterate over batches, and units and used amounts of their rows; an infinite amount is above every cap."""
    for item in db.journal.scan(batches, "unit", ["canary", *names], within):
        batch, states = db.contents.batches[item.batch], db.records.states(item.batch)
        charged = (item.columns["canary"] == 0) & (states[item.rows] != State.ABORTED)
        values = np.stack([np.minimum(item.columns[name], LARGEST) for name in names])
        # settled amounts replace reserved ones; of a cap that was converted since, they do not
        for rows, spent in refunds(db, item.batch, batch.settled if names[0] == PURE else ()):
            left = np.full(len(states), -1, np.int64)
            left[rows] = spent
            values[0] = np.where(left[item.rows] >= 0, left[item.rows], values[0])
        yield batch, UnitSums(item.ids.take(charged), values[:, charged])


def _added(count: int, parts: Iterable[UnitSums]) -> UnitSums:
    """Add up parts of `count` values by unit."""
    ids, values = zip(UnitSums(concatenated(()), np.zeros((count, 0), np.int64)), *parts, strict=True)
    return fold(concatenated(ids), np.concatenate(values, axis=1))


def refunds(db: Database, batch: int, events: Iterable[int]) -> Iterator[tuple[Index, I64]]:
    """Iterate over the rows of a batch that some events settled, and the amounts that stay charged."""
    for seq in events:
        yield from ((rows, spent) for number, rows, spent in db.records.refunds(seq) if number == batch)


def used(db: Database, scope: Scope, units: pa.Array) -> dict[str, I64]:
    pinned = db.scopes.find(scope)
    names = tracked_components(pinned)
    hashes = db.id_key.subjects(units) if pinned.unit == "subject" else db.id_key.records(units).hashes
    wanted = WantedIds(hashed_ids(hashes))
    plan = LedgerPlan(scope.dataset, WantedIds(concatenated(())), wanted)
    plan.catch_up(db)
    values = plan.used(db, pinned._replace(measure=pinned.measure or "pure"))[:, wanted.places(hashed_ids(hashes))]
    return dict(zip(names, np.where(values >= LARGEST, INFINITE, values), strict=True))


def quantiles(histogram: Counter[int]) -> dict[str, int]:
    """Return quantiles of a histogram: the smallest amount that at least that share of the units stays within."""
    if not histogram:
        return {}
    amounts = np.array(sorted(histogram))
    reached = np.cumsum([histogram[amount] for amount in amounts.tolist()])
    return {
        name: int(amounts[min(len(amounts) - 1, int(np.searchsorted(reached, share * reached[-1])))])
        for name, share in QUANTILES.items()
    }


def _finite(name: str, amount: int) -> Micro | str:
    return "inf" if amount >= LARGEST else millionths(name, amount)


def keys_of_releases(contents: Contents) -> Iterator[tuple[Key, Release]]:
    """Iterate over releases by number and nonce; one without records has the nonce 0."""
    for number, item in contents.releases.items():
        nonces = sorted(nonce for release, nonce in contents.of_release if release == number)
        yield from (((number, nonce), item) for nonce in nonces or [0])


def charges(db: Database, key: Key) -> tuple[dict[str, Micro], dict[str, int]]:
    """Return the largest charges of a record of a release, and how many of its canary rows are in which state."""
    canary_states = Counter[str]()
    largest = dict.fromkeys((PURE, "eps_approx", "delta"), 0)
    for seq in db.contents.latest().of_release.get(key, ()):
        columns = db.journal.read(seq, ["canary", *largest])
        real_rows = columns["canary"] == 0
        largest = {name: max(amount, int(columns[name][real_rows].max(initial=0))) for name, amount in largest.items()}
        canary_states.update(_STATES[state] for state in db.records.states(seq)[~real_rows].tolist())
    amounts = {name: amount if amount == INFINITE else millionths(name, amount) for name, amount in largest.items()}
    return amounts, {name: canary_states[name] for name in _STATES.values()}


def _units_by_kind(db: Database, dataset: str) -> dict[str, int]:
    """Count the units that were charged in a dataset: subjects and records."""
    contents, counts = db.contents, dict[str, int]()
    for unit in ("subject", "record"):
        batches = [item for item in contents.batches_of(dataset) if contents.scopes[item.scope].unit == unit]
        for within in id_ranges(sum(item.rows for item in batches)) if batches else ():
            scanned = db.journal.scan([item.seq for item in batches], "unit", ["canary"], within)
            ids = concatenated(item.ids.take(item.columns["canary"] == 0) for item in scanned)
            counts[unit] = counts.get(unit, 0) + len(ids.take(ids.order()).starts())
    return counts


P = ParamSpec("P")
R = TypeVar("R")


def _consistent(method: Callable[Concatenate[Reports, P], R]) -> Callable[Concatenate[Reports, P], R]:
    """Have a method read one state of the ledger."""

    @wraps(method)
    def read(self: Reports, /, *args: P.args, **options: P.kwargs) -> R:
        with self._db.store.snapshot():
            return method(self, *args, **options)

    return read


class Reports:
    """Views of one consistent state of a ledger; nothing is written. Publish only what `export` returns."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @_consistent
    def show(self) -> list[dict[str, Any]]:
        """List the releases with class, disclosures, spends and counts. Internal: never publish it."""
        entries, contents = [], self._db.contents.latest()
        posts: dict[Key, dict[str, dict[str, Any]]] = {}  # rows that post-processing rewrote, by release and chain
        for facts in (entry.facts for entry in self._db.journal.entries(Event.POST)):
            chains = posts.setdefault((facts["release"], facts["nonce"]), {})
            first = {"chain": facts["chain"], "steps": facts["steps"], "spend": 0, "rows": 0}
            chains.setdefault(facts["chain"], first)["rows"] += facts["rows"]
        for key, item in keys_of_releases(contents):
            tally = {name: contents.count(key)[name] for name in COUNTS}
            tally["pending"] = tally["records"] - tally["committed"] - tally["expired"] - tally["aborted"]
            versions = contents.publications.get(key, {})
            in_order = sorted(versions, key=lambda name: (len(name), name))
            published = [{"version": name, "rows": versions[name].rows} for name in in_order]
            largest, planted = charges(self._db, key)
            entries.append(
                {
                    **{name: getattr(item, name) for name in ("dataset", "column", "release")},
                    "nonce": key[1],
                    **{name: getattr(item, name) for name in ("cfg", "id_type", "publishable")},
                    "burnt": (item.dataset, item.release) in contents.revoked,
                    **{name: item.facts[name] for name in ("mechanism", "class", "disclosures", "assumptions", "unit")},
                    "expost": item.facts.get("expost", False),
                    **tally,
                    "canaries_by_state": planted,
                    **{f"max_{name}": "inf" if amount == INFINITE else amount for name, amount in largest.items()},
                    "log10_odds": "inf" if largest[PURE] == INFINITE else round(log10_odds(largest[PURE]), 3),
                    "published": published,
                    **({"postprocess": list(posts[key].values())} if key in posts else {}),
                }
            )
        return entries

    @_consistent
    def jobs(self) -> list[dict[str, Any]]:
        """List the jobs with reservations: start, releases, and numbers of pending records.

        Internal: never publish it.
        """
        entries: dict[str, dict[str, Any]] = {}
        contents = self._db.contents.latest()
        for batch in contents.batches.values():
            name, pinned = batch.job, contents.releases[batch.key[0]]
            if name not in entries:
                entries[name] = {"job": name, "since": batch.ts, "dataset": pinned.dataset}
                entries[name] |= {"releases": [], "records": 0, "pending": 0}
            job, real_rows = entries[name], self._db.journal.read(batch.seq, ["canary"])["canary"] == 0
            job["releases"] += [] if pinned.release in job["releases"] else [pinned.release]
            job["records"] += int(real_rows.sum())
            job["pending"] += int((self._db.records.states(batch.seq)[real_rows] == State.RESERVED).sum())
        return list(entries.values())

    @_consistent
    def caps(self) -> list[dict[str, Any]]:
        """List the scopes with their caps, amounts in millionths."""
        entries, contents = [], self._db.contents.latest()
        for number, pinned in contents.scopes.items():
            cap = {part: millionths(part, limit) for part, limit in zip(pinned.components, pinned.limits, strict=True)}
            entry: dict[str, Any] = {"scope": pinned.name, "period": pinned.period, "unit": pinned.unit}
            entry |= {"datasets": sorted(contents.members[number])}
            entries.append(entry | {"measure": pinned.measure, "limits": cap})
        return entries

    @_consistent
    def together(self) -> dict[str, Any]:
        """Return the most epsilon that all scopes of persons charged one of them, in millionths.

        Epsilons of pure and approximate caps, and of scopes without a cap, add up. Scopes that count rho are named. All
        units are in memory, 24 bytes each.
        """
        parts, in_rho = list[UnitSums](), list[str]()
        for pinned in self._db.contents.latest().scopes.values():
            if pinned.unit != "subject":
                continue
            if pinned.measure == "zcdp":
                in_rho.append(f"{pinned.name}, period {pinned.period}")
                continue
            parts += [UnitSums(part.ids, part.values[:1]) for part in used_by_unit(self._db, pinned)]
        total = _added(1, parts).values
        return {"largest": _finite(PURE, int(total.max(initial=0))), "in_rho": in_rho}

    @_consistent
    def largest(self, releases: Collection[ReleaseRef] | None = None) -> dict[str, Micro | str]:
        """Return the epsilon and the delta charged to the unit with the most, in millionths, by basic composition.

        Without `releases`, all scopes of persons count. All units are in memory, 32 bytes each.
        """
        numbers = {ref.id for ref in releases or ()}
        contents, names = self._db.contents.latest(), (PURE, "eps_approx", "delta")
        batches = [
            seq
            for seq, item in contents.batches.items()
            if (contents.scopes[item.scope].unit == "subject" if releases is None else item.key[0] in numbers)
        ]
        parts = []
        for _, charged in _charged(self._db, batches, names):
            units, values = fold(*charged)
            # a finite pure loss needs no delta, and refunds are subtracted from it
            finite = [values[0], np.zeros_like(values[0])]
            parts.append(UnitSums(units, np.where(values[0] < LARGEST, finite, values[1:])))
        total = _added(2, parts).values.max(axis=1, initial=0)
        return {"epsilon": _finite(PURE, int(total[0])), "delta": _finite("delta", int(total[1]))}

    @_consistent
    def history(self) -> list[dict[str, Any]]:
        """List the events that someone decided, the oldest first; amounts are in units of epsilon, rho, and delta.

        A cap has its scope in `of`, and its values in `before` and `after`; other events name their dataset or
        job. Events of earlier versions name no user and no change.
        """
        entries, caps = [], dict[int, dict[str, float]]()
        for entry in self._db.journal.entries(*DECISIONS):
            facts, before, after = entry.facts, None, None
            if entry.kind == Event.CAP_SET:
                names = MEASURES[facts["measure"]]
                pairs = zip(names, facts["limits"], strict=True)
                before = caps.get(facts["scope"])
                after = caps[facts["scope"]] = {name: limit / steps(name) for name, limit in pairs}
            elif "lost" in facts:
                after = {f"lost {name}": amount / MICRO for name, amount in facts["lost"].items()}
            elif entry.kind in {Event.EXPIRE, Event.ABORT} and "reason" not in facts:
                continue  # a run ended these by itself
            of = f"{facts['name']}, period {facts['period']}" if after and "name" in facts else facts.get("dataset")
            of = f"{of}, release {facts['release']}" if entry.kind == Event.BURN else of or f"job {facts['job']}"
            stated = {name: facts.get(name) for name in ("user", "change", "reason", "server_ts")}
            stated |= {"event": entry.seq, "kind": entry.kind, "at": facts["ts"], "of": of}
            entries.append(stated | {"before": before, "after": after})
        return entries

    @_consistent
    def export(self) -> dict[str, Any]:
        """Return the facts that may be published: configurations, claims, constants, and numbers of subjects.

        Specification: docs/spec/privacy.md#export.
        """
        datasets: dict[str, dict[str, Any]] = {}
        contents = self._db.contents.latest()
        for item in contents.releases.values():
            if not item.publishable:
                continue
            if item.dataset not in datasets:
                datasets[item.dataset] = {"subjects": _units_by_kind(self._db, item.dataset), "releases": []}
            revoked = (item.dataset, item.release) in contents.revoked
            names = {"column": item.column, "release": item.release, "cfg": item.cfg, "burnt": revoked}
            datasets[item.dataset]["releases"].append(names | item.facts)
        return {"format": "dptext-ledger-export/1", "amounts": "millionths", "datasets": datasets}

    @_consistent
    def charges(self, scope: Scope, units: pa.Array) -> list[list[dict[str, Any]]]:
        """List the charges of each unit by release and day, in their order, in millionths."""
        pinned = self._db.scopes.find(scope)
        contents, names = self._db.contents.latest(), tracked_components(pinned)
        hashes = self._db.id_key.subjects(units) if pinned.unit == "subject" else self._db.id_key.records(units).hashes
        wanted = WantedIds(hashed_ids(hashes))
        found: list[dict[tuple[Key, str], list[int]]] = [{} for _ in range(len(wanted))]
        for batch, (ids, values) in _charged(self._db, contents.of_scope.get(pinned.id, ()), names):
            for row, at in zip(*(part.tolist() for part in wanted.find(ids)), strict=True):
                total = found[at].setdefault((batch.key, batch.ts[:10]), [0] * (1 + len(names)))
                total[:] = [have + more for have, more in zip(total, (1, *values[:, row].tolist()), strict=True)]

        def entry(key: Key, day: str, records: int, *amounts: int) -> dict[str, Any]:
            item = contents.releases[key[0]]
            used = {name: _finite(name, amount) for name, amount in zip(names, amounts, strict=True)}
            release = {"dataset": item.dataset, "release": item.release, "column": item.column}
            return {"date": day, **release, "records": records, "used": used}

        charges = [[entry(*where, *total) for where, total in of_unit.items()] for of_unit in found]
        return [charges[at] for at in wanted.places_as_passed.tolist()]

    @_consistent
    def events_hash(self, *kinds: Event) -> str:
        """Return a hash over all events of some kinds, in hex, which each further one changes; empty without events."""
        hashes = b"".join(entry.hash for entry in self._db.journal.entries(*kinds))
        return hashlib.sha256(hashes).hexdigest() if hashes else ""

    @_consistent
    def further(self, scope: Scope, cap: Cap, costs: Mapping[str, Cost], most: int | None) -> dict[str, Counter[int]]:
        """Count the units of a dataset by how many more releases fit into their remaining amounts.

        Such a release holds the records of the newest release of each column, or where the column has none, of the
        dataset's newest release. As in `reserve`, charges add up by component; nothing that a commit gives back counts.
        `costs` are by text column, and a release holds at most `most` records of a person. Counts are of "units", and
        where persons are the unit of "rows", records without a person. Units that a release does not charge are
        excluded. All units are in memory.
        """
        db = self._db
        pinned = db.scopes.find(scope)._replace(measure=cap.measure, limits=limits(cap))
        count, bound = len(pinned.components), np.array(pinned.limits, np.int64)[:, None]
        refs, contents = db.releases.of_dataset(scope.dataset), db.contents.latest()
        # used by component, asked by component, records without a person
        parts = [
            UnitSums(units, np.pad(values, ((0, count + 1), (0, 0)))) for units, values in used_by_unit(db, pinned)
        ]
        largest = np.zeros((count, 1), np.int64)
        for column, cost in costs.items():
            ref = next((ref for ref in reversed(refs) if ref.column == column), refs[-1] if refs else None)
            top = np.zeros((count, 1), np.int64)
            batches = [] if ref is None else contents.of_release.get((ref.id, ref.nonce), [])
            facts = contents.releases[ref.id].facts if ref is not None and ref.column == column else None
            for item in db.journal.scan(batches, "unit", ["canary", "n_worst", "record", "unit"]):
                states = db.records.states(item.batch)[item.rows]
                charged_rows = (item.columns["canary"] == 0) & (states != State.ABORTED)
                amounts = cost(facts, item.columns["n_worst"][charged_rows])
                costs_of = np.stack([np.minimum(amounts[name], LARGEST) for name in pinned.components])
                without_person = (item.columns["record"] == item.columns["unit"]).all(axis=1)[charged_rows]
                values = np.concatenate([np.zeros_like(costs_of), costs_of, without_person[None].astype(np.int64)])
                parts.append(UnitSums(item.ids.take(charged_rows), values))
                top = np.maximum(top, costs_of.max(axis=1, initial=0, keepdims=True))
            largest += top
        values = _added(2 * count + 1, parts).values
        used, costs_of, without_person = values[:count], values[count:-1], values[-1] > 0
        if most is not None:  # a release holds that many of a person's records, whatever an earlier one held
            costs_of = np.minimum(costs_of, np.minimum(largest, SATURATED // max(most, 1)) * most)
        fitting = np.where(costs_of > 0, np.maximum(bound - used, 0) // np.maximum(costs_of, 1), LARGEST).min(axis=0)
        asking = (costs_of > 0).any(axis=0)
        named = {"units": asking}
        if pinned.unit == "subject":
            named = {"units": asking & ~without_person, "rows": asking & without_person}
        return {name: Counter(fitting[chosen].tolist()) for name, chosen in named.items()}

    @_consistent
    def uncounted(self, scope: Scope) -> list[str]:
        """Return the scopes whose charges a first cap of a scope would not count, in words."""
        return self._db.scopes.uncounted(scope)
