"""Models as text that every process writes alike."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel


def written(model: BaseModel) -> str:
    """Write a model as JSON; a set is sorted, because its order changes from process to process."""
    return json.dumps(model.model_dump(), sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)
