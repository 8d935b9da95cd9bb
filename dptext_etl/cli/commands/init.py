"""Define `dptext init`, which writes a first policy and its key, and `dptext key`."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import typer

from dptext_etl.cli import terminal
from dptext_etl.cli.options import command
from dptext_etl.errors import KeyReferenceError, PolicyError, UsageError, file_failure

app = typer.Typer()
keys = typer.Typer(no_args_is_help=True, add_completion=False, help="Make keys.")
KEYS = (
    "policy", "source", "new_key", "form", "columns", "csv", "other_byte", "persons", "rows", "rows_without_person",
    "next",
)  # fmt: skip


@command(app, "dptext init reviews.parquet --labels topic=delivery,price,other", KEYS)
def init(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The raw table: Parquet, CSV or NDJSON.")],
    *,
    labels: Annotated[
        str | None,
        typer.Option(metavar="COLUMN=A,B,C", help="PUBLIC labels, known without the table; or none."),
    ] = None,
    form: Annotated[
        Literal["rows", "shuffled", "synthetic"] | None,
        typer.Option(
            help="A text per row with ids (rows), drawn texts in no order (shuffled), or a table to train on and count "
            "in (synthetic). By default, synthetic with --labels, and shuffled without."
        ),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="Record ids; otherwise guessed.")] = None,  # noqa: A002
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="COLUMN", help="The person of a record; otherwise guessed.")
    ] = None,
    unit: Annotated[
        Literal["subject", "record"], typer.Option(help="Whose loss is bounded; record: no column names a person.")
    ] = "subject",
    texts: Annotated[
        list[str] | None, typer.Option("--text", metavar="COLUMN", help="A text; may be repeated; otherwise guessed.")
    ] = None,
    at_most: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="PUBLIC bound on the number of records, with room to grow: sets delta."),
    ] = None,
    encoding: Annotated[
        Literal["utf-8", "utf-16", "cp1252", "latin-1"] | None,
        typer.Option(help="Encoding of a CSV file; otherwise proposed."),
    ] = None,
    output: Annotated[Path, typer.Option("--out", "-o", help="The policy file to write.")] = Path("privacy.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing policy file; never a key.")] = False,
) -> None:
    """Look at a table's columns and write a policy for it, with a new key next to it; the command asks nothing.

    With --labels, the policy publishes a synthetic table with these labels. Without labels, it publishes drawn texts in
    no order. If a column looks like labels and no values are listed, the command stops, and names the choices. It never
    reads label values from the table.

    Roles of columns are guessed from English names, types, and the shape of values: how many differ, how many are null,
    how long they are. --id, --subject, and --text name them. Names of German columns, for example, are not recognized.
    The command prints every guess and its reason, and no value. It detects the separator and the quotes of a CSV file,
    and proposes an encoding for a file that is not in UTF-8.

    Read the policy before the first run. Its comments explain each choice, with counts of your table. You decide which
    columns pass unchanged, whose budget is charged, and which disclosures are allowed.
    """
    from dptext_etl.runner.source import first_policy
    from dptext_etl.runner.source.guessing import NO_ONE, guess

    if output.exists() and not force:
        raise PolicyError(f"{output} exists", "replace it with --force, or write another file with --out")
    if unit == "record" and subject is not None:
        raise UsageError(
            "--unit record says that no column names a person, and --subject names one", "give one of them"
        )
    local = "://" not in file  # a policy's paths are relative to its folder
    source = str(Path(file).absolute()) if local and output.absolute().parent != Path.cwd() else file
    column, values = first_policy.read_labels(labels)
    table = guess(source, id, NO_ONE if unit == "record" else subject, texts or (), encoding, column)
    if not terminal.as_json():
        terminal.table(("role", "column", "why"), table.roles())
    choices = first_policy.choose(table, form, values, at_most)
    text = first_policy.policy_of(source, table, choices)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as exc:
        hint = "choose a folder that you can write to with --out"
        raise file_failure(exc, f"the policy {output} cannot be written", hint, PolicyError) from None
    reference: str = tomllib.loads(text)["key"]
    path = output.parent / reference.removeprefix("file:")
    key = path if reference.startswith("file:") and not path.exists() else None
    if key is not None:
        _write_key(key)
    csv = None if table.csv is None else table.csv.model_dump()
    name, (_, rows) = shlex.quote(str(output)), choices.records_that_count(table)
    rehearsal = first_policy.rehearsal_call(name, rows, labeled=choices.labels is not None)
    commands = [f"dptext plan {name}", rehearsal, f"dptext run {name}"]
    first = "fill in rows of [shuffled], then" if choices.form == "shuffled" and choices.labels else "then"
    columns = [dict(zip(("role", "column", "why"), row, strict=True)) for row in table.roles()]
    facts = {"policy": str(output), "source": file, "new_key": None if key is None else str(key), "form": choices.form}
    persons = len(table.rows_of_persons)
    nameless = None if table.subject is None else table.rows - sum(table.rows_of_persons)
    counts = {"persons": persons or None, "rows": table.rows, "rows_without_person": nameless, "next": commands}
    if terminal.emitted({**facts, "columns": columns, "csv": csv, "other_byte": table.other_byte, **counts}):
        return
    if csv:
        terminal.say(f"the file is CSV: {terminal.number({name: repr(item) for name, item in csv.items()})}")
    for line in first_policy.encoding_of(table):
        terminal.note(line)
    for line in first_policy.lines_of(table, choices):
        terminal.say(line)
    if key is not None:
        terminal.say(f"wrote {key}, a new key: guard it like the raw texts")
    terminal.say(f"wrote {output}: check each choice, {first}:")
    for line in commands:
        terminal.say(f"  {line}")


def _write_key(path: Path) -> None:
    """Write a new key, and refuse places that cannot have one in our words rather than the system's."""
    from dptext_etl import _kernel

    if path.exists():
        raise KeyReferenceError(f"the key file {path} exists", "a key is never overwritten: choose another path")
    if not path.absolute().parent.is_dir():
        msg = f"the folder of the key file {path} does not exist"
        raise KeyReferenceError(msg, "make the folder first, or choose another path")
    _kernel.Secret().write(str(path))


@keys.callback()
def key() -> None:
    """Make keys."""


@command(keys, "dptext key new noise.key", ("path", "reference", "mode"))
def new(
    path: Annotated[Path, typer.Argument(help="The file to create; an existing file is never overwritten.")],
) -> None:
    """Write a new random key into a file that only its owner can read.

    Anyone with the key and a release can test guesses of the raw texts. Guard the key like the raw texts, and
    destroy it when you no longer need to repeat a release.
    """
    _write_key(path)
    reference = f"file:{path}"
    terminal.report(
        {"path": str(path), "reference": reference, "mode": "0600"},
        f'wrote {path}, readable only by you\nin a policy: key = "{reference}"',
    )
