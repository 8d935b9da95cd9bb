"""In what steps amounts were sealed: a ledger keeps what it wrote, and readers convert it to the steps of today.

Every amount was counted in millionths once, deltas too. An event that counts delta in steps of 10^-15 says so in its
body (`"units": {"delta": 15}`), so that what says nothing is in millionths. The row of a scope says it by its shape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dptext_etl.accounting import MEASURES
from dptext_etl.column import INFINITE
from dptext_etl.guarantee import FINE, MICRO

UNITS = {"delta": 15}
"""The power of ten of the steps of components that are not counted in millionths."""
_TIMES = FINE // MICRO
_MOST = INFINITE // _TIMES - 1


def stated(columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Return what an event with these columns says of its units: nothing where all steps are alike."""
    delta = columns.get("delta")
    told = delta is not None and bool(((delta > 0) & (delta < INFINITE)).any())
    return {"units": UNITS} if told else {}


def converted(name: str, column: npt.NDArray[Any], facts: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return a sealed column in the steps of today."""
    if name != "delta" or "units" in facts:
        return column
    return np.where(column == INFINITE, INFINITE, np.minimum(column, _MOST) * _TIMES)


def limits_of(facts: Mapping[str, Any]) -> list[int]:
    """Return the limits that an event pins, in the steps of today."""
    return _finer(facts["measure"], facts["limits"]) if "units" not in facts else list(facts["limits"])


def limits_stated(measure: str | None) -> dict[str, Any]:
    """Return what an event says of the units of its limits."""
    return {"units": UNITS} if "delta" in MEASURES.get(measure or "", ()) else {}


def write_limits(measure: str | None, limits: Sequence[int]) -> str:
    """Write limits as the row of a scope has them: a list in millionths, or an object where steps differ."""
    names = MEASURES.get(measure or "", ())
    return json.dumps(dict(zip(names, limits, strict=True)) if "delta" in names else list(limits))


def read_limits(measure: str | None, written: str | None) -> tuple[int, ...]:
    """Read limits from the row of a scope, in the steps of today."""
    found = json.loads(written or "[]")
    if isinstance(found, dict):
        return tuple(found[name] for name in MEASURES[measure or ""])
    return tuple(_finer(measure, found))


def in_millionths(measure: str | None, written: str | None) -> bool:
    """Return whether the row of a scope counts delta in millionths."""
    return "delta" in MEASURES.get(measure or "", ()) and (written or "").startswith("[")


def _finer(measure: str | None, limits: Sequence[int]) -> list[int]:
    names = MEASURES.get(measure or "", ())
    return [limit * _TIMES if name == "delta" else limit for name, limit in zip(names, limits, strict=True)]
