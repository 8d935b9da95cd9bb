"""Check, show, pickle, and hash the models whose fields are parameters: mechanisms, post-processings, policies."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from dptext_etl.artifacts import canon
from dptext_etl.errors import PolicyError, seam

Epsilon = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False, strict=True)]


class validated(seam):  # noqa: N801  (reads as a statement: `with validated("policy", …):`)
    """Turn a pydantic error in the block into one of ours, which never quotes the given value."""

    def __init__(self, what: str, known: Iterable[str], of: str = "entries") -> None:
        super().__init__(f"reading the {what}", PolicyError)
        self._what = what
        self._hint = f"{of}: {', '.join(known)}"

    def __exit__(self, kind: Any, exc: BaseException | None, tb: Any) -> None:
        """Raise one `PolicyError` that says what is wrong with each entry."""
        if not isinstance(exc, ValidationError):
            super().__exit__(kind, exc, tb)
            return
        problems = exc.errors(include_input=False, include_url=False)
        problem = "; ".join(_sentence(item["loc"], item["msg"]) for item in problems)
        entries = [".".join(map(str, item["loc"])) for item in problems if item["loc"]]
        self.leave(PolicyError(f"{self._what}: {problem}", self._hint, {"entries": entries}))


def _sentence(loc: tuple[int | str, ...], message: str) -> str:
    where = ".".join(map(str, loc))
    return f"{where}: {message}" if where else message.removeprefix("Value error, ")


def written(value: Any) -> Any:
    """Write a parameter in the form of a configuration; a float becomes its repr, which can be parsed back."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("parameters are finite")
        return repr(value)
    if isinstance(value, (frozenset, set)):
        return sorted(written(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [written(item) for item in value]
    if isinstance(value, BaseModel):
        return written_parameters(value, getattr(value, "artifact_fields", frozenset()))
    return value


def written_parameters(model: BaseModel, left_out: Collection[str]) -> dict[str, Any]:
    """Write the required parameters, and those that differ from their defaults."""
    return {
        name: written(getattr(model, name))
        for name, field in type(model).model_fields.items()
        if name not in left_out and (field.is_required() or getattr(model, name) != field.default)
    }


def configuration_hash(configuration: dict[str, Any]) -> str:
    """Return the hash of a configuration, 64 hex digits (docs/spec/stream.md#configuration-hash)."""
    return hashlib.sha256(b"dptext/cfg/v1\0" + canon(configuration)).hexdigest()


def parameters_alone(model: BaseModel) -> dict[Any, Any]:
    """Return the state to pickle without derived values, which are computed again."""
    state = BaseModel.__getstate__(model)
    fields = type(model).model_fields
    return {**state, "__dict__": {name: value for name, value in state["__dict__"].items() if name in fields}}


def changed_parameters(model: BaseModel) -> Iterator[tuple[str | None, Any]]:
    """Yield what a representation shows: the parameters that differ from their defaults."""
    fields = type(model).model_fields
    for name, value in BaseModel.__repr_args__(model):
        if name not in fields or value != fields[name].get_default(call_default_factory=True):
            yield name, value
