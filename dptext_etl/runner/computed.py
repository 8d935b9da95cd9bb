"""Record on which device and in which type of numbers the models of a release computed.

Scores differ in their last digits between devices and number types, so a release of a model belongs to the device and
type that computed it first. A run that was resumed on another machine, or that adds to an older one, has several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dptext_etl.device import Computing

Place = Mapping[str, str]
"""A device and a number type."""
Places = Mapping[str, Sequence[Place]]
"""Places by text column, sorted; columns without a model are left out."""


def place(computing: Computing) -> Place:
    """Return device and number type of a model, without the settings that chose them."""
    return {"device": computing.device, "dtype": computing.dtype}


def together(parts: Iterable[Places]) -> Places:
    """Unite the places of several shards, each once, in order."""
    found: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    for part in parts:
        for column, places in part.items():
            found.setdefault(column, set()).update(tuple(sorted(item.items())) for item in places)
    return {column: [dict(item) for item in sorted(places)] for column, places in found.items() if places}
