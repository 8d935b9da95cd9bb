"""Define `dptext mechanisms`, which lists the mechanisms and their claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dptext_etl.cli.options import Json

if TYPE_CHECKING:
    from dptext_etl.mechanism import Mechanism


EXAMPLE = "dptext mechanisms --json"
KEYS = ("mechanisms",)


def mechanisms(*, as_json: Json = False) -> None:
    """List the mechanisms with their variants, guarantee classes, units of epsilon, and disclosures."""
    from dptext_etl import catalog
    from dptext_etl.cli.render import mechanism_facts, terminal

    found: list[dict[str, Any]] = [
        {"name": name, "summary": mechanism_facts.summary(kind), "variants": _variants(kind)}
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
