"""Show how the epsilon of a public sentence is divided among its words."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dptext_etl.allocation import Allocation, Place
    from dptext_etl.mechanism import Mechanism

_COLOURS = ("red", "yellow", "green")
LEGEND = "red: least epsilon, best hidden; green: most epsilon, most likely to stay"


def asked(written: str, epsilon: float, first: float | None = None) -> dict[str, Any]:
    """Return the parameter `allocation` of a mechanism from `--allocation` and the epsilon of a whole text."""
    from dptext_etl.errors import PolicyError
    from dptext_etl.guarantee import exact

    names = [name.strip() for name in written.split(",") if name.strip()]
    given: dict[str, Any] = {"scores": names}
    if names == ["uniform"]:
        given = {"template": "uniform"}
    elif names and all(_is_number(name) for name in names):
        given = {"template": [float(name) for name in names]}
    if first is None:
        return {**given, "total": epsilon}
    if first >= epsilon:
        raise PolicyError("the first release leaves nothing for the second", f"give --first below {epsilon:g}")
    return {**given, "first": first, "total": float(exact(epsilon) - exact(first))}


def facts(mechanism: Mechanism, text: str) -> dict[str, Any] | None:
    """Return every word of a text, or sentence where these are what is drawn, with its scores and its epsilon."""
    from dptext_etl.guarantee import MICRO

    allocation = mechanism.allocation
    if allocation is None:
        return None
    units, marks = mechanism.units(text)
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
    """Put draws together that stand one after another for the same word."""
    found: list[list[int]] = []
    for at, place in enumerate(places):
        if at and place is not None and place == places[at - 1]:
            found[-1].append(at)
        else:
            found.append([at])
    return found


def _chances(allocation: Allocation, wanted: Sequence[int], offered: Sequence[Sequence[int]]) -> list[float]:
    """Return the probability of each template for a text that asks for `wanted`."""
    import numpy as np

    from dptext_etl import scoring
    from dptext_etl.allocation import fit

    if not wanted:
        return [1 / len(offered)] * len(offered)
    weights = scoring.weights(np.array([fit(wanted, offered)]), allocation.choosing or 0.0, 0.0, 1.0)[0]
    return [int(weight) / sum(map(int, weights)) for weight in weights]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def show(found: Mapping[str, Any]) -> None:
    """Print words or sentences, their scores and their epsilon as a table, and what divides the budget."""
    from dptext_etl.cli.render import terminal

    terminal.heading(f"A budget of {terminal.number(found['total'])} among the parts of {found['text']!r}")
    names = list(found["words"][0]["scores"]) if found["words"] else []
    for item in found["templates"]:
        terminal.say(f"Template {_shares(item['shares'])} is drawn with probability {item['chance']:.3f}.")
    terminal.table(
        ("part", *names, "epsilon", "evenly"),
        [
            (item["word"], *item["scores"].values(), round(item["epsilon"], 3), round(found["even"], 3))
            for item in found["words"]
        ],
    )
    terminal.say(
        f"They add up to {terminal.number(found['sum'])}, never to more than {terminal.number(found['total'])}."
    )
    terminal.say(_MEANINGS[found["divided_by"]].format(**found))


_MEANINGS = {
    "text": "A score of 1 asks for the least. What a private text gets is never shown: it depends on the text.",
    "first": "This is what the second release takes if the first one gives back these words. The first takes"
    " {first_each:.6g} for each part, {beside:.6g} in all; what it released is scored. Only the second is published.",
    "template": "A template says what each position gets, whatever the text: it may be known to anybody.",
    "chosen": "Shown is the likeliest template for this text. The draw of a template costs {beside:.6g} in addition.",
}


def _shares(shares: Sequence[float]) -> str:
    return ", ".join(f"{share:g}" for share in shares)


def line(found: Mapping[str, Any]) -> None:
    """Print the words in colors of their epsilon; in a pipe, with their epsilon."""
    import click

    from dptext_etl.cli.render import terminal

    words = found["words"]
    if not sys.stdout.isatty():
        terminal.say(" ".join(f"{item['word']}[{item['epsilon']:.2f}]" for item in words))
        return
    click.echo(
        " ".join(click.style(item["word"], fg=colour) for item, colour in zip(words, colors(words), strict=True))
    )


def colors(words: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a color for each word: a third of the words has the least epsilon, a third the most.

    >>> colors([{"epsilon": 3.0}, {"epsilon": 1.0}, {"epsilon": 2.0}])
    ['green', 'red', 'yellow']
    """
    ordered = sorted(item["epsilon"] for item in words)
    return [_COLOURS[len(_COLOURS) * ordered.index(item["epsilon"]) // len(ordered)] for item in words]
