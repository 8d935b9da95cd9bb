"""Define `dptext init`, which writes a first policy that works and its key, and `dptext key`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dptext_etl.cli import terminal
from dptext_etl.cli.options import Command, Json, epilog
from dptext_etl.errors import InputError, PolicyError

if TYPE_CHECKING:
    from dptext_etl.policy.terms import Encoding
    from dptext_etl.runner.source.guessing import Guess

app = typer.Typer()
keys = typer.Typer(no_args_is_help=True, help="Make keys.")
KEYS = ("policy", "source", "new_key", "columns", "csv", "other_byte")


@app.command(cls=Command, epilog=epilog("dptext init reviews.parquet", KEYS))
def init(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The raw table: Parquet, CSV or NDJSON.")],
    *,
    id: Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="Record ids; otherwise guessed.")] = None,  # noqa: A002
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="COLUMN", help="The person of a record; otherwise guessed.")
    ] = None,
    texts: Annotated[
        list[str] | None, typer.Option("--text", metavar="COLUMN", help="A text; may be repeated; otherwise guessed.")
    ] = None,
    encoding: Annotated[
        Literal["utf-8", "utf-16", "cp1252", "latin-1"] | None,
        typer.Option(help="Encoding of a CSV file; otherwise proposed."),
    ] = None,
    output: Annotated[Path, typer.Option("--out", "-o", help="The policy file to write.")] = Path("privacy.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing policy file; never a key.")] = False,
    as_json: Json = False,
) -> None:
    """Look at a table's columns and write a policy for it, with a new key next to it.

    Roles of columns are guessed from names, types, and the shape of values: how many differ, how many are null, how
    long they are. --id, --subject and --text name them. A table shows what was guessed, and why; no value is shown. On
    a terminal, and without such options, the command asks for each role. It detects the separator and the quotes of a
    CSV file, and proposes an encoding if the file is not in UTF-8.

    Read the policy before the first run. You decide which columns pass in clear, whose budget is charged, and what may
    be disclosed.
    """
    from dptext_etl.runner.source import first_policy
    from dptext_etl.runner.source.guessing import guess

    if output.exists() and not force:
        raise PolicyError(f"{output} exists", "replace it with --force, or write another file with --out")
    local = "://" not in file  # a policy's paths are relative to its folder
    source = str(Path(file).absolute()) if local and output.absolute().parent != Path.cwd() else file
    table = guess(source, id, subject, texts or (), encoding)
    if not as_json:
        terminal.table(("role", "column", "why"), table.rows())
    if sys.stdin.isatty() and not (id or subject or texts or as_json):
        table = _confirmed(source, table, encoding)
    text = first_policy.policy_of(source, table)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as exc:
        problem = f"the policy {output} cannot be written: {exc.strerror}"
        raise PolicyError(problem, "choose a folder that you can write to with --out") from None
    key = _new_key(output, text)
    csv = table.csv.model_dump() if table.file_format == "csv" else None
    if as_json:
        columns = [dict(zip(("role", "column", "why"), row, strict=True)) for row in table.rows()]
        facts = {"policy": str(output), "source": file, "new_key": None if key is None else str(key)}
        terminal.emit({**facts, "columns": columns, "csv": csv, "other_byte": table.other_byte})
        return
    if csv:
        terminal.say(f"the file is CSV: {terminal.number({name: repr(item) for name, item in csv.items()})}")
    for line in first_policy.encoding_of(table):
        terminal.note(line)
    for line in first_policy.cap_of(table):
        terminal.say(line)
    if key is not None:
        terminal.say(f"wrote {key}, a new key: guard it like the raw texts")
    terminal.say(f"wrote {output}: read it; then dptext plan {output}, and dptext run {output}")


def _confirmed(source: str, table: Guess, encoding: Encoding | None) -> Guess:
    """Ask for each role, with the guess as the default, and guess again until the names fit."""
    from dptext_etl.runner.source.guessing import NO_ONE, guess

    while True:
        id = typer.prompt("Column of record ids", default=table.id, err=True)  # noqa: A001
        person = typer.prompt("Column of persons, or none", default=table.subject or "none", err=True)
        texts = typer.prompt("Text columns, separated by commas", default=",".join(table.texts), err=True)
        if (id, person, texts) == (table.id, table.subject or "none", ",".join(table.texts)):
            return table
        try:
            subject = NO_ONE if person == "none" else person
            return guess(source, id, subject, [name.strip() for name in texts.split(",")], encoding)
        except InputError as refused:
            terminal.note(f"{refused.message}; name them again")


def _new_key(output: Path, text: str) -> Path | None:
    from dptext_etl import _kernel

    reference: str = tomllib.loads(text)["key"]
    path = output.parent / reference.removeprefix("file:")
    if not reference.startswith("file:") or path.exists():
        return None
    _kernel.Secret().write(str(path))
    return path


@keys.callback()
def key() -> None:
    """Make keys."""


@keys.command(cls=Command, epilog=epilog("dptext key new noise.key", ("path", "reference", "mode")))
def new(
    path: Annotated[Path, typer.Argument(help="The file to create; an existing file is never overwritten.")],
    *,
    as_json: Json = False,
) -> None:
    """Write a new random key into a file that only its owner can read.

    A person who holds the key and a release can test guesses of the raw texts. Guard the key like the raw texts, and
    destroy it when you no longer need to repeat a release.
    """
    from dptext_etl import _kernel

    _kernel.Secret().write(str(path))
    reference = f"file:{path}"
    if as_json:
        terminal.emit({"path": str(path), "reference": reference, "mode": "0600"})
    else:
        terminal.say(f'wrote {path}, readable by you alone\nin a policy: key = "{reference}"')
