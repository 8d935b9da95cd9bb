"""Killed at random moments, and two at once: runs that publish a table of Delta Lake or Iceberg commit one version."""

import random
import shutil
import time
from collections import Counter

import pytest

from dptext_etl.runner import scan_published

pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (extra: tables)")
pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed (extra: dev)")


def entry(form, job):
    if form == "delta":
        return {"format": "delta"}
    catalog = {"type": "sql", "uri": f"sqlite:///{job.folder}/catalog.db"}
    return {"format": form, "name": "public.reviews", "catalog": catalog}


def versions(form, job):
    """How many versions the table has, with its rows by the log, in the order of their ids."""
    if form == "delta":
        import deltalake

        table = deltalake.DeltaTable(str(job.folder / "published"))
        return table.version() + 1, table.to_pyarrow_table().sort_by("id")
    from pyiceberg.catalog import load_catalog

    table = load_catalog("default", **entry(form, job)["catalog"]).load_table("public.reviews")
    return len(table.snapshots()), table.scan().to_arrow().sort_by("id")


def named(form, job):
    """The names of the publications in the ledger; it verifies."""
    with job.ledger() as ledger:
        assert ledger.verify().ok
        return list(ledger.releases.published(ledger.releases.find_all(job.policy())["review"]))


def require_one_version(form, job, expected):
    count, rows = versions(form, job)
    assert (count, rows.column("id").to_pylist()) == (1, expected["id"].to_list())
    assert rows.column("review").to_pylist() == expected["review"].to_list()
    first, second = named(form, job)
    assert second.startswith(f"{first}@{form}-")


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_killed_and_two_at_once(drill, make_job, zygotes, form):
    times = drill.count("tables", 3)
    first, second = zygotes(), zygotes()
    whole = make_job("undisturbed")
    whole.values["table"] = entry(form, whole)
    answers = [first.run(whole.policy()), first.run(whole.policy())]
    assert [answer["status"] for answer in answers] == [0, 0], answers
    length, chance, ended = answers[0]["seconds"], random.Random(11), Counter()
    expected = scan_published(str(whole.folder / "published")).collect().sort("id")
    for _ in range(times):
        job = make_job("killed")
        job.values["table"] = entry(form, job)
        answer = first.run(job.policy(), kill_after=chance.uniform(0, length))
        ended[(answer["steps"] or ["nothing"])[-1] if answer["status"] else "the end"] += 1
        assert first.run(job.policy())["status"] == 0
        require_one_version(form, job, expected)
        shutil.rmtree(job.folder)
    refused = 0
    for _ in range(times):
        job = make_job("contended")
        job.values["table"] = entry(form, job)
        first.begin(job.policy())
        time.sleep(chance.uniform(0, length / 2))
        second.begin(job.policy())
        statuses = [first.end()["status"], second.end()["status"]]
        assert 0 in statuses
        refused += sum(status != 0 for status in statuses)
        require_one_version(form, job, expected)
        shutil.rmtree(job.folder)
    drill.tell(
        f"tables, {form}",
        f"{times} runs that publish a table, killed at a random moment and run again; {times} times two at once",
        f"one version each, named in the ledger; {len(ended)} last steps before a kill; {refused} runs refused as busy",
    )
