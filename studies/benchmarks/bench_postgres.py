"""The ledger on PostgreSQL: a separate server on this machine, reserve and commit in batches of 100,000.

    python studies/benchmarks/bench_postgres.py [--json]

Client and server share this machine's cores: rates are given per CPU-second of both together, and elapsed. Four
processes are compared with one by elapsed time, which needs two idle cores: each way runs three times, in
turn, and the fastest counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import postgres_writers
from measuring import HERE, Row, amount, main

from dptext_etl import _kernel

RECORDS = 1_000_000
SHARED = 1_200_000
LOG, FILE = 608, 16
GOAL = 100_000
WRITERS, TIMES, FASTER = 4, 3, 1.6


def rows() -> list[Row]:
    """Measure; no row, and a sentence, where PostgreSQL's programs are not installed."""
    sys.path.insert(0, str(HERE.parents[1] / "tests"))
    import postgres_server

    if postgres_server.missing() is not None:
        print(f"skipped: {postgres_server.missing()}", file=sys.stderr)
        return []
    server = postgres_server.PostgresServer()
    try:
        before = cpu_seconds(server)
        run = charged(server.url())
        both = RECORDS / run["records_per_cpu_s"] + cpu_seconds(server) - before
        context = writers(server)
    finally:
        server.remove()
    rate = RECORDS / both
    return [
        Row(
            "ledger on PostgreSQL, reserve and commit, a million records",
            f"{amount(rate)} records/CPU-s of client and server together (elapsed "
            f"{amount(run['records_per_s'])}/s, only the client {amount(run['records_per_cpu_s'])}/CPU-s)",
            "100 k records/CPU-s",
            rate / GOAL,
            ">= 1",
            rate >= GOAL,
        ),
        *context,
    ]


def writers(server: Any) -> list[Row]:
    """Compare four processes with one, which has one scope: all in that scope, and each in its own."""
    ways = ((1, 1), (WRITERS, 1), (WRITERS, WRITERS))
    runs_of: dict[tuple[int, int], list[dict[str, Any]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "id.key"
        _kernel.Secret().write(str(key))
        for _ in range(TIMES):
            for (count, scopes), runs in runs_of.items():
                settle(server)
                order = (server.url(), f"file:{key}", count, SHARED, scopes, 100_000)
                runs.append(postgres_writers.measure(*order, server_cpu=lambda: cpu_seconds(server)))
    one, *four = (min(runs_of[way], key=lambda run: run["seconds"]) for way in ways)
    return [_compared(one, each) for each in four]


def _compared(one: dict[str, Any], four: dict[str, Any]) -> Row:
    ratio = one["seconds"] / four["seconds"]
    used = [run["client_cpu_s"] + run["server_cpu_s"] for run in (one, four)]
    return Row(
        f"ledger on PostgreSQL, {WRITERS} processes, {'one scope' if four['scopes'] == 1 else 'a scope each'}",
        f"{amount(four['records_per_s'])} records/s; {used[1]:.1f} CPU-s of client and server "
        f"(one process {used[0]:.1f}), {four['waited_s']:.1f} s of waiting for turns",
        f"one process: {amount(one['records_per_s'])} records/s",
        ratio,
        f">= {FASTER}",
        ratio >= FASTER,
    )


def settle(server: Any) -> None:
    """Bring a server to the state of one that has run for long: its log has files, no run pays for what another wrote.

    A new server makes each file of its log when it first needs it, and fills it with zeros.
    """
    import psycopg

    with psycopg.connect(server.url().partition("?")[0], autocommit=True) as connection:
        if connection.execute("show min_wal_size").fetchone() != (f"{LOG}MB",):
            connection.execute(f"alter system set min_wal_size = '{LOG}MB'")
            connection.execute("alter system set max_wal_size = '4GB'")
            connection.execute("select pg_reload_conf()")
            for _ in range(LOG // FILE):
                connection.execute("select pg_logical_emit_message(false, 'dptext', '')")
                connection.execute("select pg_switch_wal()")
        connection.execute("checkpoint")


def charged(url: str) -> dict[str, Any]:
    """Run the ledger's benchmark against a schema."""
    command = [sys.executable, str(HERE / "bench_ledger.py"), str(RECORDS), "--postgres", url]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def cpu_seconds(server: Any) -> float:
    """Processor time of a server so far: of its first process, of those it started, of those that have ended."""
    first = int((Path(server.data) / "postmaster.pid").read_text(encoding="utf-8").split()[0])
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(stat.parent.name) == first:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == first:
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(rows)
