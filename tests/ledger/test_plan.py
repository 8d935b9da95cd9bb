"""Every answer of the ledger equals the answer of a full scan of its journal, for all writers and after all failures.

The scan reads all events and sealed rows, in plain Python, and shares nothing with `ledger.plan`. There are few ids and
little room under the caps, so that records meet again in every state.

Specification: docs/spec/privacy.md#ledger-model-test.
"""

from contextlib import contextmanager, suppress
from functools import partial
from itertools import count

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from dptext_etl.accounting import MEASURES
from dptext_etl.errors import BudgetError, LedgerError
from dptext_etl.guarantee import MICRO, PURE, millionths
from dptext_etl.ledger import CommitOutcome, Scope, State
from dptext_etl.ledger import holdings as plan
from dptext_etl.ledger.reports import QUANTILES
from dptext_etl.ledger.storage import postgres
from dptext_etl.ledger.storage.hashed_ids import IdKey
from dptext_etl.policy import Cap

from ..examples import examples
from ..ledger_kit import Kit, binaries, digest
from ..quick import THOROUGH, quick
from .conftest import each_store
from .full_scan import (
    FAILURES,
    LATE,
    PEOPLE,
    REFUNDABLE,
    ROOM,
    SCOPES,
    YEAR,
    Request,
    Scan,
    all_units,
    lost_in_all,
    with_equal_halves,
)
from .plan_requests import (
    COLUMNS,
    DATASETS,
    ROWS,
    asked,
    computed,
    datasets,
    done_meanwhile,
    jobs,
    losses,
    some,
    writers,
)

FREEZE_TOGETHER = {"left": ("left", "right"), "right": ("left", "right")}


def as_approx(scope, epsilon):
    return Cap(measure="approx", epsilon=epsilon, delta=ROOM / 1e6, period=scope.period, group=scope.group)


class BrokenError(BaseException):
    """The connection broke off."""


