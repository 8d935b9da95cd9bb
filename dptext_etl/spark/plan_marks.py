"""Recognize a release in a Spark plan by the code of its function, and read the policy that the function carries."""

from __future__ import annotations

import json
import pickle
from functools import cache
from importlib import import_module
from types import CodeType
from typing import Any

from dptext_etl.policy import ColumnPolicy

_FORMS = {"dptext_etl.spark.arrow_form": "worker", "dptext_etl.spark.pandas_form": "series"}
"""Modules of the functions that `register` makes, and the module that each of them calls."""
_COMPARED = ("dataset", "column", "release", "key", "nonce")


class Mark:
    """A release in a plan."""

    def __init__(self, carried: dict[str, Any]) -> None:
        self._said = carried

    @classmethod
    def of(cls, function: Any) -> Mark | None:
        """Return the release of a Python function of a plan, if it has our code and calls our module, else None."""
        try:
            command = bytes(function.command().unsafeArray())
        except Exception:  # noqa: BLE001  (another version of Spark keeps it elsewhere, so we cannot know this function)
            return None
        forms = [name for name in _FORMS if name.encode() in command]
        if len(forms) != 1:
            return None
        made = pickle.loads(command)[0]  # noqa: S301  (this process wrote it into its own plan)
        called = _FORMS[forms[0]]
        same = getattr(made, "__globals__", {}).get(called) is import_module(f"dptext_etl.spark.{called}")
        if not same or getattr(made, "__code__", None) not in _code(forms[0]):
            return None
        (cell,) = made.__closure__
        return cls(json.loads(cell.cell_contents))

    @property
    def mechanism(self) -> dict[str, Any]:
        """Return the mechanism as plain data."""
        described: dict[str, Any] = self._said["mechanism"]
        return described

    def is_of(self, policy: ColumnPolicy) -> bool:
        """Say whether a column's policy makes this release."""
        mine, said = policy.model_dump(mode="json", exclude={"mechanism"}), self._said["policy"]
        hashes = {role: item.sha256 for role, item in policy.mechanism.artifacts().items()}
        carried = {role: item["sha256"] for role, item in self._said["artifacts"].items()}
        same = all(said[name] == mine[name] for name in _COMPARED)
        return same and self._said["cfg"] == policy.mechanism.cfg() and carried == hashes


@cache
def _code(form: str) -> tuple[CodeType, ...]:
    made = import_module(form).function.__code__.co_consts
    return tuple(item for item in made if isinstance(item, CodeType))
