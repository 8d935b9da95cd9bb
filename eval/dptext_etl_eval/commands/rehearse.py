"""Define `dptext rehearse`, which compares mechanisms and epsilons on public texts before a budget is spent."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Annotated, Any

import typer

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
    "forms",
    "answers",
    "recommendation",
)


def rehearse(
    public: Annotated[
        str,
        typer.Argument(metavar="PUBLIC", help="A public table of the same kind of texts, or `everyday`, which ships."),
    ],
    *,
    label: Annotated[str, typer.Option(metavar="COLUMN", help="The labels that analysts learn from a text.")],
    rows: Annotated[int, typer.Option(min=20, help="Number of rows of the private table.")],
    text: Annotated[str, typer.Option(metavar="COLUMN", help="The text column.")] = "text",
    epsilon: Annotated[str, typer.Option(help="Epsilons per record.")] = "1,4,8",
    forms: Annotated[str | None, typer.Option(help="Forms, such as surrogate,synthetic; default all.")] = None,
    per_person: Annotated[int, typer.Option(min=1, help="Records of one person.")] = 1,
    words: Annotated[int | None, typer.Option(min=1, help="Most words of a private text.")] = None,
    corpus: Annotated[
        str, typer.Option(metavar="CORPUS", help="The corpus of all forms but custext: a folder, or a name.")
    ] = "everyday-30k",
    labeled: Annotated[
        str | None,
        typer.Option("--public", metavar="TABLE", help="Other public labeled texts, to compare with; same columns."),
    ] = None,
    written: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Texts that `dptext corpus write` wrote for the labels, to compare with."),
    ] = None,
    zero_shot: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A causal model that chooses labels by their names, to compare with."),
    ] = None,
    about: Annotated[
        str, typer.Option(metavar="WORDS", help="With --zero-shot: a public sentence about the texts.")
    ] = "texts",
    policy: Annotated[list[Path] | None, typer.Option(help="A policy whose raw table is refused; repeat.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page, too.")] = None,
) -> None:
    """Release a public stand-in of your data in several ways, and report how much a learner gets from each.

    Forms are surrogate and custext row by row (local guarantees), shuffled releases of surrogate, one per label, a
    synthetic table, and the nearest-mean classifier of its statistic (central guarantees, which trust the curator). At
    each epsilon, a person loses the same in each.

    The set `everyday` has the labels topic (60) and kind (5). Each release is compared with guesses that need no
    private text: no texts at all; label names alone, where each text gets the label whose name has the largest inner
    product with it; public data alone, a classifier that learned from texts of `everyday-30k`, labeled by these names;
    and what --written, --public, and --zero-shot name. If one of them is as good, the last line says that you should
    publish nothing.

    No ledger is opened and no budget is spent. A table that a policy names as raw is refused before a row is read:
    those given, those in this folder, and those next to the table.
    """
    from dptext_etl.cli import terminal
    from dptext_etl.errors import PolicyError, seam
    from dptext_etl.html_output import document
    from dptext_etl_eval import rehearsal, stand_in
    from dptext_etl_eval.baselines import Asked
    from dptext_etl_eval.forms import FORMS

    try:
        budgets = [float(part) for part in epsilon.split(",")]
    except ValueError:
        raise PolicyError("--epsilon is a list of numbers", "for example --epsilon 1,4,8") from None
    chosen = tuple(FORMS) if forms is None else tuple(forms.split(","))
    if not set(chosen) <= set(FORMS):
        raise PolicyError("--forms names one that is not swept", f"allowed: {', '.join(FORMS)}")
    for table in filter(None, (public, labeled, written)):
        stand_in.refuse_raw(table, policy or [])
    if stand_in.ships(public):
        terminal.note(stand_in.UPPER_END)
    rows_read = stand_in.read(public, text=text, label=label, rows=rows, words=words, corpus=corpus)
    given = Asked(labeled, written, zero_shot, about).read(text, label)
    facts = rehearsal.rehearse(
        rows_read, budgets, forms=chosen, per_person=per_person, given=given, progress=terminal.note
    )
    heads = (
        "release",
        "guarantee",
        "mean epsilon per record",
        "most per person",
        "delta",
        "odds",
        "macro-F1",
        "reveals",
    )
    cells, sentences = _cells(facts), _sentences(facts)
    if html is not None:
        lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
        top = "".join(f"<th>{head}</th>" for head in heads)
        body = f'<div class="scroll"><table><tr>{top}</tr>{lines}</table></div>'
        body += "".join(f"<p>{escape(line)}</p>" for line in sentences)
        with seam("writing the page", PolicyError, "give a file that can be written: --html FILE"):
            html.write_text(document("Rehearsal on public texts", body), "utf-8")
    if terminal.emitted(facts):
        return
    terminal.table(heads, cells)
    terminal.say("")
    for line in sentences:
        terminal.say(line)


def _sentences(facts: dict[str, Any]) -> list[str]:
    """Return the lines below the table: each form, its result, and the next step."""
    return [*(f"{form}, {what}." for form, what in facts["forms"].items()), *facts["answers"], facts["recommendation"]]


def _cells(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    from dptext_etl.runner.shard.charging import at_most

    made = [
        (
            one["form"],
            one["model"],
            f"{one['epsilon']:.2f}",
            at_most(one["person"], 4),
            at_most(one["delta"], 2),
            f"10^{at_most(one['log10_odds'], 3)}",
            f"{one['macro_f1']:.3f}",
            ", ".join(one["discloses"]),
        )
        for one in facts["figures"]
    ]
    free = [(name, "", "0", "0", "0", "1", f"{value:.3f}", "") for name, value in facts["baselines"].items()]
    raw = ("raw texts", "none", *["no bound"] * 4, f"{facts['raw']:.3f}", "everything")
    return [*made, *free, raw]
