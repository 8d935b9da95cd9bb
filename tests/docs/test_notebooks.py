"""The notebooks in `examples/` run from top to bottom, hold no output, and show what they make as tables."""

import json
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LONG = [pytest.mark.thorough]
NOTEBOOKS = ["polars", pytest.param("spark", marks=LONG), pytest.param("dagster", marks=LONG)]


def cells(name):
    read = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert all(cell.get("outputs", []) == [] for cell in read["cells"]), "outputs are not committed"
    return ["".join(cell["source"]) for cell in read["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, tmp_path, monkeypatch, request):
    if name != "polars":
        pytest.importorskip({"spark": "pyspark"}.get(name, name))
    if name == "spark":
        request.getfixturevalue("java")
        monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for code in cells(name):
        exec(compile(code, f"{name}.ipynb", "exec"), names)
    if name == "spark":
        names["spark"].stop()
    summary = names["summary"]
    if name == "dagster":
        return
    shown = [summary, summary.gates, *([names["policy"]] if "policy" in names else [])]
    assert len(repr(summary)) < 200
    for item in shown:
        for said in (repr(item), getattr(item, "_repr_html_", str)()):
            assert "a good film" not in said
            assert Path("noise.key").read_text().strip() not in said
    assert "<table>" in summary._repr_html_()


def test_there_is_a_notebook_per_engine():
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == {"polars", "spark", "dagster"}
