"""One walk over the indexes says what look-ups batch by batch say, whatever others write or merge meanwhile."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_etl.ledger import Outcome, Scope
from dptext_etl.ledger import walk as module
from dptext_etl.ledger.shared_walk import SharedIdsError
from dptext_etl.ledger.storage import sorted_runs

from ..examples import examples
from .conftest import Kit

RESERVED, PENDING, COMMITTED, OVER, CHANGED = (
    Outcome.RESERVED,
    Outcome.PENDING,
    Outcome.COMMITTED,
    Outcome.OVER_CAP,
    Outcome.CHANGED,
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Runs are merged often, parts are tiny, and every run is worth a walk."""
    monkeypatch.setattr(sorted_runs, "FANOUT", 3)
    monkeypatch.setattr(sorted_runs, "PART_KEYS", 4)
    monkeypatch.setattr(module, "WORTH", -1)
    monkeypatch.setattr(module, "AGAIN", 1)


def prefetch(kit, batches, unit="subject", refs=None):
    """Prefetch batches of (ids, people); canary rows are those without a person."""
    refs = [kit.ref()] if refs is None else refs
    asked = []
    for canary in (False, True):
        for ids, people in batches:
            chosen = [at for at, person in enumerate(people) if (person is None) == canary]
            if chosen:
                subjects = None if unit == "record" else pa.array([people[at] for at in chosen], pa.string())
                asked.append((pa.array([ids[at] for at in chosen]), subjects, np.full(len(chosen), canary)))
    rows = sum(len(ids) for ids, _ in batches)
    return kit.ledger.prefetch(Scope("reviews", "2026", unit=unit), refs, rows, 1, asked)


def batch(names, people=None):
    return names, [f"of-{name}" for name in names] if people is None else people


def looked_in(monkeypatch):
    """Count the runs that are looked into."""
    counted, real = [], sorted_runs.SortedRuns._hits

    def noted(self, run, *args):
        counted.append((self.space, run.id))
        return real(self, run, *args)

    monkeypatch.setattr(sorted_runs.SortedRuns, "_hits", noted)
    return counted


def test_batches_after_a_walk_look_into_no_run(kit, monkeypatch):
    """Whatever was there before, and however often this run merges what it wrote."""
    kit.reserve(["a0", "b0", "z"], ["ann", "bob", "zoe"], 1, cap=9)
    kit.commit(["a0"])
    batches = [batch([f"{name}{at}" for name in "abc"], ["ann", "bob", f"p{at}"]) for at in range(12)]
    assert prefetch(kit, batches)
    looked = looked_in(monkeypatch)
    said = []
    for ids, people in batches:
        said.append(kit.reserve(ids, people, 1, cap=9))
        assert kit.commit([name for name, told in zip(ids, said[-1], strict=True) if told in {RESERVED, PENDING}])
    assert looked == []
    assert said[0] == [COMMITTED, PENDING, RESERVED]
    assert said[8] == [RESERVED] * 3
    assert said[9] == [OVER, OVER, RESERVED], "of a cap of nine, ann and bob have used nine"
    monkeypatch.undo()
    assert kit.used("ann", "bob", "zoe", "p3") == [9, 9, 1, 1]
    kit.sound()


@pytest.fixture
def other(kit, new_kit):
    kit.ref()
    return new_kit(kit.place)


def test_what_others_write_after_the_walk_is_seen(kit, other, monkeypatch):
    """A record, a charge and a changed text, each before its batch comes."""
    monkeypatch.setattr(sorted_runs, "FANOUT", 8)
    kit.reserve(["first"], ["zoe"], 1, cap=9)
    batches = [batch(["a"], ["ann"]), batch(["b", "c"], ["bob", "ann"]), batch(["d", "e"], ["dan", "eve"])]
    assert prefetch(kit, batches)
    assert kit.reserve(*batches[0], 1, cap=9) == [RESERVED]
    assert other.reserve(["b", "x"], ["bob", "ann"], [2, 8], cap=9) == [RESERVED] * 2
    assert other.reserve(["d"], ["dan"], 1, cap=9, texts="other") == [RESERVED]
    looked = looked_in(monkeypatch)
    assert kit.reserve(*batches[1], 1, cap=9) == [PENDING, OVER]
    assert len(set(looked)) == 4, "two new runs of records and two of balances; nothing that was there before"
    assert kit.reserve(*batches[2], 1, cap=9) == [CHANGED, RESERVED]
    assert kit.commit(["a"]) == [0]
    assert kit.used("ann", "bob", "dan", "eve") == [9, 2, 1, 1]
    kit.sound()


