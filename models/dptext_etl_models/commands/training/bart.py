"""Define `dptext train bart`, which trains a small BART model from scratch so that it rebuilds short texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext train bart --corpus utterances.parquet=3 --corpus wiki.parquet --out tiny-bart --minutes 30"
KEYS = ("out", "steps", "texts")


def bart(
    *,
    corpus: Annotated[
        list[str], typer.Option(metavar="PATH[=SHARE]", help="Parquet file of public texts; repeat as needed.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the model; a training that was stopped resumes there.")],
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of texts.")] = "text",
    texts: Annotated[int, typer.Option(help="Number of short texts to draw from the corpora.")] = 600_000,
    steps: Annotated[int | None, typer.Option(help="Largest number of steps.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time limit in minutes; the learning rate falls with the time.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 11,
    as_json: Json = False,
) -> None:
    """Train a tokenizer and a small BART model on public text, with the same steps as DP-BART.

    The latents are clipped at 0.1, the default of dpbart, and rows have 20 tokens. The mechanism `dpbart` loads the
    folder as `model`; its training.json says how the model was made.
    """
    from dataclasses import replace

    from dptext_etl_models.commands.training import report
    from dptext_etl_models.training.latent import sequence_autoencoder as training
    from dptext_etl_models.training.token_rows import public_texts

    settings = replace(training.Settings(), minutes=minutes, seed=seed)
    if steps is not None:
        settings = replace(settings, steps=steps)
    corpora, facts = report.corpora(corpus, column)
    drawn = public_texts(corpora, settings.length - 4, texts, seed)
    tokenizer = training.tokenizer_in(out, drawn, settings.vocabulary)
    done = training.train(tokenizer, drawn, settings, out, facts=facts, listener=report.tell)
    report.finish({"out": str(out), "steps": done, "texts": len(drawn)}, as_json=as_json)
