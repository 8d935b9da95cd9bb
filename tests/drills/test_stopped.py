"""A writer of a PostgreSQL ledger stopped at any instant: the others continue in seconds, and nothing of it is lost."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from dptext_etl import Ledger, _kernel
from dptext_etl.ledger import Charge, Scope
from dptext_etl.ledger.storage import postgres as store_module

from .contender import EPSILON, STATED

BATCH = 20_000


def test_a_writer_that_is_stopped(drill, tmp_path, postgres):
    """Anyone who comes next must get its answer while the writer is paused; its limit is a minute."""
    times, chance = drill.count("stopped", 2), random.Random(6)
    hold = store_module.HOLD if drill.whole else 0.5
    _kernel.Secret().write(str(tmp_path / "ids.key"))
    place, key = postgres.url(), f"file:{tmp_path / 'ids.key'}"
    with Ledger.open(place, key, timeout=60) as ledger:
        order = json.dumps({"place": place, "id_key": key, "batch": BATCH, "hold": hold})
        command = [sys.executable, str(Path(__file__).with_name("writer.py")), order]
        writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert writer.stdout.readline() == "ready\n"
        ref = ledger.releases.pin_release(dataset="letters", column="text", release="r1", cfg="c1", **STATED)
        waited = []
        for at in range(times):
            time.sleep(chance.uniform(0.2, 1.2))
            os.kill(writer.pid, signal.SIGSTOP)
            try:
                began = time.perf_counter()
                charge_one(ledger, ref, f"x{at}")
                waited.append(time.perf_counter() - began)
            finally:
                os.kill(writer.pid, signal.SIGCONT)
        said = json.loads(writer.communicate("end\n", timeout=300)[0])
        report = ledger.verify()
        assert report.ok, report.problems
        counts = {name: report.counts[name] for name in ("records", "committed", "pending")}
        assert counts == {"records": said["records"] + times, "committed": said["records"] + times, "pending": 0}
    drill.tell(
        "stopped",
        f"a writer on PostgreSQL stopped (SIGSTOP) {times} times at any instant, while another one charged",
        f"the server ended {said['ended']} of its writes after {hold:g} s of silence, else it held no lock; the other "
        f"writer got every answer while the first stood still, the slowest after {max(waited):.0f} s; what was ended "
        f"was repeated, all {said['records']:,} records are charged and committed once; the ledger verifies",
    )


def charge_one(ledger, ref, name):
    ids, identities = pa.array([name]), pa.array([hashlib.sha256(name.encode()).digest()], pa.binary(32))
    charge = Charge(ref, identities, np.ones(1, int), {"eps_pure": np.full(1, EPSILON)})
    ready = ledger.make_ready("subject", ids, pa.array(["ann"]), [charge])
    ledger.reserve("other", Scope("letters"), None, ready)
    ledger.commit("other", ledger.examine(ref, ids, identities, identities))
