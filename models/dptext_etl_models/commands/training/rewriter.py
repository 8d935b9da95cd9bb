"""Define `dptext train rewriter`, which fine-tunes an encoder-decoder to write released texts anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dptext_etl.cli.options import Json, PolicyFile

EXAMPLE = "dptext train rewriter privacy.toml --corpus c4.parquet --base google/flan-t5-base --out rewriter"
KEYS = ("out", "training_provenance", "mechanism", "stages")


def rewriter(
    policy: PolicyFile,
    *,
    corpus: Annotated[
        list[str], typer.Option(metavar="PATH[=SHARE]", help="Parquet file of PUBLIC texts; repeat as needed.")
    ],
    base: Annotated[str, typer.Option(help="An encoder-decoder: a folder, a shipped one, or a name on the hub.")],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of the model; a training that was stopped resumes there.")
    ],
    policy_text: Annotated[
        str | None, typer.Option(help="The policy's column whose mechanism is meant, if it has several.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="The hub's revision of the base.")] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH[=SHARE]", help="Parquet file of further texts of the data's own field (T++)."),
    ] = None,
    provenance: Annotated[
        Literal["public", "disjoint-records"],
        typer.Option(help="Whose the texts of --also are; other records of the same people are not public."),
    ] = "public",
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of texts.")] = "text",
    texts: Annotated[int | None, typer.Option(min=1, help="Number of texts per stage; by default 100,000.")] = None,
    words: Annotated[int | None, typer.Option(min=1, help="Largest number of words of a text.")] = None,
    template: Annotated[str | None, typer.Option(help='The prompt, with "{text}" in it.')] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the pairs; by default 1.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Largest number of steps, instead of epochs.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Time limit in minutes.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Pairs per batch.")] = None,
    longest: Annotated[
        int | None, typer.Option(min=16, help="Largest number of tokens of a prompt, and of a text.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Learning rate at its peak; by default 5e-5.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the texts, their order and dropout.")] = None,
    every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 500,
    as_json: Json = False,
) -> None:
    """Privatize public texts by a policy's mechanism, and fine-tune a model that writes the originals from them.

    The texts of --corpus must be public. training.json says whose texts made the model, because rewriting again is
    free only if none of them is a protected record. The policy's key is not used.
    """
    from dataclasses import replace

    from dptext_etl.cli import terminal
    from dptext_etl.policy import resolve_column
    from dptext_etl_models.commands.training import report
    from dptext_etl_models.inference import language_model

    language_model.need_transformers()
    from dptext_etl_models.training.generative import rewriter as training

    asked: dict[str, Any] = {"template": template, "epochs": epochs, "steps": steps, "minutes": minutes, "rows": rows}
    asked |= {"longest": longest, "rate": rate, "seed": seed, "texts": texts, "words": words}
    settings = replace(training.Settings(), **{name: value for name, value in asked.items() if value is not None})
    mechanism = resolve_column(policy, policy_text).mechanism
    corpora, _ = report.corpora(corpus, column)
    further, _ = report.corpora(also or (), column)
    facts = training.train(
        mechanism,
        language_model.model_files(base, revision),
        corpora,
        out,
        settings,
        also=training.InDomain(further, provenance),
        listener=report.tell,
        drawn=lambda done, total: terminal.note(f"privatized {done:,} of {total:,} public texts"),
        every=every,
    )
    shown = {"out": str(out), **{name: facts[name] for name in KEYS[1:]}}
    if as_json:
        terminal.emit(shown)
    else:
        terminal.pairs(shown)
