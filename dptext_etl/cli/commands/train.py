"""`dptext train`: train models on public text, one command per file of `dptext_etl.cli.train`.

A file holds `EXAMPLE`, `KEYS` and the function of its name (`masked_lm.py`: `masked_lm`, which is the command
`masked-lm`); what it needs beyond the standard library it imports inside that function.
"""

from __future__ import annotations

import importlib
import pkgutil

import typer

from dptext_etl.cli import train as commands
from dptext_etl.cli.command import Command, epilog

app = typer.Typer(no_args_is_help=True, help="Train models on public text; never on what is privatised.")


@app.callback()
def train() -> None:
    """Train models on public text; never on what is privatised."""


for _found in sorted(module.name for module in pkgutil.iter_modules(commands.__path__)):
    _module = importlib.import_module(f"{commands.__name__}.{_found}")
    if hasattr(_module, _found):
        app.command(cls=Command, epilog=epilog(_module.EXAMPLE, _module.KEYS))(getattr(_module, _found))
