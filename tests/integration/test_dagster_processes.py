"""Dagster runs as separate processes: two at once, a killed one, one process per step."""

import json
import os
import signal
import subprocess
import time

import pytest

from dptext_etl import Ledger
from dptext_etl.ledger import Scope

from ..later import later
from .dagster_runs import kept

dg = later("dagster")
pytestmark = [pytest.mark.slow, pytest.mark.thorough]
PARTS = ("a", "b", "c")
PATIENCE = 1500
SETTINGS = "telemetry:\n  enabled: false\n"
LOCATION = """\
import json, os, time
from pathlib import Path

import dagster as dg

from dptext_etl import Policy
from dptext_etl.orchestration import assets, build_definitions

HERE = Path(__file__).parent


def mark(name):
    (HERE / "marks" / name).touch()


def marks(pattern):
    return list((HERE / "marks").glob(pattern))


def until(reached, what):
    end = time.monotonic() + {patience}
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)


def marked(pattern, count):
    until(lambda: len(marks(pattern)) >= count, pattern)


policy = Policy.parse(json.loads((HERE / "policy.json").read_text()))
stage = assets.engines.stage
{body}
defs = build_definitions(policy, partitions={partitions}, {options})
"""


class Location:
    """A code location in a folder, with an instance of Dagster next to it."""

    def __init__(self, job, python):
        self.job, self.folder, self.home = job, job.folder, job.folder / "home"
        self._python = python
        self.home.mkdir()
        (self.folder / "marks").mkdir()
        (self.home / "dagster.yaml").write_text(SETTINGS)
        with dg.DagsterInstance.from_config(
            str(self.home)
        ) as instance:  # two processes at once must not make its tables
            assert instance.get_runs_count() == 0
            assert not instance.all_asset_keys()
        self._started = 0

    def write(self, policy, body="", options="", partitions=PARTS):
        (self.folder / "policy.json").write_text(json.dumps(policy.model_dump(mode="json", by_alias=True)))
        parts = partitions and list(partitions)
        said = LOCATION.format(body=body, options=options, partitions=parts, patience=PATIENCE)
        (self.folder / "location.py").write_text(said)

    def start(self, *command):
        env = {**os.environ, "DAGSTER_HOME": str(self.home), "DAGSTER_DISABLE_TELEMETRY": "yes"}
        program = [*self._python, "-m", "dagster", *command, "-f", str(self.folder / "location.py")]
        self._started += 1
        log = self.folder / f"process-{self._started}.log"
        with log.open("w") as said:
            process = subprocess.Popen(program, cwd=self.folder, env=env, stdout=said, stderr=subprocess.STDOUT)
        return process, log

    def run(self, partition):
        tags = json.dumps({"dagster/partition": partition})
        return self.start("job", "execute", "-j", "run_reviews", *(["--tags", tags] if partition else []))

    def marks(self, pattern="*"):
        return sorted(path.name for path in (self.folder / "marks").glob(pattern))

    def wait(self, mark, started):
        """Wait until a process has left its mark."""
        process, log = started
        end = time.monotonic() + PATIENCE
        while mark not in self.marks():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)

    def verified(self):
        with Ledger.open(str(self.folder / "ledger.db"), read_only=True, create=False) as ledger:
            report = ledger.verify()
            assert report.ok, report.problems
            return ledger.remaining(Scope("reviews", "2026")).used


@pytest.fixture
def locate(warm):
    """Make a job's code location: locate(job)."""
    return lambda job: Location(job, warm)


def ended(started):
    """Wait for a process; one that hangs is killed, and its output is shown."""
    process, log = started
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


@pytest.fixture
def undisturbed(make_job, save, reviews):
    """The same partitions, released one after the other only by the runner."""
    from dptext_etl import run

    job = make_job("undisturbed")
    policy = partitioned(job, save, reviews)
    for name in PARTS:
        run(policy, partition=name)
    with job.ledger() as ledger:
        used = ledger.remaining(Scope("reviews", "2026")).used
    return job, used


FORKING = 'dg.multiprocess_executor.configured({"start_method": {"forkserver": {"preload_modules": ["dagster._cli"]}}})'
"""A process per step, forked from one that has imported Dagster."""


def test_steps_can_be_processes_of_their_own(make_job, locate, sentinel):
    alone, several = make_job("alone"), make_job("several")
    alone.run()
    location = locate(several)
    location.write(several.policy(), options=f"executor={FORKING}", partitions=None)
    code, said = ended(location.run(None))
    assert code == 0, said
    assert said.count("Launching subprocess for") == 4
    assert several.files() == alone.files()
    assert several.charged() == alone.charged()
    assert sentinel not in said
    assert sentinel.encode() not in kept(location.home)


KILLED = """
def until_killed(policy, *, partition, **options):
    def checkpoint(name):
        if partition == "b" and name == "committed":
            mark("half-way")
            marked("never", 1)
    return stage(policy, partition=partition, checkpoint=checkpoint, **options)
if "DPTEXT_TEST_KILL" in os.environ:
    assets.engines.stage = until_killed
"""


def test_a_backfill_that_was_killed_goes_on(undisturbed, make_job, locate, save, reviews, monkeypatch):
    reference, used = undisturbed
    location = locate(make_job("killed"))
    location.write(
        partitioned(location.job, save, reviews),
        KILLED,
        options='backfill="single_run", executor=dg.in_process_executor',
    )
    everything = ("asset", "materialize", "--select", "*", "--partition-range", "a...c")
    monkeypatch.setenv("DPTEXT_TEST_KILL", "1")
    backfill = location.start(*everything)
    location.wait("half-way", backfill)
    os.kill(backfill[0].pid, signal.SIGKILL)
    assert ended(backfill)[0] == -signal.SIGKILL
    assert not (location.folder / "published").exists() or not list(location.folder.glob("published/*.manifest.json"))
    monkeypatch.delenv("DPTEXT_TEST_KILL")
    code, said = ended(location.start(*everything))
    assert code == 0, said
    assert location.job.files() == reference.files()
    assert location.job.charged() == reference.charged()
    assert location.verified() == used
