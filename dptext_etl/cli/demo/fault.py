"""Plant a bug for `dptext demo`: one changed word releases unknown words in clear.

The faulty mechanism makes the same claim as CusText and runs through the same `run`. No catalog lists it, and no other
code imports it. The gates must stop it, because the canary rows of every run hold words that no vocabulary has.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import Any

from dptext_etl import engines
from dptext_etl.cli.demo.forms import DemoFolder
from dptext_etl.cli.demo.requests import MONTHS
from dptext_etl.errors import GateError
from dptext_etl.mechanisms.custext import CusText
from dptext_etl.policy import ColumnPolicy, Policy


class LeakyCusText(CusText):
    """CusText with a mistake that a review can miss."""

    def input_policy(self) -> dict[str, Any]:
        """Keep unknown words, which strict mode should draw uniformly."""
        return {**super().input_policy(), "oov": "keep"}


class LeakyPolicy(Policy):
    """The demo's policy with the leaky mechanism instead of the correct one."""

    def column_policies(self) -> list[ColumnPolicy]:
        return [
            column.model_copy(update={"mechanism": LeakyCusText(**column.mechanism.model_dump())})
            for column in super().column_policies()
        ]


def run(folder: DemoFolder) -> None:
    engines.run(LeakyPolicy.load(folder.faulty), partition=next(iter(MONTHS)))


def stopped(folder: DemoFolder) -> dict[str, Any]:
    """Run the planted bug in a process of its own, and make sure that the gates stopped it."""
    command = ["demo", str(folder.path), "--planted-bug"]
    done = subprocess.run(  # noqa: S603  (our own interpreter and our own command)
        [sys.executable, "-m", "dptext_etl.cli", *command], capture_output=True, text=True, check=False
    )
    published = list(folder.faulty.parent.glob("published/*.manifest.json"))
    if done.returncode != GateError.exit_code or published:
        outcome = f"exit code {done.returncode}, {len(published)} tables published"
        hint = "this is a defect of dptext_etl: please report it"
        raise GateError(f"the planted bug was not stopped by a gate: {outcome}", hint)
    return {"command": f"dptext {shlex.join(command)}", "exit_code": done.returncode, "message": done.stderr.strip()}
