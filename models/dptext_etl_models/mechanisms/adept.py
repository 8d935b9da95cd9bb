"""ADePT (corrected) adds noise to the last state of an LSTM that read the text; another LSTM writes a text from it.

Papers: Krishna, Gupta and Dupuy 2021, "ADePT: Auto-encoder based Differentially Private Text Transformation"; Habernal
2021, "When differential privacy meets NLP: The devil is in the detail". Habernal found that ADePT's Laplace noise is
not differentially private: two vectors of n numbers clipped to Euclidean norm C can differ by 2 C sqrt(n) in l1 norm,
not by 2 C (docs/spec/privacy.md#adept). This module scales Laplace noise to the l1 sensitivity, and Gaussian noise to 2
C by the analytic formula.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field

from dptext_etl import device
from dptext_etl.artifacts import Artifact
from dptext_etl.parameters import PositiveInt
from dptext_etl_models.families.latent import LatentMechanism
from dptext_etl_models.families.latent_noise import Clip, Norm
from dptext_etl_models.inference import language_model
from dptext_etl_models.inference.example_model import stored_model, words
from dptext_etl_models.inference.latent_model import LatentModel

_EXAMPLE = "example-adept"
_FILES = ("config.json", "model.safetensors", "tokenizer.json")


class Adept(LatentMechanism):
    """ADePT with the noise that its guarantee needs.

    Attributes:
        model: A folder of `dptext train adept`, or the name of a model that ships.
        clip: C, the largest Euclidean norm of the vector.

    Example:
        >>> mechanism = Adept(epsilon=500.0, noise="laplace", model="example-adept")
        >>> 1 / float(mechanism.scale(1024).rate * 2**16)
        0.64
    """

    norm: ClassVar[Norm] = "l2"
    small_model: ClassVar[str | None] = "english-lstm"
    model_source: ClassVar[str] = (
        "train one on public texts in 15 minutes with `dptext train adept --corpus FILE --out FOLDER --scale small`, "
        "and name it: -p model=FOLDER"
    )

    model: str = "english-lstm"
    clip: Clip = 5.0
    num_beams: Annotated[PositiveInt, Field(le=64)] = 1

    def _find_files(self) -> dict[str, Artifact]:
        """Find the autoencoder's files; build the files of the tiny random one."""
        if self.model == _EXAMPLE:
            files = stored_model("adept", _FILES, _build_example, version=2)
            return {f"{language_model.ROLE}{name}": file for name, file in files.items()}
        return super()._find_files()

    @cached_property
    def computing(self) -> device.Computing:
        """Return the device of the settings at the first call, and always float32."""
        place = device.computing()
        return replace(place, dtype="float32", auto=tuple(name for name in place.auto if name != "dtype"))

    @cached_property
    def latent_model(self) -> LatentModel:
        """Load the autoencoder in float32 on this machine's device."""
        from dptext_etl_models.inference.lstm import AutoencoderModel, load

        language_model.need_transformers()
        where = device.place(self.computing.device)
        model, tokenizer = language_model.opened(self.model_files, lambda folder: load(folder, where))
        return AutoencoderModel(model, tokenizer, beams=self.num_beams)

    @classmethod
    def example(cls) -> Self:
        """Return the mechanism with a tiny random autoencoder over the first words of the embedded vocabulary."""
        return cls(epsilon=20.0, n_rec=10_000, model=_EXAMPLE)


def _build_example(folder: Path) -> None:
    from dptext_etl_models.inference.lstm import random_autoencoder

    language_model.need_transformers()
    random_autoencoder(folder, words())
