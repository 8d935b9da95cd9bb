"""Define `dptext key`, which makes the secret on which all draws depend."""

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
    """Write a new random key into a file that only its owner can read.

    A person who holds the key and a release can test guesses of the raw texts. Guard the key like the raw texts, and
    destroy it when you no longer need to repeat a release.
    """
    from dptext_etl import _kernel
    from dptext_etl.cli.render.terminal import emit, say

    _kernel.Secret().write(str(path))
    reference = f"file:{path}"
    if as_json:
        emit({"path": str(path), "reference": reference, "mode": "0600"})
    else:
        say(f'wrote {path}, readable by you alone\nin a policy: key = "{reference}"')
