"""A ledger restored from an old copy: frozen, thawed at a lower cap, its release names revoked."""

import random
import shutil

import pyarrow as pa
import pytest

from dptext_etl import Ledger
from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Scope

CAP = 1500.0


def test_a_ledger_restored_from_a_copy(drill, make_job):
    times = drill.count("restore", 2)
    chance, refused, forgotten = random.Random(4), 0, 0
    for round_ in range(times):
        job = make_job(f"job{round_}", cap={"measure": "pure", "epsilon": CAP, "period": "2026"})
        releases, copied = chance.randint(2, 4), 0
        for i in range(releases):
            job.run(release=f"r{i}")
            if i == 0 or (chance.random() < 0.4 and i < releases - 1):
                copied = i
                copy = shutil.copytree(job.folder, job.folder / f"copy{i}", ignore=shutil.ignore_patterns("copy*"))
        true = used(job)
        for path in job.folder.glob("ledger.db*"):
            path.unlink()
        for path in copy.glob("ledger.db*"):
            shutil.copy2(path, job.folder)
        old = used(job)
        forgotten += releases - 1 - copied
        for release in (*(f"r{i}" for i in range(releases)), "new"):
            with pytest.raises(LedgerError, match="is frozen"):
                job.run(release=release)
            refused += 1
        lost = max(true[name] - old[name] for name in true)
        assert lost > 0
        with Ledger.open(job.policy().ledger.url) as ledger:
            caps = ledger.thaw("reviews", {"eps_pure": lost / 10**6})
        (limit,) = (cap["eps_pure"] for cap in caps.values())
        lower = {"measure": "pure", "epsilon": limit / 10**6, "period": "2026"}
        for release in (f"r{i}" for i in range(releases)):
            with pytest.raises(LedgerError, match="is revoked"):
                job.run(release=release, cap=lower)
            refused += 1
        assert job.run(release="new", cap=lower).rows["new"] == 240
        more, summary = 0, None
        while summary is None or not summary.rows["quarantined"]:
            more += 1
            summary = job.run(release=f"new{more}", cap=lower)
        new = used(job)
        for name, amount in new.items():  # what this ledger knows, and what the copy had forgotten
            assert amount + true[name] - old[name] <= CAP * 10**6
        with job.ledger() as ledger:
            assert ledger.verify().ok
    drill.tell(
        "restore",
        f"{times} ledgers replaced by an older copy, {forgotten} releases forgotten in all",
        f"all {refused} runs before thawing and under revoked names were refused; after `thaw`, releases until caps "
        f"were met took no subject past the old cap, forgotten charges included; the ledgers verify",
    )


def used(job):
    people = [f"u{i:03d}" for i in range(40)]
    with job.ledger() as ledger:
        asked = ledger.remaining(Scope("reviews", "2026"), pa.array(people)).asked
    return {name: row["eps_pure"]["used"] for name, row in zip(people, asked, strict=True)}
