"""Many processes over the same keys and one cap: each key is charged once, no cap is passed, no batch is lost."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from dptext_etl import Ledger, _kernel

from .contender import EPSILON, SCOPE

RECORDS, CAP = 50, 30
"""Of each subject, and how many of them its cap lets through."""


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_eight_processes_and_one_cap(drill, tmp_path, request, warm, store):
    keys, writers = drill.count("keys", 4_000), drill.count("writers", 8)
    people, batch = keys // RECORDS, max(500, keys // 20)
    _kernel.Secret().write(str(tmp_path / "ids.key"))
    place = f"sqlite:///{tmp_path / 'ledger.db'}" if store == "sqlite" else request.getfixturevalue("postgres").url()
    asked = {"place": place, "id_key": f"file:{tmp_path / 'ids.key'}"}
    asked |= {"keys": keys, "people": people, "per_subject": CAP, "batch": batch}
    contender = str(Path(__file__).with_name("contender.py"))
    started = [
        subprocess.Popen(
            [*warm, contender, json.dumps(asked | {"name": f"writer-{i}"})],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(writers)
    ]
    said = []
    for process in started:
        out, err = process.communicate(timeout=1800)
        assert process.returncode == 0, err[-2000:]
        said.append(json.loads(out))
    total = Counter()
    for one in said:
        total.update(one["outcomes"])
        assert one["batches"] * batch == keys == sum(one["outcomes"].values()), "a batch was lost"
        assert one["committed"] == people * CAP
    assert (total["RESERVED"], total["OVER_CAP"]) == (people * CAP, writers * people * (RECORDS - CAP))
    with Ledger.open(place, asked["id_key"], read_only=True) as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        counts = {name: report.counts[name] for name in ("records", "committed", "pending")}
        asked_for = ledger.remaining(SCOPE, pa.array([f"p{i}" for i in range(people)])).asked
    assert counts == {"records": people * CAP, "committed": people * CAP, "pending": 0}
    assert {row["eps_pure"]["used"] for row in asked_for} == {CAP * EPSILON}
    name = {"sqlite": "SQLite", "postgres": "PostgreSQL"}[store]
    drill.tell(
        f"crowd on {name}",
        f"{writers} processes, each over the same {keys:,} keys of {people:,} subjects in {keys // batch} batches, in "
        f"orders of their own, reserving and committing on {name}",
        f"{total['RESERVED']:,} keys charged, each once; every subject stands at its cap of {CAP} exactly; all "
        f"{writers * (keys // batch)} batches answered, no process waited in vain; the ledger verifies",
    )
