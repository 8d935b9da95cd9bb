"""Define `dptext init`, which writes a first policy that works and its key, and `dptext key`."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import click
import typer

from dptext_etl.cli import terminal
from dptext_etl.cli.options import command
from dptext_etl.errors import InputError, KeyReferenceError, PolicyError

if TYPE_CHECKING:
    from dptext_etl.policy.synthetic import Labels
    from dptext_etl.policy.terms import Encoding
    from dptext_etl.runner.source.first_policy import Choices, Form
    from dptext_etl.runner.source.guessing import Guess

app = typer.Typer()
keys = typer.Typer(no_args_is_help=True, add_completion=False, help="Make keys.")
_ask = partial(typer.prompt, err=True)
KEYS = ("policy", "source", "new_key", "columns", "csv", "other_byte")


@command(app, "dptext init reviews.parquet", KEYS)
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
    form: Annotated[
        Literal["rows", "shuffled", "synthetic"] | None,
        typer.Option(
            help="The form of the release: rows with ids, draws without ids, or a table to train on and count in; "
            "otherwise asked, or rows."
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="COLUMN=A,B,C", help="PUBLIC labels, or none; with --form shuffled or synthetic."),
    ] = None,
    output: Annotated[Path, typer.Option("--out", "-o", help="The policy file to write.")] = Path("privacy.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing policy file; never a key.")] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Ask nothing: accept all guesses; the form is rows unless --form names another."
        ),
    ] = False,
) -> None:
    """Look at a table's columns and write a policy for it, with a new key next to it.

    Roles of columns are guessed from names, types, and the shape of values: how many differ, how many are null, how
    long they are. --id, --subject and --text name them. A table shows every guess and its reason; no value is shown. On
    a terminal, and without such options, the command asks for each role, the columns to keep, the ids, and the cap. It
    asks for the form and the public labels, too; it shows values of the labels only if you ask for them. With --yes, it
    asks nothing. It detects the separator and the quotes of a CSV file, and proposes an encoding for a file that is not
    in UTF-8.

    Read the policy before the first run. You decide which columns pass unchanged, whose budget is charged, and which
    disclosures are allowed.
    """
    from dptext_etl.runner.source import first_policy
    from dptext_etl.runner.source.guessing import guess

    if output.exists() and not force:
        raise PolicyError(f"{output} exists", "replace it with --force, or write another file with --out")
    local = "://" not in file  # a policy's paths are relative to its folder
    source = str(Path(file).absolute()) if local and output.absolute().parent != Path.cwd() else file
    table = guess(source, id, subject, texts or (), encoding)
    if not terminal.as_json():
        terminal.table(("role", "column", "why"), table.rows())
    if yes or terminal.as_json() or not terminal.asks():
        choices = first_policy.Choices(form or "rows", first_policy.labels_of(labels, table, form or "rows"))
    else:
        form = form or _form(table)
        if not (id or subject or texts):
            table = _confirmed(source, table, encoding, form)
        choices = _chosen(table, form, labels)
    text = first_policy.policy_of(source, table, choices)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as exc:
        problem = f"the policy {output} cannot be written: {exc.strerror}"
        raise PolicyError(problem, "choose a folder that you can write to with --out") from None
    key = _new_key(output, text)
    csv = table.csv.model_dump() if table.file_format == "csv" else None
    columns = [dict(zip(("role", "column", "why"), row, strict=True)) for row in table.rows()]
    facts = {"policy": str(output), "source": file, "new_key": None if key is None else str(key)}
    if terminal.emitted({**facts, "columns": columns, "csv": csv, "other_byte": table.other_byte}):
        return
    if csv:
        terminal.say(f"the file is CSV: {terminal.number({name: repr(item) for name, item in csv.items()})}")
    for line in first_policy.encoding_of(table):
        terminal.note(line)
    for line in first_policy.cap_of(table, choices):
        terminal.say(line)
    if key is not None:
        terminal.say(f"wrote {key}, a new key: guard it like the raw texts")
    terminal.say(f"wrote {output}: read it; then dptext plan {output}, and dptext run {output}")


def _form(table: Guess) -> Form:
    """Ask who reads the result: readers decide the form."""
    terminal.note(
        "Do readers train and count, or must each text stay in the row of its record?\n"
        "  synthetic  a table of public texts with labels: best where readers want labels or topics\n"
        "  shuffled   the drawn texts with public labels, without ids, order, and other columns\n"
        "  rows       each row with its id, kept columns, and a drawn text: costs the most for each person"
    )
    kinds = click.Choice(["synthetic", "shuffled", "rows"])
    form: Form = _ask("Form", default="synthetic" if table.label else "rows", type=kinds)
    return form


def _chosen(table: Guess, form: Form, labels: str | None) -> Choices:
    """Ask for everything else that a person decides, with constants as defaults."""
    from dptext_etl.runner.source import first_policy

    made = first_policy.Choices(form)
    if form != "rows" and labels is None:
        made = replace(made, labels=_labels(table))
    else:
        made = replace(made, labels=first_policy.labels_of(labels, table, form))
    if form == "rows":
        kinds = click.Choice(["keep", "keyed", "drop"])
        made = replace(made, keep=_kept(table))
        made = replace(made, ids=_ask("Published ids", default=first_policy.default_ids(table), type=kinds))
    else:
        rows = "At least how many texts" if form == "shuffled" else "Rows of the table"
        number = _ask(f"{rows}, a public number", default=first_policy.ROWS[form], type=click.IntRange(2))
        most = _ask("Records of one person that count", default=1, type=click.IntRange(1)) if table.subject else 1
        made = replace(made, rows=number, per_subject=most)
    cap, unit = first_policy.proposed_cap(table, made)
    least = 0 if form == "shuffled" else first_policy.cost_of(table, form)  # one record, so that a release has some
    fits = click.FloatRange(least, min_open=not least)
    return replace(made, cap=_ask(f"Most epsilon of one {unit}, its cap", default=cap, type=fits))


def _kept(table: Guess) -> tuple[str, ...]:
    while True:
        try:
            return table.kept(_ask("Columns to publish unchanged, separated by commas, or none", default="none"))
        except InputError as refused:
            terminal.note(str(refused))


def _labels(table: Guess) -> Labels | None:
    """Ask for the public labels; values of the table are shown and used only on request."""
    from dptext_etl.runner.source.first_policy import public_labels, split_labels

    while (column := _ask("Column of labels, or none", default=table.label or "none")) != "none":
        try:
            table.type_of(column)
            listed = _ask("Its public values, separated by commas; ? shows the values in the table here")
            if listed.strip() != "?":
                return public_labels(column, split_labels(listed), table)
            for value in (values := table.values(column)):
                terminal.note(f"  {terminal.number(value)}")
            if typer.confirm("Is each of them public: known without this table?", err=True):
                return public_labels(column, values, table)
        except PolicyError as refused:
            terminal.note(str(refused))
    return None


def _confirmed(source: str, table: Guess, encoding: Encoding | None, form: Form) -> Guess:
    """Ask for each role, with the guess as the default, and guess again until the names fit."""
    from dptext_etl.runner.source.guessing import NO_ONE, guess

    while True:
        id = _ask("Column of record ids", default=table.id)  # noqa: A001
        person = _ask("Column of persons, or none", default=table.subject or "none")
        several = form == "rows"
        question = "Text columns, separated by commas" if several else "Text column"
        texts = _ask(question, default=",".join(table.texts if several else table.texts[:1]))
        if (id, person, texts) == (table.id, table.subject or "none", ",".join(table.texts)):
            return table
        try:
            subject = NO_ONE if person == "none" else person
            return guess(source, id, subject, [name.strip() for name in texts.split(",")], encoding)
        except InputError as refused:
            terminal.note(f"{refused}\nName them again.")


def _new_key(output: Path, text: str) -> Path | None:

    reference: str = tomllib.loads(text)["key"]
    path = output.parent / reference.removeprefix("file:")
    if not reference.startswith("file:") or path.exists():
        return None
    _write_key(path)
    return path


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
