"""`dptext explain NAME`: what a mechanism promises, exactly, before anything is spent."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dptext_etl.cli.options import Json, MechanismName, Parameters

WORD = "good"
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
    "spend",
    "table",
    "example",
)


def explain(
    name: MechanismName,
    parameter: Parameters = None,
    *,
    word: Annotated[str, typer.Option(help="A public word for the worked example.")] = WORD,
    words: Annotated[int, typer.Option(min=1, help="Length in words of the text that is costed.")] = 100,
    as_json: Json = False,
) -> None:
    """Say what epsilon is per, who the neighbours are, what is disclosed, and what one release costs.

    Required parameters that are not given take the values of the mechanism's own small example.
    """
    from dptext_etl import catalog
    from dptext_etl.cli import facts, parameters, terminal
    from dptext_etl.families.table import TableMechanism

    kind = catalog.load(name)
    given = parameters.parse(kind, name, parameter)
    example = kind.example()
    required = {key: getattr(example, key) for key, field in kind.model_fields.items() if field.is_required()}
    mechanism = catalog.build({"name": name, **required, **given})
    found: dict[str, Any] = {
        "name": name,
        "summary": facts.summary(kind),
        "publishable": mechanism.publishable,
        "guarantee": facts.guarantee(mechanism.guarantee),
        "parameters": [{**item, "value": getattr(mechanism, item["name"])} for item in facts.parameters(kind)],
        "configuration": mechanism.configuration(),
        "cfg": mechanism.cfg(),
        "spend": facts.cost(mechanism, words),
    }
    if isinstance(mechanism, TableMechanism):
        found["table"] = facts.table(mechanism)
        found["example"] = facts.worked(mechanism, word)
    if as_json:
        terminal.emit(found)
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    from dptext_etl.cli import terminal

    claim, cost = found["guarantee"], found["spend"]
    terminal.say(found["summary"])
    terminal.heading("Guarantee")
    terminal.pairs(
        {
            "class": f"{claim['class']}: {claim['meaning']}",
            "epsilon is per": claim["unit"],
            "neighbours": claim["neighbours"],
            "assumptions": claim["assumptions"],
            "publishable": found["publishable"],
        }
    )
    terminal.heading("Released exactly, in clear (the guarantee holds between texts that agree on these)")
    terminal.pairs(claim["disclosures"])
    terminal.heading("Parameters")
    rows = [
        (
            item["name"],
            item["type"],
            "required" if item["required"] else item["default"],
            item["value"],
            item["meaning"],
        )
        for item in found["parameters"]
    ]
    terminal.table(("name", "type", "default", "here", "meaning"), rows)
    terminal.heading(f"A text of {cost['words']} words costs")
    terminal.pairs(
        {
            "epsilon": _with_odds(cost["epsilon"], cost["log10_odds"]),
            "delta": cost["delta"],
            "epsilon, tight": cost["epsilon_tight"],
            "rho (zCDP)": cost["rho"],
        }
    )
    if "table" in found:
        _show_table(found)


def _show_table(found: dict[str, Any]) -> None:
    from dptext_etl.cli import terminal

    facts, example = found["table"], found["example"]
    terminal.heading("The table, from its integers")
    terminal.pairs(
        {
            "worst ratio": f"{facts['worst_ratio']:.6g} (epsilon {facts['epsilon_table']:.6f} of {_epsilon(found)})",
            "disclosed": f"{facts['disclosed_bits_per_token']:.2f} bits per word, by its output set",
            "output words": facts["output_words"],
            "sha256": facts["sha256"],
        }
    )
    terminal.heading(f"Example: the word {example['word']!r} becomes")
    shown = example["outputs"][:_SHOWN]
    rest = example["outputs"][_SHOWN:]
    rows = [(item["word"], f"{item['probability']:.6f}") for item in shown]
    if rest:
        rows.append((f"{len(rest)} others", f"{sum(item['probability'] for item in rest):.6f}"))
    terminal.table(("output", "probability"), rows)
    telling = example["most_telling"]
    if telling is None:
        return
    terminal.say(
        f"Seeing {telling['seen']!r} favours {example['word']!r} over {telling['instead_of']!r} by a factor of"
        f" {telling['ratio']:.3f} (10^{telling['log10_odds']:.2f}). No output tells more about this word;"
        " the factors of a text's words multiply."
    )


def _with_odds(epsilon: float, log10_odds: float) -> str:
    odds = f"{epsilon:,.6g}: the odds between two texts can move by 10^{log10_odds:.1f}"
    return odds if log10_odds < _VACUOUS else f"{odds}, which bounds nothing in practice"


def _epsilon(found: dict[str, Any]) -> Any:
    return next(item["value"] for item in found["parameters"] if item["name"] == "epsilon")