class FullScan(RuleBasedStateMachine):
    """Two handles on one ledger; each case names where, and whether several writers write in parallel."""

    parallel = False

    @initialize(kept=st.sampled_from([0, 10, 100]))
    def start(self, kept):
        self.limit(kept)
        place = self.place()
        self.kits = {name: Kit(place) for name in ("one", "two")}
        self.cache, self.refs, self.version, self.plans, self.steps = {}, {}, dict.fromkeys(DATASETS, 0), [], 0
        for dataset in DATASETS:
            self.pin(dataset)
        for number, (scope, cap) in enumerate(SCOPES.items()):  # each gets its members, so that others need no lock
            if cap is not None:
                self.kits["one"].ledger.set_cap(scope, cap, raising=True)
            rows = [(f"first{number}", False)]
            first = Request("", scope, None, rows, ["eve"], *self.named(scope.dataset), [1], ["text"], *[False] * 3)
            self.reserved("one", first)

    def teardown(self):
        for kit in getattr(self, "kits", {}).values():
            kit.ledger.close()

    def pin(self, dataset):
        for column in COLUMNS:
            for release, nonce in (("x", 0), ("y", 0), ("x", 1)):
                name = f"{release}{self.version[dataset]}"
                ref = self.kits["one"].ref(column, name, dataset, nonce=nonce, refundable=dataset in REFUNDABLE)
                self.refs[dataset, column, release, nonce] = ref

    def named(self, dataset, columns=COLUMNS[:1], release=("x", 0)):
        return columns, [self.refs[dataset, column, *release] for column in columns]

    def scan(self):
        return Scan(self.kits["one"].db, self.cache)

    def request(self, ask):
        new, scope = ask.get("new", ""), ask["scope"]
        people = [None if mark else PEOPLE[(ord(name) + ask["shift"]) % 3] + new for name, mark in ask["rows"]]
        rows = [(name + new, mark) for name, mark in ask["rows"]]
        words = [(ask["words"] + (0 if ask["same_words"] else at)) % 4 for at in range(len(rows))]
        texts = ["text" if ask["changed"] <= at % 2 else "changed" for at in range(len(rows))]
        caps = scope == LATE and ask["first_cap"] and not self.scan().cap(scope)[0]
        cap = Cap(epsilon=ROOM, **YEAR) if caps else None
        options = [ask[name] for name in ("again", "refuse", "sealed")]
        names = self.named(scope.dataset, ask["columns"], ask["release"])
        return Request(ask["job"], scope, cap, rows, people, *names, words, texts, *options)

    def reserve_now(self, writer, request):
        ledger, scope = self.kits[writer].ledger, request.scope
        ids, charges = pa.array(request.ids, pa.string()), request.charges()
        people = None if scope.unit == "record" else pa.array(request.people, pa.string())
        more = {"again": request.again}
        more["on_cap"] = "refuse" if request.refuse else "quarantine"
        batch = ledger.make_ready(scope.unit, ids, people, charges, canary=request.canary, sealed=request.sealed)
        return ledger.reserve(request.job, scope, request.cap, batch, **more).tolist()

    def reserved(self, writer, request, meanwhile=None):
        """Reserve, and compare the answer and all that is charged with a scan; `meanwhile` ends with one."""
        expected = None

        def look():
            nonlocal expected
            expected = self.scan().judge(request)

        if meanwhile is None:
            look()
        with self.before_writing(writer, meanwhile, look):
            try:
                said = self.reserve_now(writer, request)
            except (LedgerError, BudgetError):
                said = None
        assert said == (None if expected is None else [outcome for outcome, *_ in expected[0]])
        if expected is not None:
            self.is_written(request, expected)

    def is_written(self, request, expected):
        scan, (answers, used) = self.scan(), expected
        assert scan.used(request.scope) == used
        for column, (ref, keys) in enumerate(zip(request.refs, request.keys, strict=True)):
            for record, key, answer in zip(scan.hashes(request.ids, request.canary), keys, answers, strict=True):
                if answer[1][column]:
                    row = scan.held((ref.id, ref.nonce), record)
                    assert (row.key, row.state) == (key, State.RESERVED)

    def results(self, scan, ask):
        """Arguments of `commit`, and the rows that they name."""
        records = [scan.hashes([name], np.array([mark]))[0] for name, mark in ask["rows"]]
        held = {ref: [scan.held((ref.id, ref.nonce), record) for record in records] for ref in self.refs.values()}
        some_refs = [ref for ref, rows in held.items() if any(rows)] or list(held)
        ref = some_refs[ask["pick"] % len(some_refs)]
        rows = [(*each, row) for each, row in zip(ask["rows"], held[ref], strict=True) if row or not ask["known"]]
        ids, canary = [name for name, *_ in rows], np.array([mark for _, mark, _ in rows], np.bool_)
        identities = [bytes(32) if row is None else row.key for *_, row in rows]
        given = {"positions": [int(ask["positions"])] * len(rows), "canary": canary}
        if ask["spent"] is not None:
            words = [0 if row is None else row.words for *_, row in rows]
            part = 1 + ask["spent"]
            given["spent"] = [part * MICRO if part > 3 else most // part * MICRO for most in words]
        digests = [digest(name, ask["out"]) for name in ids]
        return ref, ids, identities, digests, given

    def commit_now(self, writer, job, results):
        ref, ids, identities, digests, given = results
        ids = pa.array(ids, pa.string())
        ledger = self.kits[writer].ledger
        return ledger.commit(job, ledger.examine(ref, ids, binaries(identities), binaries(digests), **given)).tolist()

    def committed(self, writer, job, results, meanwhile=None):
        before = expected = None

        def look():
            nonlocal before, expected
            before = self.scan()
            expected = before.judge_commit(results)

        if meanwhile is None:
            look()
        with self.before_writing(writer, meanwhile, look):
            try:
                said = self.commit_now(writer, job, results)
            except LedgerError:
                said = None
        if before is None:  # it was refused at a first look
            look()
        assert said == expected
        if said is not None:
            self.is_committed(before, results, said)

    def is_committed(self, before, results, said):
        scan, (ref, ids, _, digests, given) = self.scan(), results
        for at, (record, outcome) in enumerate(zip(scan.hashes(ids, given["canary"]), said, strict=True)):
            row = scan.held((ref.id, ref.nonce), record)
            assert row.state == State.COMMITTED
            if outcome == CommitOutcome.COMMITTED:
                pure = before.caps.get(row.scope, ("",))[0] == "pure"
                spent = given["spent"][at] if pure and "spent" in given else None
                assert (row.digest, row.positions, row.settled) == (digests[at], given["positions"][at], spent)

    @contextmanager
    def before_writing(self, writer, meanwhile, look):
        """Do something between the first look at the ledger and the transaction, or, in parallel, the locks."""
        with pytest.MonkeyPatch.context() as patch:
            if meanwhile is not None:
                work, name = meanwhile
                store = self.kits[writer].db.store
                real, todo = getattr(store, name), [True]

                def wrapped(*args, **more):
                    if todo and (name != "lock" or store.shared):
                        todo.pop()
                        work()
                        look()
                    return real(*args, **more)

                patch.setattr(store, name, wrapped)
            yield
            if meanwhile is not None and todo:
                look()

    @rule(writer=writers, ask=asked)
    def reserve(self, writer, ask):
        self.reserved(writer, self.request(ask))

    @rule(writer=writers, ask=computed)
    def commit(self, writer, ask):
        results = self.results(self.scan(), ask)
        if results[1]:
            self.committed(writer, ask["job"], results)

    @rule(writer=writers, ask=asked, meanwhile=done_meanwhile)
    def overtake(self, writer, ask, meanwhile):
        """Another writer is faster: the look-up before the locks is out of date."""
        self.reserved(writer, self.request(ask), (partial(self.others, writer, ask, **meanwhile), "transaction"))

    @rule(writer=writers, ask=asked)
    def meet_at_the_cap(self, writer, ask):
        """Two writers charge new people at a time; then one of them gives it back."""
        ask |= {"new": str(self.steps), "words": 3, "same_words": True, "refuse": False, "first_cap": False}
        one, two, three = (
            ask | {"release": release, "job": f"{self.steps} {release}"} for release in (("x", 0), ("y", 0), ("x", 1))
        )
        other = "two" if writer == "one" else "one"
        self.reserved(writer, self.request(one), (partial(self.reserve, other, two), "transaction"))
        self.abort(other, two["job"])
        self.reserve(writer, three)

    @precondition(lambda self: self.parallel)
    @rule(writer=writers, ask=asked, meanwhile=done_meanwhile)
    def overtake_at_the_locks(self, writer, ask, meanwhile):
        """What ends reservations, or sets a cap, waits for all writers, so it is not done here."""
        work = partial(self.others, writer, ask, **(meanwhile | {"end": None}))
        self.reserved(writer, self.request(ask | {"first_cap": False}), (work, "lock"))

    @rule(writer=writers, ask=computed, meanwhile=done_meanwhile)
    def overtake_a_commit(self, writer, ask, meanwhile):
        """Only a text that no one changes meanwhile: it would be committed in the place where it was reserved."""
        results = self.results(self.scan(), ask)
        if results[1]:
            work = partial(self.others, writer, {}, **meanwhile, again=False)
            self.committed(writer, ask["job"], results, (work, "transaction"))

    def others(self, writer, like, asks, commits, end, near, **fixed):
        if near:
            fixed |= {name: like[name] for name in ("scope", "release", "columns") if name in like}
        other = "two" if writer == "one" else "one"
        if end is not None:
            self.abort(other, end)
        for ask in asks:
            self.reserve(other, ask | {"first_cap": False} | fixed)
        if commits is not None:
            self.commit(other, commits)

    @rule(writer=writers, job=jobs)
    def expire(self, writer, job):
        still_open = self.still_open(self.scan(), job)
        assert self.kits[writer].ledger.expire(job) == len(still_open)
        rows = self.scan().rows
        assert {rows[row.at].state for row in still_open} <= {State.EXPIRED}

    @rule(writer=writers, job=jobs, pick=st.integers(0, 9))
    def abort_what_can_be(self, writer, job, pick):
        scan, ended = self.scan(), (State.COMMITTED, State.EXPIRED, State.ABORTED)
        closed = {scan.jobs[row.at[0]][0] for row in scan.rows.values() if row.state in ended}
        still_open = sorted({name for seq, (name, _) in scan.jobs.items() if seq not in scan.attached} - closed - {""})
        self.abort(writer, still_open[pick % len(still_open)] if still_open else job)

    def abort(self, writer, job):
        scan = self.scan()
        numbers = {seq for seq, (name, _) in scan.jobs.items() if name == job}
        rows = [row for row in scan.rows.values() if row.at[0] in numbers]
        try:
            given = self.kits[writer].ledger.abort(job, compute_never_started=True)
        except LedgerError:
            assert numbers & scan.attached or any(row.state == State.COMMITTED for row in rows)
            return
        assert not numbers & scan.attached
        assert State.COMMITTED not in {row.state for row in rows}
        still_open = self.still_open(scan, job)
        assert given == sum(not scan.jobs[row.at[0]][1] for row in still_open), "of changed texts, charges stay"
        after = self.scan()
        for row in still_open:
            assert after.rows[row.at].state == (State.EXPIRED if scan.jobs[row.at[0]][1] else State.ABORTED)

    def still_open(self, scan, job):
        rows = scan.rows.values()
        return [row for row in rows if scan.jobs[row.at[0]][0] == job and row.state == State.RESERVED]

    @rule(
        writer=writers,
        dataset=datasets,
        names=st.sets(st.sampled_from("abc"), max_size=2),
        person=st.none() | st.sampled_from(PEOPLE),
    )
    def forget(self, writer, dataset, names, person):
        scan, people = self.scan(), [] if person is None else [person]
        wanted = {*scan.hashes(sorted(names)), *scan.charged_to(dataset, scan.subjects(people))}
        ids = pa.array(sorted(names), pa.string()), pa.array(people, pa.string())
        new = {(dataset, one) for one in wanted} - scan.gone
        assert self.kits[writer].ledger.people.forget(dataset, *ids) == len(new)

    @rule(writer=writers, dataset=datasets)
    def readmit(self, writer, dataset):
        scan, ledger = self.scan(), self.kits[writer].ledger
        names = [name for name in "abcdef" if (dataset, scan.hashes([name])[0]) in scan.gone]
        people = [name for name in PEOPLE if (dataset, scan.subjects([name])[0]) in scan.gone_units]
        theirs = {*scan.hashes(names), *scan.charged_to(dataset, scan.subjects(people))}
        ids = pa.array(names, pa.string()), "they asked", pa.array(people, pa.string())
        if dataset in scan.frozen:
            with pytest.raises(LedgerError, match="frozen"):
                ledger.people.readmit(dataset, *ids)
        else:
            assert ledger.people.readmit(dataset, *ids) == len({(dataset, one) for one in theirs} & scan.gone)

    @rule(writer=writers, dataset=datasets)
    def freeze(self, writer, dataset):
        self.kits[writer].ledger.losses.freeze(dataset, "a restored copy")
        assert self.scan().frozen.issuperset(FREEZE_TOGETHER.get(dataset, (dataset,)))

    @precondition(lambda self: self.scan().frozen)
    @rule(data=st.data(), writer=writers, lost=losses)
    def thaw(self, data, writer, lost):
        dataset = data.draw(st.sampled_from(sorted(self.scan().frozen)))
        self.kits[writer].ledger.losses.thaw(dataset, lost_in_all(lost))
        for name in FREEZE_TOGETHER.get(dataset, (dataset,)):
            self.version[name] += 1
            self.pin(name)

    @rule(writer=writers, dataset=datasets, lost=losses)
    def accept_units(self, writer, dataset, lost):
        ledger = self.kits[writer].ledger
        if dataset in self.scan().frozen:
            with pytest.raises(LedgerError, match="frozen"):
                ledger.people.accept_units(dataset, lost_in_all(lost), "merged accounts")
        else:
            ledger.people.accept_units(dataset, lost_in_all(lost), "merged accounts")

    @rule(writer=writers, scope=st.sampled_from([scope for scope, cap in SCOPES.items() if cap is not None]))
    def set_cap(self, writer, scope):
        if self.scan().cap(scope)[0] == MEASURES[SCOPES[scope].measure]:
            self.kits[writer].ledger.set_cap(scope, SCOPES[scope], raising=True)
        else:
            self.kits[writer].ledger.set_cap(scope, as_approx(scope, ROOM), raising=True)

    @rule(writer=writers, scope=st.sampled_from([Scope("reviews", "2026"), Scope("rows", "2027")]))
    def convert(self, writer, scope):
        """Make a pure cap approximate: what commits gave back counts again."""
        names, (limit, *_) = self.scan().cap(scope)
        if names == (PURE,) and limit:
            ledger = self.kits[writer].ledger
            with pytest.raises(LedgerError, match="keeps its epsilon"):
                ledger.set_cap(scope, as_approx(scope, limit / MICRO + 1), raising=True)
            ledger.set_cap(scope, as_approx(scope, limit / MICRO), raising=True)

    @rule(
        writer=writers, scope=st.sampled_from(list(SCOPES)), rows=st.just(ROWS) | some, shift=st.sampled_from([0, 0, 1])
    )
    def plan(self, writer, scope, rows, shift):
        """Plan a run; it may be used at once, late, or never, by the same ledger or another one."""
        ids, canary = [name for name, _ in rows], np.array([mark for _, mark in rows])
        people = [None if mark else PEOPLE[(ord(name) + shift) % 3] for name, mark in rows]
        half = len(ids) // 2
        parts = [
            (pa.array(ids[at], pa.string()), pa.array(people[at], pa.string()), canary[at])
            for at in (slice(half), slice(half, None))
        ]
        self.plans.append(self.kits[writer].ledger.plan(scope, parts))

    @precondition(lambda self: self.plans)
    @rule(data=st.data(), writer=writers)
    def use(self, data, writer):
        self.kits[writer].ledger.use(data.draw(st.sampled_from(self.plans[-3:])))

    @rule(writer=writers, ask=asked, failure=st.sampled_from(sorted(FAILURES)))
    def break_off_a_reservation(self, writer, ask, failure):
        request, scan = self.request(ask), self.scan()
        expected = scan.judge(request)
        broken = self.broken(writer, failure, partial(self.reserve_now, writer, request))
        if broken and failure == "lost answer":
            self.is_written(request, expected)
        elif broken:
            assert self.scan().head == scan.head, "nothing was written"
        self.balances()
        self.reserve(writer, ask)

    @precondition(lambda self: not self.scan().cap(LATE)[0])
    @rule(writer=writers, ask=asked, meanwhile=done_meanwhile, failure=st.sampled_from(sorted(FAILURES)[:5]))
    def break_off_a_first_cap(self, writer, ask, meanwhile, failure):
        """Another writer's event then gets the number that the cap had."""
        ask |= {"scope": LATE, "first_cap": True}
        self.broken(writer, failure, partial(self.reserve_now, writer, self.request(ask)))
        self.others(writer, ask, **(meanwhile | {"near": True, "end": None}))
        self.reserve(writer, ask)

    @rule(writer=writers, ask=computed, failure=st.sampled_from(sorted(FAILURES)))
    def break_off_a_commit(self, writer, ask, failure):
        scan = self.scan()
        results = self.results(scan, ask)
        if not results[1]:
            return
        broken = self.broken(writer, failure, partial(self.commit_now, writer, ask["job"], results))
        if broken and failure == "lost answer":
            self.is_committed(scan, results, scan.judge_commit(results))
        elif broken:
            assert self.scan().head == scan.head, "nothing was written"
        self.balances()
        self.committed(writer, ask["job"], results)

    @rule(writer=writers, job=jobs, failure=st.sampled_from(sorted(FAILURES)))
    def break_off_an_end(self, writer, job, failure):
        ledger = self.kits[writer].ledger
        self.broken(writer, failure, partial(ledger.abort, job, compute_never_started=True))
        self.balances()
        self.abort(writer, job)

    def broken(self, writer, failure, work):
        """Do something whose transaction breaks off, and return whether it came so far."""
        store, (begin, done) = self.kits[writer].db.store, FAILURES[failure]
        real, todo = store._run, [True]

        def breaking(sql, values):
            if todo and store._depth and sql.startswith(begin):
                todo.pop()
                if done:
                    real(sql, values)
                raise BrokenError
            return real(sql, values)

        with pytest.MonkeyPatch.context() as patch, suppress(BrokenError, LedgerError, BudgetError):
            patch.setattr(store, "_run", breaking)
            work()
        return not todo

    @rule(writer=writers)
    def reopen(self, writer):
        self.kits[writer].reopen()

    @invariant()
    def balances(self):
        """Both handles say what every unit has used in every scope."""
        scan = self.scan()
        for scope in SCOPES:
            names, totals = scan.cap(scope)[0] or (PURE,), scan.used(scope)
            units, hashes = all_units(scan, scope)
            expected = [totals.get(unit, [0] * len(names)) for unit in hashes]
            for kit in self.kits.values():
                used = kit.ledger.used(scope, units)
                assert np.stack([used[name] for name in names], axis=1).tolist() == expected

    @invariant()
    def answers(self):
        """One scope, one release, and one handle after the other."""
        self.steps += 1
        scan, kit = self.scan(), list(self.kits.values())[self.steps % 2]
        scope, ref = list(SCOPES)[self.steps % len(SCOPES)], list(self.refs.values())[self.steps % len(self.refs)]
        self.remaining(scan, kit, scope)
        self.release(scan, kit, ref)
        self.judged(scan, kit, scope)
        assert kit.sound()["events"] >= len(scan.jobs)

    def remaining(self, scan, kit, scope):
        (names, limits), totals = scan.cap(scope), scan.used(scope)
        units, hashes = all_units(scan, scope)
        said, tracked = kit.ledger.remaining(scope, units), names or (PURE,)
        over = [any(have >= limit for have, limit in zip(used, limits, strict=False)) for used in totals.values()]
        assert (said.units, said.exhausted) == (len(totals), sum(over))
        for at, name in enumerate(tracked):
            amounts = sorted(used[at] for used in totals.values())
            assert said.used[name].keys() == (QUANTILES.keys() if amounts else set())
            for key, share in QUANTILES.items() if amounts else ():
                amount = next(a for n, a in enumerate(amounts, 1) if n >= share * len(amounts))
                assert said.used[name][key] == millionths(name, amount)
            for unit, entry in zip(hashes, said.asked, strict=True):
                used = totals.get(unit, [0] * len(tracked))[at]
                assert entry[name]["used"] == millionths(name, used)
                assert not limits or entry[name]["left"] == millionths(name, max(0, limits[at] - used))

    def release(self, scan, kit, ref):
        ids, canary = [name for name, _ in ROWS], np.array([mark for _, mark in ROWS])
        for marks in (canary, ~canary):
            some_ids = [name for name, mark in zip(ids, marks, strict=True) if mark]
            mark = canary[marks]
            rows = [scan.held((ref.id, ref.nonce), record) for record in scan.hashes(some_ids, mark)]
            ends = [row if row is not None and row.state == State.COMMITTED else None for row in rows]
            said = kit.ledger.committed(ref, pa.array(some_ids), canary=mark)
            assert said.mask.tolist() == [row is not None for row in ends]
            assert said.digests.to_pylist() == [row and row.digest for row in ends]
            assert said.idem_keys.to_pylist() == [row and row.key for row in ends]
            assert said.positions.tolist() == [0 if row is None else row.positions for row in ends]
            if not mark.any():
                assert kit.ledger.known(ref, pa.array(some_ids)).tolist() == [row is not None for row in rows]

    def judged(self, scan, kit, scope):
        ask = {"scope": scope, "rows": ROWS[:7], "columns": COLUMNS, "release": ("x", self.steps % 2), "words": 1}
        ask |= {"same_words": False, "changed": self.steps % 3, "shift": 0, "job": "", "first_cap": False}
        more = dict.fromkeys(("again", "refuse", "sealed"), False) | {"again": self.steps % 5 == 0}
        if scope.unit == "subject":
            ask["release"] = ("x", 0)
        request = self.request(ask | more)
        people = None if scope.unit == "record" else pa.array(request.people, pa.string())
        columns = pa.array(request.ids), people, request.charges()
        ready = kit.ledger.make_ready(scope.unit, *columns, canary=request.canary)
        expected = scan.judge(request, capped=False)
        if expected is None:
            with pytest.raises(LedgerError):
                kit.ledger.judge(scope, None, ready, again=request.again)
            return
        said, (answers, totals) = kit.ledger.judge(scope, None, ready, again=request.again), expected
        assert said.outcome.tolist() == [outcome for outcome, *_ in answers]
        assert said.asking.T.tolist() == [charged for _, charged, *_ in answers]
        assert said.moved.tolist() == [moved for *_, moved, _ in answers]
        assert said.changes_committed.tolist() == [done for *_, done in answers]
        names, limits = scan.cap(scope)
        if names != (PURE,) or not limits[0] or any(moved for *_, moved, _ in answers):
            return  # a limit that was lowered may be 0, which no cap of a policy states
        said, (answers, _) = (
            kit.ledger.judge(scope, Cap(epsilon=limits[0] / MICRO), ready, again=request.again),
            scan.judge(request),
        )
        assert said.outcome.tolist() == [outcome for outcome, *_ in answers]
        if said.asking[:, ~request.canary].any():  # else no balance is read
            used = [
                0 if mark else totals.get(unit, [0])[0]
                for unit, mark in zip(scan.units(request), request.canary, strict=True)
            ]
            assert said.used.tolist() == [used]


@each_store
@pytest.mark.parametrize("cramped", quick([True, False]), ids=["cramped", "usual"])
def test_every_answer_is_that_of_a_full_scan(new_place, cramped, monkeypatch):
    """Cramped, blocks are joined, cut, and read again all the time, and ids share their first halves."""
    numbers = count()
    if cramped:
        monkeypatch.setattr(plan, "BLOCK", 3)
        hashed = IdKey._hash
        monkeypatch.setattr(IdKey, "_hash", lambda *asked: with_equal_halves(hashed, *asked))

    monkeypatch.setattr(postgres, "IDLE", 600.0)  # a busy machine is slow
    monkeypatch.setattr(postgres, "HOLD", 600.0)
    on_server = "://" in str(new_place("probe"))

    class Here(FullScan):
        parallel = on_server

        def place(self):
            return new_place(f"ledger{next(numbers)}")

        def limit(self, kept):
            if cramped:
                monkeypatch.setattr(plan, "KEPT", kept)

    run(Here, settings=examples(30 if THOROUGH else 4 if on_server else 6, stateful_step_count=30))
