"""`udfs` re-exports the doors of the library and may be shadowed; killed test runs leave nothing in memory."""

import importlib
import subprocess
import sys

import pytest

from tests import memory_folder

DOORS = {
    "polars": {
        *("SPEND", "DataFrameNamespace", "ExprNamespace", "LazyFrameNamespace"),
        *("guard", "label", "privatize", "released", "run_frame"),
    },
    "spark": {
        *("LedgerSpec", "function", "guard", "label_function"),
        *("published", "register", "register_view", "run_frame"),
    },
}


@pytest.mark.parametrize("engine", DOORS)
def test_udfs_re_exports_the_door(engine):
    door, other = importlib.import_module(f"dptext_etl.{engine}"), importlib.import_module(f"udfs.{engine}")
    assert set(door.__all__) == set(other.__all__) == DOORS[engine]
    assert all(getattr(door, name) is getattr(other, name) for name in DOORS[engine])


def test_a_users_own_folder_udfs_stands_in_nobodys_way(tmp_path):
    (tmp_path / "udfs.py").write_text("mine = True\n")
    program = (
        "import udfs, polars, dptext_etl.polars, dptext_etl.spark, dptext_etl.cli; "
        "from dptext_etl.spark import guard, run_frame, register; "
        "assert udfs.mine and polars.col('a').dptext and not dptext_etl.polars.__file__ == polars.__file__"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
