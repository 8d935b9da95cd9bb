"""Say which mechanisms the kernel runs by itself, from one file: engines then hand it whole columns."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from dptext_etl.artifacts import Artifact
from dptext_etl.mechanism import Mechanism


class InKernel(Mechanism):
    """A mechanism that the kernel runs from one stored file, for any engine.

    `table` is the file, `input_policy` all that the kernel needs to know next to it.
    """

    @property
    def runs_in_kernel(self) -> bool:
        """Return True if the kernel needs nothing else, such as a model."""
        return True

    @property
    @abstractmethod
    def table(self) -> Artifact:
        """Return the stored file."""

    @abstractmethod
    def input_policy(self) -> dict[str, Any]:
        """Return, as data, how the kernel reads texts, and how it draws where the file does not say it."""

    @abstractmethod
    def unit_micro(self) -> int:
        """Return the declared epsilon of one draw in millionths, for engines that multiply it by positions."""

    def base_micro(self) -> int:
        """Return the declared epsilon of a text next to its draws, in millionths."""
        return 0


def in_kernel(mechanism: Mechanism) -> InKernel | None:
    """Return the mechanism if the kernel runs it by itself, otherwise None."""
    return mechanism if isinstance(mechanism, InKernel) and mechanism.runs_in_kernel else None
