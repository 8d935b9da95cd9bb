"""Every module of the studies imports, and each recipe is a policy whose head lists its commands.

`tests/docs` runs the studies that write pages, `test_benchmark_inputs.py` the inputs of benchmarks.
"""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

from dptext_etl.policy import Policy

STUDIES = Path(__file__).resolve().parents[2] / "studies"
RECIPES = sorted((STUDIES / "recipes").glob("*/policy.toml"))


@pytest.fixture
def study(monkeypatch):
    """Import a module of the studies under its own name, and forget all of theirs afterwards."""
    for folder in (STUDIES, STUDIES / "benchmarks"):
        monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {path.stem for path in (*STUDIES.iterdir(), *(STUDIES / "benchmarks").iterdir())}:
            del sys.modules[name]


def test_every_module_imports(study):
    missing = dict[str, str]()
    for path in sorted(STUDIES.rglob("*.py")):
        name = ".".join(path.relative_to(STUDIES).with_suffix("").parts)
        if path.stem.startswith("__"):
            continue
        try:
            study(name)
        except ImportError as error:
            if (error.name or "").partition(".")[0] in {"", "dptext_etl", "dptext_etl_eval", "dptext_etl_models"}:
                missing[name] = str(error)
    assert not missing


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.parent.name)
def test_a_recipe_is_a_policy_whose_head_lists_its_commands(study, recipe):
    listed = study("written_utility").commands(recipe, {"MODEL": "smollm2.gguf", "VECTORS": "static.safetensors"})
    assert [" ".join(words[:2]) for words in listed][-4:-1] == ["corpus build", "key new", "run policy.toml"]
    assert {words[words.index("--model") + 1] for words in listed if "--model" in words} <= {"smollm2.gguf"}
    build = next(words for words in listed if words[:2] == ["corpus", "build"])
    assert build[2] == "everyday-30k"
    assert build[build.index("--vectors") + 1] == "static.safetensors"
    values = tomllib.loads(recipe.read_text("utf-8"))
    assert values["synthetic"]["mechanism"].pop("corpus") == "corpus"
    values["synthetic"]["mechanism"]["corpus"] = "example"  # the corpus of the recipe is built by its commands
    assert Policy.parse(values).synthetic.labels.cells


@pytest.mark.thorough
def test_a_recipe_runs_on_the_command_line(study, tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
    utility, made = study("written_utility"), study("shipped_data.everyday").generate(9_000)
    labels = {"praise": "positive", "complaint": "negative"}
    rows = [(one.text, labels[one.kind]) for one in made if one.kind in labels]
    names = ("train", "test", "public")
    tables = {name: tuple(map(list, zip(*rows[at::3], strict=True))) for at, name in enumerate(names)}
    recipe, folder = STUDIES / "recipes" / "uci_sentences" / "policy.toml", tmp_path / "work"
    utility.prepared(folder, recipe, tables, {"VECTORS": "english-20k"})
    figures = utility.released(folder, recipe, 4.0, 0)
    # word vectors without weights: the recipe has better ones
    assert figures["linear discriminant of the statistic"] > 0.7
    assert figures["public labeled texts"] > 0.8
    monkeypatch.setattr(utility, "dptext", None)
    assert utility.released(folder, recipe, 4.0, 0) == figures
    shown = list(utility.lines({"toy": {1.0: [figures], 4.0: [figures]}}, {"toy": 2.0}))
    assert shown[2].endswith(" | 1 | 2 |")
