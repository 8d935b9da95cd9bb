"""`dptext train masked-lm`: train a small masked language model on public text."""

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
        Path, typer.Option(metavar="FOLDER", help="Where the model goes; a checkpoint there is gone on from.")
    ],
    examine: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Parquet file that is only examined on; repeat as needed."),
    ] = None,
    column: Annotated[str, typer.Option(help="Which column holds the texts.")] = "text",
    steps: Annotated[int | None, typer.Option(min=1, help="Most steps.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Stop after this time, too.")] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1_000, help="Entries of the tokeniser.")] = None,
    hidden: Annotated[int | None, typer.Option(min=8, help="Width; a multiple of the number of heads.")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Depth.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights and examples.")] = None,
    licence: Annotated[
        str | None, typer.Option(metavar="WORDS", help="What the corpora's licences ask, for the model's card.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a small masked language model whose vocabulary is whole words, and examine it on texts it has not seen.

    The corpora must be public: what a model learns is no secret afterwards. Two texts in a hundred are kept back.
    """
    from dataclasses import replace

    from dptext_etl.cli.render import terminal
    from dptext_etl.inference.language_model import need_transformers

    need_transformers()
    from dptext_etl.training import masked_lm as training
    from dptext_etl.training.corpus import Corpus
    from dptext_etl.training.masked_lm_card import finish

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
