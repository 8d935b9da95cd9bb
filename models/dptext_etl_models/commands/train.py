"""Define `dptext train`, which trains models on public text, with one command per file of `training/`.

A file holds `EXAMPLE`, `KEYS` and the function of its name (`masked_lm.py`: `masked_lm`, which is the command
`masked-lm`). It imports everything beyond the standard library inside that function.
"""

from __future__ import annotations

import importlib
import pkgutil

import typer

from dptext_etl.cli.options import Command, epilog
from dptext_etl_models.commands import training as commands

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Train models on public text; never on texts that are privatized."
)


@app.callback()
def train() -> None:
    """Train models on public text; never on texts that are privatized."""


for _found in sorted(module.name for module in pkgutil.iter_modules(commands.__path__)):
    _module = importlib.import_module(f"{commands.__name__}.{_found}")
    if hasattr(_module, _found):
        app.command(cls=Command, epilog=epilog(_module.EXAMPLE, _module.KEYS))(getattr(_module, _found))
