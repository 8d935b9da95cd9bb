"""Dagster runs as separate processes: a killed one, a canceled one, two at once, one process per step."""

import json
import os
import signal
import subprocess
import time

import pytest

from dptext_etl import run

from ..later import later
from .dagster_runs import kept
from .spark_runs import used

dg = later("dagster")
pytestmark = [pytest.mark.slow, pytest.mark.thorough]
PARTS = ("a", "b", "c")
PATIENCE = 1500
LOCATION = """\
import json, os, time
from pathlib import Path
import dagster as dg
from dptext_etl import Policy
from dptext_etl.orchestration import assets, build_definitions
HERE = Path(__file__).parent
stage = assets.engines.stage
def until_killed(policy, *, partition, **options):
    def checkpoint(name):
        if partition == "b" and name == "committed":
            (HERE / "half-way").touch()
            time.sleep({patience})
            raise TimeoutError
    return stage(policy, partition=partition, checkpoint=checkpoint, **options)
if "DPTEXT_TEST_KILL" in os.environ:
    assets.engines.stage = until_killed
policy = Policy.parse(json.loads((HERE / "policy.json").read_text()))
defs = build_definitions(policy, partitions={partitions}, {options})
"""
FORKING = 'dg.multiprocess_executor.configured({"start_method": {"forkserver": {"preload_modules": ["dagster._cli"]}}})'
"""A process per step, forked from one that has imported Dagster."""


@pytest.fixture
def start(warm):
    """Start Dagster over a code location in the folder of a job: its process, and the file of its output."""

    def started(job, policy, *command, options, partitions=None, home="home"):
        (job.folder / "policy.json").write_text(json.dumps(policy.model_dump(mode="json", by_alias=True)))
        said = LOCATION.format(options=options, partitions=partitions, patience=PATIENCE)
        (job.folder / "location.py").write_text(said)
        home, log = job.folder / home, job.folder / f"{home}.log"
        home.mkdir(exist_ok=True)
        (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        env = {**os.environ, "DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "yes"}
        program = [*warm, "-m", "dagster", *command, "-f", str(job.folder / "location.py")]
        with log.open("w") as output:
            return subprocess.Popen(program, cwd=job.folder, env=env, stdout=output, stderr=subprocess.STDOUT), log

    return started


def ended(process, log):
    """Wait for a process; one that hangs is killed, and its output is shown."""
    try:
        return process.wait(PATIENCE + 60), log.read_text()
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        pytest.fail(f"a process of Dagster hung and said: {log.read_text()}")


def partitioned(job, save, reviews):
    for number, name in enumerate(PARTS):
        save(reviews(120, 120 * number), job.folder / "raw" / f"{name}.parquet")
    return job.policy(
        source=f"{job.folder}/raw/{{partition}}.parquet", sink=f"{job.folder}/published/{{partition}}", shard_rows=50
    )


def test_steps_can_be_processes_of_their_own(make_job, start, sentinel):
    alone, several = make_job("alone"), make_job("several")
    alone.run()
    command = ("job", "execute", "-j", "run_reviews")
    code, said = ended(*start(several, several.policy(), *command, options=f"executor={FORKING}"))
    assert code == 0, said
    assert (said.count("Launching subprocess for"), several.files()) == (4, alone.files())
    assert several.charged() == alone.charged()
    assert sentinel not in said
    assert sentinel.encode() not in kept(several.folder / "home")


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])  # Dagster cancels a run by an interrupt
def test_a_backfill_that_was_killed_or_canceled_goes_on(make_job, start, save, reviews, monkeypatch, ending):
    reference, job = make_job("undisturbed"), make_job("killed")
    whole = partitioned(reference, save, reviews)
    for name in PARTS:
        run(whole, partition=name)
    everything = ("asset", "materialize", "--select", "*", "--partition-range", "a...c")
    options = {"options": 'backfill="single_run", executor=dg.in_process_executor', "partitions": list(PARTS)}
    policy = partitioned(job, save, reviews)
    monkeypatch.setenv("DPTEXT_TEST_KILL", "1")
    process, log = start(job, policy, *everything, **options)
    end = time.monotonic() + PATIENCE
    while not (job.folder / "half-way").exists():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
    os.kill(process.pid, ending)
    code, said = ended(process, log)
    assert code not in {None, 0}, said
    assert b"zzqsentinelqzz" not in kept(job.folder / "home")
    assert not list(job.folder.glob("published/*.manifest.json"))
    monkeypatch.delenv("DPTEXT_TEST_KILL")
    code, said = ended(*start(job, policy, *everything, **options))
    assert code == 0, said
    assert (job.files(), job.charged()) == (reference.files(), reference.charged())
    assert used(job) == used(reference)


def test_two_runs_of_one_partition_at_once_charge_it_once(make_job, start, save, reviews):
    """One of them may be refused, because the other holds the staging folder; a retry then finds the table."""
    reference, job = make_job("undisturbed"), make_job("twice")
    run(partitioned(reference, save, reviews), partition="a")
    command = ("asset", "materialize", "--select", "*", "--partition", "a")
    options = {"options": "executor=dg.in_process_executor", "partitions": list(PARTS)}
    policy = partitioned(job, save, reviews)
    both = [start(job, policy, *command, **options, home=home) for home in ("first", "second")]
    ends = [ended(*process) for process in both]
    assert 0 in [code for code, _ in ends], ends
    code, said = ended(*start(job, policy, *command, **options))
    assert code == 0, said
    assert (job.files(), job.charged()) == (reference.files(), reference.charged())
    assert used(job) == used(reference)
