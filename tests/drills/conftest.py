"""How often a drill is repeated, its report, and processes that run policies and die when revealed."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dptext_etl import Ledger
from dptext_etl.ledger import Scope

from ..review_jobs import job, make_job, reviews, save, sentinel  # noqa: F401  (fixtures)

ORDERS = "DPTEXT_DRILLS"
"""What `run.py` asks for: {"counts": {name: number}, "out": file of figures}; without it, the suite's small counts."""


class Drill:
    """How often one drill is repeated, and its line of the table."""

    def __init__(self) -> None:
        self._asked = json.loads(os.environ.get(ORDERS, "{}"))
        self._began = time.perf_counter()

    def count(self, name: str, small: int) -> int:
        """The number asked for under a name, `small` in the suite."""
        return int(self._asked.get("counts", {}).get(name, small))

    @property
    def whole(self) -> bool:
        """Whether someone asked for drills, which then may last long."""
        return "out" in self._asked

    def tell(self, name: str, done: str, found: str) -> None:
        """Report the work and the findings; called last, when every assertion held."""
        seconds = time.perf_counter() - self._began
        if "out" in self._asked:
            with Path(self._asked["out"]).open("a") as file:
                file.write(json.dumps({"name": name, "done": done, "found": found, "seconds": seconds}) + "\n")


@pytest.fixture
def drill():
    return Drill()


class Zygote:
    """One process that forks runs; several of them run at once."""

    def __init__(self, folder: Path, before: tuple[str, ...] = ()) -> None:
        self.said = folder / f"said-{secrets.token_hex(4)}"
        self.steps = self.said.with_suffix(".steps")
        command = [*before, sys.executable, str(Path(__file__).with_name("zygote.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        assert self._process.stdout.readline() == "ready\n"

    def begin(self, policy, **how) -> None:
        """Start a run: `kill_after` is in seconds, and `file_limit` in bytes."""
        for path in (self.said, self.steps):
            path.unlink(missing_ok=True)
        values = policy.model_dump(mode="json", by_alias=True, exclude_none=True)
        order = {"policy": values, "said": str(self.said), "steps": str(self.steps), **how}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def end(self) -> dict:
        """Wait for it: exit status (-9 if killed), seconds, output, the steps that it reached."""
        answer = json.loads(self._process.stdout.readline())
        answer["said"] = self.said.read_text() if self.said.exists() else ""
        answer["steps"] = self.steps.read_text().splitlines() if self.steps.exists() else []
        assert answer["status"] != 1, "a run ended with an error that is none of ours"
        return answer

    def run(self, policy, **how) -> dict:
        self.begin(policy, **how)
        return self.end()

    def finish(self, policy, **how) -> dict:
        """Run a policy that nothing disturbs."""
        answer = self.run(policy, **how)
        assert answer["status"] == 0, answer
        return answer

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)


@pytest.fixture
def zygotes(tmp_path):
    """Start processes that fork runs."""
    started = []

    def make(*before: str) -> Zygote:
        started.append(Zygote(tmp_path, before))
        return started[-1]

    yield make
    for zygote in started:
        zygote.close()


class Books:
    """Facts that every way to run must leave equal: files, charges, balances; and a ledger that verifies."""

    def __init__(self, job, **changes) -> None:  # noqa: F811
        policy = job.policy(**changes)
        self.files = job.files()
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, read_only=True, create=False) as ledger:
            report = ledger.verify()
            assert report.ok, report.problems
            names = ("column", "release", "records", "committed", "canaries", "pending")
            self.charged = [tuple(row[name] for name in names) for row in ledger.reports.show()]
            self.used = ledger.remaining(Scope.of(policy)).used

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Books) and vars(self) == vars(other)

    __hash__ = None


@pytest.fixture
def books():
    return Books
