"""Define `dptext train adept`, which trains the LSTM autoencoder of the mechanism `adept`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext train adept --corpus utterances.parquet --out adept --scale small --minutes 15"
KEYS = ("out", "steps", "texts")


def adept(
    *,
    corpus: Annotated[
        list[str], typer.Option(metavar="PATH[=SHARE]", help="Parquet file of public texts; repeat as needed.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the model; a training that was stopped resumes there.")],
    scale: Annotated[
        Literal["paper", "small"], typer.Option(help="The paper's sizes and steps, or those for a small machine.")
    ] = "paper",
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of texts.")] = "text",
    texts: Annotated[int, typer.Option(help="Number of short texts to draw from the corpora.")] = 600_000,
    steps: Annotated[int | None, typer.Option(help="Largest number of steps.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time limit in minutes; the learning rate falls with the time.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 13,
    as_json: Json = False,
) -> None:
    """Train ADePT's autoencoder on public text, with latents clipped at norm 5 as in a release.

    The mechanism `adept` loads the folder as `model`; its config.json says how the model was made.
    """
    from dataclasses import replace

    from dptext_etl_models.commands.training import report
    from dptext_etl_models.training.latent import adept as training
    from dptext_etl_models.training.token_rows import public_texts

    settings = replace(training.SMALL if scale == "small" else training.Settings(), minutes=minutes, seed=seed)
    if steps is not None:
        settings = replace(settings, steps=steps)
    corpora, facts = report.corpora(corpus, column)
    drawn = public_texts(corpora, settings.length - 2, texts, seed)
    done = training.train(drawn, settings, out, facts=facts, listener=report.tell)
    report.finish({"out": str(out), "steps": done, "texts": len(drawn)}, as_json=as_json)
