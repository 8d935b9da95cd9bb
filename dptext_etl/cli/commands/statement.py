"""Define `dptext statement`, which writes the page that a privacy officer signs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptext_etl.cli.options import Json, Partition

EXAMPLE = "dptext statement privacy.toml --out statement"
KEYS = (
    "format",
    "dataset",
    "release",
    "partition",
    "version",
    "rows",
    "files",
    "id",
    "in_clear",
    "manifest_sha256",
    "sink",
    "gates",
    "columns",
    "record",
    "left_out",
    "caps",
    "lacks",
    "public",
    "written_by",
)


def statement(
    target: Annotated[
        str,
        typer.Argument(
            metavar="POLICY|RELEASED", help="A policy file (.toml), or the published folder or object-store URL."
        ),
    ],
    *,
    released: Annotated[
        str | None,
        typer.Option(metavar="RELEASED", help="The published folder or object-store URL, if not the policy's sink."),
    ] = None,
    partition: Partition = None,
    public: Annotated[
        bool, typer.Option("--public", help="Leave out amounts that depend on texts, for readers outside.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where statement.md and statement.html go.")] = Path(
        "statement"
    ),
    as_json: Json = False,
) -> None:
    """State for the person who signs what a release holds, promises and cost, and how to verify it.

    It reads the manifest and the ledger, never a raw text, a released text or a key. With --json it prints the facts
    and writes no file.
    """
    from dptext_etl.cli.render import terminal
    from dptext_etl.errors import UsageError
    from dptext_etl.policy import Policy
    from dptext_etl.runner import statement as stated

    is_policy = target.endswith(".toml")
    if released is not None and not is_policy:
        raise UsageError("--released goes with a policy", "write dptext statement POLICY --released RELEASED")
    loaded = Policy.load(Path(target)) if is_policy else None
    found = stated.facts(released if is_policy else target, loaded, partition, public=public)
    if as_json:
        terminal.emit(found)
        return
    for path in stated.write(found, out):
        terminal.say(f"wrote {path}")
