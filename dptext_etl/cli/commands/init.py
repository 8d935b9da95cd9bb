"""Define `dptext init`, which writes a first policy that works, and its key."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dptext_etl.cli.options import Json

if TYPE_CHECKING:
    from dptext_etl.runner.source.guessing import Guess

EXAMPLE = "dptext init reviews.parquet"
KEYS = ("policy", "source", "new_key", "columns", "csv")


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
    output: Annotated[Path, typer.Option("--out", "-o", help="The policy file to write.")] = Path("privacy.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing policy file; never a key.")] = False,
    as_json: Json = False,
) -> None:
    """Look at a table's columns and write a policy for it, with a new key next to it.

    Roles of columns are guessed from names, types, and the shape of values: how many differ, how many are null, how
    long they are. --id, --subject and --text name them. A table shows what was guessed, and why; no value is shown. On
    a terminal, and without such options, the command asks for each role. Separator, encoding and quotes of a CSV file
    are found out.
    Read the policy before the first run. You decide which columns pass in clear, whose budget is charged, and what may
    be disclosed.
    """
    from dptext_etl.cli.render import terminal
    from dptext_etl.errors import PolicyError
    from dptext_etl.runner.source import first_policy
    from dptext_etl.runner.source.guessing import guess

    if output.exists() and not force:
        raise PolicyError(f"{output} exists", "replace it with --force, or write another file with --out")
    source = _seen_from(output, file)
    found = guess(source, id, subject, texts or ())
    if not as_json:
        terminal.table(("role", "column", "why"), found.rows())
    if sys.stdin.isatty() and not (id or subject or texts or as_json):
        found = _confirmed(source, found)
    text = first_policy.policy_of(source, found)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as exc:
        problem = f"the policy {output} cannot be written: {exc.strerror}"
    else:
        key = _new_key(output, text)
        if as_json:
            columns = [dict(zip(("role", "column", "why"), row, strict=True)) for row in found.rows()]
            facts = {"policy": str(output), "source": file, "new_key": None if key is None else str(key)}
            terminal.emit({**facts, "columns": columns, "csv": _csv(found)})
            return
        if written := _csv(found):
            terminal.say(f"the file is CSV: {terminal.number({name: repr(item) for name, item in written.items()})}")
        for line in first_policy.cap_of(found):
            terminal.say(line)
        if key is not None:
            terminal.say(f"wrote {key}, a new key: guard it like the raw texts")
        terminal.say(f"wrote {output}: read it; then dptext plan {output}, and dptext run {output}")
        return
    raise PolicyError(problem, "choose a folder that you can write to with --out")


def _csv(found: Guess) -> dict[str, str] | None:
    return found.csv.model_dump() if found.file_format == "csv" else None


def _confirmed(source: str, found: Guess) -> Guess:
    """Ask for each role, with the guess as what is taken if nothing is typed, and guess again until names fit."""
    from dptext_etl.cli.render import terminal
    from dptext_etl.errors import InputError
    from dptext_etl.runner.source.guessing import NO_ONE, guess

    while True:
        id = typer.prompt("Column of record ids", default=found.id, err=True)  # noqa: A001
        person = typer.prompt("Column of persons, or none", default=found.subject or "none", err=True)
        texts = typer.prompt("Text columns, separated by commas", default=",".join(found.texts), err=True)
        if (id, person, texts) == (found.id, found.subject or "none", ",".join(found.texts)):
            return found
        try:
            subject = NO_ONE if person == "none" else person
            return guess(source, id, subject, [name.strip() for name in texts.split(",")])
        except InputError as refused:
            terminal.note(f"{refused.message}; name them again")


def _seen_from(output: Path, file: str) -> str:
    """Return the source's path relative to the policy's folder."""
    local = "://" not in file
    return str(Path(file).absolute()) if local and output.absolute().parent != Path.cwd() else file


def _new_key(output: Path, text: str) -> Path | None:
    """Make the key file that the policy names, unless it exists."""
    import tomllib

    from dptext_etl import _kernel

    reference: str = tomllib.loads(text)["key"]
    path = output.parent / reference.removeprefix("file:")
    if not reference.startswith("file:") or path.exists():
        return None
    _kernel.Secret().write(str(path))
    return path
