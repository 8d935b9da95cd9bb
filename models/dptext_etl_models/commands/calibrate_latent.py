"""Run `dptext calibrate --latent`, which chooses the clip C of DP-BART from latents of public text (paper 003)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptext_etl_models.training.masked.clip_choice import Found

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
    """Choose C, write it with its provenance, and print the losses of other choices."""
    from dptext_etl.artifacts import canon
    from dptext_etl.cli import terminal
    from dptext_etl.errors import PolicyError
    from dptext_etl_models.training.base_model import Base
    from dptext_etl_models.training.corpus import Corpus
    from dptext_etl_models.training.masked.clip_choice import choose
    from dptext_etl_models.training.token_rows import public_texts

    place = out or Path(model)
    if out is None and not place.is_dir():
        raise PolicyError("there is no place to write the clip: the model is not a folder", "name a file with --out")
    path = place / FILE if place.is_dir() else place
    terminal.note("this command assumes that the corpus is public: never calibrate on texts that you privatize")
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
    from dptext_etl.cli import terminal

    rows: list[list[Any]] = [
        [choice.deviations, choice.clip, f"{100 * choice.inside:.1f} %", f"{choice.loss:.4f}"]
        for choice in found.choices
    ]
    terminal.pairs({"out": str(path), "mean": found.mean, "deviation": found.deviation, "values": found.values})
    terminal.table(["deviations", "C", "values inside", "loss without noise"], rows)
    terminal.say(f"\nin a policy: clip = {found.clip:.4g}")
