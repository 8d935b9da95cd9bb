"""`dptext train bart`: a small BART model that rebuilds short texts, from scratch."""

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
    out: Annotated[Path, typer.Option(help="Folder of the model; a training that was stopped goes on there.")],
    column: Annotated[str, typer.Option(help="The column of texts.")] = "text",
    texts: Annotated[int, typer.Option(help="Short texts that are drawn from the corpora.")] = 600_000,
    steps: Annotated[int | None, typer.Option(help="Most steps.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop by then; the learning rate falls with the time.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 11,
    as_json: Json = False,
) -> None:
    """Train a tokenizer and a small BART model on public text, along the path that DP-BART takes.

    The latents are clipped at 0.1, the default of dpbart, and rows have 20 tokens. The folder is one that
    `dpbart` loads as `model`; training.json in it says what made it.
    """
    from dataclasses import replace

    from dptext_etl.cli.train import report
    from dptext_etl.training import sequence_autoencoder as training
    from dptext_etl.training.token_rows import public_texts

    settings = replace(training.Settings(), minutes=minutes, seed=seed)
    if steps is not None:
        settings = replace(settings, steps=steps)
    corpora, facts = report.corpora(corpus, column)
    drawn = public_texts(corpora, settings.length - 4, texts, seed)
    tokenizer = training.tokenizer_in(out, drawn, settings.vocabulary)
    done = training.train(tokenizer, drawn, settings, out, facts=facts, listener=report.tell)
    report.finish({"out": str(out), "steps": done, "texts": len(drawn)}, as_json=as_json)
