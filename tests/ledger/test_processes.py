"""Threads, many processes and sudden death: one charge, an exact cap, nothing half written."""

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from dptext_etl.ledger import Outcome

from .conftest import each_store

HERE = Path(__file__).resolve().parents[1]
START = f"import sys; sys.path.insert(0, {str(HERE)!r}); from ledger_kit import Kit; kit = Kit(sys.argv[1]);"

VICTIM = (
    START
    + """
refs = [kit.ref(), kit.ref("title")]
print("ready", flush=True)
for start in range(0, 10_000_000, 40):
    names = [f"r{i}" for i in range(start, start + 40)]
    kit.reserve(names, [f"p{i % 11}" for i in range(40)], 1, cap=100_000, refs=refs)
    for ref in refs:
        kit.commit(names, ref=ref)
    print(start, flush=True)
"""
)

MAKERS = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
from ledger_kit import Kit
for path in sys.argv[1:]:
    print("ready", flush=True)
    sys.stdin.readline()
    print(Kit(path).reserve(["a"], cap=9), flush=True)
"""


@pytest.fixture
def spawn(warm):
    """Start a process: spawn(code, arguments)."""

    def start(code, *args):
        command = [*warm, "-c", code, *map(str, args)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    return start


@each_store
def test_threads_take_turns(kit):
    failed = []

    def work(name):
        try:
            for i in range(5):
                kit.reserve([f"{name}-{i}"], ["ann"], 1, cap=12)
        except Exception as exc:  # noqa: BLE001
            failed.append(exc)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert kit.used("ann") == [12]
    kit.sound()


@each_store
def test_a_forked_process_opens_its_own_connection(kit):
    kit.reserve(["a"], cap=9)
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if kit.reserve(["b"], cap=9) == [Outcome.RESERVED] else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert kit.reserve(["a", "b"], cap=9) == [Outcome.PENDING] * 2
    kit.sound()


@pytest.mark.thorough
@each_store
def test_processes_may_make_one_ledger_at_once(new_place, tmp_path, spawn):
    paths = [new_place(f"new{i}") for i in range(5)]
    makers = [spawn(MAKERS, *paths) for _ in range(4)]
    for _ in paths:
        assert [maker.stdout.readline() for maker in makers] == ["ready\n"] * 4
        for maker in makers:
            maker.stdin.write("\n")
            maker.stdin.flush()
        assert sorted(maker.stdout.readline() for maker in makers) == ["[0]\n", "[1]\n", "[1]\n", "[1]\n"]
    assert [maker.wait(600) for maker in makers] == [0] * 4
    left = [path for path in tmp_path.iterdir() if not path.name.endswith(("-wal", "-shm"))]
    assert len(left) in (0, 10), "ledgers and their keys; if the last two close at one moment, SQLite leaves a log"


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_instant_it_opens_sound(kit, seed, spawn):
    kit.ledger.close()
    victim = spawn(VICTIM, kit.place)
    assert victim.stdout.readline() == "ready\n"
    time.sleep(random.Random(seed).uniform(0.0, 0.6))
    victim.send_signal(signal.SIGKILL)
    said = victim.communicate(timeout=600)[0].split()
    done = int(said[-1]) + 40 if said else 0
    kit.reopen()
    kit.ref()  # a transaction: the victim's server process is done when this begins
    counts = kit.sound()
    assert 2 * done <= counts["committed"] <= counts["records"] <= 2 * (done + 40)
    assert counts["records"] in (2 * done, 2 * (done + 40)), "a batch is reserved in all columns or in none"
    names = [f"r{i}" for i in range(done, done + 40)]
    people = [f"p{i % 11}" for i in range(40)]
    refs = [kit.ref(), kit.ref("title")]
    kit.reserve(names, people, 1, cap=100_000, refs=refs)
    for ref in refs:
        kit.commit(names, ref=ref)
        assert kit.ledger.committed(ref, pa.array(names)).mask.all()
    counts = kit.sound()
    assert (counts["records"], counts["pending"]) == (2 * (done + 40), 0)
    assert sum(kit.used(*(f"p{i}" for i in range(11)))) == 2 * (done + 40)
