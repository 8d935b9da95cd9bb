"""Define `dptext preview`, which shows public sentences before and after a mechanism, and how budgets divide."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
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
    ShuffledRows,
    command,
    parse_parameters,
    skip_pandas,
)
from dptext_etl.errors import PolicyError

if TYPE_CHECKING:
    from dptext_etl.allocation import Allocation, Place
    from dptext_etl.mechanism import Mechanism


LEGEND = "red: least epsilon, best hidden; green: most epsilon, most likely to stay"


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
    from dptext_etl.guarantee import MICRO

    allocation = mechanism.allocation
    if allocation is None:
        return None
    units, marks = mechanism.text_units(text)
    offered = [
        allocation.by_position(shares, len(units), draws=marks.most)
        for shares in allocation.templates or filter(None, [allocation.template])
    ]
    scored = bool(allocation.scores)
    wanted = allocation.over(marks.tokens, marks.places, draws=marks.most) if scored else offered[0]
    chances = _chances(allocation, wanted, offered) if allocation.templates else []
    parts = offered[chances.index(max(chances))] if chances else wanted
    columns = allocation.scored(marks.tokens, marks.places) if scored else {}
    return {
        "text": text,
        "total": allocation.total,
        "even": allocation.total / max(1, len(_together(marks.places))),
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
            for at in _together(marks.places)
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


def _chances(allocation: Allocation, wanted: Sequence[int], offered: Sequence[Sequence[int]]) -> list[float]:
    """Return the probability of each template for a text that asks for `wanted`."""
    import numpy as np

    from dptext_etl import sampling
    from dptext_etl.allocation import fit

    if not wanted:
        return [1 / len(offered)] * len(offered)
    weights = sampling.weights(np.array([fit(wanted, offered)]), allocation.choosing or 0.0, 0.0, 1.0)[0]
    return [int(weight) / sum(map(int, weights)) for weight in weights]


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


def show_colored(words: Sequence[Mapping[str, Any]]) -> None:
    """Print the words in colors of their epsilon; in a pipe, with their epsilon."""
    if sys.stdout.isatty():
        pairs = zip(words, colors(words), strict=True)
        terminal.say(" ".join(typer.style(item["word"], fg=color) for item, color in pairs))
    else:
        terminal.say(" ".join(f"{item['word']}[{item['epsilon']:.2f}]" for item in words))


def colors(words: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a color for each word: a third of the words has the least epsilon, a third the most.

    >>> colors([{"epsilon": 3.0}, {"epsilon": 1.0}, {"epsilon": 2.0}])
    ['green', 'red', 'yellow']
    """
    ordered = sorted(item["epsilon"] for item in words)
    return [("red", "yellow", "green")[3 * ordered.index(item["epsilon"]) // len(ordered)] for item in words]


_DELTA = 1e-8
_ROWS = (1_000, 10_000, 100_000, 1_000_000)


def shuffled_costs(mechanisms: Iterable[Mechanism], rows: int) -> list[dict[str, Any]]:
    """Return the central epsilon of each mechanism over `rows` rows and the usual numbers of rows."""
    from dptext_etl.families.choice import ChoiceMechanism, Shuffled

    costs = []
    for mechanism in mechanisms:
        if not isinstance(mechanism, ChoiceMechanism):
            msg = f"{mechanism.name} is released row by row: only surrogate has a bound for shuffled releases"
            raise PolicyError(msg, "`dptext explain surrogate --shuffled 10000`")
        for count in sorted({*_ROWS, rows}):
            central = Shuffled(rows=count, delta=_DELTA).epsilon(mechanism.law)
            local = {"epsilon": mechanism.epsilon, "rows": count, "delta": _DELTA}
            costs.append({**local, "central_epsilon": float(central)})
    return costs


def show_shuffled(costs: Sequence[dict[str, Any]]) -> None:
    from dptext_etl.runner.shard.charging import at_most

    counts = sorted({item["rows"] for item in costs})
    central = {(item["epsilon"], item["rows"]): at_most(item["central_epsilon"]) for item in costs}
    epsilons = dict.fromkeys(item["epsilon"] for item in costs)
    terminal.heading(f"Published shuffled, without ids and order: epsilon of a record at delta = {_DELTA:g}")
    terminal.table(
        ("epsilon of a draw", *(f"{count:,} rows" for count in counts)),
        [(epsilon, *(central[epsilon, count] for count in counts)) for epsilon in epsilons],
    )
    terminal.say("The bound relies on you: drafts, key, and ledger stay inside your boundary.")


app = typer.Typer()
KEYS = ("mechanism", "ledgered", "taken", "sentences", "shuffled")
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
    shuffled: ShuffledRows = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Show the effect of a mechanism on public sentences at several epsilons, without policy, key or file.

    A preview draws with a key that is thrown away, and charges no ledger. So it accepts no table and no policy:
    previews of real texts would spend their budget without a record. To try your own data, run `dptext init`. A
    mechanism with a language model uses a model on this machine, or says how to get one; a preview downloads nothing.
    With --allocation an epsilon is for a whole text, and colors show how much of it each word gets.
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
    mechanisms: list[Mechanism] = []
    for value in epsilon or kind.preview_epsilons:
        budget: dict[str, Any] = {"epsilon": value}
        if allocation is not None:
            budget = {"allocation": allocation_of(allocation, value, first)}
        mechanism = catalog.build({"name": name, **taken, **parameters, **budget})
        if not mechanisms:
            if mechanism.allocation is not None:
                sentences = [{**row, "allocation": division(mechanism, row["before"])} for row in sentences]
            column.probe(mechanism)
        mechanisms.append(mechanism)
        ids = pa.array([str(row) for row in range(len(texts))])
        released = column.draw(mechanism, pa.array(texts, pa.large_string()), ids, keys.throwaway(mechanism.cfg()))
        for row, after, draws in zip(sentences, released.text.to_pylist(), released.positions.to_pylist(), strict=True):
            spend = mechanism.spend(draws)
            cost = {"spend": spend.epsilon, "log10_odds": spend.log10_odds}
            row["after"].append({"epsilon": value, "text": after, **cost})
    central = None if shuffled is None else shuffled_costs(mechanisms, shuffled)
    facts = {"mechanism": name, "ledgered": False, "taken": taken, "sentences": sentences, "shuffled": central}
    if terminal.emitted(facts):
        return
    for row in sentences:
        terminal.heading(row["before"])
        if allocation is not None:
            show_colored(row["allocation"]["words"])
        terminal.table(
            ("epsilon", "after", "spent", "odds"),
            [(item["epsilon"], item["text"], item["spend"], f"10^{item['log10_odds']}") for item in row["after"]],
        )
    if allocation is not None:
        terminal.say(f"\n{LEGEND}.")
    if central is not None:
        show_shuffled(central)
    if taken:
        chosen = ", ".join(f"{key} = {value}" for key, value in taken.items())
        terminal.say(f"\nYou did not set these parameters, so the command chose: {chosen}")
    terminal.say("\nEach text is one draw with a key that is thrown away: another preview draws other words.")
