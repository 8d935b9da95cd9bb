"""The questions to a frozen job or ledger, and their answers as plain facts."""

import json
from contextlib import chdir
from pathlib import Path

import pyarrow as pa

from dptext_etl import Ledger, _kernel, run
from dptext_etl.checks.published import check_published
from dptext_etl.checks.sink_files import LocalSink
from dptext_etl.ledger import Scope
from dptext_etl.runner import scan_published

from . import facts, jobs

SAID = ("release", "partition", "version", "changed", "rows", "draws", "spend", "remaining", "published_rows", "digest")
BYTES = {"sha256", "digest", "version", "changed", "path", "published"}
"""What follows from the bytes of a Parquet file, which another Polars writes in another way."""


def of_ledger(url="sqlite:///ledger.db", id_key="file:ledger.key", units=()):
    """What a ledger says of itself: whether it verifies, its counts, releases, caps and what units have left."""
    with Ledger.open(url, id_key, create=False, read_only=True) as ledger:
        report = ledger.verify()
        return {
            "verify": report.as_dict(),
            "show": ledger.reports.show(),
            "caps": ledger.reports.caps(),
            "export": ledger.reports.export(),
            "frozen": ledger.losses.frozen(),
            "anchor": str(ledger.anchor()),
            "remaining": [ledger.remaining(scope, pa.array(names)).as_dict() for scope, names in units],
        }


def of_table(mechanism, cache):
    """Where a mechanism's law lies, what it is, and under which configuration it is released."""
    table, path = mechanism.table, mechanism.table.path
    law, policy = _kernel.Table.open(str(path), table.sha256), json.dumps(mechanism.input_policy())
    return {
        "path": str(path.relative_to(cache)),
        "sha256": table.sha256,
        "cfg": mechanism.cfg(),
        "facts": [law.law, law.sets, law.width, law.lists],
        "rows": {word: facts.attempted(lambda word=word: law.row(word, policy)) for word in ("the", "of", "zxqvyuu")},
    }


def charges(url="sqlite:///ledger.db"):
    """Records and commits by release and column: what a call that costs nothing leaves as it is."""
    with Ledger.open(url, create=False, read_only=True) as ledger:
        return [
            {name: row[name] for name in ("column", "release", "records", "committed", "canaries", "max_eps_pure")}
            for row in ledger.reports.show()
        ]


def of_run(policy, **options):
    """What a run did and cost; not what the clock says, nor sentences."""
    summary = run(policy, **options).as_dict()
    summary["digest"] = summary["manifest"]
    gates = sorted(gate["name"] for gate in summary["gates"] if gate["passed"])
    return {name: summary[name] for name in SAID} | {"passed": gates}


def of_sink(sink):
    """Manifest and rows as readers see them."""
    rows = scan_published(sink).collect()
    return {
        "manifest": json.loads(LocalSink.at(sink).manifest.read_bytes()),
        "schema": {name: str(dtype) for name, dtype in rows.schema.items()},
        "rows": json.loads(rows.write_json()),
    }


def of_check(sink, policy):
    """Which gates pass a published table."""
    return {verdict.name: verdict.passed for verdict in check_published(Path(sink), policy)}


UNITS = [(Scope("reviews", "2026"), [f"u{i}" for i in range(jobs.SUBJECTS)])]


def _reviews_opened():
    """Nothing is run: the ledger verifies, the published table is read and judged."""
    more = jobs.policy(jobs.REVIEWS, source="more.parquet")
    return {"ledger": of_ledger(units=UNITS), "sink": of_sink("published"), "check": of_check("published", more)}


def _reviews_again():
    """The same policy over the same rows, also as a release that is no longer added to."""
    return {
        "incremental": of_run(jobs.policy(jobs.REVIEWS, source="more.parquet")),
        "charges": charges(),
        "whole": of_run(jobs.policy(jobs.REVIEWS, source="more.parquet", incremental=False)),
        "charges after the whole": charges(),
        "sink": of_sink("published"),
    }


def _reviews_finished():
    """What was staged and committed is published; nothing is charged or drawn again."""
    policy = jobs.policy(jobs.REVIEWS, **jobs.STAGED)
    return {"run": of_run(policy), "sink": of_sink("published-12"), "charges": charges()}


def _reviews_continued():
    """New rows are added to the published ones; the old parts stay."""
    policy = jobs.policy(jobs.REVIEWS, source="later.parquet")
    return {"run": of_run(policy), "sink": of_sink("published"), "charges": charges(), "ledger": _verified()}


def _tickets_opened():
    return {
        "ledger": of_ledger(),
        "sink": of_sink("out/2026-01"),
        "check": of_check("out/2026-01", jobs.policy(jobs.TICKETS)),
    }


def _tickets_finished():
    """The ledger knew of the publication before readers did: the run is finished, the ledger told once."""
    policy = jobs.policy(jobs.TICKETS)
    return {
        "run": of_run(policy, partition="2026-02"),
        "again": of_run(policy, partition="2026-01"),
        "sink": of_sink("out/2026-02"),
        "charges": charges(),
        "ledger": _verified(),
    }


def _films_again():
    """A model's release is read from what was kept, not computed again."""
    return {
        "ledger": of_ledger(units=[(Scope("films", "2026"), ["u0", "u1", "u2"])]),
        "sink": of_sink("published"),
        "run": of_run(jobs.policy(jobs.FILMS)),
        "charges": charges(),
    }


def _verified():
    with Ledger.open("sqlite:///ledger.db", "file:ledger.key", create=False, read_only=True) as ledger:
        return ledger.verify().as_dict()


PROBES = {
    "reviews: opened": ("reviews", _reviews_opened),
    "reviews: again": ("reviews", _reviews_again),
    "reviews: finished": ("reviews", _reviews_finished),
    "reviews: continued": ("reviews", _reviews_continued),
    "tickets: opened": ("tickets", _tickets_opened),
    "tickets: finished": ("tickets", _tickets_finished),
    "films: again": ("films", _films_again),
}


def observe(name, folder):
    """Ask one question of a job's copy, from inside its folder."""
    with chdir(folder):
        return json.loads(json.dumps(PROBES[name][1]()))


def without_bytes(facts):
    """The same facts without what the bytes of a file decide."""
    if isinstance(facts, dict):
        return {name: without_bytes(item) for name, item in facts.items() if name not in BYTES}
    return [without_bytes(item) for item in facts] if isinstance(facts, list) else facts
