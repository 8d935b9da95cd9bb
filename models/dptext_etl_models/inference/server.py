"""The interface that a model server offers to a release: it schedules steps itself, and asks for every draw."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import PolicyError

SERVER_SETTING = "DPTEXT_SERVER"
Prompt = Sequence[int] | None
"""Token ids of a prompt; None for a text that cannot be encoded."""


class Request(NamedTuple):
    """A text that a model server continues.

    Attributes:
        record: Its number among the texts of the release.
        prompt: Token ids of its prompt.
        drawn: Outputs that it has drawn before, which follow the prompt.
        most: Largest number of further draws.
    """

    record: int
    prompt: Sequence[int]
    drawn: Sequence[int]
    most: int


Draw = Callable[[Any, npt.NDArray[np.int64]], npt.NDArray[np.int64]]
"""Take scores, shape (n, outputs), and the n records that they belong to, and return the output that each one draws."""


class Answers(Protocol):
    """The prompts of texts, and the outputs that answer them.

    Attributes:
        outputs: Size of the output set, the same for every text and step.
        ends: Indices of the outputs that end a text.
    """

    outputs: int
    ends: frozenset[int]

    def prompts(self, texts: Sequence[str]) -> list[Prompt]:
        """Return the prompt of every text; a text never fails because of another text."""

    def text(self, outputs: Sequence[int]) -> str:
        """Return the released text of a sequence of outputs, the end included if it was drawn."""


@runtime_checkable
class ModelServer(Answers, Protocol):
    """A model that schedules its steps itself, such as vLLM: it asks for draws as scores become known."""

    def answer(self, requests: Sequence[Request], draw: Draw) -> None:
        """Continue every text until it draws an end or its most draws are done.

        Each step calls `draw` with the full scores of some texts, at most once per text and step. The scores of a text
        must be a function of only its own tokens, not of other texts (docs/spec/privacy.md#batch-independence).
        """


def model_server() -> Literal["vllm"] | None:
    """Return which model server continues texts in this process; None for our own batches."""
    setting = os.environ.get(SERVER_SETTING, "").strip()
    if setting == "vllm":
        return "vllm"
    if "://" in setting:
        raise PolicyError(
            f"{SERVER_SETTING} is an address: a draw needs the scores of all tokens, and an HTTP API gives a few",
            f"install vLLM on the machine that runs the policy, and set {SERVER_SETTING}=vllm",
        )
    if setting:
        raise PolicyError(f"{SERVER_SETTING} is vllm, or unset", f"leave {SERVER_SETTING} unset to use our own batches")
    return None
