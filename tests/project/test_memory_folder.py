"""Test runs that were killed leave nothing in memory once another one begins."""

import subprocess
import sys

from tests import memory_folder

HOLD = """
import os, sys, time
from pathlib import Path
from tests import memory_folder
memory_folder.lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_folders_of_dead_runs_go_and_that_of_a_live_one_stays(tmp_path):
    live, dead = tmp_path / "dptext-tests-live", tmp_path / "dptext-tests-dead"
    for folder in (live, dead):
        (folder / "pytest-of-a").mkdir(parents=True)
    command = [sys.executable, "-c", HOLD, str(live)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        memory_folder.remove_left_behind(tmp_path)
        assert live.exists()
        assert not dead.exists()
        process.kill()
    memory_folder.remove_left_behind(tmp_path)
    assert not live.exists()
