"""The notebooks in `examples/` run from top to bottom, hold no output, and show their results as tables."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LONG = [pytest.mark.thorough]
NOTEBOOKS = ["polars", pytest.param("spark", marks=LONG), pytest.param("dagster", marks=LONG)]
SHOWN = """
shown = [summary, summary.gates, *([policy] if "policy" in globals() else [])]
assert len(repr(summary)) < 200
for item in shown:
    for said in (repr(item), getattr(item, "_repr_html_", str)()):
        assert "a good film" not in said
        assert Path("noise.key").read_text().strip() not in said
assert "<table>" in summary._repr_html_()
"""


def cells(name):
    read = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert all(cell.get("outputs", []) == [] for cell in read["cells"]), "outputs are not committed"
    return ["".join(cell["source"]) for cell in read["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, tmp_path, monkeypatch, request):
    """It runs as a reader's does, in a separate process that has imported nothing, and started no session."""
    if name != "polars":
        pytest.importorskip({"spark": "pyspark"}.get(name, name))
    if name == "spark":
        request.getfixturevalue("java")
        monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join([*cells(name), "" if name == "dagster" else SHOWN]), encoding="utf-8")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_there_is_a_notebook_per_engine():
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == {"polars", "spark", "dagster"}
