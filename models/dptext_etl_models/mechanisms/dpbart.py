"""DP-BART adds noise to the output of BART's encoder; BART's decoder then writes a text from it.

Paper: Igamberdiev and Habernal 2023, "DP-BART for Privatized Text Rewriting under Local Differential Privacy"
(Igamberdiev and Habernal 2023; docs/spec/privacy.md#dpbart). A text is cut and padded to l ids. Its l vectors of d
numbers are clipped by value, and all get noise. The decoder attends to all of them and writes a text by beam search.

* CLV keeps all columns. PR and PR+ keep the columns that pruning on public text left (`dptext_kept.json` in the model's
  folder). They need less noise, by the square root of the kept share. PR+ was also trained under noise.
* The paper prints sigma but calls it sigma squared (0.8958 and 0.4362 at epsilon 500, delta 1e-5, from rounded
  sensitivities). Its scripts use the classical Gaussian mechanism, whose real epsilon is 5,765 at a claimed epsilon of
  500. Here the noise is always analytic.
* The decoder's text does not depend on the input's length: not on l, its mask, or the number of steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from dptext_etl.artifacts import Artifact, canon, sha256_file
from dptext_etl.errors import ArtifactError, PolicyError
from dptext_etl.parameters import PositiveInt
from dptext_etl_models.families.latent import LatentMechanism
from dptext_etl_models.families.latent_noise import Clip, Norm
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.latent_model import LatentModel

FILE = "dptext_kept.json"
KIND = "dptext-kept/1"
_KEPT = f"{language_model.ROLE}{FILE}"
_WEIGHTS = f"{language_model.ROLE}model.safetensors"

_HINT = "`dptext train dpbart-prune` writes it next to the weights that belong to it"


@dataclass(frozen=True)
class KeptColumns:
    """The columns that a model keeps."""

    columns: tuple[int, ...]  # column indices, strictly increasing, below `width`
    width: int  # d of the model
    model: str  # SHA-256 of the model.safetensors that was trained with these columns
    stage: int  # number of pruning stages
    # noise of the latents in training (`{"epsilon": 500.0, "delta": 1e-6, "noise": "gaussian"}`); None for training
    # without noise (PR, not PR+)
    noise: dict[str, Any] | None = None


def write_kept(folder: Path, columns: Sequence[int], width: int, stage: int, **more: Any) -> Path:
    """Write the file next to the weights that were trained with these columns."""
    written = {
        "format": KIND,
        "kept": [int(column) for column in columns],
        "width": int(width),
        "model": sha256_file(folder / "model.safetensors"),
        "stage": int(stage),
        **more,
    }
    path = folder / FILE
    path.write_bytes(canon(written))
    read_kept(path)
    return path


def read_kept(file: Path | Artifact, weights: str | None = None) -> KeptColumns:
    """Read the file."""
    try:
        written = json.loads(file.read_bytes())
        columns = tuple(written["kept"])
        kept = KeptColumns(columns, written["width"], written["model"], written["stage"], written.get("noise"))
        whole = all(type(item) is int for item in (*columns, kept.width))
        fits = whole and columns == tuple(sorted(set(columns))) and 0 <= min(columns) <= max(columns) < kept.width
        right = written["format"] == KIND and fits
    except (OSError, ValueError, LookupError, TypeError):
        right = False
    if not right:
        raise ArtifactError(f"{FILE} is not a list of kept columns, strictly increasing and below the width", _HINT)
    if weights is not None and kept.model != weights:
        raise ArtifactError(f"the columns of {FILE} were found with other weights than this model's", _HINT)
    return kept


class DPBart(LatentMechanism):
    """DP-BART (Igamberdiev and Habernal 2023).

    Attributes:
        variant: "clv": all columns; "pr": those that pruning kept; "pr_plus": the same, trained under noise.
        length: l, the number of ids per text, the end included; longer texts are cut, shorter ones are padded.
        clip: C; every number is clipped to [-C, C].

    Example:
        >>> mechanism = DPBart(epsilon=500.0, delta=1e-5, mode="faithful")
        >>> round(mechanism.scale(20 * 768).sigma, 4)
        0.8957
    """

    norm: ClassVar[Norm] = "value"
    small_model: ClassVar[str | None] = "english-autoencoder"
    model_source: ClassVar[str] = "download the usual one on a machine with a network: `hf download facebook/bart-base`"

    variant: Literal["clv", "pr", "pr_plus"] = "clv"
    model: str = "facebook/bart-base"
    length: Annotated[PositiveInt, Field(ge=2, le=4096)] = 20
    clip: Clip = 0.1

    def _find_files(self) -> dict[str, Artifact]:
        """Find the model's files, and the list of kept columns if the variant needs it."""
        files = super()._find_files()
        if self.variant != "clv":
            folder = next(iter(files.values())).path.parent
            if not (folder / FILE).is_file():
                raise PolicyError(
                    f'variant "{self.variant}" needs the columns that pruning kept, and this model has no {FILE}',
                    'train one with `dptext train dpbart-prune`, or use variant = "clv"',
                )
            files[_KEPT] = Artifact.open(folder / FILE, provenance="found by pruning on public text")
        return files

    def configuration(self) -> dict[str, Any]:
        """As for all latent mechanisms; where `length` is a model's longest input, one id less is read since version 2.

        A place of every row is padding (`inference.sequence_model`).
        """
        settings = super().configuration()
        full = language_model.config(self.artifacts()).get("max_position_embeddings") == self.length
        return {**settings, "mechanism_version": self.version + 1} if full else settings

    @cached_property
    def kept(self) -> KeptColumns | None:
        """Return the columns that are used; None for all."""
        if self.variant == "clv":
            return None
        files = self.model_files
        weights = files.get(_WEIGHTS)
        kept = read_kept(files[_KEPT], weights.sha256 if weights else None)
        if self.variant == "pr_plus" and kept.noise is None:
            raise PolicyError(
                'variant "pr_plus" needs a model that was trained under noise, and this one was not',
                'train it with `dptext train dpbart-noise`, or use variant = "pr"',
            )
        return kept

    @cached_property
    def latent_model(self) -> LatentModel:
        """Load the model on this machine's device."""
        from dptext_etl_models.inference.sequence_model import SequenceModel

        files, kept = self.model_files, self.kept
        loaded = language_model.sequence_model(files, self.computing.device, self.computing.dtype)
        width = int(loaded.config.d_model)
        if kept is not None and kept.width != width:
            raise PolicyError(
                f"the kept columns are for {kept.width}, and this model has {width}",
                "use the kept columns of this model, or train them again",
            )
        return SequenceModel(
            loaded,
            language_model.tokenizer(files),
            length=self.length,
            beams=self.num_beams,
            kept=None if kept is None else kept.columns,
        )

    @classmethod
    def example(cls) -> Self:
        """Return the mechanism with all columns of a tiny random model."""
        return cls(epsilon=20.0, n_rec=10_000, model="example-bart", length=16, clip=1.0, num_beams=2)
