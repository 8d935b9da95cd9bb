"""DP-BART: noise on what BART's encoder makes of a text, then BART's decoder.

Paper: Igamberdiev and Habernal 2023, "DP-BART for Privatized Text Rewriting under Local Differential Privacy"
(paper 003; docs/spec/privacy.md#dpbart). A text is cut and padded to l ids, its l vectors of d numbers are
clipped by value and get noise everywhere, the decoder attends to all of them and writes a text by beam search.

* CLV keeps all columns. PR and PR+ keep those that pruning on public text left (`dptext_kept.json` inside the model's
  folder) and need less noise by the root of their share; PR+ was trained under noise, too.
* The paper prints sigma where it says sigma squared (0.8958 and 0.4362 at epsilon 500, delta 1e-5, from rounded
  sensitivities). Its scripts use the classical Gaussian, which at a claimed epsilon of 500 is really 5,765; here the
  noise is always the analytic one.
* The decoder's text has nothing of the input's length: not l, not its mask, not the number of steps.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt

from dptext_etl import device
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import PolicyError
from dptext_etl.families.latent import LatentMechanism
from dptext_etl.families.latent.noise import Clip
from dptext_etl.grid_noise import Norm
from dptext_etl.inference import language_model
from dptext_etl.inference.latent.kept import FILE, Kept, read_kept
from dptext_etl.inference.latent.model import LatentModel

_CONFIG = f"{language_model.ROLE}{language_model.CONFIG}"
_KEPT = f"{language_model.ROLE}{FILE}"
_WEIGHTS = f"{language_model.ROLE}model.safetensors"


class DPBart(LatentMechanism):
    """DP-BART (paper 003).

    Attributes:
        variant: "clv": all columns; "pr": those that pruning kept; "pr_plus": the same, trained under noise.
        length: l, ids per text, the end among them: what is longer is cut, what is shorter is padded.
        clip: C, every number is clipped to [-C, C].

    Example:
        >>> mechanism = DPBart(epsilon=500.0, delta=1e-5, mode="faithful")
        >>> round(mechanism.scale(20 * 768).sigma, 4)
        0.8957
    """

    norm: ClassVar[Norm] = "value"
    small_model: ClassVar[str | None] = "english-autoencoder"
    model_source: ClassVar[str] = "fetch the usual one where there is a network: `hf download facebook/bart-base`"

    variant: Literal["clv", "pr", "pr_plus"] = "clv"
    model: str = "facebook/bart-base"
    length: Annotated[PositiveInt, Field(ge=2, le=4096)] = 20
    clip: Clip = 0.1

    def find_files(self) -> dict[str, Artifact]:
        """The model's files, and the list of kept columns where the variant has one.

        Raises:
            PolicyError: Not found, or a model without such a list.
        """
        files = super().find_files()
        if self.variant != "clv":
            folder = next(iter(files.values())).path.parent
            if not (folder / FILE).is_file():
                raise PolicyError(
                    f'variant "{self.variant}" needs the columns that pruning kept, and this model has no {FILE}',
                    'train one with `dptext train dpbart-prune`, or take variant = "clv"',
                )
            files[_KEPT] = Artifact.open(folder / FILE, provenance="found by pruning on public text")
        return files

    def configuration(self) -> dict[str, Any]:
        """As for all latent mechanisms; where `length` is all that a model takes, one id less is read since version 2.

        A place of every row is padding (`inference.latent.sequence_model`).
        """
        found = super().configuration()
        settings = json.loads(self.artifacts()[_CONFIG].path.read_bytes())
        full = settings.get("max_position_embeddings") == self.length
        return {**found, "mechanism_version": self.version + 1} if full else found

    @cached_property
    def kept(self) -> Kept | None:
        """The columns that are used; None for all.

        Raises:
            ArtifactError: The list was made for other weights.
            PolicyError: The model was not trained under noise, and the variant is "pr_plus".
        """
        if self.variant == "clv":
            return None
        files = self.artifacts()
        weights = files.get(_WEIGHTS)
        kept = read_kept(files[_KEPT].path, weights.sha256 if weights else None)
        if self.variant == "pr_plus" and kept.noise is None:
            raise PolicyError(
                'variant "pr_plus" needs a model that was trained under noise, and this one was not',
                'train it on with `dptext train dpbart-noise`, or take variant = "pr"',
            )
        return kept

    @cached_property
    def computing(self) -> device.Computing:
        """As the settings of this machine said when it was first asked: the model stays where it was loaded."""
        return device.computing()

    @cached_property
    def latent_model(self) -> LatentModel:
        """The model, loaded where this machine computes."""
        from dptext_etl.inference.latent.sequence_model import SequenceModel

        files, kept = self.artifacts(), self.kept
        loaded = language_model.sequence_model(files, self.computing.device, self.computing.dtype)
        width = int(loaded.config.d_model)
        if kept is not None and kept.width != width:
            raise PolicyError(f"the kept columns are those of {kept.width}, and this model has {width}")
        return SequenceModel(
            loaded,
            language_model.tokenizer(files),
            length=self.length,
            beams=self.num_beams,
            kept=None if kept is None else kept.columns,
        )

    @classmethod
    def example(cls) -> Self:
        """All columns of a tiny random model."""
        return cls(epsilon=20.0, n_rec=10_000, model="example-bart", length=16, clip=1.0, num_beams=2)
