"""How the help of a command reads, whatever the versions of typer and click."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, get_type_hints

from typer.core import TyperArgument, TyperCommand
from typer.models import ArgumentInfo


def epilog(example: str, keys: Sequence[str] = ()) -> str:
    """Return what stands at the end of a command's help: an example, and the keys of its JSON object."""
    return f"Example: {example}" + (f"\n\nKeys with --json: {', '.join(keys)}." if keys else "")


class Command(TyperCommand):
    """A command whose paragraphs flow, and whose arguments keep their help.

    Typer breaks all paragraphs but the first where the source breaks them; below 0.26 it sets the help of an argument
    before click 8.5 sets it to nothing.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        self.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        hints = get_type_hints(inspect.unwrap(self.callback), include_extras=True) if self.callback else {}
        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and not parameter.help:
                stated = getattr(hints.get(parameter.name or ""), "__metadata__", ())
                parameter.help = next((item.help for item in stated if isinstance(item, ArgumentInfo)), None)
