"""Write marks into a release expression, and read them where a guard judges the plan.

A mark holds configuration, hashes and a key reference, never a key.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dptext_etl import _kernel
from dptext_etl.families.in_kernel import InKernel, in_kernel
from dptext_etl.policy import ColumnPolicy

RELEASES, RELEASED = "dptext_table", "dptext_released"
"""Plugin functions of the kernel whose output is released: the draw itself, and the mark of other draws."""


def marks(policy: ColumnPolicy, column: str) -> dict[str, Any]:
    """Return the facts that every release writes into a plan."""
    mechanism = policy.mechanism
    described = {"name": mechanism.name, **mechanism.model_dump(mode="json")}
    return {
        "dataset": policy.dataset,
        "column": column,
        "release": policy.release,
        "key_reference": policy.key,
        "nonce": str(policy.nonce),
        "mechanism": json.dumps(described, sort_keys=True),
    }


def table_marks(policy: ColumnPolicy, mechanism: InKernel, column: str) -> dict[str, Any]:
    """Return the same for a mechanism that the kernel runs: with the hash of its table, and how texts are read."""
    return {
        **marks(policy, column),
        "table_sha256": mechanism.table.sha256,
        "cfg": mechanism.cfg(),
        "input_policy": json.dumps(mechanism.input_policy(), sort_keys=True),
    }


def _is_kernel(library: str) -> bool:
    """Say whether a plan names the kernel's library; Polars writes a path below the environment relative to it."""
    return (Path(sys.prefix) / library).resolve() == Path(str(_kernel.__file__)).resolve()


class Mark:
    """A release in a plan."""

    def __init__(self, function: Sequence[Any]) -> None:
        self._name = function[2]
        self.text_at = 0 if self._name == RELEASES else 2
        self._said = _read(bytes(function[3]))

    @staticmethod
    def is_one(function: Sequence[Any]) -> bool:
        """Say whether a function of a plan is one of the kernel's releases."""
        return function[0] == "ffi_plugin" and function[2] in {RELEASES, RELEASED} and _is_kernel(function[1])

    @property
    def mechanism(self) -> dict[str, Any] | None:
        """Return the mechanism as plain data, or None if the plan does not name it."""
        said = self._said.get("mechanism")
        described = json.loads(said) if isinstance(said, str) else None
        return described if isinstance(described, dict) else None

    def is_of(self, policy: ColumnPolicy) -> bool:
        """Say whether a column's policy makes this release."""
        mechanism = in_kernel(policy.mechanism)
        if (mechanism is not None) != (self._name == RELEASES):
            return False
        column = str(policy.column)
        wanted = marks(policy, column) if mechanism is None else table_marks(policy, mechanism, column)
        return wanted.items() <= self._said.items()


class _Plain(pickle.Unpickler):
    """Unpickle only plain data, because a plan may come from another place."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ARG002
        raise pickle.UnpicklingError


def _read(arguments: bytes) -> dict[str, Any]:
    try:
        said = _Plain(io.BytesIO(arguments)).load()
    except Exception:  # noqa: BLE001  (another version wrote it, so we cannot read it)
        return {}
    return said if isinstance(said, dict) else {}