@pytest.mark.parametrize("merges", [1, 3, 8])
def test_runs_that_others_merge_are_looked_up(kit, other, merges, monkeypatch):
    """Before any batch, and between batches; at last the walk is worth another one."""
    batches = [batch([f"r{at}", f"s{at}"], ["ann", f"p{at}"]) for at in range(6)]
    kit.reserve(*batch(["r5", "q"], ["ann", "ann"]), 1, cap=99)
    assert prefetch(kit, batches)
    walked, real = [], module.Walk.go
    monkeypatch.setattr(module.Walk, "go", lambda self: walked.append(1) or real(self))
    said = []
    for at, (ids, people) in enumerate(batches):
        for more in range(merges):
            assert other.reserve([f"x{at}-{more}"], ["ann"], 1, cap=99) == [RESERVED]
        said += kit.reserve(ids, people, 1, cap=99)
        assert kit.commit(ids) == [0, 0]
    assert said == [RESERVED] * 10 + [PENDING, RESERVED]
    assert len(walked) < 6
    assert walked or merges < 8
    assert kit.used("ann", "p3", "p5") == [2 + 5 + 6 * merges, 1, 1]
    kit.sound()


def test_other_rows_than_those_of_the_walk_are_looked_up(kit, monkeypatch):
    """The same record twice, another record, another person, another order: each is found as without a walk."""
    for number, (ids, people) in enumerate(
        [(["a", "b"], ["ann", "bob"]), (["c", "x"], ["cem", "xi"]), (["d", "c"], ["dan", "cem"])]
    ):
        assert prefetch(kit, [batch(["a", "b"], ["ann", "bob"]), batch(["c", "d"], ["cem", "dan"])])
        looked = looked_in(monkeypatch)
        kit.reserve(["a", "b"], ["ann", "bob"], 1, cap=9)
        assert kit.reserve(ids, people, 1, cap=9) == [
            PENDING if name in {"a", "b"} or (number == 2 and name == "c") else RESERVED for name in ids
        ]
        assert looked
    assert kit.used("ann", "bob", "cem", "dan", "xi") == [1] * 5
    kit.sound()


def test_ids_that_occur_twice_are_not_prefetched(kit):
    assert not prefetch(kit, [batch(["a"], ["ann"]), batch(["a"], ["ann"])])
    assert kit.reserve(["a"], ["ann"], 1, cap=9) == [RESERVED]
    assert kit.reserve(["a"], ["ann"], 1, cap=9) == [PENDING]


def test_a_reservation_that_failed_leaves_nothing_prefetched(kit, monkeypatch):
    batches = [batch(["a"], ["ann"]), batch(["b"], ["ann"])]
    kit.reserve(["z"], ["zoe"], 1, cap=9)
    assert prefetch(kit, batches)
    real = kit.db.segments.append_sealed

    def broken(*args, **facts):
        real(*args, **facts)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(kit.db.segments, "append_sealed", broken)
        patched.setattr(kit.db.segments, "attach", broken)
        with pytest.raises(KeyboardInterrupt):
            kit.reserve(*batches[0], 5, cap=9)
    assert kit.used("ann") == [0]
    assert kit.reserve(*batches[1], 9, cap=9) == [RESERVED], "the failed one took nothing"
    assert kit.reserve(*batches[0], 1, cap=9) == [OVER]
    with pytest.raises(Exception, match="was never reserved"):
        kit.commit(["a"])
    kit.sound()


class Shards:
    """Processes that share a walk: every batch is a shard, and one of them reserves it."""

    def __init__(self, kit, batches, unit, meanwhile=lambda: None):
        self.files, self.refs, self.found = {}, [kit.ref()], {}
        self.terms = kit.ledger.plan_walk(Scope("reviews", "2026", unit=unit), self.refs, 9, 1)
        meanwhile()
        asked = {}
        for shard, (ids, people) in enumerate(batches):
            subjects, marks = None if unit == "record" else pa.array(people), np.zeros(len(ids), np.bool_)
            shards = np.full(len(ids), shard)
            for what, cells in kit.ledger.walked_cells(self.terms, pa.array(ids), subjects, marks, shards, own=False):
                asked.setdefault(what, []).append(cells)
        for what, some in asked.items():
            cells = np.concatenate(some)
            for half in (cells[:, 0] < 128, cells[:, 0] >= 128):
                answers, targets = kit.ledger.range_answers(self.terms, what, cells[half])
                for shard in set(targets.tolist()):
                    self.found.setdefault(shard, []).append(answers[targets == shard])

    def follow(self, kit, shard):
        kit.ledger.follow(self.terms, shard, lambda: np.concatenate(self.found[shard]), self)

    def write(self, run, content):
        self.files[run] = content

    def read(self, run):
        return self.files.get(run)


names = st.sampled_from([f"r{at}" for at in range(12)])
few = st.lists(names, max_size=4, unique=True)


