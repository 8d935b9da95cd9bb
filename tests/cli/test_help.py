"""Help is complete, quick, and the same wherever it is asked for."""

import subprocess
import sys

import click
import pytest
import typer
from typer.testing import CliRunner

from dptext_etl import __version__
from dptext_etl.cli import command
from dptext_etl.cli.app import app

HEAVY = {"numpy", "polars", "pyarrow", "pydantic", "dagster", "torch", "rich.progress", "dptext_etl._kernel"}


def commands(group, words=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        item = group.get_command(context, name)
        if hasattr(item, "commands"):
            yield from commands(item, (*words, name))
        else:
            yield (*words, name), item


ALL = dict(commands(typer.main.get_command(app)))


def test_the_commands_are_those_of_the_issue():
    kept = ("init", "migrate", "show", "remaining", "verify", "export", "anchor", "freeze", "thaw")
    kept += ("backup", "jobs", "revoke", "readmit", "expire", "abort", "set-cap", "accept-units")
    ledger = {("ledger", name) for name in kept}
    single = {
        "init",
        "mechanisms",
        "explain",
        "plan",
        "run",
        "privatize",
        "check",
        "clean",
        "forget",
        "audit",
        "evaluate",
        "statement",
        "calibrate",
        "preview",
        "demo",
        "schema",
        "gx-suite",
    }
    trainings = {words for words in ALL if words[0] == "train"}  # a file each
    assert ("train", "masked-lm") in trainings
    made = {("key", "new"), ("corpus", "build"), ("corpus", "show"), ("corpus", "calibrate")}
    assert set(ALL) == {(name,) for name in single} | ledger | made | trainings


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


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_facts_come_as_json_too(words):
    options = {name for parameter in ALL[words].params for name in parameter.opts}
    assert "--json" in options or words == ("schema",)  # which prints nothing else


def test_exit_codes_are_said():
    assert "0 fine, 2 usage or policy, 3 budget, 4 gate" in " ".join(CliRunner().invoke(app, ["--help"]).output.split())


def test_paragraphs_flow():
    def work(thing: str) -> None:
        """Do it.

        A line that
        goes on.

        Args: This is for readers of the code.
        """

    sample = typer.Typer()
    sample.command(cls=command.Command)(work)
    assert typer.main.get_command(sample).help == "Do it.\n\nA line that goes on."


def test_version():
    assert CliRunner().invoke(app, ["--version"]).output.strip() == f"dptext {__version__}"


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["privatize", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys; from dptext_etl.cli import main; sys.argv = ['dptext', *sys.argv[1:]]\n"
        "try: main()\nexcept SystemExit as done: assert not done.code\n"
        f"print('HEAVY', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("HEAVY []")


def test_importing_the_command_line_is_quick_enough():
    code = "import sys; import dptext_etl.cli; print(len([name for name in sys.modules if name.startswith('rich')]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 0  # rich comes with the first table
