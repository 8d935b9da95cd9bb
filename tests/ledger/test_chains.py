"""Verification of a journal with several lanes: whatever is edited, cut, moved or forked in any of them is found.

Specification: docs/spec/privacy.md#lanes.
"""

import json
import random
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from dptext_etl.artifacts import canon
from dptext_etl.ledger import Scope
from dptext_etl.ledger.storage.journal import event_hash_of_chains, genesis
from tests.quick import quick

from .test_chains import UndoError, in_chain

HERE = Path(__file__).parent


@pytest.fixture
def new_place(postgres):
    return lambda name: postgres.url()


@pytest.fixture
def braided(kit):
    """A ledger whose lanes 2, 5 and 8 take turns, with an event of lane 0 in between."""
    kit.reserve(["a"], ["ann"], 1, cap=40)
    for at, lane in enumerate((2, 5, 2, 8, 5, 2)):
        in_chain(kit, lane)
        kit.reserve([f"r{at}"], ["ann"], 1, cap=40)
        kit.commit([f"r{at}"])
        if at == 3:
            kit.ledger.freeze("letters", "by hand", alone=True)
    kit.sound()
    return kit


def rows(kit, sql, *values):
    return kit.db.store.rows(sql, values)


def lanes(kit):
    return {seq: json.loads(body).get("lane", 0) for seq, body in rows(kit, "select seq, body from event order by seq")}


def problems(kit, *statements):
    """Change what is stored behind the ledger's back, verify, and take it back."""
    store = kit.db.store
    with suppress(UndoError), store.transaction():
        for statement, *values in statements:
            store.execute(statement, values)
        report = kit.ledger.verify()
        raise UndoError
    return report.problems


def test_an_event_of_any_lane_counts(braided):
    for seq, lane in lanes(braided).items():
        edit = ('update event set body=replace(body, \'"ts":"2\', \'"ts":"3\') where seq=?', seq)
        found = problems(braided, edit)
        assert any(f"event {seq} (" in item and "the chain is broken here" in item for item in found), lane
        found = problems(braided, ("delete from event where seq=?", seq))
        assert any("missing" in item or "is not the head" in item for item in found), lane
        forged = ("update event set hash=? where seq=?", bytes(32), seq)
        assert any("the chain is broken" in item for item in problems(braided, forged)), lane


def cut(kit, lane, upto):
    """Forget the events of a lane after a number, as someone would who rewrites its head, too."""
    gone = [seq for seq, where in lanes(kit).items() if where == lane and seq > upto]
    kept = rows(kit, "select seq, hash from event where seq=?", upto)[0]
    head = ("update meta set value=? where name=?", f"{kept[0]}:{kept[1].hex()}", f"head/{lane}")
    tables = [
        (f"delete from {table} where {key}=?", seq)
        for seq in gone
        for table, key in (("event", "seq"), ("segment", "seq"), ("batch", "seq"), ("commit_part", "seq"))
    ]
    return [head, *tables]


def test_the_end_of_a_lane_that_others_saw_may_not_be_lost(braided):
    ends = {lane: seq for seq, lane in lanes(braided).items()}
    for lane in (2, 5, 8):
        before = max(seq for seq, where in lanes(braided).items() if where == lane and seq < ends[lane])
        found = problems(braided, *cut(braided, lane, before))
        seen = any(f"of chain {lane}, which is missing" in item for item in found)
        assert seen or ends[lane] == max(ends.values()), "the others name it; no one saw the last event of all"
        assert found, "and tables tell"


def test_an_anchor_finds_the_end_that_nobody_saw(braided):
    anchor = braided.ledger.anchor()
    last = max(lanes(braided))
    lane = lanes(braided)[last]
    before = max(seq for seq, where in lanes(braided).items() if where == lane and seq < last)
    store = braided.db.store
    with suppress(UndoError), store.transaction():
        for statement, *values in cut(braided, lane, before):
            store.execute(statement, values)
        assert not braided.ledger.holds(anchor)
        raise UndoError
    assert braided.ledger.holds(anchor)


def rewrite(kit, seq, **changes):
    """Edit what an event says of its place, and give it the hash that fits."""
    (body,) = rows(kit, "select body from event where seq=?", seq)[0]
    facts = {**json.loads(body), **changes}
    hashes = dict(rows(kit, "select seq, hash from event"))
    seen = [hashes[number] for _, number in sorted((int(lane), n) for lane, n in facts["after"].items())]
    body = canon(facts).decode()
    sealed = event_hash_of_chains(genesis(kit.ledger.ledger_id), seen, body)
    return [
        ("update event set body=?, hash=? where seq=?", body, sealed, seq),
        ("update meta set value=? where value like ?", f"{seq}:{sealed.hex()}", f"{seq}:%"),
    ]


