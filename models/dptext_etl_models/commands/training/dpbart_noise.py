"""Define `dptext train dpbart-noise`, which trains the weights of DP-BART-PR+ at one epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext train dpbart-noise --model bart-pr --epsilon 500 --corpus wiki.parquet --out bart-pr-plus-500"
KEYS = ("out", "steps", "texts", "sigma")


def dpbart_noise(
    *,
    model: Annotated[str, typer.Option(help="A folder of `dptext train dpbart-prune`.")],
    epsilon: Annotated[float, typer.Option(min=0.0, help="Epsilon of a release.")],
    corpus: Annotated[
        list[str], typer.Option(metavar="PATH[=SHARE]", help="Parquet file of public texts; repeat as needed.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the new model; a training that was stopped resumes there.")],
    delta: Annotated[float, typer.Option(help="Delta of a release.")] = 1e-6,
    scale: Annotated[
        Literal["paper", "small"], typer.Option(help="The paper's steps and rate, or those for models of a few MB.")
    ] = "paper",
    length: Annotated[int, typer.Option(help="Tokens of a text in a release.")] = 20,
    clip: Annotated[float, typer.Option(help="C of a release.")] = 0.1,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of 500 steps; the paper takes 100 (epsilon 2500) to 500 (epsilon 10).")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Time limit in minutes.")] = None,
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of texts.")] = "text",
    texts: Annotated[int, typer.Option(help="Number of short texts to draw from the corpora.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 5,
    as_json: Json = False,
) -> None:
    """Train a pruned model on public text, under the noise that a release at this epsilon adds.

    The noise comes from torch and not from a key, because nothing is released here. The command writes a model for
    variant = "pr_plus".
    """
    from dataclasses import replace

    from dptext_etl_models.commands.training import report
    from dptext_etl_models.training.base_model import Base
    from dptext_etl_models.training.latent import dpbart_noise as training
    from dptext_etl_models.training.token_rows import public_texts

    settings = replace(
        training.SMALL if scale == "small" else training.Settings(),
        epsilon=epsilon, delta=delta, length=length, clip=clip, minutes=minutes, seed=seed,
    )  # fmt: skip
    settings = replace(settings, epochs=epochs or settings.epochs)
    base = Base.load(model)
    corpora, facts = report.corpora(corpus, column)
    drawn = public_texts(corpora, length - 2, texts, seed)
    done = training.train(base, drawn, settings, out, facts=facts, listener=report.tell)
    columns = base.model.config.d_model if base.kept is None else len(base.kept.columns)
    made = {"out": str(out), "steps": done, "texts": len(drawn), "sigma": training.sigma(settings, columns)}
    report.finish(made, as_json=as_json)
