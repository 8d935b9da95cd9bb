"""Record on which device and in which type of numbers the models of a release computed.

Scores differ in their last digits between devices and types of numbers, so a release of a model is bound to what
computed it first. A run that was resumed elsewhere, or that adds to an older one, has more than one such place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dptext_etl.device import Computing

Place = Mapping[str, str]
"""One device and dtype."""
Places = Mapping[str, Sequence[Place]]
"""Places by text column, sorted; columns without a model are left out."""


def place(computing: Computing) -> Place:
    """Write down where and in what a model computes; who chose it is no part of a release."""
    return {"device": computing.device, "dtype": computing.dtype}


def together(parts: Iterable[Places]) -> Places:
    """Put the places of several shards together: each once, in order."""
    found: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    for part in parts:
        for column, places in part.items():
            found.setdefault(column, set()).update(tuple(sorted(item.items())) for item in places)
    return {column: [dict(item) for item in sorted(places)] for column, places in found.items() if places}
