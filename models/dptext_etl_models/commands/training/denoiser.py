"""Define `dptext train denoiser`, which trains a small model from nothing that writes spoilt texts anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext train denoiser --corpus utterances.parquet=3 --corpus wiki.parquet=2 --out denoiser --steps 2000"
KEYS = ("out", "steps", "texts")


def denoiser(
    *,
    corpus: Annotated[
        list[str], typer.Option(metavar="PATH[=SHARE]", help="Parquet file of public texts; repeat as needed.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the model; a training that was stopped resumes there.")],
    kind: Annotated[
        Literal["seq2seq", "causal"],
        typer.Option(help="For dp_prompt and rewriting again, or for dp_paraphrase."),
    ] = "seq2seq",
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of texts.")] = "text",
    texts: Annotated[int, typer.Option(help="Number of short texts to draw from the corpora.")] = 400_000,
    steps: Annotated[int | None, typer.Option(help="Largest number of steps.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time limit in minutes; the learning rate falls with the time.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Texts per step.")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Layers; of the encoder, and of the decoder.")] = None,
    width: Annotated[int | None, typer.Option(min=8, help="Width, a multiple of the attention heads.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything that is drawn.")] = None,
    as_json: Json = False,
) -> None:
    """Train a tokenizer and a small encoder-decoder or causal model on spoilt public texts, from nothing.

    The model answers the prompt of dp_prompt (seq2seq) or of dp_paraphrase (causal) with the text that was spoilt. It
    serves these mechanisms offline, and `dptext train rewriter` starts from it.
    """
    from dataclasses import replace

    from dptext_etl_models.commands.training import report
    from dptext_etl_models.inference.language_model import need_transformers

    need_transformers()
    from dptext_etl_models.training.generative import denoiser as training
    from dptext_etl_models.training.generative.denoiser_model import Settings
    from dptext_etl_models.training.token_rows import public_texts

    asked: dict[str, Any] = {"steps": steps, "minutes": minutes, "rows": rows, "seed": seed, "layers": layers}
    asked["width"] = width
    settings = replace(Settings(kind=kind), **{name: value for name, value in asked.items() if value is not None})
    corpora, facts = report.corpora(corpus, column)
    drawn = public_texts(corpora, settings.words, texts, settings.seed)
    tokenizer = training.tokenizer_in(out, drawn, settings)
    done = training.train(tokenizer, drawn, settings, out, facts=facts, listener=report.tell)
    report.finish({"out": str(out), "steps": done, "texts": len(drawn)}, as_json=as_json)
