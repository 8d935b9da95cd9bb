"""A writer in PostgreSQL that is stopped, or whose network is gone, holds the others up for seconds at most."""

import itertools
import os
import select
import signal
import socket
import subprocess
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from dptext_etl.errors import LedgerError, LockedLedgerError, UnavailableLedgerError
from dptext_etl.ledger import Outcome, Scope
from dptext_etl.ledger.storage import postgres as store_module
from dptext_etl.ledger.storage import store
from dptext_etl.ledger.storage.store import wait_for_ledger

from ..ledger_kit import Kit

HERE = Path(__file__).resolve().parents[1]
STOPPING = f"""
import os, signal, sys; sys.path.insert(0, {str(HERE)!r})
from ledger_kit import Kit
from dptext_etl.errors import UnavailableLedgerError
kit, there = Kit(sys.argv[1]), [sys.argv[2]]
ref, store = kit.ref(dataset=sys.argv[3]), kit.db.store
real = store.execute

def stopping(*args):
    if there and args[0].startswith(there[0]):
        there.clear()
        real("set local idle_in_transaction_session_timeout = 500")  # from here on: a busy machine may be slow before
        print(os.getpid(), flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return real(*args)

store.execute = stopping
names = [f"r{{i}}" for i in range(50)]
for step in (lambda: kit.reserve(names, cap=None, refs=[ref]), lambda: kit.commit(names, ref=ref)):
    try:
        step()
    except UnavailableLedgerError as error:
        print(error.message, flush=True)
        step()
print("done", flush=True)
"""


@pytest.fixture
def place(postgres):
    return postgres.url()


@pytest.fixture
def new_place(postgres):
    return lambda name: postgres.url()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("before", "dataset"),
    [
        ("insert into event", "others"),
        ("insert into event", "reviews"),
        ("update segment", "others"),
        ("update segment", "reviews"),
    ],
)
def test_others_go_on_while_a_writer_is_stopped(kit, warm, before, dataset):
    """It may hold the journal, and the scope that others charge."""
    command = [*warm, "-c", STOPPING, kit.place, before, dataset]
    kit.reserve(["a"], cap=9)
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    number = int(writer.stdout.readline())
    try:
        kit.reopen(timeout=600)
        assert kit.reserve(["b"], cap=9) == [Outcome.RESERVED], "the stopped writer is stopped still"
        assert kit.commit(["a", "b"]) == [0, 0]
    finally:
        os.kill(number, signal.SIGCONT)
    said = writer.communicate(timeout=600)[0].splitlines()
    assert len(said) == 2, said
    assert "ended a write of this process" in said[0] or "lost its connection" in said[0] or "its server" in said[0]
    assert said[1] == "done", "what was stopped wrote nothing, and is repeated"
    counts = kit.sound()
    assert (counts["records"], counts["committed"], counts["pending"]) == (52, 52, 0)


class Stalling:
    """A network between a client and its server that stops to carry anything after a number of bytes; 0 is never."""

    def __init__(self, port):
        self._server, self.left, self.stuck = ("127.0.0.1", port), 0, threading.Event()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            client, _ = self._door.accept()
            server = socket.create_connection(self._server)
            threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client, server):
        while True:
            for source in select.select([client, server], [], [])[0]:
                data = source.recv(1 << 14)
                if not data:
                    client.close()
                    server.close()
                    return
                if source is client and self.left:
                    if len(data) >= self.left:
                        server.sendall(data[: self.left])
                        self.stuck.set()
                        threading.Event().wait()  # for good: both ends hear nothing more
                    self.left -= len(data)
                (server if source is client else client).sendall(data)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("bytes_", "dataset"),
    [(3000, "others"), (700_000, "reviews"), (60_000, "others"), (200_000, "others")],
)
def test_others_go_on_while_a_message_is_stuck(kit, postgres, monkeypatch, bytes_, dataset):
    """Within a message no timeout of a server before 17 ends a session: the next writer does."""
    network = Stalling(postgres.port)
    far = Kit(kit.place.replace(f":{postgres.port}/", f":{network.port}/"))
    kit.reserve(["b"], refs=[kit.ref()])
    ref = far.ref(dataset=dataset)
    names = [f"r{i}" for i in range(5000)]
    monkeypatch.setattr(store_module, "HOLD", 0.5)  # of the stuck writer, between two messages
    network.left = bytes_

    def write():
        with suppress(LedgerError):
            far.reserve(names, refs=[ref])

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    while writer.is_alive() and not network.stuck.wait(0.05):  # on a busy machine, the server may end it before
        pass
    monkeypatch.setattr(store_module, "HOLD", 600.0)
    monkeypatch.setattr(store_module, "STUCK", 0.0)
    monkeypatch.setattr(store_module, "LOOK", 0.05)
    kit.reopen(timeout=600)
    assert kit.reserve(["a"]) == [Outcome.RESERVED]
    kit.sound()


