"""The ledgers of `tests/ledger_events.py`, each in a folder with the keys of the frozen jobs."""

from contextlib import chdir
from pathlib import Path

import pyarrow as pa

from dptext_etl.ledger import Ledger
from dptext_etl.policy import Cap

from ..ledger_events import Writer, binaries, digest, write
from . import jobs


def make(folder):
    """A SQLite ledger with its key in a new folder; returns what each call said."""
    Path(folder).mkdir(parents=True)
    jobs.write_keys(folder)
    with chdir(folder):
        return write("sqlite:///ledger.db", "file:ledger.key")


def make_rewritten(folder):
    """A SQLite ledger, later than the others, in which post-processing rewrote what was released."""
    Path(folder).mkdir(parents=True)
    jobs.write_keys(folder)
    with chdir(folder), Ledger.open("sqlite:///ledger.db", "file:ledger.key") as ledger:
        book, ids, chain = Writer(ledger), ["a", "b"], digest("chain").hex()
        ref = book.release()
        book.reserve(ids, ["u0", "u1"], [book.charge(ref, ids, [1, 2])], cap=Cap(epsilon=20, period="2026"))
        book.commit(ids, ref)
        hashes = {"cfg": digest("step").hex(), "model_hash": digest("model").hex()}
        step = {"name": "rewrite_again", **hashes, "training_provenance": "public"}
        ledger.post("job-1", ref, chain, [step], pa.array(ids), binaries([digest("again", name) for name in ids]))
