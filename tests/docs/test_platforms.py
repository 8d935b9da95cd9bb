"""The dbt model of docs/table-formats.md: with what dbt hands to a model, and with dbt itself where it is installed."""

import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from dptext_etl import Ledger, Policy, _kernel, run

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra: dev)")
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "table-formats.md").read_text(encoding="utf-8").partition("{#dbt}")[2]
(POLICY,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
(MODEL,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
RAW = "select 'r' || i as id, i % 5 as stars, 'a good film with a bad ending' as review from range(100) t(i)"
PROJECT = {
    "dbt_project.yml": 'name: demo\nversion: "1.0.0"\nprofile: demo\n',
    "profiles.yml": "demo:\n  target: dev\n  outputs:\n    dev:\n      type: duckdb\n      path: demo.duckdb\n",
    "models/raw_reviews.sql": RAW,
    "models/released_reviews.py": MODEL,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _kernel.Secret().write("noise.key")
    Path("privacy.toml").write_text(POLICY)
    return tmp_path


def require_released(rows):
    """The rows are the release's rows: all ids, kept columns as they were, other texts, one charge each."""
    assert [row[:2] for row in sorted(rows)] == sorted((f"r{i}", i % 5) for i in range(100))
    assert "a good film with a bad ending" not in {text for *_, text in rows}
    assert len({text for *_, text in rows}) > 90
    with Ledger.open("sqlite:///runs.db", create=False) as ledger:
        assert ledger.verify().ok
        assert [row["committed"] for row in ledger.reports.show()] == [row["records"] for row in ledger.reports.show()]


def test_the_model_publishes_what_it_returns_and_costs_nothing_again(folder):
    connection = duckdb.connect()
    connection.sql(f"create table raw_reviews as {RAW}")
    said = []
    dbt = SimpleNamespace(config=lambda **given: said.append(given), ref=connection.table)
    made = {}
    exec(MODEL, made)
    released = connection.from_arrow(made["model"](dbt, connection))
    rows = released.fetchall()
    require_released(rows)
    assert said == [{"materialized": "table"}]
    assert sorted(connection.from_arrow(made["model"](dbt, connection)).fetchall()) == sorted(rows)


NEEDS_DBT = pytest.mark.skipif(
    shutil.which("dbt") is None, reason="dbt is not installed (dbt-core 1.10 and dbt-duckdb 1.9)"
)


def dbt(command, files):
    """Write the files of a project, and run a command of dbt in it."""
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    done = subprocess.run(["dbt", command, "--profiles-dir", "."], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@NEEDS_DBT
def test_dbt_runs_the_model(folder):
    for _ in range(2):
        dbt("run", PROJECT)
    with duckdb.connect("demo.duckdb", read_only=True) as connection:
        require_released(connection.sql("select id, stars, review from released_reviews").fetchall())


@NEEDS_DBT
def test_the_dbt_package_calls_the_function_and_reads_what_is_published(folder):
    """By the files of its README: a run publishes, dbt reads the table, and the function gives the same texts."""
    policy = Policy.load("privacy.toml")
    duckdb.sql(RAW).write_parquet("raw.parquet")
    assert run(policy).version == 1
    shutil.copytree(ROOT / "deploy" / "dbt" / "dptext_etl", "dptext_etl")
    page = Path("dptext_etl/README.md").read_text()
    packages, profile, sources = (textwrap.dedent(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    (inside,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    files = {
        "dbt_project.yml": PROJECT["dbt_project.yml"], "packages.yml": packages, "profiles.yml": profile,
        "models/raw_reviews.sql": RAW, "models/inside.sql": inside,
        "models/outside.sql": "select * from {{ source('released', 'reviews') }}", "models/sources.yml": sources,
    }  # fmt: skip
    dbt("deps", files)
    dbt("run", files)
    with duckdb.connect("demo.duckdb", read_only=True) as connection:
        rows = connection.sql("select id, stars, review from outside").fetchall()
        require_released(rows)
        assert sorted(connection.sql("select id, stars, review from inside").fetchall()) == sorted(rows)
