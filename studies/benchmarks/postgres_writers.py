"""Reserve and commit from several processes at once, against one ledger on PostgreSQL.

    python studies/benchmarks/postgres_writers.py URL --writers 4 --records 800000 [--scopes 4] [--batch 100000]

Every writer makes its batches first and waits for the others; the clock runs from then until the last batch is
committed. Writers end together after that: the time to end a process of Python is not work of the ledger.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench_ledger import hashes, registered

from dptext_etl import _kernel
from dptext_etl.ledger import Charge, Ledger, Scope
from dptext_etl.policy import Cap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="an empty schema of a PostgreSQL server")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--records", type=int, default=1_200_000)
    parser.add_argument("--scopes", type=int, default=1, help="datasets; writers take turns at them")
    parser.add_argument("--batch", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "id.key"
        _kernel.Secret().write(str(key))
        print(
            json.dumps(
                measure(options.url, f"file:{key}", options.writers, options.records, options.scopes, options.batch)
            )
        )


def measure(
    url: str,
    id_key: str,
    writers: int,
    records: int,
    scopes: int,
    batch: int,
    server_cpu: Callable[[], float] = lambda: 0.0,
) -> dict[str, Any]:
    """Run the writers, and return records per second of all of them, and their resources.

    Args:
        url: An empty schema.
        id_key: Reference to the id key of the ledger.
        writers: Processes.
        records: Of all writers together.
        scopes: Datasets, each with its own cap.
        batch: Records of a batch.
        server_cpu: Returns the processor time of the server so far.
    """
    with Ledger.open(url, id_key) as ledger:
        for number in range(scopes):  # caps are pinned before the clock starts
            ledger.agree_on_cap(*_scope(number))
            registered(ledger, f"bench{number}")
    start = multiprocessing.get_context("spawn")
    ready, answers = start.Barrier(writers + 1), start.Queue()
    batches = records // batch // writers
    orders = [(url, id_key, number, number % scopes, batches, batch) for number in range(writers)]
    started = [start.Process(target=write, args=(ready, answers, *order)) for order in orders]
    for process in started:
        process.start()
    ready.wait()
    began, server = time.perf_counter(), server_cpu()
    text = [answers.get() for _ in started]
    took, server = time.perf_counter() - began, server_cpu() - server
    ready.wait()
    for process in started:
        process.join()
    done = batches * batch * writers
    with Ledger.open(url, id_key) as ledger:
        report = ledger.verify()
        if not report.ok or report.counts["committed"] != done:
            raise SystemExit(f"the ledger does not verify: {report.problems[:3]}, {report.counts}")
    return {
        "writers": writers,
        "scopes": scopes,
        "records": done,
        "seconds": round(took, 2),
        "records_per_s": round(done / took),
        "client_cpu_s": round(sum(one["cpu_s"] for one in text), 2),
        "server_cpu_s": round(server, 2),
        "waited_s": round(sum(one["waited_s"] for one in text), 2),
    }


def write(ready: Any, answers: Any, url: str, id_key: str, number: int, scope: int, batches: int, batch: int) -> None:
    """Reserve and commit batches of one writer."""
    random = np.random.default_rng(number)
    where, cap = _scope(scope)
    made = [_batch(random, number, at, batch) for at in range(batches)]
    with Ledger.open(url, id_key) as ledger:
        ref, waited = registered(ledger, where.dataset), _watch(ledger)
        ready.wait()
        used = _cpu()
        for at, (ids, people, idem_keys, digests, words, spends) in enumerate(made):
            job = f"writer-{number}-{at}"
            ready = ledger.make_ready(where.unit, ids, people, [Charge(ref, idem_keys, words, spends)])
            ledger.reserve(job, where, cap, ready)
            ledger.commit(job, ledger.examine(ref, ids, idem_keys, digests, positions=words))
        answers.put({"cpu_s": _cpu() - used, "waited_s": waited()})
        ready.wait()


def _watch(ledger: Ledger) -> Any:
    """Return what says how long a writer waited for its turns."""
    store, total = ledger._db.store, [0.0]  # noqa: SLF001
    real = store._wait  # type: ignore[attr-defined]  # noqa: SLF001

    def timed(*args: Any) -> None:
        began = time.perf_counter()
        try:
            real(*args)
        finally:
            total[0] += time.perf_counter() - began

    store._wait = timed  # type: ignore[attr-defined]  # noqa: SLF001
    return lambda: total[0]


def _batch(random: np.random.Generator, number: int, at: int, size: int) -> tuple[Any, ...]:
    ids = _named(f"record-{number}-{at}-", np.arange(size))
    people = _named("person-", random.integers(0, 160_000, size))
    words = random.integers(0, 400, size)
    epsilons = {"eps_pure": words * 2_000_000, "eps_tight": words * 1_900_001, "eps_approx": words * 2_000_000}
    spends = epsilons | {"delta": np.zeros(size, np.int64), "rho": words * 500_000}
    return ids, people, hashes(random, size), hashes(random, size), words, spends


def _named(before: str, numbers: Any) -> pa.Array:
    return pc.binary_join_element_wise(before, pa.array(numbers).cast(pa.string()), "")


def _scope(number: int) -> tuple[Scope, Cap]:
    return Scope(f"bench{number}", "2026"), Cap(epsilon=20_000_000, period="2026")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
