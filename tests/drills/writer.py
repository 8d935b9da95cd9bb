"""A writer that charges batch after batch until it is revealed to end; it may be stopped at any instant."""

import hashlib
import json
import select
import sys

import numpy as np
import pyarrow as pa
from contender import EPSILON, SCOPE, STATED

from dptext_etl.errors import UnavailableLedgerError
from dptext_etl.ledger import Charge, Ledger
from dptext_etl.ledger.storage import postgres
from dptext_etl.ledger.storage.store import wait_for_ledger


def write(place, id_key, batch, hold):
    """Reserve and commit; say how many records that were, and how often the server had ended a write."""
    postgres.HOLD = hold
    ended, done = 0, 0

    def counted(call):
        def attempt():
            nonlocal ended
            try:
                return call()
            except UnavailableLedgerError:
                ended += 1
                raise

        return wait_for_ledger(attempt)

    with Ledger.open(place, id_key) as ledger:
        ref = ledger.releases.pin_release(dataset="reviews", column="review", release="r1", cfg="c1", **STATED)
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            numbers = range(done, done + batch)
            ids, people = pa.array([f"r{i}" for i in numbers]), pa.array([f"p{i % 1000}" for i in numbers])
            identities = pa.array([hashlib.sha256(f"r{i}".encode()).digest() for i in numbers], pa.binary(32))
            charge = Charge(ref, identities, np.ones(batch, int), {"eps_pure": np.full(batch, EPSILON)})
            ready = ledger.make_ready(SCOPE.unit, ids, people, [charge])
            counted(lambda batch=ready: ledger.reserve("writer", SCOPE, None, batch))
            counted(lambda i=ids, k=identities: ledger.commit("writer", ledger.examine(ref, i, k, k)))
            done += batch
    return {"records": done, "ended": ended}


if __name__ == "__main__":
    print(json.dumps(write(**json.loads(sys.argv[1]))))
