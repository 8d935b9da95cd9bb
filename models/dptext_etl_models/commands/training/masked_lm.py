"""Define `dptext train masked-lm`, which trains a small masked language model on public text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext train masked-lm --corpus wiki.parquet=2 --corpus reviews.parquet --out model --minutes 60"
KEYS = ("out", "steps", "bytes", "held_out", "clip")


def masked_lm(
    *,
    corpus: Annotated[
        list[str],
        typer.Option(metavar="FILE[=SHARE]", help="Parquet file of public texts, and its share; repeat as needed."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of the model; training resumes from a checkpoint there.")
    ],
    examine: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Parquet file of texts for evaluation only; repeat as needed."),
    ] = None,
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of texts.")] = "text",
    steps: Annotated[int | None, typer.Option(min=1, help="Largest number of steps.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Time limit in minutes.")] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1_000, help="Entries of the tokenizer.")] = None,
    hidden: Annotated[
        int | None,
        typer.Option("--width", min=8, help="Width of the model, a multiple of the number of attention heads."),
    ] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Number of layers.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights and examples.")] = None,
    licence: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Terms of the corpora's licenses, for the model's card.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a small masked language model with a vocabulary of whole words, and evaluate it on held-out texts.

    The corpora must be public, because a model does not keep its training texts secret. Two texts in a hundred are held
    out.
    """
    from dataclasses import replace

    from dptext_etl.cli import terminal
    from dptext_etl_models.inference.language_model import need_transformers

    need_transformers()
    from dptext_etl_models.training.corpus import Corpus
    from dptext_etl_models.training.masked import masked_lm as training
    from dptext_etl_models.training.masked.card import finish

    asked: dict[str, Any] = {"steps": steps, "minutes": minutes, "vocabulary": vocabulary, "hidden": hidden}
    asked |= {"layers": layers, "seed": seed}
    settings = replace(training.Settings(), **{name: value for name, value in asked.items() if value is not None})
    held = training.read(
        [Corpus.parse(given, column) for given in corpus], [Corpus.parse(given, column) for given in examine or ()]
    )
    training.train(held, out, settings, listener=lambda seen: terminal.note(str(seen)))
    facts = finish(out, held, licence=licence)
    if as_json:
        terminal.emit(facts)
    else:
        terminal.pairs(facts)
