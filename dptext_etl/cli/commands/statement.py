"""Define `dptext statement`, which writes the page that a privacy officer signs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptext_etl.cli.options import Json

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
    "caps",
    "public",
    "written_by",
    "lacks",
)


def statement(
    target: Annotated[
        str,
        typer.Argument(
            metavar="POLICY|RELEASED", help="A policy file (.toml), or the published folder or object-store URL."
        ),
    ],
    *,
    policy: Annotated[
        Path | None, typer.Option(metavar="POLICY", help="The policy of RELEASED: its ledger says what was charged.")
    ] = None,
    partition: Annotated[str | None, typer.Option(help="The partition, if the policy cuts its tables.")] = None,
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
    from dptext_etl.policy import Policy
    from dptext_etl.runner import statement as stated

    is_policy = target.endswith(".toml")
    named = Path(target) if is_policy else policy
    loaded = None if named is None else Policy.load(named)
    found = stated.facts(None if is_policy else target, loaded, partition, public=public)
    if as_json:
        terminal.emit(found)
        return
    for path in stated.write(found, out):
        terminal.say(f"wrote {path}")
