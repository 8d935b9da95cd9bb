"""Help is complete, quick, and the same wherever it is asked for."""

import json
from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

from dptext_etl import __version__
from dptext_etl.cli.app import app
from dptext_etl.cli.options import Command


def commands(group, words=()):
    context = typer.Context(group)
    for name in group.list_commands(context):
        item = group.get_command(context, name)
        if hasattr(item, "commands"):
            yield from commands(item, (*words, name))
        else:
            yield (*words, name), item


ALL = dict(commands(typer.main.get_command(app)))


FORBIDDEN = {
    "--column": "--text", "--output": "--out", "--hidden": "--width", "--person": "--subject", "--record-id": "--id",
}  # fmt: skip
"""Other words for a flag that exists."""
SHARED = {"--text", "--id", "--subject", "--json", "--ledger", "--id-key", "--partition", "--device"}
"""Flags that mean the same in every command that has them: their value has one kind everywhere."""


def options():
    return [(words, item) for words, command in ALL.items() for item in command.params if item.opts[0].startswith("-")]


def kind_of(item):
    """The type of a value; of an option that may be repeated, the type of one value."""
    annotation = item.type_descriptor.annotation
    return (*get_args(annotation), annotation)[0]


def test_one_concept_has_one_flag():
    found = {flag for _, item in options() for flag in item.opts}
    assert not found & set(FORBIDDEN)
    short = {flag: set() for _, item in options() for flag in item.opts if not flag.startswith("--")}
    for _, item in options():
        for flag in set(item.opts) & set(short):
            short[flag].add(max(item.opts, key=len))
    assert all(len(long) == 1 for long in short.values()), short
    for flag in SHARED:
        kinds = {(kind_of(item), item.is_flag) for _, item in options() if flag in item.opts}
        assert len(kinds) == 1, (flag, kinds)


TAKES_A_POLICY = {"plan", "run", "check", "export", "clean", "forget", "gx-suite", "statement", "evaluate", "audit"}
REFUSES_POLICIES = {("rehearse",)}
"""Its --policy names policies whose raw tables are refused; it runs none."""


def test_a_policy_is_an_argument_everywhere():
    found = {}
    for words, one in ALL.items():
        for item in one.params:
            if "POLICY" in (item.metavar or "") or item.name == "policy":
                found[words] = item
    assert set(found) == {
        words
        for words in ALL
        if words[0] in TAKES_A_POLICY or words[0] == "ledger" or words in REFUSES_POLICIES | {("train", "rewriter")}
    }
    for words, item in found.items():
        if words not in REFUSES_POLICIES:
            assert item.param_type_name == "argument", words
            assert item.metavar.split("|").count("POLICY") == 1, words


def test_a_ledger_is_named_by_a_policy_or_a_url(tmp_path):
    for words, one in ALL.items():
        if words[0] != "ledger":
            continue
        options = [word for item in one.params if item.required for word in _filled(item)]
        for more, said in (([], "no ledger is named"), (["absent.toml"], "absent.toml cannot be read")):
            done = CliRunner().invoke(app, [*words, *options, *more, "--json"])
            failed = json.loads(done.stdout)["error"]
            assert said in failed["message"] or said.split()[0] in failed["hint"], (words, failed)
            assert done.exit_code == (5 if more else 2), words


def _filled(item):
    value = (item.type_descriptor.choices or ["x"])[0]
    return [value] if item.param_type_name == "argument" else [item.opts[0], value]


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_says_everything(words):
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"})
    assert shown.exit_code == 0
    said = " ".join(shown.output.split())
    assert f"Example: dptext {' '.join(words)}" in said
    for parameter in ALL[words].params:
        if parameter.name != "help":
            assert parameter.help, f"{words}: {parameter.name} has no help"
            assert " ".join(parameter.help.split())[:40] in said
    options = {name for parameter in ALL[words].params for name in parameter.opts}
    assert "--json" in options or words == ("schema",)  # which prints nothing else


def test_version_and_exit_codes_are_said():
    assert CliRunner().invoke(app, ["--version"]).output.strip() == f"dptext {__version__}"
    said = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert "0 fine, 1 unexpected, 2 usage, 3 budget, 4 gate, 5 policy, 6 busy, 7 disk, 8 unchanged, 130 inter" in said

    def work(thing: str) -> None:
        """Do it.

        A line that
        continues.

        Args: This is for readers of the code.
        """

    sample = typer.Typer()
    sample.command(cls=Command)(work)
    assert typer.main.get_command(sample).help == "Do it.\n\nA line that continues."
