"""A start imports only modules that it uses. The benchmarks report its duration."""

import json
import subprocess
import sys

import polars as pl
import pytest

from dptext_etl import _kernel
from tests.policy_files import write_policy
from tests.quick import quick

HEAVY = ("dagster", "great_expectations", "huggingface_hub", "pandas", "pyspark", "scipy", "torch", "transformers")
TABLES = ("attr", "markdown_it", "pygments", "rich")
"""What prints on a terminal; a pipe, and help, need none of it."""
COLUMNS = ("numpy", "polars", "pyarrow", "dptext_etl._kernel", "dptext_etl.ledger", "dptext_etl.runner")
SPIED = """
import atexit, json, sys
watched, sys.argv = json.loads(sys.argv[1]), ["dptext", *sys.argv[2:]]
atexit.register(lambda: print(json.dumps([name for name in watched if name in sys.modules]), file=sys.stderr))
"""
COMMAND = f"{SPIED}from dptext_etl.cli import main\nmain()"


def imported(program, watched, *words, folder=None):
    """Which of some modules a Python that ran `program` has imported when it ends."""
    command = [sys.executable, "-c", program, json.dumps(watched), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1])


def test_the_package_and_a_preview_import_nothing_heavy(tmp_path):
    assert imported(f"{SPIED}import dptext_etl", [*HEAVY, *COLUMNS, "typer", "rich"]) == []
    assert imported(COMMAND, ["polars", "dptext_etl.ledger", "dptext_etl.runner", *HEAVY], "preview", "custext") == []


@pytest.mark.parametrize(
    "words", quick([["run", "--help"], ["train", "--help"], ["--help"], ["--version"]], first=2), ids=str
)
def test_help_needs_no_columns(words):
    if "train" in words:
        pytest.importorskip("dptext_etl_models")
    assert imported(COMMAND, [*HEAVY, *TABLES, *COLUMNS], *words) == []


def test_only_the_command_that_runs_is_built():
    built = """
import atexit, sys
import typer.main
from dptext_etl.cli import main
made, build = [], typer.main.get_command_from_info
typer.main.get_command_from_info = lambda info, **how: made.append(info.callback.__name__) or build(info, **how)
sys.argv[0] = "dptext"
atexit.register(lambda: print("BUILT", *(name for name in made if not name.startswith("_with_"))))  # shared options
main()
"""
    for words, names in ((["--help"], ""), (["run", "--help"], " run")):
        done = subprocess.run([sys.executable, "-c", built, *words], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == f"BUILT{names}"


def test_a_run_needs_no_pandas_and_no_bar(tmp_path, small_vectors):
    """pyarrow imports pandas for the first list that it sees, a third of a second, unless it has settled not to."""
    _kernel.Secret().write(str(tmp_path / "noise.key"))
    pl.DataFrame({"id": range(60), "text": ["the good words"] * 60}).write_parquet(tmp_path / "raw.parquet")
    mechanism = {"name": "custext", "epsilon": 2.0, "k": 5, "vectors": small_vectors}
    values = {"dataset": "d", "id": "id", "release": "r", "source": "raw.parquet", "sink": "out", "unit": "record"}
    values |= {"ledger": {"url": "l.db"}, "key": "file:noise.key"}
    values |= {"column": [{"name": "text", "mechanism": mechanism, "allow": ["cluster"]}]}
    path = write_policy(tmp_path / "privacy.toml", values)
    for command in ("plan", "run"):
        assert imported(COMMAND, [*HEAVY, *TABLES, "dp_accounting"], command, path, folder=tmp_path) == []
    assert pl.read_parquet(tmp_path / "out" / "**" / "*.parquet").height == 60


def test_pandas_can_still_be_imported():
    pytest.importorskip("pandas", reason="pandas is not installed")
    program = """
from dptext_etl.cli.options import skip_pandas
skip_pandas()
import sys
import pyarrow as pa
arrays = [pa.array(given) for given in ([1, None], ["a"], [1.5], [b"x"], [{"a": 1}])]
assert "pandas" not in sys.modules
frame = pa.table({"a": arrays[0]}).to_pandas()
assert "pandas" in sys.modules and frame["a"].isna().tolist() == [False, True]
assert pa.array(frame["a"]).null_count == 1
assert pa.Table.from_pandas(frame).num_rows == 2
skip_pandas()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
