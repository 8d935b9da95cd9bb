"""`udfs` re-exports the doors of the library and may be shadowed."""

import importlib
import subprocess
import sys

import pytest

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
