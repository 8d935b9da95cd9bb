"""A ledger restored from a copy, or lost: the next run notices, freezes the dataset, and says how to continue.

Specification: docs/spec/privacy.md#lost-ledger.
"""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from dptext_etl import run
from dptext_etl.cli.app import app
from dptext_etl.errors import LedgerError
from dptext_etl.ledger import Ledger
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.shard.attempt import FILE, remember


def ledger_files(job):
    return sorted(job.folder.glob("ledger.db*"))


def dptext(*arguments):
    outcome = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def test_a_ledger_restored_from_an_old_copy_is_noticed(make_job, tmp_path, reviews, save):
    job = make_job()
    job.run()
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in ledger_files(job):
        shutil.copy2(path, copy)
    save(reviews(300), job.folder / "raw.parquet")
    job.run(release="2026-12")
    for path in ledger_files(job):
        path.unlink()
    for path in copy.iterdir():
        shutil.copy2(path, job.folder)
    for release in ("2026-12", "2027-01"):
        with pytest.raises(LedgerError, match="the dataset reviews is frozen: this ledger misses the head"):
            job.run(release=release)
    assert dptext("ledger", "freeze", "reviews", "--reason", "x", "--ledger", job.folder / "ledger.db")["frozen"] == [
        "reviews"
    ]
    asked = (
        "ledger",
        "thaw",
        "reviews",
        "--lost",
        "eps_pure=400",
        "--reason",
        "restored",
        "--ledger",
        job.folder / "ledger.db",
    )
    refused = CliRunner().invoke(app, [*map(str, asked)])
    assert refused.exit_code == 5, "asked and not answered"
    assert (
        "Thaw reviews and all datasets that froze with it, revoke release names, and lower caps by eps_pure 400?"
        in (refused.output)
    )
    caps = dptext(*asked, "--yes")["caps"]
    assert caps == {"dataset:reviews, period 2026": {"eps_pure": 600.0}}
    with pytest.raises(LedgerError, match="pinned at 600; the policy asks for more"):
        job.run(release="2027-01")
    cap = {"measure": "pure", "epsilon": 600.0, "period": "2026"}
    for release in ("2026-11", "2026-12"):
        with pytest.raises(LedgerError, match="is revoked"):
            job.run(release=release, cap=cap)
    assert job.run(release="2027-01", cap=cap).rows["new"] > 0
    assert job.run(release="2027-01", cap=cap).rows["new"] == 0
    assert dptext("ledger", "verify", "--ledger", job.folder / "ledger.db")["ok"]


def test_a_lost_ledger_is_noticed(make_job):
    job = make_job()
    job.run()
    for path in ledger_files(job):
        path.unlink()
    with pytest.raises(LedgerError, match="bring the right ledger back"):
        job.run()
    place = ("--reason", "restored", "--ledger", job.folder / "ledger.db")
    dptext("ledger", "thaw", "reviews", "--yes", *place)
    with pytest.raises(LedgerError, match="knows no cap of dataset:reviews, period 2026 that it lowered"):
        job.run()
    dptext("ledger", "set-cap", "reviews", "--epsilon", 1000, "--period", "2026", "--yes", *place)
    with pytest.raises(LedgerError, match="'2026-11' of reviews is revoked"):
        job.run()


@pytest.mark.parametrize("staging", [None, "staging"])
def test_a_lost_ledger_is_noticed_by_the_next_partition(make_job, reviews, save, staging):
    job = make_job()
    for at, name in enumerate(("2026-01", "2026-02")):
        (job.folder / "raw").mkdir(exist_ok=True)
        save(reviews(60, 1000 * at), job.folder / "raw" / f"{name}.parquet")
    paths = {"source": str(job.folder / "raw/{partition}.parquet"), "sink": str(job.folder / "out/{partition}")}
    policy = job.write_policy(**paths, staging=staging and str(job.folder / staging))
    assert run(policy, partition="2026-01").rows["released"] == 60
    for path in ledger_files(job):
        path.unlink()
    with pytest.raises(LedgerError, match="bring the right ledger back"):
        run(policy, partition="2026-02")


def test_heads_are_remembered_by_runs_side_by_side(make_job):
    job = make_job()
    with Ledger.open(str(job.folder / "other.db")) as ledger, ThreadPoolExecutor(8) as pool:
        layout = Layout.of(job.policy(), None)
        list(pool.map(lambda at: remember(ledger, layout.memory, job.policy(release=f"r{at}")), range(200)))
    assert [path.name for path in layout.memory.folder.iterdir()] == [FILE]
    assert json.loads((layout.memory.folder / FILE).read_text())["releases"]


def test_a_ledger_that_went_on_elsewhere_is_the_same(make_job):
    job = make_job()
    job.run()
    before = dptext("ledger", "anchor", "--ledger", job.folder / "ledger.db")["anchor"]
    job.run(release="2026-12")
    assert dptext("ledger", "verify", "--anchor", before, "--ledger", job.folder / "ledger.db")["ok"]
    forged = before[:-4] + "0000"
    outcome = CliRunner().invoke(
        app, ["ledger", "verify", "--anchor", forged, "--ledger", str(job.folder / "ledger.db")]
    )
    assert outcome.exit_code == 4
    assert "does not hold the anchor of event" in outcome.output


def test_a_ledger_is_made_by_command(tmp_path):
    place = tmp_path / "new.db"
    assert dptext("ledger", "init", "--ledger", place)["made"]
    assert not dptext("ledger", "init", "--ledger", place)["made"]
