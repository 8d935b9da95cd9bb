"""No modules import each other in a circle, also not inside functions or only for types."""

from graphlib import CycleError, TopologicalSorter

import pytest

grimp = pytest.importorskip("grimp", reason="import-linter is not installed (extra: dev)")

PACKAGES = ["dptext_etl", "dptext_etl_eval", "dptext_etl_models"]
EXPORTS = {"dptext_etl"}
"""Modules whose exports are imported at first use."""


def circle(imports):
    """Return the modules of a circle, or nothing."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.fixture(scope="module")
def imports():
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules - EXPORTS}


def test_no_modules_import_each_other_in_a_circle(imports):
    assert circle(imports) == []


def test_an_import_inside_a_function_closes_a_circle(imports, tmp_path, monkeypatch):
    (package := tmp_path / "circles").mkdir()
    (package / "__init__.py").touch()
    (package / "above.py").write_text("from circles import below\n")
    (package / "below.py").write_text("def late():\n    from circles import above\n\n    return above\n")
    monkeypatch.syspath_prepend(tmp_path)
    graph = grimp.build_graph("circles", cache_dir=None)
    assert len(circle({name: graph.find_modules_directly_imported_by(name) for name in graph.modules})) == 3
