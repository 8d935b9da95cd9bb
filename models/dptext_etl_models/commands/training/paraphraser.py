"""Define `dptext train paraphraser`, which fine-tunes a causal model on public pairs of sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext train paraphraser --pairs snli.parquet --base openai-community/gpt2 --out gpt2-paraphraser"
KEYS = ("out", "steps", "loss_before", "loss_after", "clip")


def paraphraser(
    *,
    pairs: Annotated[
        Path, typer.Option(metavar="FILE", help="Parquet, CSV, TSV or NDJSON file of PUBLIC pairs of sentences.")
    ],
    base: Annotated[str, typer.Option(help="A causal model: a folder, a shipped one, or a name on the hub.")],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of the model; a training that was stopped resumes there.")
    ],
    revision: Annotated[str | None, typer.Option(help="The hub's revision of the base.")] = None,
    text: Annotated[str, typer.Option(metavar="COLUMN", help="The column of texts.")] = "text",
    paraphrase: Annotated[str, typer.Option(help="The column of their paraphrases.")] = "paraphrase",
    template: Annotated[str | None, typer.Option(help='The prompt, with "{text}" in it.')] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the pairs.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Largest number of steps, instead of epochs.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Time limit in minutes.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Pairs per batch.")] = None,
    longest: Annotated[
        int | None, typer.Option(min=16, help="Largest number of tokens of a prompt, and of a paraphrase.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Learning rate at its peak.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the order of pairs and of dropout.")] = None,
    every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 500,
    clip: Annotated[bool, typer.Option(help="Also estimate the range of scores from the pairs.")] = True,
    as_json: Json = False,
) -> None:
    """Fine-tune a causal model for dp_paraphrase, so that it continues a text by a paraphrase.

    The pairs must be public, because a model does not keep its training texts secret. Two pairs in a hundred are held
    out.
    """
    from dataclasses import replace

    from dptext_etl.cli import terminal
    from dptext_etl_models.inference import language_model

    language_model.need_transformers()
    from dptext_etl_models.training.generative import paraphraser as training
    from dptext_etl_models.training.sentence_pairs import SentencePairs

    asked: dict[str, Any] = {"template": template, "epochs": epochs, "steps": steps, "minutes": minutes, "rows": rows}
    asked |= {"longest": longest, "rate": rate, "seed": seed}
    settings = replace(training.Settings(), **{name: value for name, value in asked.items() if value is not None})
    read = SentencePairs.read(pairs, (text, paraphrase))
    terminal.note(f"{len(read.train):,} pairs to train on, {len(read.held):,} held out")
    facts = training.train(
        language_model.model_files(base, revision),
        read,
        out,
        settings,
        clip=clip,
        listener=lambda seen: terminal.note(str(seen)),
        every=every,
    )
    shown = {"out": str(out), **{name: facts.get(name) for name in KEYS[1:]}}
    if as_json:
        terminal.emit(shown)
    else:
        terminal.pairs(shown)