@pytest.mark.thorough
@pytest.mark.parametrize("bytes_", [1, 300, 2000])
@pytest.mark.parametrize("call", ["reserve", "verify", "commit", "used", "judge", "backup"])
def test_an_answer_that_never_arrives_is_given_up(kit, postgres, monkeypatch, tmp_path, call, bytes_):
    """A proxy keeps the connection open and carries nothing more; a repeated call opens another connection."""
    kit.reserve(["a"], cap=9)
    network = Stalling(postgres.port)
    far = Kit(kit.place.replace(f":{postgres.port}/", f":{network.port}/"))
    far.reopen(timeout=2)  # to connect, too
    ids, scope, ref, copies = pa.array(["a"]), Scope("reviews", "2026"), far.ref(), itertools.count()

    def ask():
        if call == "verify":
            return far.ledger.verify().problems
        if call == "used":
            return far.ledger.used(scope, ids)
        if call == "judge":
            return far.ledger.judge(scope, None, far.ledger.make_ready("subject", ids, ids, [far.charge(ref, ["a"])]))
        if call == "backup":
            return far.ledger.backup(tmp_path / f"copy{next(copies)}.db")
        return far.reserve(["b"], refs=[ref]) if call == "reserve" else far.commit(["a"])

    network.left = bytes_
    monkeypatch.setattr(store_module, "ANSWER", 0.3)
    monkeypatch.setattr(store_module, "ASKING", 0.3)
    with pytest.raises(UnavailableLedgerError, match=r"lost its connection|cannot be reached"):
        deque(ask() for _ in range(20))  # some calls send less than others
    network.left = 0
    monkeypatch.setattr(store_module, "ANSWER", 600.0)
    ask()
    kit.sound()
    far.ledger.close()


def test_a_writer_of_many_records_may_compute_for_longer(kit):
    store = kit.db.store
    for rows, said in ((0, "10s"), (1_000_000, "20s")):
        with store.transaction(rows):
            assert store.rows("show idle_in_transaction_session_timeout") == [(said,)]
            assert store.rows("show statement_timeout") == [("2min",)]
    with store.snapshot():
        assert store.rows("show idle_in_transaction_session_timeout") == [("2min",)], "readers hold back vacuum"
        assert store.rows("show statement_timeout") == [("2min",)]


def test_sessions_do_not_go_by_the_defaults_of_the_server(kit):
    store = kit.db.store
    asked = (
        "tcp_keepalives_idle",
        "tcp_keepalives_interval",
        "tcp_keepalives_count",
        "tcp_user_timeout",
        "lock_timeout",
    )
    assert [store.rows(f"show {name}")[0][0] for name in asked] == ["10", "5", "3", "30000", "1min"]


def answers(*errors):
    """Return a call that raises some errors, then answers."""
    left = list(errors)

    def call():
        if left:
            raise left.pop(0)
        return "answer"

    return call


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances only by the pauses of this thread, and that no other thread of the process reads."""
    now = [0.0]
    pauses = {"monotonic": lambda: now[0], "sleep": lambda seconds: now.__setitem__(0, now[0] + seconds)}
    monkeypatch.setattr(store, "time", SimpleNamespace(**pauses))
    return now


def test_a_lock_is_waited_for_as_long_as_somebody_waits(clock):
    assert wait_for_ledger(answers(*[LockedLedgerError("locked")] * 5000)) == "answer"
    assert clock[0] >= 5000 * store.RETRY_SECONDS
    with pytest.raises(LockedLedgerError):
        wait_for_ledger(answers(*[LockedLedgerError("locked")] * 5), lambda: clock[0] >= 5003)


def test_a_server_is_waited_for_for_minutes(clock):
    away, locked = UnavailableLedgerError("away"), LockedLedgerError("locked")
    assert wait_for_ledger(answers(*[away] * 200, locked, *[away] * 200)) == "answer"
    with pytest.raises(UnavailableLedgerError):
        wait_for_ledger(answers(*[away] * 2000))


def test_a_refusal_is_an_answer(clock):
    with pytest.raises(LedgerError, match="revoked"):
        wait_for_ledger(answers(LockedLedgerError("locked"), LedgerError("revoked")))
    assert clock[0] == store.RETRY_SECONDS
