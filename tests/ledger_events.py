"""A ledger in which everything happened that can: every kind of event, state and cap, through its own methods."""

import hashlib

import numpy as np
import pyarrow as pa

from dptext_etl import _kernel
from dptext_etl.column import INFINITE
from dptext_etl.guarantee import Disclosure, Guarantee, GuaranteeClass, Spend
from dptext_etl.ledger import Charge, Ledger, Scope
from dptext_etl.policy import Cap

from .ledger_kit import reserve_batch

MILLION = 1_000_000
NOISE_KEY = _kernel.Secret.from_bytes(hashlib.sha256(b"a noise key for tests").digest())
CLAIM = Guarantee(GuaranteeClass.COND_PURE, frozenset({Disclosure.LENGTH}), "two texts of equal length", "word")
YEAR = Scope("reviews", "2026")


def digest(*parts):
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()


def binaries(values):
    return pa.array(values, pa.binary(32))


class Writer:
    """A ledger with short names for its methods; a record's identity and its output follow from its name."""

    def __init__(self, ledger):
        self.ledger = ledger

    def release(self, release="r1", column="review", dataset="reviews", **other):
        stated = {
            "cfg": digest("cfg", column, release).hex(), "id_type": "string", "mechanism": "toy", "guarantee": CLAIM,
            "worst_case": Spend(eps_pure=10 * MILLION, eps_approx=10 * MILLION), "publishable": True,
            "configuration": {"mechanism": "toy", "epsilon": "1.0"},
            "artifact_hashes": {"table": digest("table").hex()}, "key": NOISE_KEY,
        }  # fmt: skip
        return self.ledger.releases.pin_release(dataset=dataset, column=column, release=release, **(stated | other))

    def keys(self, ref, ids, text="text"):
        return binaries([digest(ref.release, ref.column, ref.nonce, name, text) for name in ids])

    def charge(self, ref, ids, words, text="text", **spends):
        words = np.asarray(words)
        return Charge(ref, self.keys(ref, ids, text), words, {"eps_pure": words * MILLION, "rho": words, **spends})

    def reserve(self, ids, people, charges, scope=YEAR, cap=None, job="job-1", **options):
        people = None if people is None else pa.array(people, pa.string())
        return reserve_batch(self.ledger, job, scope, cap, pa.array(ids), people, charges, **options).tolist()

    def commit(self, ids, ref, output="out", job="job-1", text="text", **options):
        digests = binaries([digest("output", name, output) for name in ids])
        ready = self.ledger.examine(ref, pa.array(ids), self.keys(ref, ids, text), digests, **options)
        return self.ledger.commit(job, ready).tolist()


def write(url, id_key):
    """Fill a new ledger; returns the answer of each call."""
    with Ledger.open(url, id_key) as ledger:
        return _write(Writer(ledger))


def _write(book):
    said, ledger = {}, book.ledger
    cap = Cap(epsilon=20, period="2026")
    review, note = book.release(), book.release(column="note", refundable=True)
    ids, people = [f"r{i}" for i in range(12)], [f"u{i % 4}" for i in range(12)]
    words = [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6]
    canary = np.arange(12) == 11
    charges = [book.charge(review, ids, words), book.charge(note, ids, [1] * 12)]
    people[11] = None
    said["reserved"] = book.reserve(ids, people, charges, cap=cap, canary=canary)
    said["again"] = book.reserve(ids, people, charges, cap=cap, canary=canary, job="job-2")
    said["other text"] = book.reserve(ids[:1], people[:1], [book.charge(review, ids[:1], [1], "other")], cap=cap)
    said["over the cap"] = book.reserve(["x"], ["u0"], [book.charge(review, ["x"], [50])], cap=cap)
    first = [name for name, outcome in zip(ids[:6], said["reserved"], strict=False) if outcome == 0]
    said["committed"] = book.commit(first, review, positions=[1] * len(first))
    said["committed again"] = book.commit(first[:2], review)
    said["diverged"] = book.commit(first[:1], review, output="another")
    said["settled"] = book.commit(first, note, spent=np.arange(len(first)) * 100_000)
    said["canary"] = book.commit([ids[11]], review, canary=np.array([True]))
    said["replayed"] = book.reserve(first, people[: len(first)], [book.charge(review, first, words[: len(first)])])
    said["aborted"] = [
        book.reserve(["y", "z"], ["u7", "u8"], [book.charge(review, ["y", "z"], [1, 2])], job="job-3"),
        ledger.abort("job-3", compute_never_started=True, reason="never computed"),
    ]
    said["expired"] = ledger.expire("job-1", reason="will not be run again")
    ledger.releases.record_publication([review, note], "v1-0123456789ab", digest("manifest").hex(), 4, sink="here")
    said["caps"] = _caps(book)
    book.ledger.releases.revoke(book.release("r0"), "canaries_native")
    _lose(book)
    return said


def _caps(book):
    """Other measures, a group of datasets, a cap that is raised, infinite amounts, records as units."""
    group = Scope("notes", "all", group="people")
    zcdp = Cap(measure="zcdp", rho=9, period="all", group="people")
    approx = Cap(measure="approx", epsilon=3, delta=1e-3, period="2027")
    notes, metric = book.release(dataset="notes"), book.release(dataset="metric", nonce=3)
    ids = ["a", "b", "c"]
    said = [book.reserve(ids, ["u0", "u1", "u1"], [book.charge(notes, ids, [2, 3, 4])], scope=group, cap=zcdp)]
    infinite = {"eps_pure": [INFINITE] * 3, "eps_metric": [1, 2, 3]}
    records = Scope("metric", "all", unit="record")
    said.append(book.reserve(ids, None, [book.charge(metric, ids, [2, 2, 2], **infinite)], scope=records))
    book.ledger.set_cap(Scope("reviews", "2027"), approx, raising=True)
    book.ledger.set_cap(Scope("reviews", "2027"), approx.model_copy(update={"epsilon": 5.0}), raising=True)
    return said


def _lose(book):
    """A dataset that was frozen and thawed, and one that is frozen still."""
    lost = Scope("films", "2026")
    ref = book.release(dataset="films")
    book.reserve(["f"], ["u0"], [book.charge(ref, ["f"], [2])], scope=lost, cap=Cap(epsilon=9, period="2026"))
    book.ledger.losses.freeze("films", "restored from a copy", in_use=["2025-01"])
    book.ledger.losses.thaw("films", {"eps_pure": 4.0})
    book.ledger.losses.freeze("songs", "lost", missing=book.ledger.anchor())
