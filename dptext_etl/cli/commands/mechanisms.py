"""Define `dptext mechanisms`, which lists the mechanisms and their claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dptext_etl.cli.options import Json

if TYPE_CHECKING:
    from dptext_etl.mechanism import Mechanism


EXAMPLE = "dptext mechanisms --json"
KEYS = ("mechanisms",)


def mechanisms(*, as_json: Json = False) -> None:
    """List the mechanisms with their variants, guarantee classes, units of epsilon, and disclosures.

    Also say which of them run on this machine as it is, with which model, and what the others lack.
    """
    from dptext_etl import catalog
    from dptext_etl.cli.render import mechanism_facts, terminal

    found: list[dict[str, Any]] = [
        {"name": name, "summary": mechanism_facts.summary(kind), "variants": _variants(kind), "here": _here(kind)}
        for name, kind in ((name, catalog.load(name)) for name in catalog.available())
    ]
    if as_json:
        terminal.emit({"mechanisms": found})
        return
    rows = [
        (item["name"], *(variant[key] for key in ("variant", "class", "epsilon_per", "disclosures")))
        for item in found
        for variant in item["variants"]
    ]
    terminal.table(("name", "variant", "class", "epsilon per", "discloses"), rows)
    for item in found:
        terminal.say(f"{item['name']}: {item['summary']}")
    terminal.say("\nOn this machine:")
    terminal.table(("name", "runs", "with, or what it lacks"), [(item["name"], *_told(item["here"])) for item in found])
    terminal.say("\n`dptext explain NAME` says what these words mean.")


def _variants(kind: type[Mechanism]) -> list[dict[str, Any]]:
    from dptext_etl.cli.render import mechanism_facts

    found = []
    for variant, mechanism in mechanism_facts.examples(kind).items():
        claim = mechanism.guarantee
        found.append(
            {
                "variant": variant,
                "class": claim.guarantee_class.value,
                "epsilon_per": claim.unit,
                "disclosures": sorted(item.value for item in claim.disclosures),
            }
        )
    return found


def _here(kind: type[Mechanism]) -> dict[str, Any]:
    """Say whether a mechanism runs on this machine without a download, with which model or corpus, or what it lacks."""
    from dptext_etl.errors import PolicyError

    try:
        taken = kind.first_look({})
    except PolicyError as exc:
        return {"runs": False, "with": None, "lacks": exc.message, "hint": exc.hint}
    chosen = {name: taken[name] for name in ("model", "corpus") if name in taken}
    return {"runs": True, "with": chosen, "lacks": None, "hint": None}


def _told(here: dict[str, Any]) -> tuple[str, str]:
    """Return two cells of a table: whether it runs, and with what or why not."""
    if not here["runs"]:
        return "no", f"{here['lacks']}: {here['hint']}"
    return "yes", ", ".join(f"{name} {value}" for name, value in here["with"].items())
