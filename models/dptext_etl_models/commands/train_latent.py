"""Define the `dptext train` commands for latent models: `adept`, `bart`, `dpbart-prune`, and `dpbart-noise`."""

from __future__ import annotations

from typing import Annotated

import typer

from dptext_etl_models.commands.training_options import (
    Column,
    Corpora,
    Minutes,
    Out,
    Revision,
    Scale,
    Seed,
    Steps,
    Texts,
    changed,
    command,
    progress,
    show_steps,
)

Length = Annotated[int, typer.Option(min=1, help="Tokens of a text in a release.")]


@command(
    "dptext train adept --corpus utterances.parquet --out adept --scale small --minutes 15", "out", "steps", "texts"
)
def adept(
    *,
    corpus: Corpora,
    out: Out,
    scale: Scale = "paper",
    column: Column = "text",
    texts: Texts = 600_000,
    steps: Steps = None,
    minutes: Minutes = None,
    seed: Seed = None,
) -> None:
    """Train ADePT's autoencoder on public text, with latents clipped at norm 5 as in a release.

    The mechanism `adept` loads the folder as `model`; its config.json says how the model was made.
    """
    from dptext_etl_models.training import adept as training
    from dptext_etl_models.training.corpus import draw_texts

    settings = training.SMALL if scale == "small" else training.Settings()
    settings = changed(settings, steps=steps, minutes=minutes, seed=seed)
    drawn, facts = draw_texts(corpus, column, settings.length - 2, texts, settings.seed)
    done = training.train(drawn, settings, out, facts=facts, listener=progress)
    show_steps(out, done, len(drawn))


@command(
    "dptext train bart --corpus utterances.parquet=3 --corpus wiki.parquet --out tiny-bart --minutes 30",
    "out", "steps", "texts",
)  # fmt: skip
def bart(
    *,
    corpus: Corpora,
    out: Out,
    column: Column = "text",
    texts: Texts = 600_000,
    steps: Steps = None,
    minutes: Minutes = None,
    seed: Seed = None,
) -> None:
    """Train a tokenizer and a small BART model on public text, with the same steps as DP-BART.

    The latents are clipped at 0.1, the default of dpbart, and rows have 20 tokens. The mechanism `dpbart` loads the
    folder as `model`; its training.json says how the model was made.
    """
    from dptext_etl_models.training import sequence_autoencoder as training
    from dptext_etl_models.training.corpus import draw_texts

    settings = changed(training.Settings(), steps=steps, minutes=minutes, seed=seed)
    drawn, facts = draw_texts(corpus, column, settings.length - 4, texts, settings.seed)
    tokenizer = training.tokenizer_in(out, drawn, settings.vocabulary)
    done = training.train(tokenizer, drawn, settings, out, facts=facts, listener=progress)
    show_steps(out, done, len(drawn))


@command(
    "dptext train dpbart-prune --model facebook/bart-base --corpus wiki.parquet --out bart-pr",
    "out", "steps", "texts", "kept", "width",
)  # fmt: skip
def dpbart_prune(
    *,
    model: Annotated[str, typer.Option(help="The model to start from: a folder, a model that ships, or a hub name.")],
    corpus: Corpora,
    out: Out,
    revision: Revision = None,
    scale: Scale = "paper",
    length: Length = 20,
    clip: Annotated[
        float, typer.Option(help="Clip of latents in training; the paper uses twice a release's.")
    ] = 0.2,
    stages: Annotated[
        int | None, typer.Option(help="Stages of pruning and training; a release uses the last but one.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of each stage.")] = None,
    column: Column = "text",
    texts: Texts = 200_000,
    seed: Seed = None,
) -> None:  # fmt: skip
    """Prune latent columns of a BART model in stages, and train it on public text after each stage.

    The command writes the model with its dptext_kept.json, which `dpbart` needs for variant = "pr". `dptext train
    dpbart-noise` starts from this model.
    """
    from dptext_etl_models.training import dpbart as training
    from dptext_etl_models.training.bart import Base
    from dptext_etl_models.training.corpus import draw_texts

    settings = training.SMALL_PRUNE if scale == "small" else training.PruneSettings()
    settings = changed(settings, length=length, clip=clip, seed=seed, stages=stages or None, steps=steps or None)
    base = Base.load(model, revision)
    drawn, facts = draw_texts(corpus, column, length - 2, texts, settings.seed)
    history = training.train_pruned(base, drawn, settings, out, facts=facts, listener=progress)
    more = {"kept": len(history[max(settings.stages - 2, 0)]), "width": base.model.config.d_model}
    show_steps(out, settings.stages * settings.steps, len(drawn), **more)


@command(
    "dptext train dpbart-noise --model bart-pr --epsilon 500 --corpus wiki.parquet --out bart-pr-plus-500",
    "out", "steps", "texts", "sigma",
)  # fmt: skip
def dpbart_noise(
    *,
    model: Annotated[str, typer.Option(help="A folder of `dptext train dpbart-prune`.")],
    epsilon: Annotated[float, typer.Option(min=0.0, help="Epsilon of a release.")],
    corpus: Corpora,
    out: Out,
    delta: Annotated[float, typer.Option(help="Delta of a release.")] = 1e-6,
    scale: Scale = "paper",
    length: Length = 20,
    clip: Annotated[float, typer.Option(help="C of a release.")] = 0.1,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of 500 steps; the paper uses 100 (epsilon 2500) to 500 (epsilon 10).")
    ] = None,
    minutes: Minutes = None,
    column: Column = "text",
    texts: Texts = 200_000,
    seed: Seed = None,
) -> None:
    """Train a pruned model on public text, under the noise that a release at this epsilon adds.

    The noise comes from torch and not from a key, because nothing is released here. The command writes a model for
    variant = "pr_plus".
    """
    from dptext_etl_models.training import dpbart as training
    from dptext_etl_models.training.bart import Base
    from dptext_etl_models.training.corpus import draw_texts

    settings = changed(
        training.SMALL_NOISE if scale == "small" else training.NoiseSettings(),
        epsilon=epsilon, delta=delta, length=length, clip=clip, minutes=minutes, seed=seed, epochs=epochs or None,
    )  # fmt: skip
    base = Base.load(model)
    drawn, facts = draw_texts(corpus, column, length - 2, texts, settings.seed)
    done = training.train_noisy(base, drawn, settings, out, facts=facts, listener=progress)
    columns = base.model.config.d_model if base.kept is None else len(base.kept.columns)
    show_steps(out, done, len(drawn), sigma=training.sigma(settings, columns))
