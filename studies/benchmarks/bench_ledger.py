"""Reserve and commit in batches of 100,000: records per second, and how the rate falls as the ledger grows.

    python studies/benchmarks/bench_ledger.py 1000000 [--unit subject|record] [--verify] [--postgres URL]

Goals: 250,000 records/s on SQLite, 100,000 on PostgreSQL; at most twice as slow at 10 M records as
at 1 M. `growth` compares the CPU time per record over the last million with that over the first, `growth_wall` the
clock. Ids and keys are made outside the clock; hashing them is inside.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptext_etl import _kernel
from dptext_etl.guarantee import Guarantee, GuaranteeClass, Spend
from dptext_etl.ledger import Charge, Ledger, Outcome, ReleaseRef, Scope
from dptext_etl.policy import Cap

BATCH = 100_000
WINDOW = 1_000_000
KEY = _kernel.Secret.from_bytes(bytes(range(32)))  # protects nothing here; processes of a benchmark share it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--unit", choices=("subject", "record"), default="subject")
    parser.add_argument("--folder", help="where the ledger is written; a temporary folder if absent")
    parser.add_argument("--postgres", metavar="URL", help="an empty schema of a PostgreSQL server, instead of SQLite")
    parser.add_argument("--batch", type=int, default=BATCH, help="records of a batch")
    parser.add_argument("--verify", action="store_true", help="verify the ledger afterwards, outside the clock")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        key = Path(folder) / "id.key"
        _kernel.Secret().write(str(key))
        place = options.postgres or str(Path(folder) / "ledger.db")
        how = (options.records, options.unit, options.batch)
        print(json.dumps(measure(place, f"file:{key}", *how, verify=options.verify)))


def measure(
    place: str, id_key: str, records: int, unit: Literal["subject", "record"], size: int, *, verify: bool
) -> dict[str, object]:
    random = np.random.default_rng(0)
    scope = Scope("bench", "2026", unit=unit)
    cap = Cap(epsilon=20_000, period="2026")
    walls, cpus = [], []
    with Ledger.open(place, id_key) as ledger:
        ref = registered(ledger)
        ledger.agree_on_cap(scope, cap)
        for start in range(0, records, size):
            ids, people = named(start, size, records)
            idem_keys, digests = hashes(random, size), hashes(random, size)
            words = random.integers(0, 400, size)
            epsilons = {"eps_pure": words * 2_000_000, "eps_tight": words * 1_900_001, "eps_approx": words * 2_000_000}
            spends = epsilons | {"delta": np.zeros(size, np.int64), "rho": words * 500_000}
            began, used = time.perf_counter(), time.process_time()
            ready = ledger.make_ready(unit, ids, people, [Charge(ref, idem_keys, words, spends)])
            outcome = ledger.reserve("bench", scope, cap, ready)
            ledger.commit("bench", ledger.examine(ref, ids, idem_keys, digests, positions=words))
            walls.append(time.perf_counter() - began)
            cpus.append(time.process_time() - used)
            if not (outcome == Outcome.RESERVED).all():
                raise SystemExit(f"expected {size} reserved, got {np.bincount(outcome)}")
        window = min(len(walls), max(1, WINDOW // size))
        report: dict[str, object] = {
            "work": f"ledger: reserve and commit, batches of {size:,}",
            "store": "postgresql" if "://" in place else "sqlite",
            "unit": unit,
            "records": records,
            "records_per_s": round(records / sum(walls)),
            "records_per_cpu_s": round(records / sum(cpus)),
            "first_million_per_cpu_s": round(window * size / sum(cpus[:window])),
            "last_million_per_cpu_s": round(window * size / sum(cpus[-window:])),
            "growth": round(sum(cpus[-window:]) / sum(cpus[:window]), 2),
            "growth_wall": round(sum(walls[-window:]) / sum(walls[:window]), 2),
            "slowest_batch_s": round(max(walls), 2),
            "file_mb": None if "://" in place else round(Path(place).stat().st_size / 1e6),
            "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        }
        if verify:
            began = time.perf_counter()
            report |= {"verified": ledger.verify().ok, "verify_s": round(time.perf_counter() - began, 1)}
    return report


NONE = np.zeros(BATCH, np.bool_)


def named(start: int, size: int, records: int) -> tuple[pa.Array, pa.Array]:
    """Name the records and people of a batch."""
    numbers = np.arange(start, start + size)
    people = numbers * 2_654_435_761 % max(1, records // 5)
    ids = pc.binary_join_element_wise("record-", pa.array(numbers).cast(pa.string()), "")
    return ids, pc.binary_join_element_wise("person-", pa.array(people).cast(pa.string()), "")


def registered(ledger: Ledger, dataset: str = "bench") -> ReleaseRef:
    """Pin the release that is charged."""
    return ledger.releases.pin_release(
        dataset=dataset,
        column="text",
        release="2026-11",
        cfg="0" * 64,
        id_type="string",
        mechanism="custext",
        guarantee=Guarantee(GuaranteeClass.COND_PURE, frozenset(), "texts of equal length", "word"),
        worst_case=Spend(),
        publishable=True,
        key=KEY,
    )


def hashes(random: np.random.Generator, size: int = BATCH) -> pa.Array:
    """Make identities or digests."""
    data = pa.py_buffer(random.bytes(32 * size))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), size, [None, data])


if __name__ == "__main__":
    main()
