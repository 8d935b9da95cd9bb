"""Choose a model for a preview among those on this machine, so that nothing is downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dptext_etl.errors import PolicyError
from dptext_etl_models.inference import language_model

if TYPE_CHECKING:
    from dptext_etl.mechanism import Mechanism


def model_at_hand(kind: type[Mechanism], given: Mapping[str, Any], small: str | None, source: str) -> dict[str, Any]:
    """Return the parameter `model` for a preview: the usual model or the small one that ships; nothing if given."""
    language_model.need_transformers()
    if "model" in given:
        return {}
    usual = kind.model_fields["model"].default
    for model in (usual, small):
        if isinstance(model, str) and language_model.is_here(model):
            return {"model": model}
    name = kind.__module__.rpartition(".")[2]
    here = f"it is meant for {usual}" if isinstance(usual, str) and usual != small else "no public one is known"
    if small is not None:
        source = f"`pip install ./models` in a checkout, or its wheel, brings the small {small}; or {source}"
    raise PolicyError(f"{name} needs a language model, and this machine has none for it: {here}", source)
