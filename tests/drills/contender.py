"""One of many processes that charge the same keys under one cap; reports as JSON."""

import hashlib
import json
import random
import sys
from collections import Counter

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.guarantee import Guarantee, GuaranteeClass, Spend
from dptext_etl.ledger import Charge, Ledger, Outcome, Scope
from dptext_etl.policy import Cap

EPSILON = 1_000_000
KEY = _kernel.Secret.from_bytes(bytes(range(32)))
CLAIM = Guarantee(GuaranteeClass.COND_PURE, frozenset(), "two texts of equal length", "word")
SCOPE = Scope("reviews", "2026")
STATED = {"id_type": "string", "mechanism": "toy", "guarantee": CLAIM, "publishable": True}
STATED |= {"worst_case": Spend(eps_pure=10 * EPSILON, eps_approx=10 * EPSILON), "key": KEY}


def charge_all(place, id_key, name, keys, people, per_subject, batch):
    """Reserve every batch in its own order, and commit the records within the cap."""
    cap = Cap(epsilon=float(per_subject), period="2026")
    starts = list(range(0, keys, batch))
    random.Random(name).shuffle(starts)
    outcomes, committed = Counter(), 0
    with Ledger.open(place, id_key) as ledger:
        ref = ledger.releases.pin_release(dataset="reviews", column="review", release="r1", cfg="c1", **STATED)
        for start in starts:
            numbers = range(start, start + batch)
            ids = pa.array([f"r{i}" for i in numbers])
            subjects = pa.array([f"p{i % people}" for i in numbers])
            identities = pa.array([hashlib.sha256(f"r{i}".encode()).digest() for i in numbers], pa.binary(32))
            spends = {"eps_pure": np.full(batch, EPSILON), "eps_tight": np.full(batch, EPSILON)}
            charge = Charge(ref, identities, np.ones(batch, int), spends)
            outcome = ledger.reserve(name, SCOPE, cap, ledger.make_ready(SCOPE.unit, ids, subjects, [charge]))
            outcomes.update(outcome.tolist())
            taken = pa.array(np.flatnonzero(outcome < Outcome.OVER_CAP))
            committed += len(taken)
            results = ids.take(taken), identities.take(taken), identities.take(taken)
            ledger.commit(name, ledger.examine(ref, *results))
    named = {Outcome(code).name: number for code, number in outcomes.items()}
    return {"outcomes": named, "committed": committed, "batches": len(starts)}


if __name__ == "__main__":
    print(json.dumps(charge_all(**json.loads(sys.argv[1]))))
