"""Define `dptext train vectors`, which moves word vectors by synonyms and antonyms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext train vectors --wordnet wordnet --out synonyms.safetensors"
KEYS = ("out", "words", "synonyms", "antonyms", "sha256")


def vectors(
    *,
    wordnet: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Tables of WordNet: senses, sense_relations, synset_relations (Parquet)."),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The new vectors, *.safetensors.")],
    base: Annotated[str, typer.Option(metavar="NAME|FILE", help="Word vectors to begin with.")] = "english-20k",
    passes: Annotated[int | None, typer.Option(min=1, help="Number of passes.")] = None,
    synonyms: Annotated[float | None, typer.Option(min=0.0, help="Weight of the pull between synonyms.")] = None,
    antonyms: Annotated[float | None, typer.Option(min=0.0, help="Weight of the push between antonyms.")] = None,
    as_json: Json = False,
) -> None:
    """Move public word vectors so that synonyms come near and antonyms part (counter-fitting).

    Vectors that are learned from text alone have "bad" next to "good". The words and their order stay, so whatever is
    public about the vocabulary stays public. The new file is another artifact: a policy names it, and its releases have
    another configuration hash.
    """
    from dataclasses import asdict, replace

    from dptext_etl.artifacts import sha256_file
    from dptext_etl.cli import terminal
    from dptext_etl.embeddings import WordVectors
    from dptext_etl.embeddings.grid import write_grid
    from dptext_etl_models.training.words import counter_fitting as training
    from dptext_etl_models.training.words.thesaurus import read
    from dptext_etl_models.training.words.vectors import on_grid

    asked: dict[str, Any] = {"passes": passes, "synonyms": synonyms, "antonyms": antonyms}
    settings = replace(training.Settings(), **{name: value for name, value in asked.items() if value is not None})
    held = WordVectors.load(base)
    pairs = read(wordnet, held.words)
    grid, scale = on_grid(training.fit(held, pairs, settings))
    facts = {
        "scale": repr(scale),
        "provenance": f"counter-fitted by dptext_etl.training.words.counter_fitting from {held.artifact.provenance}",
        "licence": f"{held.artifact.licence}; pairs of words from WordNet under its own license",
        "base": held.artifact.sha256,
        "wordnet": {path.stem: sha256_file(path) for path in sorted(wordnet.glob("s*_relations.parquet"))},
        "settings": {name: repr(value) for name, value in asdict(settings).items()},
    }
    write_grid(out, held.words, grid, facts)
    made = {"out": str(out), "words": len(held), "synonyms": len(pairs.synonyms), "antonyms": len(pairs.antonyms)}
    shown = {**made, "sha256": sha256_file(out)}
    if as_json:
        terminal.emit(shown)
    else:
        terminal.pairs(shown)
