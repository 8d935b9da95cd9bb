"""Read facts about mechanisms from their types, defaults, docstrings and guarantees."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dptext_etl.guarantee import Guarantee
    from dptext_etl.mechanism import Mechanism


def parameters(kind: type[BaseModel]) -> list[dict[str, Any]]:
    """Return name, type, default (None if required), required and meaning of every parameter."""
    meanings = _attributes(kind)
    left_out = set() if getattr(kind, "cannot_divide", None) is None else {"allocation"}
    return [
        {
            "name": name,
            "type": type_name(field.annotation),
            "required": field.is_required(),
            "default": None if field.is_required() else field.get_default(call_default_factory=True),
            "meaning": meanings.get(name, ""),
        }
        for name, field in kind.model_fields.items()
        if name not in left_out
    ]


def value(mechanism: Mechanism, name: str) -> Any:
    """Return the value of a parameter; one with entries of its own as JSON of those that were given."""
    from pydantic import BaseModel

    found = getattr(mechanism, name)
    return found.model_dump_json(exclude_defaults=True) if isinstance(found, BaseModel) else found


def guarantee(claim: Guarantee) -> dict[str, Any]:
    """Return a guarantee as plain data, every disclosure with its meaning."""
    return {
        "class": claim.guarantee_class.value,
        "meaning": claim.guarantee_class.meaning,
        "unit": claim.unit,
        "neighbours": claim.neighbours,
        "disclosures": {item.value: item.meaning for item in sorted(claim.disclosures)},
        "assumptions": sorted(claim.assumptions),
        "assumptions_without_a_ledger": sorted(claim.without_ledger().assumptions),
    }


def variants(kind: type[Mechanism]) -> list[str]:
    """Return the values of the field `variant`, or none."""
    field = kind.model_fields.get("variant")
    return [str(item) for item in get_args(field.annotation)] if field else []


def examples(kind: type[Mechanism]) -> dict[str | None, Mechanism]:
    """Return the mechanism's small example by variant; the key is None if it has no variants."""
    example = kind.example()
    named: dict[str | None, Mechanism] = {name: example.model_copy(update={"variant": name}) for name in variants(kind)}
    return named or {None: example}


def summary(kind: type[BaseModel]) -> str:
    """Return the first sentence of the mechanism's file."""
    text = inspect.getdoc(inspect.getmodule(kind)) or inspect.getdoc(kind) or ""
    return text.partition("\n\n")[0].replace("\n", " ")


def cost(mechanism: Mechanism, words: int) -> dict[str, Any]:
    """Return the cost of a text of `words` words in plain units; amounts without a claim are infinite."""
    from dptext_etl.guarantee import FINE, MICRO
    from dptext_etl.mechanism import worst_spend

    spend = worst_spend(mechanism, words)
    return {
        "words": words,
        "epsilon": spend.epsilon,
        "delta": spend.delta / FINE,
        "epsilon_tight": spend.eps_tight / MICRO,
        "rho": spend.rho / MICRO,
        "log10_odds": spend.log10_odds,
    }


def consent(mechanism: Mechanism) -> list[str]:
    """Return the entries that a policy needs for the mechanism: disclosures and classes to consent to."""
    from dptext_etl.guarantee import DEFAULT_ALLOWED, GuaranteeClass

    claim = mechanism.guarantee
    lines = []
    told = ", ".join(f'"{item.value}"' for item in sorted(claim.disclosures - DEFAULT_ALLOWED))
    if told:
        lines.append(f"allow = [{told}]")
    if claim.guarantee_class is GuaranteeClass.UMLDP:
        lines.append(f'accept_unbounded = ["{claim.guarantee_class.value}"]')
    if mechanism.mode != "strict":
        lines.append("publish = false")
    return lines


def type_name(annotation: Any) -> str:
    """Write a type for people, such as: number, whole number, text, "a" | "b"."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(str(item) for item in inner)
    if origin in (Union, types.UnionType):
        return " | ".join(type_name(item) for item in inner)
    if origin in (list, tuple, set, frozenset):
        return "list of " + " | ".join(dict.fromkeys(type_name(item) for item in inner if item is not Ellipsis))
    return type_name(inner[0]) if inner else getattr(annotation, "__name__", str(annotation))


_PLAIN: dict[Any, str] = {
    float: "number",
    int: "whole number",
    str: "text",
    bool: "true | false",
    type(None): "none",
}


def _attributes(kind: type[BaseModel]) -> dict[str, str]:
    """Read the "Attributes:" of Google docstrings, a class's own before its parents'."""
    found: dict[str, str] = {}
    for owner in kind.__mro__:
        section = re.search(r"^Attributes:\n((?:[ ]+.*\n?|\n)+)", inspect.getdoc(owner) or "", re.MULTILINE)
        for entry in re.split(r"\n {4}(?=\w)", "\n" + section.group(1).rstrip()) if section else ():
            name, colon, text = entry.strip().partition(":")
            if colon:
                found.setdefault(name, " ".join(text.split()))
    return found


def show_parameters(entries: Sequence[Mapping[str, Any]]) -> None:
    """Show parameters to people; each entry is one of `parameters`, with its `value`."""
    from dptext_etl.cli.render import terminal

    terminal.heading("Parameters")
    names = ("name", "type", "default", "value", "meaning")
    rows = [[entry[name] for name in names] for entry in ({**item, **_required(item)} for item in entries)]
    terminal.table(("name", "type", "default", "here", "meaning"), rows)


def _required(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"default": "required"} if entry["required"] else {}
