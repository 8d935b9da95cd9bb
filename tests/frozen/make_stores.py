"""Writes the frozen jobs and ledgers: `python -m tests.frozen.make_stores`. Kept for the record; see README.md.

It was run once, at the commit that README.md names. What it would write today is not what was frozen: never run it to
make a test pass.
"""

import os
import subprocess
import tempfile
from contextlib import chdir
from pathlib import Path

import polars as pl

import dptext_etl_models
from dptext_etl.files import sha256
from dptext_etl_models.inference.language_model import FILES
from tests.postgres_server import USER, PostgresServer, found

from . import events, jobs, names, packed, probes
from .make_bytes import HERE, written

FOREIGN = ("--", "\\", "SELECT pg_catalog.set_config", "SET ")
"""Lines of a dump that say which program wrote it, or that another version of the server does not know."""


def dump(folder):
    """The same in PostgreSQL, as statements that any version reads."""
    server = PostgresServer()
    try:
        with chdir(folder):
            events.write(server.url("frozen"), "file:ledger.key")
            anchor = probes.of_ledger(server.url("frozen"))["anchor"]
        options = [
            "-n",
            "frozen",
            "--no-owner",
            "--no-privileges",
            "--inserts",
            "-h",
            "127.0.0.1",
            "-p",
            str(server.port),
        ]
        done = subprocess.run([found("pg_dump"), *options, "-U", USER, "postgres"], check=True, capture_output=True)
    finally:
        server.remove()
    lines = [line for line in done.stdout.decode().splitlines() if line and not line.startswith(FOREIGN)]
    (HERE / "ledger.sql").write_text("\n".join(lines) + "\n")
    return anchor


def make_tables(folder):
    """Stored laws and what they were made from: an artifact cache."""
    os.environ["DPTEXT_CACHE"] = str(folder)
    return {label: probes.of_table(jobs.mechanism(label), folder) for label in jobs.TABLES}


def models():
    """What a release under a model that ships depends on: its files by their hashes."""
    places = (path for name in dptext_etl_models.names() for path in sorted(dptext_etl_models.path(name).iterdir()))
    return {
        f"{path.parent.name}/{path.name}": sha256(path) for path in places if path.name in {*FILES, "model.safetensors"}
    }


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPTEXT_CACHE"] = f"{folder}/cache"
        for name in jobs.JOBS:
            jobs.make(name, f"{folder}/{name}")
            packed.pack(f"{folder}/{name}", name)
        said = events.make(f"{folder}/events")
        packed.pack(f"{folder}/events", "events")
        events.make_rewritten(f"{folder}/rewriting")
        place, key = f"{folder}/events/ledger.db", f"file:{folder}/events/ledger.key"
        stored = {"polars": pl.__version__, "events: said": said, "events": probes.of_ledger(place, key)}
        stored["events in postgres: anchor"] = dump(f"{folder}/events")
        stored["models"] = models()
        for number, (question, (name, _)) in enumerate(probes.PROBES.items()):
            copy = packed.unpack(name, Path(folder) / f"copy{number}")
            stored[question] = probes.observe(question, copy)
        observed = names.observed(Path(folder))
        stored["tables"] = make_tables(Path(folder) / "tables")
        packed.pack(f"{folder}/tables", "tables")
        (HERE / "stores.json").write_text(written(stored))
        (HERE / "names.json").write_text(written(observed))


if __name__ == "__main__":
    main()
