"""Name the steps of a run as they end, so that tests can stop it there."""

from __future__ import annotations

from collections.abc import Callable

Checkpoint = Callable[[str], None]
"""Called with the name of every finished step; tests stop the process there."""


def nothing(_: str) -> None:
    """Do nothing: the checkpoint of real runs."""
