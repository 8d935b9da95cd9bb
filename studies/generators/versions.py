"""Write the table of supported versions from `pyproject.toml` and the pins that the tests install."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from generators.markdown import table

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {
    "polars": "Polars",
    "pyarrow": "pyarrow",
    "numpy": "NumPy",
    "pydantic": "pydantic",
    "pyspark": "Spark (PySpark)",
    "pandas": "pandas, for Spark",
    "dagster": "Dagster",
    "great-expectations": "Great Expectations",
    "deltalake": "Delta Lake (deltalake)",
    "pyiceberg": "Iceberg (pyiceberg)",
    "obstore": "object stores (obstore)",
    "psycopg": "PostgreSQL (psycopg)",
    "duckdb": "DuckDB",
    "opentelemetry-api": "OpenTelemetry",
    "openlineage-python": "OpenLineage",
}
"""Libraries that users choose versions of, by their names on PyPI."""


def bounds() -> dict[str, tuple[str, str]]:
    """Return, by library, the bound of `pyproject.toml` and the extra that has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    places = {"": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, tuple[str, str]] = {}
    for extra, requirements in places.items():
        for requirement in requirements:
            name, bound = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?(.*)", requirement.replace(" ", "")).groups()  # type: ignore[union-attr]
            found.setdefault(name, (bound, extra))
    return found


def pins() -> dict[str, str]:
    """Return the version of each library that the tests install."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return dict(line.split("==", 1) for line in lines if "==" in line and not line.startswith("#"))


LANES = ROOT / "studies" / "lane_runs.json"


def lanes() -> str:
    """Return a table of the last run of each lane in a separate environment."""
    listed = (ROOT / ".ci" / "lanes").read_text("utf-8").partition("CORE=")[0]
    says = dict(re.findall(r'^    \[([\w.-]+)\]="([^"]*)"', listed, re.MULTILINE))
    runs = json.loads(LANES.read_text("utf-8"))
    rows = ((f"`{name}`", says[name].replace("\\", ""), *run.values()) for name, run in runs.items())
    return table(("lane", "environment", "tests", "passed", "skipped", "date"), rows)


def versions() -> str:
    """Return a table: library, allowed versions, tested version, extra."""
    allowed, tested = bounds(), pins()
    rows = []
    for name, title in LIBRARIES.items():
        bound, extra = allowed[name]
        where = "tests only" if extra == "dev" else f"`{extra}`" if extra else "always"
        rows.append((title, bound.replace(",", ", ") or "any", tested[name].split(";")[0].strip(), where))
    return table(("library", "allowed", "tested", "installed with extra"), rows)
