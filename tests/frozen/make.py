"""Write the frozen files: `python -m tests.frozen.make [NAME …]`. README.md says when; never to make a test pass.

Names are `ids`, `texts`, `kernel`, `polars`, `releases` (bytes) and `stores` (ledgers, folders, names); none means all.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from unittest import mock

HERE = Path(__file__).parent
FOREIGN = ("--", "\\", "SELECT pg_catalog.set_config", "SET ")
"""Lines of a dump that name the program that wrote it, or that another version of the server does not know."""


def written(value):
    """JSON that people can compare line by line."""
    lines = [f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in value.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def dump(folder):
    """Write the ledger of every event from PostgreSQL as statements that any version reads; return its anchor."""
    from tests.postgres_server import USER, PostgresServer, found

    from . import events, probes

    server = PostgresServer()
    try:
        with chdir(folder):
            events.write(server.url("frozen"), "file:ledger.key")
            anchor = probes.of_ledger(server.url("frozen"))["anchor"]
        options = ["-n", "frozen", "--no-owner", "--no-privileges", "--inserts", "-h", "127.0.0.1"]
        asked = [found("pg_dump"), *options, "-p", str(server.port), "-U", USER, "postgres"]
        done = subprocess.run(asked, check=True, capture_output=True)
    finally:
        server.remove()
    lines = [line for line in done.stdout.decode().splitlines() if line and not line.startswith(FOREIGN)]
    (HERE / "ledger.sql").write_text("\n".join(lines) + "\n")
    return anchor


def models():
    """The files of the models that ship, by their hashes."""
    import dptext_etl_models
    from dptext_etl.files import sha256
    from dptext_etl_models.inference.language_model import FILES

    places = (path for name in dptext_etl_models.names() for path in sorted(dptext_etl_models.path(name).iterdir()))
    return {
        f"{path.parent.name}/{path.name}": sha256(path) for path in places if path.name in {*FILES, "model.safetensors"}
    }


def make_stores(folder):
    """Write the archives, the dump, stores.json and names.json."""
    import polars as pl

    from . import events, jobs, names, packed, probes

    for name in jobs.JOBS:
        jobs.make(name, folder / name)
        packed.pack(folder / name, name)
    answers = events.make(folder / "events")
    packed.pack(folder / "events", "events")
    events.make_rewritten(folder / "rewriting")
    place, key = f"{folder}/events/ledger.db", f"file:{folder}/events/ledger.key"
    stored = {"polars": pl.__version__, "events: answers": answers, "events": probes.of_ledger(place, key)}
    stored["events in postgres: anchor"] = dump(folder / "events")
    stored["models"] = models()
    for number, (question, (name, _)) in enumerate(probes.PROBES.items()):
        with mock.patch.dict(os.environ, DPTEXT_ANCHORS=f"{folder}/anchors{number}"):  # copies are one ledger by its id
            stored[question] = probes.observe(question, packed.unpack(name, folder / f"copy{number}"))
    observed = names.observed(folder)
    os.environ["DPTEXT_CACHE"] = f"{folder}/tables"
    stored["tables"] = {label: probes.of_table(jobs.mechanism(label), folder / "tables") for label in jobs.TABLES}
    packed.pack(folder / "tables", "tables")
    (HERE / "stores.json").write_text(written(stored))
    (HERE / "names.json").write_text(written(observed))


def main(wanted):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ |= {"DPTEXT_CACHE": f"{folder}/cache", "DPTEXT_ANCHORS": f"{folder}/anchors"}
        from . import golden

        for name, observe in golden.PARTS.items():
            if not wanted or name in wanted:
                (HERE / f"{name}.json").write_text(written(observe(folder)))
        if not wanted or "stores" in wanted:
            make_stores(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
