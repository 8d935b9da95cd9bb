"""Define the `dptext train` commands for language models: `denoiser`, `masked-lm`, `paraphraser`, and `rewriter`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dptext_etl.cli.options import PolicyFile, load_policy
from dptext_etl_models.commands.training_options import (
    Column,
    Corpora,
    Epochs,
    Every,
    Layers,
    Longest,
    Minutes,
    Out,
    Rate,
    Revision,
    Rows,
    Seed,
    Steps,
    Template,
    Texts,
    Width,
    changed,
    command,
    progress,
    show,
    show_steps,
)

PARAPHRASER_KEYS = ("out", "steps", "loss_before", "loss_after", "clip")
REWRITER_KEYS = ("out", "training_provenance", "mechanism", "stages")


@command(
    "dptext train denoiser --corpus utterances.parquet=3 --corpus wiki.parquet=2 --out denoiser --steps 2000",
    "out", "steps", "texts",
)  # fmt: skip
def denoiser(
    *,
    corpus: Corpora,
    out: Out,
    kind: Annotated[
        Literal["seq2seq", "causal"], typer.Option(help="For dp_prompt and rewriting again, or for dp_paraphrase.")
    ] = "seq2seq",
    column: Column = "text",
    texts: Texts = 400_000,
    steps: Steps = None,
    minutes: Minutes = None,
    rows: Rows = None,
    layers: Layers = None,
    width: Width = None,
    seed: Seed = None,
) -> None:
    """Train a tokenizer and a small encoder-decoder or causal model on corrupted public texts, from nothing.

    The model answers the prompt of dp_prompt (seq2seq) or of dp_paraphrase (causal) with the text before it was
    corrupted. It serves these mechanisms offline, and `dptext train rewriter` starts from it.
    """
    from dptext_etl_models.inference.language_model import need_transformers

    need_transformers()
    from dptext_etl_models.training import denoiser as training
    from dptext_etl_models.training.corpus import draw_texts

    given = {"steps": steps, "minutes": minutes, "rows": rows, "seed": seed, "layers": layers, "width": width}
    settings = changed(training.Settings(kind=kind), **given)
    drawn, facts = draw_texts(corpus, column, settings.words, texts, settings.seed)
    tokenizer = training.tokenizer_in(out, drawn, settings)
    done = training.train(tokenizer, drawn, settings, out, facts=facts, listener=progress)
    show_steps(out, done, len(drawn))


@command(
    "dptext train masked-lm --corpus wiki.parquet=2 --corpus reviews.parquet --out model --minutes 60",
    "out", "steps", "bytes", "held_out", "clip",
)  # fmt: skip
def masked_lm(
    *,
    corpus: Corpora,
    out: Out,
    examine: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Parquet file of texts for evaluation only; repeat as needed."),
    ] = None,
    column: Column = "text",
    steps: Steps = None,
    minutes: Minutes = None,
    vocabulary: Annotated[int | None, typer.Option(min=1_000, help="Entries of the tokenizer.")] = None,
    hidden: Annotated[
        int | None,
        typer.Option("--width", min=8, help="Width of the model, a multiple of the number of attention heads."),
    ] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Number of layers.")] = None,
    seed: Seed = None,
    terms: Annotated[
        str | None,
        typer.Option("--license", metavar="WORDS", help="Terms of the corpora's licenses, for the model's card."),
    ] = None,
) -> None:
    """Train a small masked language model with a vocabulary of whole words, and evaluate it on held-out texts.

    The corpora must be public, because a model does not keep its training texts secret. Two texts in a hundred are held
    out.
    """
    from dptext_etl_models.inference.language_model import need_transformers

    need_transformers()
    from dptext_etl_models.training import masked_lm as training
    from dptext_etl_models.training.corpus import Corpus
    from dptext_etl_models.training.masked_card import finish

    given = {"steps": steps, "minutes": minutes, "vocabulary": vocabulary, "hidden": hidden, "layers": layers}
    settings = changed(training.Settings(), seed=seed, **given)
    texts = training.read(*([Corpus.parse(item, column) for item in items] for items in (corpus, examine or ())))
    training.train(texts, out, settings, listener=progress)
    show(finish(out, texts, terms=terms))


@command(
    "dptext train paraphraser --pairs snli.parquet --base openai-community/gpt2 --out gpt2-paraphraser",
    *PARAPHRASER_KEYS,
)
def paraphraser(
    *,
    pairs: Annotated[
        Path, typer.Option(metavar="FILE", help="Parquet, CSV, TSV or NDJSON file of PUBLIC pairs of sentences.")
    ],
    base: Annotated[str, typer.Option(help="A causal model: a folder, a shipped one, or a name on the hub.")],
    out: Out,
    revision: Revision = None,
    text: Annotated[str, typer.Option(metavar="COLUMN", help="The column of texts.")] = "text",
    paraphrase: Annotated[str, typer.Option(help="The column of their paraphrases.")] = "paraphrase",
    template: Template = None,
    epochs: Epochs = None,
    steps: Steps = None,
    minutes: Minutes = None,
    rows: Rows = None,
    longest: Longest = None,
    rate: Rate = None,
    seed: Seed = None,
    every: Every = 500,
    clip: Annotated[bool, typer.Option(help="Also estimate the range of scores from the pairs.")] = True,
) -> None:
    """Fine-tune a causal model for dp_paraphrase, so that it continues a text by a paraphrase.

    The pairs must be public, because a model does not keep its training texts secret. Two pairs in a hundred are held
    out. Steps are counted instead of epochs where both are given.
    """
    from dptext_etl.cli import terminal
    from dptext_etl_models.inference import language_model

    language_model.need_transformers()
    from dptext_etl_models.training import paraphraser as training
    from dptext_etl_models.training.corpus import SentencePairs

    settings = changed(
        training.Settings(), template=template, epochs=epochs, steps=steps, minutes=minutes, rows=rows,
        longest=longest, rate=rate, seed=seed,
    )  # fmt: skip
    read = SentencePairs.read(pairs, (text, paraphrase))
    terminal.note(f"{len(read.train):,} pairs to train on, {len(read.held):,} held out")
    files = language_model.model_files(base, revision)
    facts = training.train(files, read, out, settings, clip=clip, listener=progress, every=every)
    show({"out": str(out), **{name: facts.get(name) for name in PARAPHRASER_KEYS[1:]}})


@command(
    "dptext train rewriter privacy.toml --corpus c4.parquet --base google/flan-t5-base --out rewriter", *REWRITER_KEYS
)
def rewriter(
    policy: PolicyFile,
    *,
    corpus: Corpora,
    base: Annotated[str, typer.Option(help="An encoder-decoder: a folder, a shipped one, or a name on the hub.")],
    out: Out,
    policy_text: Annotated[
        str | None, typer.Option(help="The policy's column whose mechanism is meant, if it has several.")
    ] = None,
    revision: Revision = None,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH[=SHARE]", help="Parquet file of further texts of the data's own field (T++)."),
    ] = None,
    provenance: Annotated[
        Literal["public", "disjoint-records"],
        typer.Option(help="Whose the texts of --also are; other records of the same people are not public."),
    ] = "public",
    column: Column = "text",
    texts: Annotated[int | None, typer.Option(min=1, help="Number of texts per stage; by default 100,000.")] = None,
    words: Annotated[int | None, typer.Option(min=1, help="Largest number of words of a text.")] = None,
    template: Template = None,
    epochs: Epochs = None,
    steps: Steps = None,
    minutes: Minutes = None,
    rows: Rows = None,
    longest: Longest = None,
    rate: Rate = None,
    seed: Seed = None,
    every: Every = 500,
) -> None:
    """Privatize public texts by a policy's mechanism, and fine-tune a model that writes the originals from them.

    The texts of --corpus must be public. training.json says whose texts made the model, because rewriting again is
    free only if none of them is a protected record. The policy's key is not used. Steps are counted instead of epochs
    where both are given; steps and minutes count per stage.
    """
    from dptext_etl.cli import terminal
    from dptext_etl.policy import resolve_column
    from dptext_etl_models.inference import language_model

    language_model.need_transformers()
    from dptext_etl_models.training import rewriter as training
    from dptext_etl_models.training.corpus import Corpus

    settings = changed(
        training.Settings(), template=template, epochs=epochs, steps=steps, minutes=minutes, rows=rows,
        longest=longest, rate=rate, seed=seed, texts=texts, words=words,
    )  # fmt: skip
    facts = training.train(
        resolve_column(load_policy(policy), policy_text).mechanism,
        language_model.model_files(base, revision),
        [Corpus.parse(item, column) for item in corpus],
        out,
        settings,
        also=training.InDomain([Corpus.parse(item, column) for item in also or ()], provenance),
        listener=progress,
        drawn=lambda done, total: terminal.note(f"privatized {done:,} of {total:,} public texts"),
        every=every,
    )
    show({"out": str(out), **{name: facts[name] for name in REWRITER_KEYS[1:]}})
