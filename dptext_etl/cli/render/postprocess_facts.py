"""Collect and show what `dptext explain` says of a post-processing."""

from __future__ import annotations

from typing import Any

from dptext_etl.cli.render import mechanism_facts, terminal
from dptext_etl.postprocessing import PostProcess

_FREE = "0: it sees released texts alone, and must have learned from public texts (or from other records, per record)"
_USE = 'postprocess = [{{ name = "{name}", … }}] in a [[column]] of a policy; runs alone carry it out'


def of(name: str, kind: type[PostProcess], given: dict[str, Any]) -> dict[str, Any]:
    """Return facts about a post-processing; those of its model where the parameters name one."""
    from dptext_etl import catalog

    required = [key for key, field in kind.model_fields.items() if field.is_required() and key not in given]
    step = kind.example() if required else catalog.build_postprocess({"name": name, **given})
    note = f"{', '.join(required)}: taken from its small example; set your own with -p" if required else None
    return {
        "name": name,
        "summary": mechanism_facts.summary(kind),
        "publishable": True,
        "parameters": [{**item, "value": getattr(step, item["name"])} for item in mechanism_facts.parameters(kind)],
        "configuration": step.configuration(),
        "cfg": step.cfg(),
        "spend": {"epsilon": 0, "delta": 0, "because": _FREE, "training_provenance": step.provenance},
        "consent": [_USE.format(name=name)],
        "computing": None if step.computing is None else step.computing.as_dict(),
        "note": note,
    }


def show(found: dict[str, Any]) -> None:
    """Show these facts to people."""
    terminal.say(found["summary"])
    terminal.heading("Cost")
    terminal.pairs({"spend": found["spend"]["because"], "learned from": found["spend"]["training_provenance"] or "?"})
    mechanism_facts.show_parameters(found["parameters"])
    terminal.say(f"A policy uses it so: {found['consent'][0]}")
    if found["note"]:
        terminal.say(f"\n{found['note']}.")