def test_an_event_may_not_change_what_it_follows(braided):
    """Each forgery has the right hash; the place in the order gives it away."""
    last = max(lanes(braided))
    (body,) = rows(braided, "select body from event where seq=?", last)[0]
    after = json.loads(body)["after"]
    assert problems(braided, *rewrite(braided, last)) == [], "the same again"
    earlier = {lane: [seq for seq, where in lanes(braided).items() if where == int(lane)] for lane in after}
    mine = str(lanes(braided)[last])
    fork = problems(braided, *rewrite(braided, last, after={**after, mine: earlier[mine][-3]}))
    assert any(f"follows event {earlier[mine][-3]} of chain {mine}, and not what stands there" in one for one in fork)
    blind = problems(braided, *rewrite(braided, last, after={**after, "0": earlier["0"][-2]}))
    assert any("of chain 0, and not what stands there" in one for one in blind)
    forgetful = problems(braided, *rewrite(braided, last, after={**after, "5": earlier["5"][0]}))
    assert any("stand behind others which it does not follow" in one for one in forgetful)
    other = problems(braided, *rewrite(braided, last, after={**after, "8": earlier["2"][0]}))
    assert any("of chain 8, which is missing" in one for one in other)
    assert problems(braided, *rewrite(braided, last, lane=7)), "a lane that it does not stand in"
    again = "insert into event select seq + 80, kind, body, hash from event where seq=?"
    assert any(f"event {last + 80} (" in one for one in problems(braided, (again, last)))


WRITER = f"""
import json, random, sys; sys.path.insert(0, {str(HERE)!r})
import pyarrow as pa
from conftest import Kit
from dptext_etl.errors import LockedLedgerError
from dptext_etl.ledger import Scope
from dptext_etl.ledger.storage.store import wait_for_ledger
from dptext_etl.policy import Cap
place, seed, writers, scopes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].split(",")
kit, mine = Kit(place), random.Random(seed)
batches = [(name, start) for name in scopes for start in range(0, 120, 12)]
mine.shuffle(batches)
for name, start in batches:
    if mine.random() < 0.5 and start // 12 % writers != seed:
        continue  # others have it, and this writer has half of theirs, too
    dataset, _, group = name.partition("/")
    refs = [kit.ref(column, dataset=dataset, refundable=True) for column in ("review", "title")]
    scope, cap = Scope(dataset, "2026", group or None), Cap(epsilon=10_000, period="2026", group=group or None)
    ids = [f"r{{i}}" for i in range(start, start + 12)]
    people = [f"p{{i % 17}}" for i in range(start, start + 12)]
    spend = lambda: kit.reserve(ids, people, 3, cap, refs=refs, scope=scope, job=f"{{seed}}")
    assert set(wait_for_ledger(spend)) <= {{0, 1, 2}}
    for ref in refs:
        used = [1_000_000] * 12
        wait_for_ledger(lambda: kit.commit(ids, ref=ref, job=f"{{seed}}", spent=used))
"""


@pytest.mark.parametrize("scopes", quick(["reviews", "a,b/people,c/people"]))
def test_many_writers_charge_what_one_does(new_place, new_kit, warm, scopes):
    """Four processes over the same batches, some by two of them: balances, counts and states of one writer."""
    found = []
    for writers in (1, 4):
        kit = new_kit(new_place("of many"))
        started = [
            subprocess.Popen([*warm, "-c", WRITER, kit.place, str(seed), str(writers), scopes])
            for seed in range(writers)
        ]
        assert [process.wait(600) for process in started] == [0] * writers
        kit.db.forget_merged_runs()
        counts = kit.sound()
        used = {}
        for name in scopes.split(","):
            dataset, _, group = name.partition("/")
            people = (f"p{i}" for i in range(17))
            used[group or dataset] = kit.used(*people, scope=Scope(dataset, "2026", group or None))
        found.append(({name: counts[name] for name in ("records", "committed", "pending")}, used))
    assert found[0] == found[1]


def test_a_killed_writer_leaves_no_half_in_any_lane(kit, warm):
    chance = random.Random(4)
    victims = [
        subprocess.Popen([*warm, "-c", WRITER, kit.place, str(seed), "4", "reviews,letters"]) for seed in range(4)
    ]
    for victim in victims[:2]:
        with suppress(subprocess.TimeoutExpired):
            victim.wait(chance.uniform(0.4, 1.2))
        victim.kill()
    assert [victim.wait(600) for victim in victims[2:]] == [0, 0]
    assert subprocess.run([*warm, "-c", WRITER, kit.place, "0", "1", "reviews,letters"], check=True).returncode == 0
    counts = kit.sound()
    assert (counts["records"], counts["committed"]) == (4 * 120, 4 * 120)
    people = [f"p{i}" for i in range(17)]
    assert sum(kit.used(*people)) == sum(kit.used(*people, scope=Scope("letters", "2026"))) == 2 * 120
