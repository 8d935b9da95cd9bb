"""Define `dptext train dpbart-prune`, which chooses the columns and trains the weights of DP-BART-PR."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext train dpbart-prune --model facebook/bart-base --corpus wiki.parquet --out bart-pr"
KEYS = ("out", "steps", "texts", "kept", "width")


def dpbart_prune(
    *,
    model: Annotated[str, typer.Option(help="The model to start from: a folder, a model that ships, or a hub name.")],
    corpus: Annotated[
        list[str], typer.Option(metavar="PATH[=SHARE]", help="Parquet file of public texts; repeat as needed.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the new model; a training that was stopped resumes there.")],
    revision: Annotated[str | None, typer.Option(help="Revision of a hub name.")] = None,
    scale: Annotated[
        Literal["paper", "small"], typer.Option(help="The paper's steps and rate, or those for models of a few MB.")
    ] = "paper",
    length: Annotated[int, typer.Option(help="Tokens of a text in a release.")] = 20,
    clip: Annotated[float, typer.Option(help="Clip of latents in training; the paper takes twice a release's.")]
    = 0.2,
    stages: Annotated[int | None, typer.Option(help="Stages of pruning and training; a release uses the last but one.")]
    = None,
    steps: Annotated[int | None, typer.Option(help="Steps of each stage.")] = None,
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of texts.")] = "text",
    texts: Annotated[int, typer.Option(help="Number of short texts to draw from the corpora.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 3,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Prune latent columns of a BART model in stages, and train it on public text after each stage.

    The command writes the model with its dptext_kept.json, which `dpbart` needs for variant = "pr". `dptext train
    dpbart-noise` starts from this model.
    """
    from dataclasses import replace

    from dptext_etl_models.commands.training import report
    from dptext_etl_models.training.base_model import Base
    from dptext_etl_models.training.latent import dpbart_prune as training
    from dptext_etl_models.training.token_rows import public_texts

    settings = replace(training.SMALL if scale == "small" else training.Settings(), length=length, clip=clip, seed=seed)
    settings = replace(settings, stages=stages or settings.stages, steps=steps or settings.steps)
    base = Base.load(model, revision)
    corpora, facts = report.corpora(corpus, column)
    drawn = public_texts(corpora, length - 2, texts, seed)
    history = training.train(base, drawn, settings, out, facts=facts, listener=report.tell)
    kept = len(history[max(settings.stages - 2, 0)])
    done = {"out": str(out), "steps": settings.stages * settings.steps, "texts": len(drawn)}
    report.finish({**done, "kept": kept, "width": base.model.config.d_model}, as_json=as_json)
