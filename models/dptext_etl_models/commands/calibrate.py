"""Define `dptext calibrate`, which chooses the range of a model's scores on public text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext calibrate --model models/roberta --corpus wiki.parquet --out roberta_clip.json"
KEYS = ("out", "low", "high", "kind", "texts", "scores", "mean", "sd", "percentiles")


def calibrate(
    *,
    model: Annotated[str, typer.Option(help="A folder, a model of dptext-etl-models, or a name on the hub.")],
    corpus: Annotated[
        Path, typer.Option(metavar="FILE", help="Parquet file of PUBLIC texts, never those to privatize.")
    ],
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of texts.")] = "text",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="The file, or a folder for its dptext_clip.json; by default the model's folder."
        ),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="The hub's revision of the model.")] = None,
    kind: Annotated[
        Literal["masked", "causal", "seq2seq"] | None,
        typer.Option(help="The kind of model, if its files do not say it."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(help='The prompt of the mechanism, with "{text}" in it; by default the mechanism\'s own.'),
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="Number of texts to read, spread evenly over the corpus.")] = 1_000,
    latent: Annotated[bool, typer.Option("--latent", help="Choose the clip C of dpbart's latents instead.")] = False,
    length: Annotated[int, typer.Option(min=1, help="With --latent: tokens of a text in a release.")] = 20,
    deviations: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Upper end of the range, in standard deviations from the mean; by default 4, or 0.5 with --latent.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate (mean, mean + 4 standard deviations) of a model's scores on public text, and write them to a file.

    The corpus must be public: a range from the texts that are privatized would disclose something about them, and no
    ledger would account for it. A mechanism takes the file as `clip`; it finds a file in the model's folder by itself.

    With --latent, the command chooses the clip of dpbart's latents from the spread of their values (paper 003,
    appendix B).
    """
    from dptext_etl.errors import PolicyError

    if latent:
        from dptext_etl_models.commands.calibrate_latent import calibrate_latent

        asked: dict[str, Any] = {"column": column, "out": out, "revision": revision, "texts": texts, "as_json": as_json}
        calibrate_latent(model, corpus, length=length, deviations=deviations or 0.5, **asked)
        return
    from dptext_etl.cli import terminal
    from dptext_etl_models.inference import language_model
    from dptext_etl_models.inference.clipping import CLIP_FILE
    from dptext_etl_models.training import calibration
    from dptext_etl_models.training.corpus import Corpus

    place = out or Path(model)
    if out is None and not place.is_dir():
        raise PolicyError("there is no place to write the range: the model is not a folder", "name a file with --out")
    path = place / CLIP_FILE if place.is_dir() else place
    terminal.note("this command assumes that the corpus is public: never calibrate on texts that you privatize")
    every = max(1, texts // 10)

    def report(done: int, total: int) -> None:
        if done % every == 0:
            terminal.note(f"{done:,} of {total:,} texts")

    texts_of = Corpus(corpus, column=column)
    files = language_model.model_files(model, revision)
    found = calibration.calibrate(
        files,
        texts_of,
        path,
        texts=texts,
        kind=kind,
        template=template,
        deviations=deviations or calibration.SPREAD,
        progress=report,
    )
    low, high = found.clip
    facts = found.facts({})
    shown = {"out": str(path), "low": low, "high": high, **{name: facts[name] for name in KEYS[3:]}}
    if as_json:
        terminal.emit(shown)
    else:
        terminal.pairs(shown)
        terminal.say(f'\nin a policy: clip = "{path}"')
