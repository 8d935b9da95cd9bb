"""Check, show, pickle, and hash the models whose fields are parameters: mechanisms, post-processings, policies."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BaseModel, Field, ValidationError

from dptext_etl.artifacts import canon
from dptext_etl.errors import PolicyError, seam, suggestion

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PositiveInt = Annotated[int, Field(gt=0, le=2**53)]  # a float holds it exactly
Epsilon = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False, strict=True)]


def checked_parameters(self: Any, /, **parameters: Any) -> None:
    """Initialize a mechanism or a post-processing, so that wrong parameters raise one `PolicyError`."""
    name = type(self).__module__.rpartition(".")[2]  # `self.name` may be a field, which is not set yet
    with validated(name, type(self), of=f"parameters of {name}"):
        BaseModel.__init__(self, **parameters)


class validated(seam):  # noqa: N801  (reads as a statement: `with validated("policy", …):`)
    """Turn a pydantic error in the block into one of ours, which never quotes the given value."""

    def __init__(self, what: str, model: type[BaseModel], of: str = "entries") -> None:
        super().__init__(f"reading the {what}", PolicyError)
        self._what, self._model, self._of = what, model, of

    def __exit__(self, kind: Any, exc: BaseException | None, tb: Any) -> None:
        """Raise one `PolicyError` that describes the problem of each entry."""
        if not isinstance(exc, ValidationError):
            super().__exit__(kind, exc, tb)
            return
        problems = exc.errors(include_input=False, include_url=False)
        entries = by_entry(problems)
        problem = "; ".join(": ".join(filter(None, entry)) for entry in entries)
        named = [path for path, _ in entries if path]
        # the hint: names that may be meant by those that do not exist, or all of a small model
        unknown = [(str(item["loc"][-1]), item["loc"][:-1]) for item in problems if item["type"] == "extra_forbidden"]
        suggestions = {suggestion(name, _entries(self._model, path), most=3): path for name, path in unknown}
        names = _entries(self._model, next(iter(suggestions.values()), ()))
        listed = f"{self._of}: {', '.join(names)}" if len(names) <= _FEW else ""
        hint = "; ".join(filter(None, suggestions)) or listed or "docs/policy.md describes every entry"
        self.leave(PolicyError(f"{self._what}: {problem}", hint, {"entries": named}))


_FEW = 15  # names that a hint lists, at most
_WORDS = {
    "extra_forbidden": "there is no such entry",
    "missing": "is missing",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "finite_number": "must be finite",
    **dict.fromkeys(("literal_error", "enum"), "must be {expected}"),
    "string_type": "must be a string",
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be a table"),
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must be a list of at least {min_length}",
    "too_long": "must be a list of at most {max_length}",
}
"""Our words for a problem of an entry, by pydantic's name of the problem."""


_FORM = re.compile(r"constrained-int|constrained-str|str|int|float|.*\[.*\]", re.DOTALL)
"""The names that pydantic gives to the forms that a value may have."""
_MEMBER = re.compile(r"<\w+\.\w+: ('[^']*')>")


def by_entry(problems: Iterable[ErrorDetails]) -> list[tuple[str, str]]:
    """Return the path and the problem of each entry in our words; the given values are not quoted.

    Pydantic lists a problem for each form that a value may have. Those of a value as a whole are
    listed only if no part of it, and no other form, has a problem.
    """
    of_type, others = dict[str, list[str]](), list[tuple[str, str]]()
    for problem in problems:
        kind, parts = problem["type"], [str(part) or "''" for part in problem["loc"]]
        forms = [part for part in parts if _FORM.fullmatch(part) and kind != "extra_forbidden"]
        path = ".".join(part for part in parts if part not in forms)
        default = problem["msg"].removeprefix("Value error, ") if kind == "value_error" else "is not allowed"
        words = _MEMBER.sub(r"\1", _WORDS.get(kind, "").format(**problem.get("ctx", {}))) or default
        if kind == "too_short" or (kind.endswith("_type") and parts[-1:] == forms[-1:]):
            of_type.setdefault(path, []).append(words.removeprefix("must be "))
        else:
            others.append((path, words))
    paths = [path for path, _ in others]
    for path, forms in of_type.items():
        if not any(f"{other}.".startswith(f"{path}.") for other in (*paths, *(of_type.keys() - {path}))):
            others.append((path, f"must be {' or '.join(forms)}"))
    return others


def _entries(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the names of the entries of a model, or of the one at a path in it."""
    for part in path:
        fields = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
        inner = list(models_in(fields.get(str(part)))) if isinstance(part, str) else [model]
        if not inner:
            return []
        model = inner[0]
    return [field.alias or name for name, field in model.model_fields.items()]


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a field may hold, as its only type, or among other types or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


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


def written_parameters(model: BaseModel, excluded: Collection[str]) -> dict[str, Any]:
    """Write the required parameters, and those that differ from their defaults."""
    return {
        name: written(getattr(model, name))
        for name, field in type(model).model_fields.items()
        if name not in excluded and (field.is_required() or getattr(model, name) != field.default)
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
    """Yield the fields of a representation: the parameters that differ from their defaults."""
    fields = type(model).model_fields
    for name, value in BaseModel.__repr_args__(model):
        if name not in fields or value != fields[name].get_default(call_default_factory=True):
            yield name, value
