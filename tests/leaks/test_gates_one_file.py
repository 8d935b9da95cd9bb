"""A new gate is one file and no other edit: the one of docs/extending.md decides runs, and everything lists it."""

import importlib
import re
import sys
from pathlib import Path

import polars as pl
import pytest

from dptext_etl import extensions, run
from dptext_etl.checks import CANARY, Stage, evaluate, gate_descriptions, gates
from dptext_etl.checks.gate import load
from dptext_etl.checks.published import check_published
from dptext_etl.errors import GateError

ROOT = Path(__file__).resolve().parents[2]
NAME = "control_characters"


def forget(name):
    """Let a gate's module be imported again."""
    sys.modules.pop(f"{gates.__name__}.{name}", None)
    vars(gates).pop(name, None)


@pytest.fixture
def drop(monkeypatch, tmp_path):
    """Put a file into the folder of gates, for one test."""
    monkeypatch.setattr(gates, "__path__", [*gates.__path__, str(tmp_path / "gates")])
    (tmp_path / "gates").mkdir()
    names = []

    def write(name, text):
        (tmp_path / "gates" / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        names.append(name)

    yield write
    for name in names:
        forget(name)


@pytest.fixture
def toy(drop):
    """The gate of docs/extending.md."""
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "extending.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (text,) = [block for block in blocks if "(Gate)" in block]
    drop(NAME, text)
    return text


def broken(rows):
    """A line end in a kept column of a real row, which no other gate looks at."""
    real = ~pl.col(CANARY) if CANARY in rows.columns else pl.lit(value=True)
    return rows.with_columns(pl.when(real & (pl.col("stars") == 3)).then(pl.lit("3\n")).alias("stars"))


def failed(verdicts):
    return {verdict.name for verdict in verdicts if not verdict.passed}


def test_it_judges_a_staged_run(bench, toy, tmp_path):
    parts = []
    for number, frame in enumerate(bench.released):
        parts.append(tmp_path / f"part-{number}.parquet")
        broken(frame).write_parquet(parts[-1])
    assert NAME in {verdict.name for verdict in evaluate(bench.candidate(bench.run.parts))}
    assert not failed(evaluate(bench.candidate(bench.run.parts)))
    assert failed(evaluate(bench.candidate(tuple(parts)))) == {NAME}


def test_it_judges_a_published_table(bench, toy):
    assert not failed(check_published(bench.published, bench.policy, bench.ledger))
    stopped = failed(check_published(broken(bench.published), bench.policy, bench.ledger))
    assert stopped == {NAME, "raw_column_absent"}, "a kept column became text, too"


def test_it_stops_a_run(bench, toy, tmp_path):
    raw = pl.read_parquet(bench.policy.source)
    broken(raw).write_parquet(tmp_path / "raw.parquet")
    changes = {
        "source": str(tmp_path / "raw.parquet"),
        "sink": str(tmp_path / "out"),
        "staging": str(tmp_path / "inside"),
        "dataset": "one file",
    }
    ledger = bench.policy.ledger.model_copy(update={"url": f"sqlite:///{tmp_path / 'ledger.db'}"})
    with pytest.raises(GateError, match=f"1 of 10 gates failed: {NAME}: 50 cells"):
        run(bench.policy.model_copy(update={**changes, "ledger": ledger}))


def test_the_catalog_and_the_documentation_list_it(bench, toy):
    for stage in Stage:
        assert list(gate_descriptions(bench.policy, stage))[-1] == NAME
        assert gate_descriptions(bench.policy, stage)[NAME].startswith("Catches line ends, NULs")
    sys.path.insert(0, str(ROOT / "studies"))
    try:
        from generators.tables import gates as documented
    finally:
        sys.path.remove(str(ROOT / "studies"))
    assert f"| `{NAME}` | staged run, published table | Line ends" in documented()


def test_dagster_has_an_asset_check_for_it(bench, toy):
    pytest.importorskip("dagster")
    from dptext_etl.orchestration import build_definitions

    graph = build_definitions(bench.policy).resolve_asset_graph()
    checks = {
        key.asset_key.to_user_string(): graph.get_check_spec(key) for key in graph.asset_check_keys if key.name == NAME
    }
    assert set(checks) == {"staged_reviews", "published_reviews"}
    assert all(check.blocking for check in checks.values())


def test_great_expectations_judges_it(bench, toy):
    pytest.importorskip("great_expectations")
    from dptext_etl.checks.great_expectations.expectations import validate

    assert validate(bench.published, bench.policy).success
    record = validate(broken(bench.published), bench.policy)
    (found,) = [item for item in record.outcomes if item.gate == "control_characters"]
    assert (found.success, dict(found.counts)) == (False, {"checked": 250, "cells": 50})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("(Gate)", "(object)"), "holds 0"),
        (lambda text: text, "both have a gate control_characters"),
        (lambda text: text.replace("    stages = frozenset(Stage)\n", ""), "does not declare"),
    ],
)
def test_a_file_that_holds_no_gate_stops_every_run(bench, drop, toy, change, said):
    drop("half_a_gate", change(toy))
    assert "half_a_gate" in extensions.names("gates")
    with pytest.raises(GateError, match=said):
        load(NAME)
    with pytest.raises(GateError, match=said):
        evaluate(bench.candidate(bench.run.parts))


def test_a_gate_that_is_not_there(bench):
    with pytest.raises(GateError, match="no gate of that name; available: canary_rows_complete, canary"):
        load("nothing")
