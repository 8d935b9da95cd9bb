"""Define `dptext preview`, which shows public sentences before and after a mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl.cli import budgets, startup, terminal
from dptext_etl.cli.commands.run import compute_on
from dptext_etl.cli.options import (
    AllocationScores,
    Command,
    Device,
    Dtype,
    FirstRelease,
    Json,
    MechanismName,
    Parameters,
    UnlinkedRows,
    epilog,
    parse_parameters,
)

if TYPE_CHECKING:
    from dptext_etl.mechanism import Mechanism

app = typer.Typer()
KEYS = ("mechanism", "ledgered", "taken", "sentences", "unlinked")
SENTENCES = (
    "The room was clean and the staff were friendly, but the breakfast was cold.",
    "I ordered a blue jacket in March and it arrived two weeks late.",
    "My daughter loved the film; the ending made us all cry.",
    "Please call me on 555-0134, the doctor changed my medicine again.",
)


@app.command(cls=Command, epilog=epilog("dptext preview custext --epsilon 1 --epsilon 4", KEYS))
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
    of real texts would spend their budget without a record. To try your own data, run `dptext init`. A mechanism
    with a language model takes one that is on this machine, or says how to get one; a preview downloads nothing. With
    --allocation an epsilon is that of a whole text, and colors show which words get how much of it.
    """
    startup.skip_pandas()
    import pyarrow as pa

    from dptext_etl import catalog, column, keys

    compute_on(device, dtype)
    kind = catalog.load(name)
    given = parse_parameters(kind, name, parameter)
    if "epsilon" in given and not epsilon:
        epsilon = [given["epsilon"]]
    taken = kind.first_look(given)
    texts = list(public_text or SENTENCES)
    shown: list[dict[str, Any]] = [{"before": text, "after": []} for text in texts]
    mechanisms: list[Mechanism] = []
    for value in epsilon or kind.shown_epsilons:
        budget: dict[str, Any] = {"epsilon": value}
        if allocation is not None:
            budget = {"allocation": budgets.allocation_of(allocation, value, first)}
        mechanism = catalog.build({"name": name, **taken, **given, **budget})
        if not mechanisms:
            if mechanism.allocation is not None:
                shown = [{**row, "allocation": budgets.division(mechanism, row["before"])} for row in shown]
            column.probe(mechanism)
        mechanisms.append(mechanism)
        ids = pa.array([str(row) for row in range(len(texts))])
        released = column.draw(mechanism, pa.array(texts, pa.large_string()), ids, keys.throwaway(mechanism.cfg()))
        for row, after, draws in zip(shown, released.text.to_pylist(), released.positions.to_pylist(), strict=True):
            spend = mechanism.spend(draws)
            row["after"].append(
                {"epsilon": value, "text": after, "spend": spend.epsilon, "log10_odds": spend.log10_odds}
            )
    central = None if unlinked is None else budgets.unlinked_costs(mechanisms, unlinked)
    if as_json:
        facts = {"mechanism": name, "ledgered": False, "taken": taken, "sentences": shown, "unlinked": central}
        terminal.emit(facts)
        return
    for row in shown:
        terminal.heading(row["before"])
        if allocation is not None:
            budgets.show_colored(row["allocation"]["words"])
        terminal.table(
            ("epsilon", "after", "spent", "odds"),
            [(item["epsilon"], item["text"], item["spend"], f"10^{item['log10_odds']}") for item in row["after"]],
        )
    if allocation is not None:
        terminal.say(f"\n{budgets.LEGEND}.")
    if central is not None:
        budgets.show_unlinked(central)
    if taken:
        terminal.say(
            "\nParameters taken from this machine: " + ", ".join(f"{key} = {value}" for key, value in taken.items())
        )
    terminal.say("\nEach text is one draw with a key that is thrown away: another preview draws other words.")
