"""Ask before something that cannot be undone."""

from __future__ import annotations

from typing import Annotated

import typer

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; for scripts.")]


def require_confirmation(question: str, *, yes: bool) -> None:
    """Ask a question on stderr and go on if the answer is yes."""
    from dptext_etl.errors import PolicyError

    if yes:
        return
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:  # the input ended
        agreed = False
    if not agreed:
        raise PolicyError("this was not confirmed; nothing was changed", "answer y, or give --yes in a script")
