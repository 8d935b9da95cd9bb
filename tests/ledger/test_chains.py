"""Ledgers of earlier versions: several chains, as writers of one PostgreSQL ledger made them before 0.3, and an index.

Chains verify, continue in one chain, and are anchored and copied; whatever is edited, cut, moved or forked is found.
The first writer drops the index of schema 3, and open processes of that version fail.
Specification: docs/spec/privacy.md#lanes, docs/spec/ledger-plan.md#upgrade.
"""

import json
from contextlib import suppress

import pyarrow as pa
import pytest

from dptext_etl.artifacts import canon
from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Anchor, Ledger, Outcome
from dptext_etl.ledger.storage.journal import CONCURRENT_EVENTS, event_hash_of_chains, genesis

from .conftest import UndoError, each_store

CHAINS = 8


def in_chain(kit, monkeypatch, chain):
    """Let a writer append to a chain next to chain 0, as version 0.2 did next to other writers."""
    journal, store = kit.db.journal, kit.db.store

    def append(kind, **facts):
        heads, mine = journal.heads(), chain if kind in CONCURRENT_EVENTS else 0
        last = max(head.seq for head in heads.values())
        seq = last + 1 + ((mine - last - 1) % CHAINS if mine else 0)
        facts = {"seq": seq, "event": kind.value, "ts": "2026-11-01T00:00:00.000+00:00", "writer": "ab12", **facts}
        facts |= {"lane": mine, "after": {str(other): head.seq for other, head in heads.items()}}
        body = canon(facts).decode()
        sealed = event_hash_of_chains(genesis(kit.ledger.ledger_id), (head.hash for head in heads.values()), body)
        store.execute("insert into event values(?,?,?,?)", (seq, kind.value, body, sealed))
        store.set_meta(f"head/{mine}" if mine else "head", f"{seq}:{sealed.hex()}")
        return seq

    monkeypatch.setattr(journal, "append", append)


@pytest.fixture
def braided(kit):
    """A ledger whose chains 2, 5 and 8 took turns, with an event of chain 0 in between."""
    kit.reserve(["a"], ["ann"], 1, cap=40)
    with pytest.MonkeyPatch.context() as patched:
        for at, chain in enumerate((2, 5, 2, 8, 5, 2)):
            in_chain(kit, patched, chain)
            kit.reserve([f"r{at}"], ["ann"], 1, cap=40)
            kit.commit([f"r{at}"])
            if at == 3:
                kit.ledger.losses.freeze("letters", "by hand", alone=True)
    kit.reopen()
    assert set(chains(kit).values()) == {0, 2, 5, 8}
    kit.sound()
    return kit


@each_store
def test_new_events_form_one_chain_behind_all_others(braided, new_kit):
    last = max(chains(braided))
    heads = {str(chain): max(seq for seq, at in chains(braided).items() if at == chain) for chain in (0, 2, 5, 8)}
    other = new_kit(braided.place)
    assert braided.reserve(["r0", "b"], ["ann", "ann"], 1, cap=40) == [Outcome.COMMITTED, Outcome.RESERVED]
    assert other.commit(["b"]) == [0]
    other.ledger.losses.freeze("notes", "by hand", alone=True)
    bodies = rows(braided, "select body from event where seq>? order by seq", last)
    added = [json.loads(body) for (body,) in bodies]
    assert [facts["event"] for facts in added] == ["RESERVE", "REPLAY", "COMMIT", "FREEZE"]
    for at, facts in enumerate(added):
        assert (facts["seq"], facts["lane"]) == (last + 1 + at, 0)
        assert facts["after"] == (heads if at == 0 else {**heads, "0": last + at})
    assert braided.used("ann") == [8]
    braided.sound()


