"""Format the help of commands in the same way under all versions of typer and click."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, get_type_hints

from typer.core import TyperArgument, TyperCommand
from typer.models import ArgumentInfo


def epilog(example: str, keys: Sequence[str] = ()) -> str:
    """Return the end of a command's help: an example, and the keys of its JSON object."""
    return f"Example: {example}" + (f"\n\nKeys with --json: {', '.join(keys)}." if keys else "")


class Command(TyperCommand):
    """Show the docstring of a command as flowing paragraphs, and the help of its arguments.

    Typer keeps the line breaks of all paragraphs but the first. Below typer 0.26, click 8.5 deletes the help of
    arguments. The sections "Args:" and "Raises:" of a docstring are left out: they are for readers of the code.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        paragraphs = (" ".join(paragraph.split()) for paragraph in inspect.cleandoc(self.help or "").split("\n\n"))
        self.help = "\n\n".join(text for text in paragraphs if not text.startswith(("Args: ", "Raises: ")))
        hints = get_type_hints(inspect.unwrap(self.callback), include_extras=True) if self.callback else {}
        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and not parameter.help:
                stated = getattr(hints.get(parameter.name or ""), "__metadata__", ())
                parameter.help = next((item.help for item in stated if isinstance(item, ArgumentInfo)), None)
