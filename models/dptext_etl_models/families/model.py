"""Find the files of a mechanism's model by name, and identify them by their hashes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

from dptext_etl import device
from dptext_etl.artifacts import Artifact
from dptext_etl.errors import PolicyError
from dptext_etl.mechanism import Mechanism
from dptext_etl_models.inference import language_model


class ModelMechanism(Mechanism):
    """A mechanism that needs a neural model.

    Attributes:
        model: A folder, a model of dptext-etl-models, or a name on the Hugging Face hub. The hashes of its files are
            its identity.
        revision: The hub's revision; only for hub names.
    """

    reproducible: ClassVar[bool] = False
    accelerated: ClassVar[bool] = True
    artifact_fields: ClassVar[frozenset[str]] = frozenset({"model", "revision"})
    hub_fields: ClassVar[frozenset[str]] = frozenset({"model", "revision"})
    small_model: ClassVar[str | None] = None
    """A model of dptext-etl-models that previews and first tries can use."""
    model_source: ClassVar[str] = "give the folder of one: -p model=FOLDER"
    """Instruction how to get a model, for the hint of a preview that finds none."""

    model_place: ClassVar[str]
    """Where a mechanism keeps its loaded model."""

    model: str
    revision: str | None = None

    def with_model(self, stand_in: Any) -> Self:
        """Return the same mechanism, which computes with another model: for audits, whose claims hold for any."""
        again = self.model_copy()
        again.__dict__[self.model_place] = stand_in
        return again

    @classmethod
    def preview_parameters(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the usual model or the small one that ships, if it is on this machine; nothing is downloaded."""
        language_model.need_transformers()
        if "model" in given:
            return {}
        usual, small, hint = cls.model_fields["model"].default, cls.small_model, cls.model_source
        for model in (usual, small):
            if isinstance(model, str) and language_model.is_here(model):
                return {"model": model}
        name = cls.__module__.rpartition(".")[2]
        here = f"it is meant for {usual}" if isinstance(usual, str) and usual != small else "no public one is known"
        if small is not None:
            hint = f"`pip install ./models` in a checkout, or its wheel, brings the small {small}; or {hint}"
        raise PolicyError(f"{name} needs a language model, and this machine has none for it: {here}", hint)

    @cached_property
    def computing(self) -> device.Computing:
        """Return device and number type of the settings at the first call; the model stays where it was loaded."""
        return device.computing()

    @cached_property
    def model_files(self) -> dict[str, Artifact]:
        """Return the model's files by role, such as "model/config.json"; find them by name unless a worker got them."""
        return language_model.placed_files(self.__dict__) or self._find_files()

    def _find_files(self) -> dict[str, Artifact]:
        """Find the files by the name of the model."""
        try:
            return language_model.model_files(self.model, self.revision)
        except PolicyError as exc:
            small = self.small_model
            if "model" in self.model_fields_set or small is None or not language_model.is_here(small):
                raise
            hint = f'write model = "{small}" for the small one that is installed; or {exc.hint}'
            raise PolicyError(exc.message, hint) from None

    def artifacts(self) -> dict[str, Artifact]:
        """Return the model's files by role."""
        return {**self.model_files, **super().artifacts()}
