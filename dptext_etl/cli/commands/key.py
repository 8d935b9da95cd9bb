"""`dptext key`: make the secret that all draws depend on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptext_etl.cli.command import Command, epilog
from dptext_etl.cli.options import Json

KEYS = ("path", "reference", "mode")

app = typer.Typer(no_args_is_help=True, help="Make keys.")


@app.callback()
def key() -> None:
    """Make keys."""


@app.command(cls=Command, epilog=epilog("dptext key new noise.key", KEYS))
def new(
    path: Annotated[Path, typer.Argument(help="The file to create; an existing file is never overwritten.")],
    *,
    as_json: Json = False,
) -> None:
    """Write a new random key into a file that its owner alone can read.

    Whoever holds the key and a release can test guesses of the raw texts: guard it like the raw texts, and destroy it
    when no release needs to be repeated any more.
    """
    from dptext_etl import _kernel
    from dptext_etl.cli.render.terminal import emit, say

    _kernel.Secret().write(str(path))
    reference = f"file:{path}"
    if as_json:
        emit({"path": str(path), "reference": reference, "mode": "0600"})
    else:
        say(f'wrote {path}, readable by you alone\nin a policy: key = "{reference}"')
