"""The image under deploy/ is built from what the repository has and pins, and does not run as root."""

import re
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")


def test_spark_and_its_python_package_have_one_version():
    pinned = re.search(r"^pyspark==(\S+)", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert re.findall(r"^ARG SPARK=(\S+)", IMAGE, flags=re.MULTILINE) == [pinned[1]]
    assert "--constraint /tmp/install/constraints.txt" in IMAGE


def test_it_runs_as_another_user_than_root():
    users = re.findall(r"^USER (\S+)", IMAGE, flags=re.MULTILINE)
    assert users == ["185"]
    assert IMAGE.index("USER") < IMAGE.index("ENTRYPOINT")


def test_it_imports_what_workers_import():
    tried = re.search(r'python3 -c "import (.+)"', IMAGE)
    assert all(find_spec(name) for name in tried[1].split(", "))
