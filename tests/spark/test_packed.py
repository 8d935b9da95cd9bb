"""An environment packed by `deploy/pack`: workers of a cluster have only the archive, and compute with it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dptext_etl import Ledger

from .test_drills import ROWS, application, asked, expected

__all__ = ["asked"]  # a fixture
pytestmark = [pytest.mark.alone, pytest.mark.thorough, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
NO_INDEX = ("No matching distribution", "Could not find a version", "Temporary failure in name resolution")


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of this checkout; compiled files of the checkout are used again."""
    if shutil.which("cargo") is None:
        pytest.skip("a wheel needs Rust (cargo)")
    folder = tmp_path_factory.mktemp("wheel")
    maturin = str(Path(sys.executable).with_name("maturin"))
    built = run(maturin, "build", "--quiet", "--release", "--locked", "--out", str(folder))
    assert built.returncode == 0, built.stderr[-4000:]
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def archive(wheel, tmp_path_factory):
    """The archive, made by the command of docs/spark.md."""
    made = tmp_path_factory.mktemp("archive") / "environment.tar.gz"
    packed = run("deploy/pack", str(wheel), str(made))
    if any(said in packed.stderr for said in NO_INDEX):
        pytest.skip("packages cannot be fetched here")
    assert packed.returncode == 0, packed.stderr[-4000:]
    return made


def test_workers_compute_with_nothing_but_the_archive(archive, cluster, asked, tmp_path):
    asked["settings"] |= {"spark.archives": f"{archive}#environment", "spark.executor.memory": "512m"}
    asked["settings"] |= {"spark.executor.cores": "2", "spark.cores.max": "2"}  # one executor: one copy is unpacked
    asked |= {"master": cluster, "one_machine": True}
    asked["queries"] = [
        "SELECT DISTINCT where_computed(review) AS place FROM films",
        "SELECT n, private_review(review, id) AS review FROM films",
    ]
    python = "./environment/bin/python"
    (places, out), _ = application(asked, tmp_path, PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=sys.executable)
    for place in {path for (said,) in places for path in said.split()}:
        assert "/environment/" in place, "a library of this checkout reached the worker"
        assert "/app-" in place, "the worker computes elsewhere than in its own folder"
    assert [text for _, text in sorted(out)] == expected(asked)
    with Ledger.open(asked["ledger"], create=False) as ledger:
        report = ledger.verify()
    assert report.ok, report.problems
    assert report.counts["committed"] == len(ROWS)


def test_the_images_last_step_runs_where_nothing_else_is_installed(archive, tmp_path):
    """The image installs the packages of the archive (tests/docs/test_deploy.py), and tries it by an import."""
    tried = re.search(r'^RUN python3 (-c) "(.+)"$', (ROOT / "deploy" / "Dockerfile").read_text(), flags=re.MULTILINE)
    shutil.unpack_archive(archive, tmp_path, filter="tar")
    done = subprocess.run([tmp_path / "bin" / "python", *tried.groups()], env={}, cwd=tmp_path, check=False)
    assert done.returncode == 0