@examples(60)
@given(
    order=st.permutations([f"r{at}" for at in range(12)]),
    cuts=st.sets(st.integers(1, 11), max_size=5).map(sorted),
    before=few,
    meanwhile=st.lists(few, min_size=6, max_size=6),
    unit=st.sampled_from(["subject", "record"]),
    text=st.sampled_from(["text", "other"]),
    walk=st.sampled_from(["prefetched", "shared"]),
)
def test_any_order_of_writes_ends_as_without_a_walk(tmp_path_factory, order, cuts, before, meanwhile, unit, text, walk):
    """Ledgers get the same calls of two writers; in some, one prefetches its batches or takes them as shards."""
    batches = [order[begin:end] for begin, end in zip([0, *cuts], [*cuts, 12], strict=True)]
    shared = walk == "shared"
    people = {name: f"s{at}-{int(name[1:]) % (2 if shared else 4)}" for at, ids in enumerate(batches) for name in ids}
    if not shared:
        people = {name: person.partition("-")[2] for name, person in people.items()}
    terms = batches, before, meanwhile, unit, text, people
    told = [play(tmp_path_factory.mktemp("walk") / "ledger.db", *terms, how, looks=shared) for how in (None, walk)]
    assert told[0] == told[1]


def play(place, batches, before, meanwhile, unit, text, of, walk, *, looks):
    one, other, scope, cap = Kit(place), Kit(place), Scope("reviews", "2026", unit=unit), 3 if unit == "subject" else 9

    def people(ids):
        return [of.get(name, "s0") for name in ids]

    try:
        told = [one.reserve(["r99", *before], people(["r99", *before]), 2, cap, scope=scope)]
        named = [(ids, people(ids)) for ids in batches]
        if walk == "prefetched":
            assert prefetch(one, named, unit)
        shards = Shards(one, named, unit) if walk == "shared" else None
        for at, (ids, theirs) in enumerate(zip(batches, meanwhile, strict=False)):
            if theirs:
                told.append(other.reserve(theirs, people(theirs), 1, cap, text, scope=scope))
            if shards is not None:
                shards.follow(one, at)
            if looks:
                ready = one.ledger.make_ready(unit, one.ids(*ids), one.ids(*people(ids)), [one.charge(one.ref(), ids)])
                foreseen = one.ledger.preview(scope, ready)
                told.append([foreseen.outcome.tolist(), foreseen.used.tolist(), foreseen.moved.tolist()])
            told.append(one.reserve(ids, people(ids), 1, cap, scope=scope))
            done = [name for name, outcome in zip(ids, told[-1], strict=True) if outcome in {RESERVED, PENDING}]
            if done:
                told.append(one.commit(done))
        return [*told, one.sound(), other.used("s0", "s1", "s2", "s3") if unit == "subject" else None]
    finally:
        for kit in (one, other):
            kit.ledger.close()


def test_shards_after_a_shared_walk_look_into_no_run(kit, other, monkeypatch):
    """Whatever their processes write and merge."""
    kit.reserve(["a0", "b0", "z"], ["p0", "q0", "zoe"], 8, cap=9)
    kit.commit(["a0"])
    batches = [batch([f"{name}{at}" for name in "abcd"], [f"p{at}", f"q{at}", f"p{at}", "zoe"]) for at in range(12)]
    for at, (_, people) in enumerate(batches):
        people[3] = "zoe" if at == 7 else f"q{at}"
    shards = Shards(kit, batches, "subject", lambda: other.reserve(["y"], ["p1"], 8, cap=9))
    said = []
    with monkeypatch.context() as patched:
        looked = looked_in(patched)
        for at, (ids, people) in enumerate(batches):
            process = (kit, other)[at % 2]
            shards.follow(process, at)
            said.append(process.reserve(ids, people, 1, cap=9))
            done = [name for name, one in zip(ids, said[-1], strict=True) if one in {RESERVED, PENDING}]
            assert process.commit(done) == [0] * len(done)
    assert {space for space, _ in looked[:4]} == {"records/1/0", "balance/1"}, "what another writer wrote meanwhile"
    assert said[:2] == [[COMMITTED, PENDING, RESERVED, RESERVED], [RESERVED, RESERVED, OVER, RESERVED]]
    assert said[2:] == [[RESERVED] * 4] * 10
    assert kit.used("p0", "q0", "p1", "zoe") == [9, 9, 9, 9]
    assert other.reserve(*batches[11], 1, cap=9) == [COMMITTED] * 4, "a shard that is repeated"
    shards.follow(kit, 9)
    assert kit.reserve(["e"], ["zoe"], 1, cap=9) == [OVER], "a record that the walk did not see"
    assert kit.reserve(*batches[9], 1, cap=9) == [COMMITTED] * 4, "another attempt at a shard"
    kit.sound()


def test_shards_that_share_ids_or_people_share_no_walk(kit):
    with pytest.raises(SharedIdsError):
        Shards(kit, [batch(["a"], ["ann"]), batch(["a"], ["bob"])], "record")
    kit.reserve(["z"], ["zoe"], 1, cap=9)
    with pytest.raises(SharedIdsError):
        Shards(kit, [batch(["a"], ["ann"]), batch(["b"], ["ann"])], "subject")
