"""One word has one meaning: no two classes of the core have the same name, and functions that share it do one thing."""

import ast
from collections import Counter
from pathlib import Path

import dptext_etl

LEFT = {"Draws"}
"""Names of two classes that are to become names of one."""


def names_of(*sources):
    """The names of public classes, once for each definition."""
    trees = map(ast.parse, sources)
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {name for name, count in names.items() if count > 1 and not name.startswith("_")}


def test_no_two_classes_share_a_name():
    files = sorted(Path(dptext_etl.__file__).parent.rglob("*.py"))
    assert names_of(*(path.read_text() for path in files)) <= LEFT
    assert names_of("class Part: ...", "class Part: ...") == {"Part"}


def test_a_bound_is_rounded_up_by_one_function():
    files = sorted(Path(dptext_etl.__file__).parent.rglob("*.py"))
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text())))
    assert [node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "at_most"] == ["at_most"]


PRONOUNS = {"each", "made", "mine", "one", "ours", "said", "some", "theirs"}


def pronouns(source):
    """The values and parameters of a module that are named by a pronoun or a participle."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return (names | {node.arg for node in nodes if isinstance(node, ast.arg)}) & PRONOUNS


def test_values_are_named_by_what_they_are():
    root = Path(dptext_etl.__file__).parents[1]
    places = ("dptext_etl", "models/dptext_etl_models", "eval/dptext_etl_eval")
    paths = [path for place in places for path in (root / place).rglob("*.py")]
    assert len(paths) > 300, "all three packages are here"
    named = {path.relative_to(root).as_posix(): pronouns(path.read_text()) for path in paths}
    assert {name: found for name, found in named.items() if found} == {
        "dptext_etl/cli/commands/corpus_commands.py": {"each"}  # the value of an option
    }
    assert pronouns("mine, other = 1, 2\nlambda one: one") == {"mine", "one"}
