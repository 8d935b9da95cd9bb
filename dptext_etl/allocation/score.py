"""Define a score: a public tool that says how sensitive each word of a text is, from 0 to 1.

One file each stands in `dptext_etl/allocation/scores/`; the file name is the score's name, and no list is edited.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from dptext_etl.artifacts import Artifact

if TYPE_CHECKING:
    from dptext_etl.allocation.allocation import Allocation

_FOLDER = "dptext_etl.allocation.scores"


class Score(ABC):
    """A public tool that says how sensitive each word of a text is: 1 asks for the least budget, 0 for the most.

    Args:
        allocation: What asks for it; it names the tools' files.
    """

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation

    @abstractmethod
    def of(self, tokens: Sequence[str]) -> Sequence[float]:
        """Return one number from 0 to 1 per token, a function of these tokens and of public files alone.

        Args:
            tokens: The words of one text, in order.
        """

    def artifacts(self) -> dict[str, Artifact]:
        """Return the public files that the score depends on, by role."""
        return {}


@cache
def available() -> tuple[str, ...]:
    """Return the names of all scores: those of the files in the folder of scores."""
    folder = importlib.import_module(_FOLDER)
    return tuple(sorted(found.name for found in pkgutil.iter_modules(folder.__path__)))


@cache
def load(name: str) -> type[Score]:
    """Return the one score that the file of this name holds."""
    module = importlib.import_module(f"{_FOLDER}.{name}")
    (found,) = (
        item
        for item in vars(module).values()
        if inspect.isclass(item)
        and issubclass(item, Score)
        and item.__module__ == module.__name__
        and not inspect.isabstract(item)
    )
    return found
