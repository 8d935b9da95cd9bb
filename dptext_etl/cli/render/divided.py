"""Show how the epsilon of a public sentence is divided among its words."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dptext_etl.allocation import Allocation

_COLOURS = ("red", "yellow", "green")
LEGEND = "red: least epsilon, best hidden; green: most epsilon, most likely to stay"


def asked(scores: str, total: float) -> dict[str, Any]:
    """Return the parameter `allocation` of a mechanism from `--allocation ic,pos --total E`."""
    return {"scores": [name.strip() for name in scores.split(",") if name.strip()], "total": total}


def facts(allocation: Allocation, text: str) -> dict[str, Any]:
    """Return every word of a text with its scores and its epsilon, and the sum.

    Args:
        allocation: How it is divided.
        text: A public text.
    """
    from dptext_etl import _kernel
    from dptext_etl.guarantee import MICRO

    words = [piece for piece, is_word in _kernel.split(text) if is_word]
    parts = allocation.over(words)
    columns = dict(zip(allocation.scores, (scorer.of(words) for scorer in allocation.scorers), strict=True))
    return {
        "text": text,
        "total": allocation.total,
        "even": allocation.total / max(1, len(words)),
        "sum": sum(parts) / MICRO,
        "words": [
            {
                "word": word,
                "scores": {name: round(float(column[place]), 6) for name, column in columns.items()},
                "epsilon": part / MICRO,
            }
            for place, (word, part) in enumerate(zip(words, parts, strict=True))
        ],
    }


def show(found: Mapping[str, Any]) -> None:
    """Print words, scores and epsilon as a table."""
    from dptext_etl.cli.render import terminal

    terminal.heading(f"A budget of {terminal.number(found['total'])} among the words of {found['text']!r}")
    names = list(found["words"][0]["scores"]) if found["words"] else []
    terminal.table(
        ("word", *names, "epsilon", "evenly"),
        [
            (item["word"], *item["scores"].values(), round(item["epsilon"], 3), round(found["even"], 3))
            for item in found["words"]
        ],
    )
    terminal.say(
        f"They add up to {terminal.number(found['sum'])}, never to more than {terminal.number(found['total'])}."
    )
    terminal.say("A score of 1 asks for the least. What a private text gets is never shown: it tells of the text.")


def line(found: Mapping[str, Any]) -> None:
    """Print the words in colours of their epsilon; in a pipe, with their epsilon."""
    import click

    from dptext_etl.cli.render import terminal

    words = found["words"]
    if not sys.stdout.isatty():
        terminal.say(" ".join(f"{item['word']}[{item['epsilon']:.2f}]" for item in words))
        return
    click.echo(
        " ".join(click.style(item["word"], fg=colour) for item, colour in zip(words, colours(words), strict=True))
    )


def colours(words: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a colour for each word: a third of the words has the least epsilon, a third the most.

    >>> colours([{"epsilon": 3.0}, {"epsilon": 1.0}, {"epsilon": 2.0}])
    ['green', 'red', 'yellow']
    """
    ordered = sorted(item["epsilon"] for item in words)
    return [_COLOURS[len(_COLOURS) * ordered.index(item["epsilon"]) // len(ordered)] for item in words]
