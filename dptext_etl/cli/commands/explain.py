"""Define `dptext explain`, which states exactly what a mechanism guarantees, before anything is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl.cli.options import AllocationScores, FirstRelease, Json, MechanismName, Parameters, UnlinkedRows

if TYPE_CHECKING:
    from dptext_etl.mechanism import Mechanism

WORD = "good"
TEXT = "My daughter Anna met Doctor Miller in Boston, and he changed her medicine again."
_SHOWN = 8
_VACUOUS = 13


EXAMPLE = "dptext explain custext -p epsilon=1 -p k=10"
KEYS = (
    "name",
    "summary",
    "publishable",
    "guarantee",
    "parameters",
    "configuration",
    "cfg",
    "consent",
    "spend",
    "lengths",
    "law",
    "example",
    "allocation",
    "draw",
    "noise",
    "computing",
    "conversions",
    "unlinked",
    "note",
)


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
    from dptext_etl import catalog, extensions
    from dptext_etl.cli import lean, parameters
    from dptext_etl.cli.render import divided, mechanism_facts, terminal, unlinked_facts, word_facts
    from dptext_etl.families.words import WordMechanism

    found: dict[str, Any]
    lean.without_pandas()
    if extensions.known("postprocesses", name):
        step = catalog.load_postprocess(name)
        found = dict.fromkeys(KEYS) | mechanism_facts.postprocess_facts(
            name, step, parameters.parse(step, name, parameter)
        )
        terminal.emit(found) if as_json else mechanism_facts.show_postprocess(found)
        return
    kind = catalog.load(name)
    given = parameters.parse(kind, name, parameter)
    if allocation is not None:
        given["allocation"] = divided.asked(allocation, total, first)
    if unlinked is not None:  # the bound depends on the size of the corpus
        given = kind.first_look(given) | given
    mechanism, note = _explained(kind, name, given)
    found = {
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
        found["lengths"] = word_facts.lengths(mechanism)
    if isinstance(mechanism, WordMechanism) and mechanism.allocation is None:
        found["law"] = word_facts.distribution(mechanism)
        found["example"] = word_facts.worked(mechanism, word_facts.known(mechanism, word) if word == WORD else word)
    if mechanism.allocation is not None:
        found["allocation"] = divided.facts(mechanism, text)
    found |= {**mechanism_facts.model_facts(mechanism, words), "note": note}
    if unlinked is not None:
        found["unlinked"] = unlinked_facts.of([mechanism], unlinked)
    if mechanism.computing is not None:
        found["computing"] = mechanism.computing.as_dict()
    found = {key: found.get(key) for key in KEYS}
    if as_json:
        terminal.emit(found)
    else:
        _show(found)


def _explained(kind: type[Mechanism], name: str, given: dict[str, Any]) -> tuple[Mechanism, str | None]:
    """Make the mechanism with the given parameters, and take missing ones from its example; return a note on these."""
    from dptext_etl import catalog
    from dptext_etl.errors import DPTextError

    example = kind.example()
    left = {"epsilon"} if "allocation" in given else set()  # its own parts say what a text costs
    needed = [key for key, field in kind.model_fields.items() if field.is_required() and key not in left]
    required = {key: getattr(example, key) for key in needed}
    chosen = {key: getattr(example, key) for key in example.model_fields_set - left}
    error: DPTextError | None = None
    for more in ({}, _at_hand(kind, given), chosen):
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


def _at_hand(kind: type[Mechanism], given: dict[str, Any]) -> dict[str, Any]:
    """Return what a preview would take: the usual model or a small one of this machine, or nothing."""
    from dptext_etl.errors import PolicyError

    try:
        return kind.first_look(given)
    except PolicyError:
        return {}


def _show(found: dict[str, Any]) -> None:
    from dptext_etl.cli.render import divided, mechanism_facts, terminal, unlinked_facts
    from dptext_etl.device import Computing

    claim, cost = found["guarantee"], found["spend"]
    terminal.say(found["summary"])
    terminal.heading("Guarantee")
    terminal.pairs(
        {
            "class": f"{claim['class']}: {claim['meaning']}",
            "epsilon is per": claim["unit"] + _times(found),
            "neighbours": claim["neighbours"],
            "assumptions": claim["assumptions"],
            "without a ledger": claim["assumptions_without_a_ledger"],
            "publishable": found["publishable"],
        }
    )
    terminal.heading("Released exactly, in clear (the guarantee holds between texts that agree on these)")
    terminal.pairs(claim["disclosures"])
    mechanism_facts.show_parameters(found["parameters"])
    whole = found["guarantee"]["unit"] == "word"
    terminal.heading(f"A text of {cost['words']} words costs" if whole else "A text costs, whatever its length")
    terminal.pairs(
        {
            "epsilon": _with_odds(cost["epsilon"], cost["log10_odds"]),
            "delta": cost["delta"],
            "epsilon, tight": cost["epsilon_tight"],
            "rho (zCDP)": cost["rho"],
        }
    )
    if found["consent"]:
        terminal.say("A policy that uses it says so: " + ", ".join(found["consent"]))
    for title, heading in (("draw", "One draw"), ("noise", "The noise")):
        if found[title]:
            terminal.heading(heading)
            terminal.pairs(found[title])
    if found["computing"]:
        terminal.say(f"\nIts model computes here on {Computing(**found['computing'])}.")
    if found["conversions"]:
        terminal.heading("All of it for one person, at a fixed delta (the least that is known)")
        terminal.table(("records", "delta", "epsilon", "rule"), [item.values() for item in found["conversions"]])
    if found["unlinked"]:
        unlinked_facts.show(found["unlinked"])
    if found["note"]:
        terminal.say(f"\n{found['note']}.")
    if found["allocation"]:
        divided.show(found["allocation"])
    if found["law"]:
        _show_lengths(found["lengths"])
        _show_distribution(found["law"])
        _show_example(found["example"])


def _show_lengths(lengths: list[dict[str, Any]]) -> None:
    from dptext_etl.cli.render import terminal

    terminal.heading("The number of words")
    terminal.pairs(
        {
            item["length"]: f"refused: {item['refused']}"
            if item["class"] is None
            else f"{item['class']}; discloses {', '.join(item['disclosures'])}"
            for item in lengths
        }
    )


def _show_distribution(law: dict[str, Any]) -> None:
    from dptext_etl.cli.render import terminal

    terminal.heading("One draw" + (", from the integers that are drawn from" if law["is_exact"] else ""))
    worst = f"{law['epsilon_worst']:.6f}: a factor of {terminal.number(law['worst_ratio'])}"
    metric = law["metric"]
    terminal.pairs(
        {
            "declared": f"{terminal.number(law['epsilon_word'])} between any two words"
            f" ({terminal.number(law['times_epsilon'])} times the parameter epsilon)",
            "worst ratio": f"{worst} ({'exact' if law['is_exact'] else 'an upper bound'})",
            "by distance": "no metric claim"
            if metric is None
            else f"{metric['epsilon']:.6g} per unit of {metric['name']}, which is {metric['diameter']:.6g} at most",
            "disclosed": f"{law['disclosed_bits_per_token']:.2f} bits per word, next to the draw",
            "unknown words": law["unknown_words"],
            "output words": law["output_words"],
            "artifacts": law["artifacts"],
        }
    )


def _show_example(example: dict[str, Any]) -> None:
    from dptext_etl.cli.render import terminal

    by = "" if example["samples"] is None else f" (frequencies of {example['samples']:,} draws)"
    terminal.heading(f"Example: the word {example['word']!r} becomes{by}")
    rows = [(item["word"], f"{item['probability']:.6f}") for item in example["outputs"][:_SHOWN]]
    rest = example["outputs"][_SHOWN:]
    words = len(rest) + example["others"]["words"]
    if words:
        share = sum(item["probability"] for item in rest) + example["others"]["probability"]
        rows.append((f"{words:,} others", f"{share:.6f}"))
    terminal.table(("output", "probability"), rows)
    terminal.say(f"It stays as it is with probability {example['stays']:.6f}.")
    telling = example["most_telling"]
    if telling is None:
        return
    terminal.say(
        f"Seeing {telling['seen']!r} favors {example['word']!r} over {telling['instead_of']!r} by a factor of"
        f" {telling['ratio']:.3f} (10^{telling['log10_odds']:.2f}). No output discloses more about this word;"
        " the factors of a text's words multiply."
    )


def _times(found: dict[str, Any]) -> str:
    times = found["law"]["times_epsilon"] if found["law"] else 1.0
    return "" if times == 1.0 else f", and unit of distance: between any two words a draw costs {times:.6g} times it"


def _with_odds(epsilon: float, log10_odds: float) -> str:
    odds = f"{epsilon:,.6g}: the odds between two texts can move by 10^{log10_odds:.1f}"
    return odds if log10_odds < _VACUOUS else f"{odds}; this bound is useless in practice"
