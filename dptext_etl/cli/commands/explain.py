"""Define `dptext mechanisms`, `explain`, and `schema`, which state what mechanisms guarantee and a policy can hold."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl.cli import budgets, mechanism_facts, startup, terminal, word_facts
from dptext_etl.cli.options import (
    AllocationScores,
    Command,
    FirstRelease,
    Json,
    MechanismName,
    Parameters,
    UnlinkedRows,
    epilog,
    parse_parameters,
)
from dptext_etl.errors import DPTextError, PolicyError

if TYPE_CHECKING:
    from dptext_etl.mechanism import Mechanism

app = typer.Typer()
WORD = "good"
TEXT = "My daughter Anna met Doctor Miller in Boston, and he changed her medicine again."
_VACUOUS = 13
KEYS = (
    "name", "summary", "publishable", "guarantee", "parameters", "configuration", "cfg", "consent", "spend",
    "lengths", "law", "example", "allocation", "draw", "noise", "computing", "conversions", "unlinked", "note",
)  # fmt: skip


@app.command(cls=Command, epilog=epilog("dptext mechanisms --json", ("mechanisms",)))
def mechanisms(*, as_json: Json = False) -> None:
    """List the mechanisms with their variants, guarantee classes, units of epsilon, and disclosures.

    Also say which of them run on this machine as it is, with which model, and what the others lack.
    """
    from dptext_etl import catalog

    listed: list[dict[str, Any]] = []
    for name in catalog.available():
        kind = catalog.load(name)
        variants = [_claim(variant, example) for variant, example in mechanism_facts.examples(kind).items()]
        summary = mechanism_facts.summary(kind)
        listed.append({"name": name, "summary": summary, "variants": variants, "here": _availability(kind)})
    if as_json:
        terminal.emit({"mechanisms": listed})
        return
    rows = [(item["name"], *variant.values()) for item in listed for variant in item["variants"]]
    terminal.table(("name", "variant", "class", "epsilon per", "discloses"), rows)
    for item in listed:
        terminal.say(f"{item['name']}: {item['summary']}")
    terminal.say("\nOn this machine:")
    rows = [
        (item["name"], "yes", ", ".join(f"{name} {value}" for name, value in item["here"]["with"].items()))
        if item["here"]["runs"]
        else (item["name"], "no", f"{item['here']['lacks']}: {item['here']['hint']}")
        for item in listed
    ]
    terminal.table(("name", "runs", "with, or what it lacks"), rows)
    terminal.say("\n`dptext explain NAME` says what these words mean.")


def _claim(variant: str | None, mechanism: Mechanism) -> dict[str, Any]:
    claim = mechanism.guarantee
    return {
        "variant": variant,
        "class": claim.guarantee_class.value,
        "epsilon_per": claim.unit,
        "disclosures": sorted(item.value for item in claim.disclosures),
    }


def _availability(kind: type[Mechanism]) -> dict[str, Any]:
    """Return whether a mechanism runs on this machine without a download, with which model or corpus, or the lack."""
    try:
        taken = kind.first_look({})
    except PolicyError as exc:
        return {"runs": False, "with": None, "lacks": exc.message, "hint": exc.hint}
    chosen = {name: taken[name] for name in ("model", "corpus") if name in taken}
    return {"runs": True, "with": chosen, "lacks": None, "hint": None}


@app.command(cls=Command, epilog=epilog("dptext explain custext -p epsilon=1 -p k=10", KEYS))
def explain(
    name: MechanismName,
    parameter: Parameters = None,
    *,
    word: Annotated[str, typer.Option(help="A public word for the worked example.")] = WORD,
    words: Annotated[int, typer.Option(min=1, help="Length of a text in words, for its cost.")] = 100,
    allocation: AllocationScores = None,
    first: FirstRelease = None,
    unlinked: UnlinkedRows = None,
    total: Annotated[float, typer.Option(help="Epsilon of a whole text, with --allocation.")] = 100.0,
    text: Annotated[
        str,
        typer.Option("--public-text", metavar="TEXT", help="A public sentence for --allocation. Never give real data."),
    ] = TEXT,
    as_json: Json = False,
) -> None:
    """State a mechanism's guarantee: the unit of epsilon, the neighbors, the disclosures, and the cost of a release.

    Required parameters that are not given take the values of the mechanism's own small example. If the usual model is
    not on this machine, the example's small model replaces it: numbers that depend on the model are then those of the
    small model. With --allocation, a public sentence shows how one budget is divided among its words. A post-processing
    (`dptext explain rewrite_again`) is explained, too.
    """
    startup.skip_pandas()
    from dptext_etl import catalog, extensions
    from dptext_etl.families.words import WordMechanism

    facts: dict[str, Any]
    if extensions.known("postprocesses", name):
        step = catalog.load_postprocess(name)
        values = parse_parameters(step, name, parameter)
        facts = dict.fromkeys(KEYS) | mechanism_facts.postprocess_facts(name, step, values)
        terminal.emit(facts) if as_json else mechanism_facts.show_postprocess(facts)
        return
    kind = catalog.load(name)
    given = parse_parameters(kind, name, parameter)
    if allocation is not None:
        given["allocation"] = budgets.allocation_of(allocation, total, first)
    if unlinked is not None:  # the bound depends on the size of the corpus
        given = kind.first_look(given) | given
    mechanism, note = _explained(kind, name, given)
    facts = {
        "name": name,
        "summary": mechanism_facts.summary(kind),
        "publishable": mechanism.mode == "strict",
        "guarantee": mechanism_facts.guarantee(mechanism.guarantee),
        "parameters": [
            {**item, "value": mechanism_facts.value(mechanism, item["name"])}
            for item in mechanism_facts.parameters(kind)
        ],
        "configuration": mechanism.configuration(),
        "cfg": mechanism.cfg(),
        "consent": mechanism_facts.consent(mechanism),
        "spend": mechanism_facts.cost(mechanism, words),
    }
    if isinstance(mechanism, WordMechanism):
        facts["lengths"] = word_facts.lengths(mechanism)
    if isinstance(mechanism, WordMechanism) and mechanism.allocation is None:
        facts["law"] = word_facts.distribution(mechanism)
        facts["example"] = word_facts.worked(mechanism, word_facts.known(mechanism, word) if word == WORD else word)
    if mechanism.allocation is not None:
        facts["allocation"] = budgets.division(mechanism, text)
    facts |= {**mechanism_facts.model_facts(mechanism, words), "note": note}
    if unlinked is not None:
        facts["unlinked"] = budgets.unlinked_costs([mechanism], unlinked)
    if mechanism.computing is not None:
        facts["computing"] = mechanism.computing.as_dict()
    facts = {key: facts.get(key) for key in KEYS}
    if as_json:
        terminal.emit(facts)
    else:
        _show(facts)


def _explained(kind: type[Mechanism], name: str, given: dict[str, Any]) -> tuple[Mechanism, str | None]:
    """Make the mechanism with the given parameters, and take missing ones from its example; return a note on these."""
    from dptext_etl import catalog

    example = kind.example()
    divided = {"epsilon"} if "allocation" in given else set()  # the shares of the allocation say what a text costs
    required = {
        key: getattr(example, key)
        for key, field in kind.model_fields.items()
        if field.is_required() and key not in divided
    }
    chosen = {key: getattr(example, key) for key in example.model_fields_set - divided}
    local: dict[str, Any] = {}  # what a preview would take on this machine
    with suppress(PolicyError):
        local = kind.first_look(given)
    error: DPTextError | None = None
    for more in ({}, local, chosen):
        if error is not None and not more.keys() - given.keys() - required.keys():
            continue
        taken = {**required, **more}.keys() - given.keys() - {"epsilon"}
        try:
            mechanism = catalog.build({"name": name, **required, **more, **given})
            mechanism.cfg()
        except DPTextError as exc:
            error = exc  # the last one: what was missing before is given by then
            continue
        source = "the mechanism's small example" if more in ({}, chosen) else "what this machine has, for a first look"
        return mechanism, f"{', '.join(sorted(taken))}: taken from {source}; set your own with -p" if taken else None
    raise error or DPTextError(f"{name} cannot be explained")


def _show(facts: dict[str, Any]) -> None:
    from dptext_etl.device import Computing

    claim, cost = facts["guarantee"], facts["spend"]
    times = facts["law"]["times_epsilon"] if facts["law"] else 1.0
    of_distance = f", and unit of distance: between any two words a draw costs {times:.6g} times it"
    odds = f"{cost['epsilon']:,.6g}: the odds between two texts can move by 10^{cost['log10_odds']}"
    terminal.say(facts["summary"])
    terminal.heading("Guarantee")
    terminal.pairs(
        {
            "class": f"{claim['class']}: {claim['meaning']}",
            "epsilon is per": claim["unit"] + (of_distance if times != 1.0 else ""),
            "neighbours": claim["neighbours"],
            "assumptions": claim["assumptions"],
            "without a ledger": claim["assumptions_without_a_ledger"],
            "publishable": facts["publishable"],
        }
    )
    terminal.heading("Released exactly, in clear (the guarantee holds between texts that agree on these)")
    terminal.pairs(claim["disclosures"])
    mechanism_facts.show_parameters(facts["parameters"])
    by_word = claim["unit"] == "word"
    terminal.heading(f"A text of {cost['words']} words costs" if by_word else "A text costs, whatever its length")
    terminal.pairs(
        {
            "epsilon": odds if cost["log10_odds"] < _VACUOUS else f"{odds}; this bound is useless in practice",
            "delta": cost["delta"],
            "epsilon, tight": cost["epsilon_tight"],
            "rho (zCDP)": cost["rho"],
        }
    )
    if facts["consent"]:
        terminal.say("A policy that uses it says so: " + ", ".join(facts["consent"]))
    for title, heading in (("draw", "One draw"), ("noise", "The noise")):
        if facts[title]:
            terminal.heading(heading)
            terminal.pairs(facts[title])
    if facts["computing"]:
        terminal.say(f"\nIts model computes here on {Computing(**facts['computing'])}.")
    if facts["conversions"]:
        terminal.heading("All of it for one person, at a fixed delta (the least that is known)")
        terminal.table(("records", "delta", "epsilon", "rule"), [item.values() for item in facts["conversions"]])
    if facts["unlinked"]:
        budgets.show_unlinked(facts["unlinked"])
    if facts["note"]:
        terminal.say(f"\n{facts['note']}.")
    if facts["allocation"]:
        budgets.show_division(facts["allocation"])
    if facts["law"]:
        word_facts.show_lengths(facts["lengths"])
        word_facts.show_distribution(facts["law"])
        word_facts.show_example(facts["example"])


@app.command(cls=Command, epilog=epilog("dptext schema > policy.schema.json"))
def schema() -> None:
    """Print the JSON Schema of the policy file, for editors and other tools."""
    from dptext_etl.policy import Policy

    facts = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Policy.model_json_schema(by_alias=True)}
    terminal.emit(facts)
