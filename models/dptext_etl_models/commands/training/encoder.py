"""Define `dptext train encoder`, which learns word vectors for corpora from public texts that stand side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext train encoder articles.parquet --turns turns.parquet --group dialogue --out turns.safetensors"
KEYS = ("out", "words", "pairs", "held", "found_before", "found", "sha256")


def encoder(
    articles: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[SOURCE]...", help="PUBLIC texts of several sentences: .parquet, .csv or .txt."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The new vectors, *.safetensors.")],
    turns: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="PUBLIC turns of dialogues, one per row and in order; repeat as needed."),
    ] = None,
    group: Annotated[str, typer.Option(help="The column that says which turns belong together.")] = "dialogue",
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of texts.")] = "text",
    base: Annotated[str, typer.Option(metavar="NAME|FILE", help="Word vectors to begin with.")] = "english-20k",
    most: Annotated[int, typer.Option(min=1, help="Pairs of one file, at most.")] = 120_000,
    steps: Annotated[int | None, typer.Option(min=1, help="Number of steps, 512 pairs each.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the choice and the order of pairs.")] = 0,
    licence: Annotated[str, typer.Option(metavar="WORDS", help="Terms of the texts' license.")] = "that of the sources",
    as_json: Json = False,
) -> None:
    """Learn word vectors for `dptext corpus build --vectors` from public texts that stand side by side.

    No labels are needed: sentences that follow each other, and turns of one dialogue, mostly speak of the same thing.
    The encoder of a corpus, which sums such vectors, then puts together what belongs together. Says how many held-out
    texts find their partner among 500, before and after. Never give it texts that you privatize.
    """
    from dataclasses import asdict, replace

    from dptext_etl.artifacts import sha256_file
    from dptext_etl.cli import terminal
    from dptext_etl.embeddings import WordVectors
    from dptext_etl.embeddings.grid import write_grid
    from dptext_etl.errors import InputError
    from dptext_etl_models.training.words import adjacent, contrast
    from dptext_etl_models.training.words.vectors import on_grid

    if not articles and not turns:
        raise InputError("no texts are named", "name files of articles, or turns of dialogues with --turns")
    terminal.note("this command assumes that the sources are public: their words move the vectors")
    held = WordVectors.load(base)
    settings = replace(contrast.Settings(seed=seed), **({} if steps is None else {"steps": steps}))
    pairs = adjacent.read(articles or [], turns or [], held, column=column, group=group, most=most, seed=seed)
    terminal.note(f"{len(pairs.train):,} pairs of texts, {len(pairs.held):,} held out")
    learned = contrast.fit(held, pairs.train, settings, terminal.note)
    grid, scale = on_grid(learned)
    facts: dict[str, Any] = {
        "scale": repr(scale),
        "provenance": f"trained by dptext_etl_models.training.words.contrast from {held.artifact.provenance}",
        "licence": f"vectors: {held.artifact.licence}; texts: {licence}",
        "base": held.artifact.sha256,
        "sources": pairs.sources,
        "settings": {name: repr(value) for name, value in {**asdict(settings), "most": most}.items()},
    }
    write_grid(out, held.words, grid, facts)
    shown = {"out": str(out), "words": len(held), "pairs": len(pairs.train), "held": len(pairs.held)}
    if pairs.held:
        weights = contrast.word_weights(len(held), pairs.train)
        tables = {"found_before": held.vectors, "found": grid}
        shown |= {name: round(contrast.partners_found(table, weights, pairs.held), 4) for name, table in tables.items()}
    shown["sha256"] = sha256_file(out)
    if as_json:
        terminal.emit(shown)
    else:
        terminal.pairs(shown)
