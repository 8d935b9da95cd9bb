"""Define `dptext calibrate`, which chooses the range of a model's scores on public text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dptext_etl_models.commands.training_options import Column, Revision, inputs_of, refuse_private, show

if TYPE_CHECKING:
    from dptext_etl.artifacts import Lineage
    from dptext_etl_models.training.bart import Base
    from dptext_etl_models.training.corpus import Corpus

EXAMPLE = "dptext calibrate --model models/roberta --corpus wiki.parquet --out roberta_clip.json"
LATENT_FILE = "dptext_latent_clip.json"
LATENT_KIND = "dptext-latent-clip/1"
KEYS = ("out", "low", "high", "kind", "texts", "scores", "mean", "sd", "percentiles")


def calibrate(
    *,
    model: Annotated[str, typer.Option(help="A folder, a model of dptext-etl-models, or a name on the hub.")],
    corpus: Annotated[
        Path, typer.Option(metavar="FILE", help="Parquet file of PUBLIC texts, never those to privatize.")
    ],
    column: Column = "text",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="The file, or a folder for its dptext_clip.json; by default the model's folder."
        ),
    ] = None,
    revision: Revision = None,
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
) -> None:
    """Estimate (mean, mean + 4 standard deviations) of a model's scores on public text, and write them to a file.

    The corpus must be public: a range from the texts that are privatized would disclose something about them, and no
    ledger would account for it. A mechanism has the parameter `clip`; it finds a file in the model's folder by itself.

    With --latent, the command chooses the clip of dpbart's latents from the spread of their values (Igamberdiev and
    Habernal 2023, appendix B).
    """
    from dptext_etl.artifacts import made_from
    from dptext_etl.cli import terminal
    from dptext_etl_models.training.corpus import Corpus

    refuse_private(inputs_of({"model": model, "corpus": corpus}))
    public, lineage = Corpus(corpus, column=column), made_from([model, corpus])
    if latent:
        from dptext_etl_models.training.bart import DEVIATIONS, Base

        path, base = _place(model, out, LATENT_FILE), Base.load(model, revision)
        _choose_clip(base, public, path, texts, length, deviations or DEVIATIONS, lineage)
        return
    from dptext_etl_models.inference import language_model
    from dptext_etl_models.inference.clipping import CLIP_FILE
    from dptext_etl_models.training import calibration

    path = _place(model, out, CLIP_FILE)
    every = max(1, texts // 10)

    def report(done: int, total: int) -> None:
        if done % every == 0:
            terminal.note(f"{done:,} of {total:,} texts")

    estimated = calibration.calibrate(
        language_model.model_files(model, revision),
        public,
        path,
        texts=texts,
        kind=kind,
        template=template,
        deviations=deviations or calibration.SPREAD,
        progress=report,
        lineage=lineage,
    )
    low, high = estimated.clip
    facts = estimated.facts({})
    show({"out": str(path), "low": low, "high": high, **{name: facts[name] for name in KEYS[3:]}})
    if not terminal.as_json():
        terminal.say(f'\nin a policy: clip = "{path}"')


def _place(model: str, out: Path | None, name: str) -> Path:
    """Return the file to write: `out`, or a file of that name in it or in the model's folder."""
    from dptext_etl.cli import terminal
    from dptext_etl.errors import PolicyError

    place = out or Path(model)
    if out is None and not place.is_dir():
        raise PolicyError("there is no place to write the range: the model is not a folder", "name a file with --out")
    terminal.note("this command assumes that the corpus is public: never calibrate on texts that you privatize")
    return place / name if place.is_dir() else place


def _choose_clip(  # noqa: PLR0917
    base: Base, public: Corpus, path: Path, texts: int, length: int, deviations: float, lineage: Lineage
) -> None:
    """Choose C from latents of public text (Igamberdiev and Habernal 2023), write it, and print losses of others."""
    from dataclasses import asdict

    from dptext_etl.artifacts import MADE_FROM, canon
    from dptext_etl.cli import terminal
    from dptext_etl_models.training.bart import choose_clip
    from dptext_etl_models.training.corpus import public_texts

    drawn = public_texts([public], length - 2, texts, seed=1)
    clip = choose_clip(base, drawn, length=length, deviations=deviations)
    facts = {"format": LATENT_KIND, "model": base.sha256, "length": length, "texts": len(drawn), **asdict(clip)}
    facts["corpus"] = {"name": public.name, "sha256": public.sha256}
    facts[MADE_FROM] = lineage
    path.write_bytes(canon(facts))
    if terminal.emitted({"out": str(path), **facts}):
        return
    rows: list[list[Any]] = [
        [choice.deviations, choice.clip, f"{100 * choice.inside:.1f} %", f"{choice.loss:.4f}"]
        for choice in clip.choices
    ]
    terminal.pairs({"out": str(path), "mean": clip.mean, "deviation": clip.deviation, "values": clip.values})
    terminal.table(["deviations", "C", "values inside", "loss without noise"], rows)
    terminal.say(f"\nin a policy: clip = {clip.clip:.4g}")
