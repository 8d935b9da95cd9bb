"""`dptext calibrate --latent`: the clip C of DP-BART from latents of public text (paper 003, appendix B)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptext_etl.training.clip_choice import Found

FILE = "dptext_latent_clip.json"
KIND = "dptext-latent-clip/1"


def calibrate_latent(
    model: str,
    corpus: Path,
    *,
    column: str,
    out: Path | None,
    revision: str | None,
    texts: int,
    length: int,
    deviations: float,
    as_json: bool,
) -> None:
    """Choose C, write it with its provenance, and print what other choices would cost.

    Args:
        model: A folder, a model of dptext-etl-models, or a hub name.
        corpus: Parquet file of public texts.
        column: The column of texts.
        out: The file, or a folder for its dptext_latent_clip.json; the model's folder if absent.
        revision: Of a hub name.
        texts: How many texts to read.
        length: Tokens of a text in a release.
        deviations: Standard deviations from the mean.
        as_json: Print one JSON object alone.

    Raises:
        PolicyError: The model is no folder and no file is named.
    """
    from dptext_etl.artifacts import canon
    from dptext_etl.cli.render import terminal
    from dptext_etl.errors import PolicyError
    from dptext_etl.training.base_model import Base
    from dptext_etl.training.clip_choice import choose
    from dptext_etl.training.corpus import Corpus
    from dptext_etl.training.token_rows import public_texts

    place = out or Path(model)
    if out is None and not place.is_dir():
        raise PolicyError("where the clip goes is not said: the model is no folder", "name a file with --out")
    path = place / FILE if place.is_dir() else place
    terminal.note("the corpus is taken to be public: never calibrate on texts that you privatise")
    public = Corpus(corpus, column=column)
    base = Base.load(model, revision)
    drawn = public_texts([public], length - 2, texts, seed=1)
    found = choose(base, drawn, length=length, deviations=deviations)
    facts = {"format": KIND, "model": base.sha256, "length": length, "texts": len(drawn), **found.as_dict()}
    facts["corpus"] = {"name": public.name, "sha256": public.sha256}
    path.write_bytes(canon(facts))
    if as_json:
        terminal.emit({"out": str(path), **facts})
    else:
        _show(path, found)


def _show(path: Path, found: Found) -> None:
    from dptext_etl.cli.render import terminal

    rows: list[list[Any]] = [
        [choice.deviations, choice.clip, f"{100 * choice.inside:.1f} %", f"{choice.loss:.4f}"]
        for choice in found.choices
    ]
    terminal.pairs({"out": str(path), "mean": found.mean, "deviation": found.deviation, "values": found.values})
    terminal.table(["deviations", "C", "values inside", "loss without noise"], rows)
    terminal.say(f"\nin a policy: clip = {found.clip:.4g}")
