"""Define `dptext preview`, which shows public sentences before and after a mechanism."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dptext_etl.cli.options import (
    AllocationScores,
    Device,
    Dtype,
    FirstRelease,
    Json,
    MechanismName,
    Parameters,
    UnlinkedRows,
)

EXAMPLE = "dptext preview custext --epsilon 1 --epsilon 4"
KEYS = (
    "mechanism",
    "ledgered",
    "taken",
    "sentences",
    "unlinked",
)


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
    unlinked: UnlinkedRows = None,
    device: Device = None,
    dtype: Dtype = None,
    as_json: Json = False,
) -> None:
    """Show what a mechanism does to public sentences at several epsilons, without policy, key or file.

    A preview draws with a key that is thrown away, and charges no ledger. So it takes no table and no policy: previews
    of real texts would spend their budget without a record. To try your own data, run `dptext run-table`. A mechanism
    with a language model takes one that is on this machine, or says how to get one; a preview downloads nothing. With
    --allocation an epsilon is that of a whole text, and colors show which words get how much of it.
    """
    from dptext_etl import catalog, column, keys
    from dptext_etl.cli import lean, parameters, samples
    from dptext_etl.cli.render import divided, terminal, unlinked_facts
    from dptext_etl.cli.running import compute_on

    compute_on(device, dtype)
    lean.without_pandas()
    kind = catalog.load(name)
    given = parameters.parse(kind, name, parameter)
    if "epsilon" in given and not epsilon:
        epsilon = [given["epsilon"]]
    taken = kind.first_look(given)
    texts = list(public_text or samples.PUBLIC)
    shown: list[dict[str, Any]] = [{"before": text, "after": []} for text in texts]
    made = []
    for number, value in enumerate(epsilon or kind.shown_epsilons):
        budget = {"epsilon": value} if allocation is None else {"allocation": divided.asked(allocation, value, first)}
        mechanism = catalog.build({"name": name, **taken, **given, **budget})
        if number == 0 and mechanism.allocation is not None:
            shown = [{**row, "allocation": divided.facts(mechanism, row["before"])} for row in shown]
        made.append(mechanism)
        if number == 0:
            column.probe(mechanism)
        released = column.draw(mechanism, *_rows(texts), keys.throwaway(mechanism.cfg()))
        for row, after, draws in zip(shown, released.text.to_pylist(), released.positions.to_pylist(), strict=True):
            spend = mechanism.spend(draws)
            row["after"].append(
                {"epsilon": value, "text": after, "spend": spend.epsilon, "log10_odds": spend.log10_odds}
            )
    central = None if unlinked is None else unlinked_facts.of(made, unlinked)
    if as_json:
        found = {"mechanism": name, "ledgered": False, "taken": taken, "sentences": shown, "unlinked": central}
        terminal.emit(found)
        return
    for row in shown:
        terminal.heading(row["before"])
        if allocation is not None:
            divided.line(row["allocation"])
        terminal.table(
            ("epsilon", "after", "spent", "odds"),
            [(item["epsilon"], item["text"], item["spend"], f"10^{item['log10_odds']:.1f}") for item in row["after"]],
        )
    if allocation is not None:
        terminal.say(f"\n{divided.LEGEND}.")
    if central is not None:
        unlinked_facts.show(central)
    if taken:
        terminal.say(
            "\nParameters taken from this machine: " + ", ".join(f"{key} = {value}" for key, value in taken.items())
        )
    terminal.say("\nEach text is one draw with a key that is thrown away: another preview draws other words.")


def _rows(texts: list[str]) -> tuple[Any, Any]:
    import pyarrow as pa

    return pa.array(texts, pa.large_string()), pa.array([str(row) for row in range(len(texts))])