def test_an_anchor_holds_the_heads_of_all_chains(braided):
    old = braided.ledger.anchor()
    assert len(old.others) == 3
    assert Anchor.parse(str(old)) == old
    braided.reserve(["b"], ["ann"], 1, cap=40)
    anchor = braided.ledger.anchor()
    braided.commit(["b"])
    assert braided.ledger.holds(old)
    assert braided.ledger.holds(anchor)
    for seq in (*anchor.others, anchor.seq):
        with suppress(UndoError), braided.db.store.transaction():
            braided.db.store.execute("update event set hash=? where seq=?", (bytes(32), seq))
            assert not braided.ledger.holds(anchor)
            raise UndoError
    assert not braided.ledger.holds(Anchor(anchor.ledger, anchor.seq, anchor.hash, anchor.others[:1]))


def test_copies_keep_the_chains(braided, tmp_path, postgres):
    anchor = braided.ledger.anchor()
    file, again = tmp_path / "copy.db", postgres.url()
    assert braided.ledger.backup(file) == anchor
    assert braided.ledger.backup(again) == anchor
    for place in (str(file), again):
        with Ledger.open(place, create=False) as copy:
            assert copy.holds(anchor)
            assert copy.verify().ok


def rows(kit, sql, *values):
    return kit.db.store.rows(sql, values)


def chains(kit):
    return {seq: json.loads(body).get("lane", 0) for seq, body in rows(kit, "select seq, body from event order by seq")}


def test_an_event_of_any_chain_counts(braided):
    for seq, chain in chains(braided).items():
        edit = ('update event set body=replace(body, \'"ts":"2\', \'"ts":"3\') where seq=?', seq)
        found = braided.problems(edit)
        assert any(f"event {seq} (" in item and "the chain is broken here" in item for item in found), chain
        found = braided.problems(("delete from event where seq=?", seq))
        assert any("missing" in item or "is not the head" in item for item in found), chain
        forged = ("update event set hash=? where seq=?", bytes(32), seq)
        assert any("the chain is broken" in item for item in braided.problems(forged)), chain


def cut(kit, chain, upto):
    """Forget the events of a chain after a number, as someone would who rewrites its head, too."""
    gone = [seq for seq, where in chains(kit).items() if where == chain and seq > upto]
    kept = rows(kit, "select seq, hash from event where seq=?", upto)[0]
    head = ("update meta set value=? where name=?", f"{kept[0]}:{kept[1].hex()}", f"head/{chain}")
    tables = [
        (f"delete from {table} where {key}=?", seq)
        for seq in gone
        for table, key in (("event", "seq"), ("segment", "seq"), ("batch", "seq"), ("commit_part", "seq"))
    ]
    return [head, *tables]


def test_the_end_of_a_chain_that_others_saw_may_not_be_lost(braided):
    ends = {chain: seq for seq, chain in chains(braided).items()}
    for chain in (2, 5, 8):
        before = max(seq for seq, where in chains(braided).items() if where == chain and seq < ends[chain])
        found = braided.problems(*cut(braided, chain, before))
        seen = any(f"of chain {chain}, which is missing" in item for item in found)
        assert seen or ends[chain] == max(ends.values()), "the others name it; no one saw the last event of all"
        assert found, "and tables tell"


def test_an_anchor_finds_the_end_that_nobody_saw(braided):
    anchor = braided.ledger.anchor()
    last = max(chains(braided))
    chain = chains(braided)[last]
    before = max(seq for seq, where in chains(braided).items() if where == chain and seq < last)
    store = braided.db.store
    with suppress(UndoError), store.transaction():
        for statement, *values in cut(braided, chain, before):
            store.execute(statement, values)
        assert not braided.ledger.holds(anchor)
        raise UndoError
    assert braided.ledger.holds(anchor)


def rewrite(kit, seq, **changes):
    """Edit the place in an event, and give it the hash that fits."""
    (body,) = rows(kit, "select body from event where seq=?", seq)[0]
    facts = {**json.loads(body), **changes}
    hashes = dict(rows(kit, "select seq, hash from event"))
    seen = [hashes[number] for _, number in sorted((int(chain), n) for chain, n in facts["after"].items())]
    body = canon(facts).decode()
    sealed = event_hash_of_chains(genesis(kit.ledger.ledger_id), seen, body)
    return [
        ("update event set body=?, hash=? where seq=?", body, sealed, seq),
        ("update meta set value=? where value like ?", f"{seq}:{sealed.hex()}", f"{seq}:%"),
    ]


