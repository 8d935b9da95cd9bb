"""Hold the application `dptext train`, the options that its commands share, and how they print results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

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
    """Add a function to `dptext train`, with an example of its use and the keys of its JSON object.

    Inputs that a policy names as its source are refused. A model's folder gets the list of the files that it was made
    from; a file of vectors holds that list itself.
    """
    add = options.command(app, example, keys)

    def added(function: Function) -> Function:
        @wraps(function)
        def trained(**given: Any) -> None:
            inputs = inputs_of(given)
            refuse_private(inputs)
            function(**given)
            out = Path(given["out"])
            if out.is_dir():
                from dptext_etl.artifacts import MADE_FROM, canon, made_from

                (out / f"{MADE_FROM}.json").write_bytes(canon({MADE_FROM: made_from(inputs)}))

        return add(cast("Function", trained))

    return added


def inputs_of(given: Mapping[str, Any]) -> list[str]:
    """Return the files and folders among the options of a command, and the public inputs of its policy."""
    from dptext_etl.policy import Policy
    from dptext_etl.runner.source.roles import inputs_of_policy

    paths: list[str] = []
    for name, value in given.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if name == "policy":
                paths += [str(path) for _, path in inputs_of_policy(Policy.load(item))]
            elif name != "out" and isinstance(item, str | Path):
                whole, _, _ = str(item).rpartition("=")  # "PATH=SHARE"
                paths += [path for path in (str(item), whole) if path and Path(path).exists()]
    return paths


def refuse_private(inputs: Sequence[str]) -> None:
    """Refuse inputs that a policy in their folders or the working folder names as its source, and copies of them."""
    from dptext_etl.runner.source.roles import refuse_raw

    refuse_raw(inputs, why="a model or a range that learns from it discloses it, and no ledger would account for that")


def changed(settings: Settings, **given: Any) -> Settings:
    """Replace the settings that an option gives."""
    from dataclasses import replace

    chosen: Settings = replace(settings, **{name: value for name, value in given.items() if value is not None})  # type: ignore[type-var]
    return chosen


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
