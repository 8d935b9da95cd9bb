"""Define `dptext train`, which trains models on public text.

The commands import everything beyond the standard library and typer inside their functions.
"""

from __future__ import annotations

from dptext_etl_models.commands import (
    train_language,  # noqa: F401  (adds its commands to the application)
    train_latent,  # noqa: F401
    train_words,  # noqa: F401
)
from dptext_etl_models.commands.training_options import app

app.registered_commands.sort(key=lambda item: item.callback.__name__ if item.callback else "")