def test_an_event_may_not_change_what_it_follows(braided):
    """Each forgery has the right hash; the place in the order gives it away."""
    last = max(chains(braided))
    (body,) = rows(braided, "select body from event where seq=?", last)[0]
    after = json.loads(body)["after"]
    assert braided.problems(*rewrite(braided, last)) == [], "the same again"
    earlier = {chain: [seq for seq, where in chains(braided).items() if where == int(chain)] for chain in after}
    mine = str(chains(braided)[last])
    fork = braided.problems(*rewrite(braided, last, after={**after, mine: earlier[mine][-3]}))
    follows = f"follows event {earlier[mine][-3]} of chain {mine}, and not the event that is there"
    assert any(follows in one for one in fork)
    blind = braided.problems(*rewrite(braided, last, after={**after, "0": earlier["0"][-2]}))
    assert any("of chain 0, and not the event that is there" in one for one in blind)
    forgetful = braided.problems(*rewrite(braided, last, after={**after, "5": earlier["5"][0]}))
    assert any("come after others which it does not follow" in one for one in forgetful)
    other = braided.problems(*rewrite(braided, last, after={**after, "8": earlier["2"][0]}))
    assert any("of chain 8, which is missing" in one for one in other)
    assert braided.problems(*rewrite(braided, last, lane=7)), "a chain that it is not in"
    again = "insert into event select seq + 80, kind, body, hash from event where seq=?"
    assert any(f"event {last + 80} (" in one for one in braided.problems((again, last)))


INDEX = ("run", "run_part")


def version(kit):
    if "://" in kit.place:
        return int(kit.db.store.meta("schema"))
    return kit.db.store.row("pragma user_version")[0]


def as_version_3(kit):
    """Give a ledger the tables of an earlier version; its former index is never read."""
    store = kit.db.store
    for table in INDEX:
        store.execute(f"create table {table}(id integer primary key, run integer)")
    if "://" in kit.place:
        store.set_meta("schema", "3")
    else:
        store.execute("pragma user_version=3")
    kit.ledger.close()


@each_store
def test_the_first_writer_drops_the_index_and_keeps_every_charge(kit):
    kit.reserve(["a", "b"], ["ann", "ann"], 2, cap=5)
    kit.commit(["a"])
    anchor = kit.ledger.anchor()
    as_version_3(kit)
    kit.reopen()
    assert version(kit) == 4
    assert not {*INDEX} & kit.db.store.columns().keys()
    assert kit.ledger.holds(anchor)
    outcome = [Outcome.COMMITTED, Outcome.PENDING, Outcome.RESERVED, Outcome.OVER_CAP]
    assert kit.reserve(["a", "b", "c", "d"], ["ann", "ann", "ann", "ann"], [2, 2, 1, 1], cap=5) == outcome
    assert kit.used("ann") == [5]
    kit.sound()


@each_store
def test_readers_change_nothing(kit):
    kit.reserve(["a"], ["ann"], 2, cap=5)
    ref = kit.ref()
    as_version_3(kit)
    kit.reopen(read_only=True)
    assert kit.used("ann") == [2]
    assert kit.ledger.known(ref, pa.array(["a", "b"])).tolist() == [True, False]
    assert kit.ledger.reports.show()[0]["records"] == 1
    kit.sound()
    with pytest.raises(LedgerError, match="is read-only"):
        kit.reserve(["b"], refs=[ref])
    assert version(kit) == 3
    assert {*INDEX} <= kit.db.store.columns().keys()


@each_store
def test_a_process_of_the_version_before_fails_after_the_upgrade(kit, new_kit):
    """It reads and writes its index with every charge, and it has checked the version already."""
    old = new_kit(kit.place)
    as_version_3(kit)
    assert old.db.store.rows("select id from run") == []
    kit.reopen()
    with pytest.raises(LedgerError, match="cannot be used"):
        old.db.store.rows("select id from run")
    new_kit(kit.place).sound()
