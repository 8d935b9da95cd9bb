"""Write pydantic models as JSON that is the same in every process."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel


def written(model: BaseModel) -> str:
    """Write a model as JSON; sets are sorted, because their order differs between processes."""
    return json.dumps(model.model_dump(), sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)
