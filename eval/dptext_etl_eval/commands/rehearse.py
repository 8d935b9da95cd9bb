"""Define `dptext rehearse`, which compares mechanisms and epsilons on public texts before a budget is spent."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Annotated, Any

import typer

from dptext_etl.cli.options import Json

EXAMPLE = "dptext rehearse public.parquet --label topic --rows 10000 --epsilon 1,4,8"
KEYS = (
    "rows",
    "tested",
    "labels",
    "mean_words",
    "per_person",
    "raw",
    "baselines",
    "figures",
    "recommendation",
)


def rehearse(
    public: Annotated[
        str,
        typer.Argument(metavar="PUBLIC", help="A public table of the same kind of texts, or `everyday`, which ships."),
    ],
    *,
    label: Annotated[str, typer.Option(metavar="COLUMN", help="What analysts learn from a text.")],
    rows: Annotated[int, typer.Option(min=20, help="Number of rows of the private table.")],
    text: Annotated[str, typer.Option(metavar="COLUMN", help="The text column.")] = "text",
    epsilon: Annotated[str, typer.Option(help="Epsilons per text.")] = "1,4,8",
    mechanisms: Annotated[str | None, typer.Option(help="Mechanisms, such as surrogate,custext; default all.")] = None,
    per_person: Annotated[int, typer.Option(min=1, help="Records of one person.")] = 1,
    words: Annotated[int | None, typer.Option(min=1, help="Most words of a private text.")] = None,
    policy: Annotated[list[Path] | None, typer.Option(help="A policy whose raw table is refused; repeat.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page, too.")] = None,
    as_json: Json = False,
) -> None:
    """Release a public stand-in of your data in several ways, and say what a learner gets from each.

    The set `everyday` has the labels topic (60) and kind (5). Each release is compared with guesses that need no
    private text: no texts at all; label names alone, where each text gets the label whose name has the largest inner
    product with it; and public data alone, a classifier that learned from texts of `everyday-30k`, labeled by these
    names.

    No ledger is opened and no budget is spent. A table that a policy names as raw is refused before a row is read:
    those given, those in this folder, and those next to the table.
    """
    from dptext_etl.cli.render import terminal
    from dptext_etl.errors import PolicyError, seam
    from dptext_etl.html_page import document
    from dptext_etl_eval import rehearsal, stand_in

    try:
        budgets = [float(part) for part in epsilon.split(",")]
    except ValueError:
        raise PolicyError("--epsilon is a list of numbers", "for example --epsilon 1,4,8") from None
    forms = tuple(rehearsal.FORMS) if mechanisms is None else tuple(mechanisms.split(","))
    if not set(forms) <= set(rehearsal.FORMS):
        raise PolicyError("--mechanisms names one that is not swept", f"allowed: {', '.join(rehearsal.FORMS)}")
    stand_in.refuse_raw(public, policy or [])
    if stand_in.ships(public):
        terminal.note(stand_in.UPPER_END)
    found = stand_in.read(public, text=text, label=label, rows=rows, words=words)
    facts = rehearsal.rehearse(found, budgets, forms=forms, per_person=per_person, progress=terminal.note)
    heads = ("release", "mean epsilon per text", "most per person", "odds", "macro-F1", "also reveals exactly")
    cells = _cells(facts)
    if html is not None:
        lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
        top = "".join(f"<th>{head}</th>" for head in heads)
        body = f'<div class="scroll"><table><tr>{top}</tr>{lines}</table></div><p>{escape(facts["recommendation"])}</p>'
        with seam("writing the page", PolicyError, "give a file that can be written: --html FILE"):
            html.write_text(document("Rehearsal on public texts", body), "utf-8")
    if as_json:
        terminal.emit(facts)
        return
    terminal.table(heads, cells)
    terminal.say(f"\n{facts['recommendation']}")


def _cells(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    from dptext_etl.runner.statement.sections import at_most

    made = [
        (
            one["form"],
            f"{one['epsilon']:.2f}",
            at_most(one["person"], 4),
            f"10^{at_most(one['log10_odds'], 3)}",
            f"{one['macro_f1']:.3f}",
            ", ".join(one["discloses"]),
        )
        for one in facts["figures"]
    ]
    free = [(name, "0", "0", "1", f"{value:.3f}", "") for name, value in facts["baselines"].items()]
    return [*made, *free, ("raw texts", "no bound", "no bound", "no bound", f"{facts['raw']:.3f}", "everything")]
