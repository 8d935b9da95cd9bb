"""`dptext calibrate`: estimate the public range that a model's scores are clipped to."""

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
        Path, typer.Option(metavar="FILE", help="Parquet file of PUBLIC texts; never those to privatise.")
    ],
    column: Annotated[str, typer.Option(help="Which column holds the texts.")] = "text",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="The file, or a folder for its dptext_clip.json; the model's folder if absent."
        ),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="The hub's revision of the model.")] = None,
    kind: Annotated[
        Literal["masked", "causal", "seq2seq"] | None,
        typer.Option(help="What model it is, if its files do not say so."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(help='Prompt with "{text}" in it, as the mechanism will have it; its default if absent.'),
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="How many texts, spread evenly over the corpus.")] = 1_000,
    latent: Annotated[bool, typer.Option("--latent", help="Choose the clip C of dpbart's latents instead.")] = False,
    length: Annotated[int, typer.Option(min=1, help="With --latent: tokens of a text in a release.")] = 20,
    deviations: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Standard deviations from the mean that the range goes up to: 4 for scores, 0.5 with --latent.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate (mean, mean + 4 standard deviations) of a model's scores on public text, and write them to a file.

    The corpus must be public: a range that was taken from the texts that are privatised tells about them, and nothing
    would account for it. A mechanism takes the file as `clip`; in the model's folder it is found without being named.

    With --latent the clip of dpbart's latents is chosen, by the spread of their values (paper 003, appendix B).
    """
    if latent:
        from dptext_etl.cli.commands.calibrate_latent import calibrate_latent

        asked: dict[str, Any] = {"column": column, "out": out, "revision": revision, "texts": texts, "as_json": as_json}
        calibrate_latent(model, corpus, length=length, deviations=deviations or 0.5, **asked)
        return
    from dptext_etl.cli.render import terminal
    from dptext_etl.errors import PolicyError
    from dptext_etl.inference import language_model
    from dptext_etl.inference.clipping import CLIP_FILE
    from dptext_etl.training import calibration
    from dptext_etl.training.corpus import Corpus

    place = out or Path(model)
    if out is None and not place.is_dir():
        raise PolicyError("where the range goes is not said: the model is no folder", "name a file with --out")
    path = place / CLIP_FILE if place.is_dir() else place
    terminal.note("the corpus is taken to be public: never calibrate on texts that you privatise")
    every = max(1, texts // 10)

    def told(done: int, total: int) -> None:
        if done % every == 0:
            terminal.note(f"{done:,} of {total:,} texts")

    public = Corpus(corpus, column=column)
    files = language_model.model_files(model, revision)
    found = calibration.calibrate(
        files,
        public,
        path,
        texts=texts,
        kind=kind,
        template=template,
        deviations=deviations or calibration.SPREAD,
        progress=told,
    )
    low, high = found.clip
    facts = found.facts({})
    shown = {"out": str(path), "low": low, "high": high, **{name: facts[name] for name in KEYS[3:]}}
    if as_json:
        terminal.emit(shown)
    else:
        terminal.pairs(shown)
        terminal.say(f'\nin a policy: clip = "{path}"')
