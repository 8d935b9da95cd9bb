"""Read facts about mechanisms and post-processings from their types, defaults, docstrings, and guarantees."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from dptext_etl.cli import terminal

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dptext_etl.guarantee import Guarantee
    from dptext_etl.mechanism import Mechanism
    from dptext_etl.postprocessing import PostProcess


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

    item = getattr(mechanism, name)
    return item.model_dump_json(exclude_defaults=True) if isinstance(item, BaseModel) else item


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
    field = kind.model_fields.get("variant")
    return [str(item) for item in get_args(field.annotation)] if field else []


def examples(kind: type[Mechanism]) -> dict[str | None, Mechanism]:
    """Return the mechanism's small example by variant; the key is None if it has no variants."""
    example = kind.example()
    by_variant: dict[str | None, Mechanism] = {
        name: example.model_copy(update={"variant": name}) for name in variants(kind)
    }
    return by_variant or {None: example}


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
    disclosures = ", ".join(f'"{item.value}"' for item in sorted(claim.disclosures - DEFAULT_ALLOWED))
    entries = [f"allow = [{disclosures}]"] if disclosures else []
    if claim.guarantee_class is GuaranteeClass.UMLDP:
        entries.append(f'accept_unbounded = ["{claim.guarantee_class.value}"]')
    return entries if mechanism.mode == "strict" else [*entries, "publish = false"]


def type_name(annotation: Any) -> str:
    """Write a type for people, such as: number, whole number, text, "a" | "b"."""
    plain = {float: "number", int: "whole number", str: "text", bool: "true | false", type(None): "none"}
    if annotation in plain:
        return plain[annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(str(item) for item in inner)
    if origin in (Union, types.UnionType):
        return " | ".join(type_name(item) for item in inner)
    if origin in (list, tuple, set, frozenset):
        return "list of " + " | ".join(dict.fromkeys(type_name(item) for item in inner if item is not Ellipsis))
    return type_name(inner[0]) if inner else getattr(annotation, "__name__", str(annotation))


def _attributes(kind: type[BaseModel]) -> dict[str, str]:
    """Read the "Attributes:" of Google docstrings, a class's own before its parents'."""
    meanings: dict[str, str] = {}
    for owner in kind.__mro__:
        section = re.search(r"^Attributes:\n((?:[ ]+.*\n?|\n)+)", inspect.getdoc(owner) or "", re.MULTILINE)
        for entry in re.split(r"\n {4}(?=\w)", "\n" + section.group(1).rstrip()) if section else ():
            name, colon, text = entry.strip().partition(":")
            if colon:
                meanings.setdefault(name, " ".join(text.split()))
    return meanings


def show_parameters(entries: Sequence[Mapping[str, Any]]) -> None:
    """Print parameters; each entry is one of `parameters`, with its `value`."""
    terminal.heading("Parameters")
    rows = [
        (
            item["name"],
            item["type"],
            "required" if item["required"] else item["default"],
            item["value"],
            item["meaning"],
        )
        for item in entries
    ]
    terminal.table(("name", "type", "default", "here", "meaning"), rows)


def model_facts(mechanism: Mechanism, words: int) -> dict[str, Any]:
    """Return the mechanism's facts about one draw or about its noise, and `conversions` of the cost of a text.

    A conversion is the least known epsilon at a fixed delta, with its rule, for one record or several of one person.
    """
    from dptext_etl.accounting import joint, least
    from dptext_etl.guarantee import MICRO
    from dptext_etl.mechanism import worst_spend

    described = {name: facts for name, facts in mechanism.described().items() if name != "table"}
    if not described:
        return {}
    spend = worst_spend(mechanism, words)
    bounds = {(records, delta): least(joint([spend] * records, delta)) for records in (1, 10) for delta in (1e-6, 1e-9)}
    conversions = [
        {"records": records, "delta": delta, "epsilon": bound.epsilon / MICRO, "rule": bound.rule}
        for (records, delta), bound in bounds.items()
    ]
    return {**described, "conversions": conversions}


_NO_COST = (
    "0: it sees released texts alone, and must have learned from public texts (or from other records, per record)"
)
_USE = 'postprocess = [{{ name = "{name}", … }}] in a [[column]] of a policy; runs alone carry it out'


def postprocess_facts(name: str, kind: type[PostProcess], given: dict[str, Any]) -> dict[str, Any]:
    """Return facts about a post-processing; those of its model where the parameters name one."""
    from dptext_etl import catalog

    required = [key for key, field in kind.model_fields.items() if field.is_required() and key not in given]
    step = kind.example() if required else catalog.build_postprocess({"name": name, **given})
    note = f"{', '.join(required)}: taken from its small example; set your own with -p" if required else None
    return {
        "name": name,
        "summary": summary(kind),
        "publishable": True,
        "parameters": [{**item, "value": getattr(step, item["name"])} for item in parameters(kind)],
        "configuration": step.configuration(),
        "cfg": step.cfg(),
        "spend": {"epsilon": 0, "delta": 0, "because": _NO_COST, "training_provenance": step.provenance},
        "consent": [_USE.format(name=name)],
        "computing": None if step.computing is None else step.computing.as_dict(),
        "note": note,
    }


def show_postprocess(facts: dict[str, Any]) -> None:
    terminal.say(facts["summary"])
    terminal.heading("Cost")
    terminal.pairs({"spend": facts["spend"]["because"], "learned from": facts["spend"]["training_provenance"] or "?"})
    show_parameters(facts["parameters"])
    terminal.say(f"A policy uses it so: {facts['consent'][0]}")
    if facts["note"]:
        terminal.say(f"\n{facts['note']}.")
