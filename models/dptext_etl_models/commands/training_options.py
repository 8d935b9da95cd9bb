"""Hold the application `dptext train`, the options that its commands share, and how they print results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from dptext_etl.cli import options

if TYPE_CHECKING:
    from dptext_etl_models.training.resumable import TrainingProgress

Corpora = Annotated[
    list[str],
    typer.Option(metavar="PATH[=SHARE]", help="Parquet file of PUBLIC texts, and its share; repeat as needed."),
]
Out = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Folder of the model; a training that was stopped resumes there.")
]
Column = Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of texts.")]
Scale = Annotated[
    Literal["paper", "small"], typer.Option(help="The paper's settings, or those for a small model and machine.")
]
Texts = Annotated[int, typer.Option(min=1, help="Number of short texts to draw from the corpora.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Largest number of steps.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Passes over the pairs.")]
Minutes = Annotated[
    float | None,
    typer.Option(min=0.01, help="Time limit in minutes, over which the learning rate falls unless it is constant."),
]
Rows = Annotated[int | None, typer.Option(min=1, help="Texts or pairs per step.")]
Layers = Annotated[int | None, typer.Option(min=1, help="Layers; of the encoder, and of the decoder.")]
Width = Annotated[int | None, typer.Option(min=8, help="Width, a multiple of the attention heads.")]
Longest = Annotated[int | None, typer.Option(min=16, help="Largest number of tokens of a prompt, and of an answer.")]
Template = Annotated[str | None, typer.Option(help='The prompt, with "{text}" in it.')]
Rate = Annotated[float | None, typer.Option(help="Learning rate at its peak.")]
Seed = Annotated[int | None, typer.Option(help="Seed of everything that is drawn.")]
Every = Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")]
Revision = Annotated[str | None, typer.Option(help="The hub's revision of the model.")]
Vectors = Annotated[str, typer.Option(metavar="NAME|FILE", help="Word vectors to begin with.")]
VectorFile = Annotated[Path, typer.Option(metavar="FILE", help="The new vectors, *.safetensors.")]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Train models on public text; never on texts that are privatized."
)
Function = TypeVar("Function", bound=Callable[..., None])
Settings = TypeVar("Settings")


@app.callback()
def train() -> None:
    """Train models on public text; never on texts that are privatized."""


def command(example: str, *keys: str) -> Callable[[Function], Function]:
    """Add a function to `dptext train`, with an example of its use and the keys of its JSON object."""
    return options.command(app, example, keys)


def changed(settings: Settings, **given: Any) -> Settings:
    """Replace the settings that an option gives."""
    from dataclasses import replace

    made: Settings = replace(settings, **{name: value for name, value in given.items() if value is not None})  # type: ignore[type-var]
    return made


def progress(seen: TrainingProgress) -> None:
    """Print the progress of a training."""
    from dptext_etl.cli import terminal

    terminal.note(str(seen))


def show(facts: Mapping[str, Any], line: str | None = None) -> None:
    """Print the result of a command: as JSON, as one line, or as pairs."""
    from dptext_etl.cli import terminal

    if line is not None:
        terminal.report(facts, line)
    elif not terminal.emitted(facts):
        terminal.pairs(facts)


def show_steps(out: Path, steps: int, texts: int, **more: Any) -> None:
    """Print the result of a training on short texts."""
    facts = {"out": str(out), "steps": steps, "texts": texts, **more}
    show(facts, f"wrote {out} after {steps:,} steps on {texts:,} texts")
