"""Define `dptext init`, which writes a first policy that works, and its key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext init reviews.parquet"
KEYS = (
    "policy",
    "source",
    "new_key",
)


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

    Roles of columns are guessed from names and types; --id, --subject and --text name them.
    Read the policy before the first run. You decide which columns pass in clear, whose budget is charged, and what may
    be disclosed.
    """
    from dptext_etl import runner
    from dptext_etl.cli.render import terminal
    from dptext_etl.errors import PolicyError

    if output.exists() and not force:
        raise PolicyError(f"{output} exists", "replace it with --force, or write another file with --out")
    text = runner.init(_seen_from(output, file), id=id, subject=subject, texts=texts or ())
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as exc:
        problem = f"the policy {output} cannot be written: {exc.strerror}"
    else:
        key = _new_key(output, text)
        if as_json:
            terminal.emit({"policy": str(output), "source": file, "new_key": None if key is None else str(key)})
            return
        if key is not None:
            terminal.say(f"wrote {key}, a new key: guard it like the raw texts")
        terminal.say(f"wrote {output}: read it; then dptext plan {output}, and dptext run {output}")
        return
    raise PolicyError(problem, "choose a folder that you can write to with --out")


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
