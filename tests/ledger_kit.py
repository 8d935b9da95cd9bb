"""A ledger in a test: batches in one line, and what tests do to its store."""

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.guarantee import Guarantee, GuaranteeClass, Spend
from dptext_etl.ledger import Charge, Ledger, Scope
from dptext_etl.policy import Cap

ID_KEY = "DPTEXT_TEST_LEDGER_SECRET"
CLAIM = Guarantee(GuaranteeClass.COND_PURE, frozenset(), "two texts of equal length", "word")
EPSILON = 1_000_000
NOISE_KEY = _kernel.Secret.from_bytes(bytes(range(32)))
STEPS = [{"name": "toy", "cfg": "aa" * 32, "model_hash": "bb" * 32, "training_provenance": "public"}]
"""Steps of post-processing that learned from public texts."""


class UndoError(Exception):
    """Ends a transaction without effect."""


def digest(*parts):
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()


def binaries(values):
    return pa.array(values, pa.binary(32))


def reserve_batch(ledger, job, scope, cap, ids, subjects, charges, *, canary=None, **terms):
    ready = ledger.make_ready(scope.unit, ids, subjects, charges, canary=canary)
    return ledger.reserve(job, scope, cap, ready, **terms)


class Kit:
    """One ledger, with short names for what tests do again and again. Amounts are whole epsilons."""

    def __init__(self, place):
        self.place = str(place)
        self.path = Path(place)
        self.ledger = self.open()

    def open(self, **options):
        return Ledger.open(self.place, **{"id_key": f"env:{ID_KEY}" if "://" in self.place else None, **options})

    def reopen(self, **options):
        self.ledger.close()
        self.ledger = self.open(**options)
        return self.ledger

    @property
    def db(self):
        """The database behind the ledger: tests read its rows, and tamper with them."""
        return self.ledger._db

    def ref(self, column="review", release="r1", dataset="reviews", cfg="c1", **other):
        stated = {
            "id_type": "string",
            "mechanism": "toy",
            "guarantee": CLAIM,
            "worst_case": Spend(eps_pure=10 * EPSILON, eps_approx=10 * EPSILON),
            "publishable": True,
            "key": NOISE_KEY,
        }
        names = {"dataset": dataset, "column": column, "release": release, "cfg": cfg}
        return self.ledger.releases.pin_release(**names, **(stated | other))

    def keys(self, ref, ids, texts="text"):
        texts = [texts] * len(ids) if isinstance(texts, str) else texts
        return binaries([digest(ref.release, ref.column, ref.nonce, *pair) for pair in zip(ids, texts, strict=True)])

    def charge(self, ref, ids, epsilons=1, texts="text", **spends):
        words = np.broadcast_to(np.asarray(epsilons), (len(ids),))
        spends = {"eps_pure": words * EPSILON, "eps_tight": words * EPSILON, **spends}
        return Charge(ref, self.keys(ref, ids, texts), words, spends)

    def reserve(
        self, ids, people=None, epsilons=1, cap=None, texts="text", refs=None, job="job", scope=None, **options
    ):
        refs = [self.ref()] if refs is None else refs
        scope = scope or Scope(refs[0].dataset, "2026")
        cap = Cap(epsilon=cap, period="2026") if isinstance(cap, int) else cap
        people = [f"of-{record}" for record in ids] if people is None else people
        charges = [self.charge(ref, ids, epsilons, texts) for ref in refs]
        subjects = None if scope.unit == "record" else pa.array(people, pa.string())
        batch = pa.array(ids, pa.string()), subjects, charges
        return reserve_batch(self.ledger, job, scope, cap, *batch, **options).tolist()

    def commit(self, ids, texts="text", ref=None, outputs="out", job="job", **options):
        ready = self.ledger.examine(*self.results(ids, texts, ref, outputs), **options)
        return self.ledger.commit(job, ready).tolist()

    def results(self, ids, texts="text", ref=None, outputs="out"):
        ref = self.ref() if ref is None else ref
        outputs = [outputs] * len(ids) if isinstance(outputs, str) else outputs
        digests = binaries([digest(*pair) for pair in zip(ids, outputs, strict=True)])
        return ref, pa.array(ids, pa.string()), self.keys(ref, ids, texts), digests

    def used(self, *people, scope=None):
        asked = self.ledger.remaining(scope or Scope("reviews", "2026"), pa.array(people)).asked
        found = [next(iter(row.values()))["used"] for row in asked]
        return [amount if amount == "inf" else amount / EPSILON for amount in found]

    def ids(self, *names):
        return pa.array(names, pa.string())

    def problems(self, *statements):
        """Edit the store behind the ledger's back (statements, or (statement, *values)), verify, and undo it."""
        with suppress(UndoError), self.db.store.transaction():
            for statement in statements:
                sql, *values = [statement] if isinstance(statement, str) else statement
                self.db.store.execute(sql, values)
            found = self.ledger.verify().problems
            raise UndoError
        return found

    def post(self, ids, outputs="again", chain="1" * 64, steps=STEPS, **more):
        outputs = [outputs] * len(ids) if isinstance(outputs, str) else outputs
        digests = binaries([digest(*pair) for pair in zip(ids, outputs, strict=True)])
        return self.ledger.post("job", self.ref(), chain, steps, pa.array(ids, pa.string()), digests, **more).tolist()

    def sound(self):
        report = self.ledger.verify()
        assert report.problems == []
        return report.counts


os.environ.setdefault(ID_KEY, secrets.token_hex(32))
