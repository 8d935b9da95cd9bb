"""Define the `dptext train` commands for word vectors: `encoder` and `vectors`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dptext_etl_models.commands.training_options import Column, Steps, VectorFile, Vectors, changed, command, show


@command(
    "dptext train encoder articles.parquet --turns turns.parquet --group dialogue --out turns.safetensors",
    "out", "words", "pairs", "held", "found_before", "found", "sha256",
)  # fmt: skip
def encoder(
    articles: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[SOURCE]...", help="PUBLIC texts of several sentences: .parquet, .csv or .txt."),
    ] = None,
    *,
    out: VectorFile,
    turns: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="PUBLIC turns of dialogues, one per row and in order; repeat as needed."),
    ] = None,
    group: Annotated[str, typer.Option(help="The column that says which turns belong together.")] = "dialogue",
    column: Column = "text",
    base: Vectors = "english-20k",
    most: Annotated[int, typer.Option(min=1, help="Pairs of one file, at most.")] = 120_000,
    steps: Steps = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the choice and the order of pairs.")] = 0,
    terms: Annotated[
        str, typer.Option("--license", metavar="WORDS", help="Terms of the texts' license.")
    ] = "that of the sources",
) -> None:
    """Learn word vectors for `dptext corpus build --vectors` from public texts that follow each other.

    No labels are needed: sentences that follow each other, and turns of one dialogue, mostly speak of the same thing.
    The encoder of a corpus, which sums such vectors, then groups related texts. The command prints how many held-out
    texts find their partner among 500, before and after; a step has 512 pairs. Never give it texts that you
    privatize.
    """
    from dataclasses import asdict

    from dptext_etl.artifacts import MADE_FROM, made_from, sha256_file
    from dptext_etl.cli import terminal
    from dptext_etl.embeddings import WordVectors
    from dptext_etl.embeddings.vectors import write_grid
    from dptext_etl.errors import InputError
    from dptext_etl_models.training import contrast
    from dptext_etl_models.training.contrast import on_grid

    if not articles and not turns:
        raise InputError("no texts are named", "name files of articles, or turns of dialogues with --turns")
    terminal.note("this command assumes that the sources are public: their words move the vectors")
    start = WordVectors.load(base)
    settings = changed(contrast.Settings(seed=seed), steps=steps)
    pairs = contrast.read_pairs(articles or [], turns or [], start, column=column, group=group, most=most, seed=seed)
    terminal.note(f"{len(pairs.train):,} pairs of texts, {len(pairs.held):,} held out")
    grid, scale = on_grid(contrast.fit(start, pairs.train, settings, terminal.note))
    facts: dict[str, Any] = {
        "scale": repr(scale),
        "provenance": f"trained by dptext_etl_models.training.contrast from {start.artifact.provenance}",
        "licence": f"vectors: {start.artifact.license}; texts: {terms}",
        "base": start.artifact.sha256,
        "sources": pairs.sources,
        MADE_FROM: made_from([*(articles or []), *(turns or []), start.artifact.path]),
        "settings": {name: repr(value) for name, value in {**asdict(settings), "most": most}.items()},
    }
    write_grid(out, start.words, grid, facts)
    summary = {"out": str(out), "words": len(start), "pairs": len(pairs.train), "held": len(pairs.held)}
    if pairs.held:
        weights = contrast.word_weights(len(start), pairs.train)
        tables = {"found_before": start.vectors, "found": grid}
        summary |= {
            name: round(contrast.partners_found(table, weights, pairs.held), 4) for name, table in tables.items()
        }
    show({**summary, "sha256": sha256_file(out)})


@command(
    "dptext train vectors --wordnet wordnet --out synonyms.safetensors",
    "out", "words", "synonyms", "antonyms", "sha256",
)  # fmt: skip
def vectors(
    *,
    wordnet: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Tables of WordNet: senses, sense_relations, synset_relations (Parquet)."),
    ],
    out: VectorFile,
    base: Vectors = "english-20k",
    passes: Annotated[int | None, typer.Option(min=1, help="Number of passes.")] = None,
    synonyms: Annotated[float | None, typer.Option(min=0.0, help="Weight of the pull between synonyms.")] = None,
    antonyms: Annotated[float | None, typer.Option(min=0.0, help="Weight of the push between antonyms.")] = None,
) -> None:
    """Move public word vectors so that synonyms come near and antonyms part (counter-fitting).

    Vectors that are learned only from text have "bad" next to "good". The words and their order stay, so whatever is
    public about the vocabulary stays public. The new file is another artifact: a policy names it, and its releases have
    another configuration hash.
    """
    from dataclasses import asdict

    from dptext_etl.artifacts import MADE_FROM, made_from, sha256_file
    from dptext_etl.embeddings import WordVectors
    from dptext_etl.embeddings.vectors import write_grid
    from dptext_etl_models.training import counter_fitting
    from dptext_etl_models.training.contrast import on_grid

    settings = changed(counter_fitting.Settings(), passes=passes, synonyms=synonyms, antonyms=antonyms)
    start = WordVectors.load(base)
    pairs = counter_fitting.read_thesaurus(wordnet, start.words)
    grid, scale = on_grid(counter_fitting.fit(start, pairs, settings))
    facts = {
        "scale": repr(scale),
        "provenance": f"counter-fitted by dptext_etl_models.training.counter_fitting from {start.artifact.provenance}",
        "licence": f"{start.artifact.license}; pairs of words from WordNet under its own license",
        "base": start.artifact.sha256,
        "wordnet": {path.stem: sha256_file(path) for path in sorted(wordnet.glob("s*_relations.parquet"))},
        "settings": {name: repr(value) for name, value in asdict(settings).items()},
        MADE_FROM: made_from([*sorted(wordnet.glob("*.parquet")), start.artifact.path]),
    }
    write_grid(out, start.words, grid, facts)
    written = {"out": str(out), "words": len(start), "synonyms": len(pairs.synonyms), "antonyms": len(pairs.antonyms)}
    show({**written, "sha256": sha256_file(out)})
