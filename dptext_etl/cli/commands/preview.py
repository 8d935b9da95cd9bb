"""Define `dptext preview`, which shows public sentences before and after a mechanism, and how budgets divide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl.cli import terminal
from dptext_etl.cli.commands.run import compute_on
from dptext_etl.cli.options import (
    AllocationScores,
    Device,
    Dtype,
    FirstRelease,
    MechanismName,
    Parameters,
    command,
    parse_parameters,
    skip_pandas,
)
from dptext_etl.errors import PolicyError

if TYPE_CHECKING:
    from dptext_etl.allocation import Place
    from dptext_etl.mechanism import Mechanism


def allocation_of(written: str, epsilon: float, first: float | None = None) -> dict[str, Any]:
    """Return the parameter `allocation` of a mechanism from `--allocation` and the epsilon of a whole text."""
    from dptext_etl.guarantee import exact

    names = [name.strip() for name in written.split(",") if name.strip()]
    allocation: dict[str, Any] = {"scores": names}
    if names == ["uniform"]:
        allocation = {"template": "uniform"}
    elif names:
        with suppress(ValueError):
            allocation = {"template": [float(name) for name in names]}
    if first is None:
        return {**allocation, "total": epsilon}
    if first >= epsilon:
        raise PolicyError("the first release leaves nothing for the second", f"give --first below {epsilon:g}")
    return {**allocation, "first": first, "total": float(exact(epsilon) - exact(first))}


def division(mechanism: Mechanism, text: str) -> dict[str, Any] | None:
    """Return every word of a text, or every sentence if sentences are drawn, with its scores and its epsilon."""
    import numpy as np

    from dptext_etl import sampling
    from dptext_etl.allocation import fit
    from dptext_etl.guarantee import MICRO

    allocation = mechanism.allocation
    if allocation is None:
        return None
    units, marks = mechanism.text_units(text)
    together = _together(marks.places)
    offered = [
        allocation.by_position(shares, len(units), draws=marks.most)
        for shares in allocation.templates or filter(None, [allocation.template])
    ]
    scored = bool(allocation.scores)
    wanted = allocation.over(marks.tokens, marks.places, draws=marks.most) if scored else offered[0]
    parts, chances = wanted, list[float]()  # the probability of each template for a text that asks for `wanted`
    if allocation.templates:
        chances = [1 / len(offered)] * len(offered)
        if wanted:
            fits = np.array([fit(wanted, offered)])
            weights = sampling.weights(fits, allocation.choosing or 0.0, 0.0, 1.0)[0]
            chances = [int(weight) / sum(map(int, weights)) for weight in weights]
        parts = offered[chances.index(max(chances))]
    columns = allocation.scored(marks.tokens, marks.places) if scored else {}
    return {
        "text": text,
        "total": allocation.total,
        "even": allocation.total / max(1, len(together)),
        "sum": sum(parts) / MICRO,
        "divided_by": allocation.source,
        "beside": float(allocation.before),
        "first_each": allocation.even(marks.most) / MICRO,
        "templates": [
            {"shares": list(shares), "chance": chance}
            for shares, chance in zip(allocation.templates, chances, strict=True)
        ],
        "words": [
            {
                "word": units[at[0]] + (f" ({len(at)} steps)" if len(at) > 1 else ""),
                "scores": {name: round(column[at[0]], 6) for name, column in columns.items()},
                "epsilon": sum(parts[place] for place in at) / MICRO,
            }
            for at in together
        ],
    }


def _together(places: Sequence[Place]) -> list[list[int]]:
    groups: list[list[int]] = []
    for at, place in enumerate(places):
        if at and place is not None and place == places[at - 1]:
            groups[-1].append(at)
        else:
            groups.append([at])
    return groups


def show_division(division: Mapping[str, Any]) -> None:
    """Print words or sentences, their scores and their epsilon as a table, and the source of the division."""
    terminal.heading(f"A budget of {terminal.number(division['total'])} among the parts of {division['text']!r}")
    names = list(division["words"][0]["scores"]) if division["words"] else []
    for item in division["templates"]:
        shares = ", ".join(f"{share:g}" for share in item["shares"])
        terminal.say(f"Template {shares} is drawn with probability {item['chance']:.3f}.")
    terminal.table(
        ("part", *names, "epsilon", "evenly"),
        [
            (item["word"], *item["scores"].values(), round(item["epsilon"], 3), round(division["even"], 3))
            for item in division["words"]
        ],
    )
    most = terminal.number(division["total"])
    terminal.say(f"They add up to {terminal.number(division['sum'])}, never to more than {most}.")
    amounts = {name: terminal.number(item) for name, item in division.items()}
    terminal.say(_MEANINGS[division["divided_by"]].format(**amounts))


_MEANINGS = {
    "text": "A score of 1 asks for the least. The amounts of a private text are never shown: they depend on the text.",
    "first": "The second release spends this if the first one returns these words. The first spends"
    " {first_each} for each part, {beside} in all; its words are scored. Only the second is published.",
    "template": "A template has an amount for each position, whatever the text: it may be public.",
    "chosen": "This is the likeliest template for this text. The draw of a template costs {beside} in addition.",
}


app = typer.Typer()
KEYS = ("mechanism", "ledgered", "taken", "sentences")
SENTENCES = (
    "The room was clean and the staff were friendly, but the breakfast was cold.",
    "I ordered a blue jacket in March and it arrived two weeks late.",
    "My daughter loved the film; the ending made us all cry.",
    "Please call me on 555-0134, the doctor changed my medicine again.",
)


@command(app, "dptext preview custext --epsilon 1 --epsilon 4", KEYS)
def preview(
    name: MechanismName = "custext",
    parameter: Parameters = None,
    *,
    epsilon: Annotated[list[float] | None, typer.Option(help="An epsilon to show; repeat as needed.")] = None,
    public_text: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A public or invented sentence instead of ours. Never give real data."),
    ] = None,
    allocation: AllocationScores = None,
    first: FirstRelease = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Show the effect of a mechanism on public sentences at several epsilons, without policy, key or file.

    A preview draws with a key that is thrown away, and charges no ledger. So it accepts no table and no policy:
    previews of real texts would spend their budget without a record. To try your own data, run `dptext init`. A
    mechanism with a language model uses a model on this machine, or says how to get one; a preview downloads nothing.
    With --allocation an epsilon is for a whole text, and a table shows how much of it each word gets.
    """
    skip_pandas()
    import pyarrow as pa

    from dptext_etl import catalog, column, keys

    compute_on(device, dtype)
    kind = catalog.load(name)
    parameters = parse_parameters(kind, name, parameter)
    if "epsilon" in parameters and not epsilon:
        epsilon = [parameters["epsilon"]]
    taken = kind.preview_parameters(parameters)
    texts = list(public_text or SENTENCES)
    sentences: list[dict[str, Any]] = [{"before": text, "after": []} for text in texts]
    for value in epsilon or kind.preview_epsilons:
        budget: dict[str, Any] = {"epsilon": value}
        if allocation is not None:
            budget = {"allocation": allocation_of(allocation, value, first)}
        mechanism = catalog.build({"name": name, **taken, **parameters, **budget})
        if not sentences[0]["after"]:
            if mechanism.allocation is not None:
                sentences = [{**row, "allocation": division(mechanism, row["before"])} for row in sentences]
            column.probe(mechanism)
        ids = pa.array([str(row) for row in range(len(texts))])
        released = column.draw(mechanism, pa.array(texts, pa.large_string()), ids, keys.throwaway(mechanism.cfg()))
        for row, after, draws in zip(sentences, released.text.to_pylist(), released.positions.to_pylist(), strict=True):
            spend = mechanism.spend(draws)
            cost = {"spend": spend.epsilon, "log10_odds": spend.log10_odds}
            row["after"].append({"epsilon": value, "text": after, **cost})
    facts = {"mechanism": name, "ledgered": False, "taken": taken, "sentences": sentences}
    if terminal.emitted(facts):
        return
    for row in sentences:
        if allocation is not None:
            show_division(row["allocation"])
        terminal.heading(row["before"])
        terminal.table(
            ("epsilon", "after", "spent", "odds"),
            [(item["epsilon"], item["text"], item["spend"], f"10^{item['log10_odds']}") for item in row["after"]],
        )
    if taken:
        chosen = ", ".join(f"{key} = {value}" for key, value in taken.items())
        terminal.say(f"\nYou did not set these parameters, so the command chose: {chosen}")
    terminal.say("\nEach text is one draw with a key that is thrown away: another preview draws other words.")
