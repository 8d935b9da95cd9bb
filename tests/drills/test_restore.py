"""A ledger restored from an old copy: frozen, thawed at a lower cap, its release names revoked."""

import random
import shutil

import pyarrow as pa
import pytest

from dptext_etl import Ledger, run
from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Scope
from dptext_etl.policy import Cap

CAP, SHARED_CAP = 1500.0, 600.0
PERIODS = ("2025", "2026")
SHARING = ("reviews", "letters")


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
            caps = ledger.losses.thaw("reviews", {"eps_pure": lost / 10**6})
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
            summary = run(job.policy(release=f"new{more}", cap=lower), accept_fewer_rows=True)
        new = used(job)
        for name, amount in new.items():  # charges that this ledger knows, and those that the copy had forgotten
            assert amount + true[name] - old[name] <= CAP * 10**6
        with job.ledger() as ledger:
            assert ledger.verify().ok
    drill.tell(
        "restore",
        f"{times} ledgers replaced by an older copy, {forgotten} releases forgotten in all",
        f"all {refused} runs before thawing and under revoked names were refused; after `thaw`, releases until caps "
        f"were met took no subject past the old cap, forgotten charges included; the ledgers verify",
    )


def used(job, scope=Scope("reviews", "2026")):  # noqa: B008
    people = [f"u{i:03d}" for i in range(40)]
    with job.ledger() as ledger:
        amounts = ledger.used(scope, pa.array(people))["eps_pure"].tolist()
    return dict(zip(people, amounts, strict=True))


def test_a_ledger_whose_datasets_share_a_cap_restored_from_a_copy(drill, make_job, reviews):
    """Two datasets of a group, charged in two periods; anyone who runs first after the restore must notice for both."""
    times = drill.count("restore", 1)
    chance, refused, unseen = random.Random(9), 0, 0
    for round_ in range(times):
        jobs = {name: make_job(f"{name}{round_}", reviews(60), dataset=name, min_released=0) for name in SHARING}
        home = jobs["reviews"]
        jobs["letters"].values["ledger"] = {"url": f"sqlite:///{home.folder / 'ledger.db'}"}
        where = [(name, period) for name in SHARING for period in PERIODS]
        before = chance.sample(where, chance.randint(1, 3))
        after = [chance.choice(where) for _ in range(chance.randint(1, 3))]
        for at, (name, period) in enumerate(before):
            charge(jobs[name], f"before{at}", shared_cap(period))
        with home.ledger() as ledger:
            ledger.backup(home.folder / "copy.db")
        for at, (name, period) in enumerate(after):
            charge(jobs[name], f"after{at}", shared_cap(period))
        true = {period: used(home, Scope("reviews", period, "everybody")) for period in PERIODS}
        for path in home.folder.glob("ledger.db*"):
            if path.suffix != ".key":
                path.unlink()
        (home.folder / "copy.db").rename(home.folder / "ledger.db")
        old = {period: used(home, Scope("reviews", period, "everybody")) for period in PERIODS}
        for name, period in chance.sample(where, len(where)):
            with pytest.raises(LedgerError, match="is frozen"):
                jobs[name].run(release="new", cap=shared_cap(period))
            refused += 1
        lost = max(true[period][name] - old[period][name] for period in PERIODS for name in true[period])
        assert lost > 0
        with Ledger.open(home.policy().ledger.url) as ledger:
            known = ledger.losses.thaw(chance.choice(SHARING), {"eps_pure": lost / 10**6})
            assert ledger.losses.frozen() == []
            left = shared_cap("2026", SHARED_CAP - lost / 10**6)
            for period in PERIODS:
                if f"group:everybody, period {period}" not in known:
                    unseen += 1
                    less = left | {"period": period}
                    with pytest.raises(LedgerError, match="this ledger knows no cap of"):
                        jobs[chance.choice(SHARING)].run(release="new", cap=less)
                    ledger.set_cap(Scope("reviews", period, "everybody"), Cap(**less), raising=True)
        for period in PERIODS:
            more, met = 0, set()
            while met != set(SHARING):
                name, more = chance.choice(SHARING), more + 1
                summary = charge(jobs[name], f"new-{period}-{more}", left | {"period": period})
                met |= {name} if summary.rows["quarantined"] else set()
            for name, amount in used(home, Scope("reviews", period, "everybody")).items():
                assert amount + true[period][name] - old[period][name] <= SHARED_CAP * 10**6
        with home.ledger() as ledger:
            assert ledger.verify().ok
    drill.tell(
        "restore, a shared cap",
        f"{times} ledgers of two datasets with one cap per period replaced by an older copy, {unseen} periods that the "
        "copy never saw",
        f"all {refused} runs of both before thawing were refused, the one that ran first; one `thaw` settled both; "
        "after it, releases of both until caps were met took no subject past the old cap in any period, forgotten "
        "charges included; the ledgers verify",
    )


def charge(job, release, cap):
    """Run a job in a period, which is opened by name where others were charged before."""
    policy = job.policy(release=release, cap=cap)
    with Ledger.open(policy.ledger.url) as ledger:
        ledger.set_cap(Scope.of(policy), policy.cap, raising=True)
    return run(job.policy(release=release, cap=cap), accept_fewer_rows=True)


def shared_cap(period, epsilon=SHARED_CAP):
    return {"measure": "pure", "epsilon": epsilon, "period": period, "group": "everybody"}
