"""Format the help of commands in the same way under all versions of typer and click."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

import click
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


class LedgerCommand(Command):
    """Take the ledger of a policy, POLICY, in the place of --ledger and --id-key.

    The argument is the last one, or the first if the command's own argument is optional. That one is what is meant next
    to --ledger then.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        own = [place for place, item in enumerate(self.params) if isinstance(item, TyperArgument)]
        optional = [place for place in own if not self.params[place].required]
        policy = TyperArgument(
            param_decls=["policy"],
            type=click.Path(path_type=Path),
            required=False,
            metavar="POLICY",
            help="A policy file, whose ledger it is; or give --ledger.",
        )
        self.params.insert(optional[0] if optional else len(own), policy)
        self._named_by = [self.params[place + 1].name for place in optional]
        ledger = next(item for item in self.params if item.name == "ledger")
        self._needed, ledger.required = ledger.required, False

    def invoke(self, ctx: click.Context) -> Any:
        """Read the ledger's place from the policy, and run the command."""
        given = ctx.params
        policy: Path | None = given.pop("policy")
        if policy is not None and given["ledger"] is not None:
            free = [name for name in self._named_by if name is not None and given[name] is None]
            if not free:
                raise click.UsageError("give POLICY or --ledger, not both")
            given[free[0]], policy = policy, None
        if policy is not None:
            from dptext_etl.policy import Policy

            spec = Policy.load(policy).ledger
            given["ledger"] = spec.url
            if "id_key" in given:
                given["id_key"] = given["id_key"] or spec.id_key
        if self._needed and given["ledger"] is None:
            raise click.UsageError("give POLICY or --ledger")
        return super().invoke(ctx)
