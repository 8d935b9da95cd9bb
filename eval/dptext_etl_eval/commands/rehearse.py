"""Define `dptext rehearse`, which compares mechanisms and epsilons on public texts before a budget is spent."""

from __future__ import annotations

from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

EXAMPLE = "dptext rehearse public.parquet --policy privacy.toml --rows 980"
KEYS = (
    "rows",
    "tested",
    "labels",
    "mean_words",
    "per_person",
    "delta",
    "raw",
    "baselines",
    "figures",
    "forms",
    "answers",
    "verdict",
    "policy",
    "reasons",
    "installs",
)


def rehearse(
    public: Annotated[
        str,
        typer.Argument(metavar="PUBLIC", help="A public table of the same kind of texts, or `everyday`, which ships."),
    ],
    *,
    rows: Annotated[
        int, typer.Option(min=20, help="Number of rows of the private table that count; init and plan print it.")
    ],
    policy: Annotated[
        Path | None,
        typer.Option(
            help="A policy: gives epsilons, rows per person, label, corpus, and delta; its raw table is refused."
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The labels that analysts learn from a text.")
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The text column; by default the policy's, or `text`.")
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="Epsilons per record; by default the policy's, and 1, 2, 4, 8 within its cap.")
    ] = None,
    forms: Annotated[
        str | None, typer.Option(help="Forms, such as surrogate,synthetic; by default all except custext.")
    ] = None,
    per_person: Annotated[int | None, typer.Option(min=1, help="Records of one person; by default 1.")] = None,
    words: Annotated[int | None, typer.Option(min=1, help="Most words of a private text.")] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="CORPUS,...",
            help="The corpus of all forms but custext, and others to compare; by default everyday-30k, and all others "
            "that are installed.",
        ),
    ] = None,
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
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page, too.")] = None,
) -> None:
    """Release a public stand-in of your data in several ways, and say which release to use, at which epsilon.

    Forms are surrogate and custext row by row (local guarantees), shuffled releases of surrogate, a synthetic table,
    and the linear discriminant of its statistic (central guarantees, which trust the curator). At each epsilon, a
    person loses the same in each. A policy gives epsilon, rows per person, label, corpus, and delta; options replace
    them. `dptext init` and `dptext plan` print the call that fits your table.

    Other corpora, vectors, and encoders are compared by the linear discriminant: without --corpus, the installed
    corpora, and the first corpus with the static vectors of the package wordllama, if it is installed. Lines at the end
    name those that an install would add.

    The set `everyday` has the labels topic (60) and kind (5). Each release is compared with baselines that need no
    private text: the random baseline; label names, where each text gets the label whose name has the largest inner
    product with it; public data, a classifier that learned from texts of `everyday-30k`, labeled by these names;
    and what --written, --public, and --zero-shot name. The first line recommends the smallest epsilon at which a
    release beats all of them by more than 0.02, or a baseline. The lines of the policy follow.

    No ledger is opened and no budget is used. A table that a policy names as raw is refused before a row is read. This
    covers the given policy, policies in this folder, and policies next to the table.
    """
    from dptext_etl.cli import terminal
    from dptext_etl.cli.options import load_policy
    from dptext_etl.errors import PolicyError, seam
    from dptext_etl.markup import document
    from dptext_etl_eval import candidates, rehearsal, stand_in
    from dptext_etl_eval.baselines import CORPUS, Asked
    from dptext_etl_eval.forms import DISCRIMINANT, FORMS, USUAL

    try:
        asked = None if epsilon is None else [float(part) for part in epsilon.split(",")]
    except ValueError:
        raise PolicyError("--epsilon is a list of numbers", "for example --epsilon 1,4,8") from None
    chosen = USUAL if forms is None else tuple(forms.split(","))
    if not set(chosen) <= set(FORMS):
        raise PolicyError("--forms names one that is not swept", f"allowed: {', '.join(FORMS)}")
    for table in filter(None, (public, labeled, written)):
        stand_in.refuse_raw(table, [] if policy is None else [policy])
    terms = rehearsal.Terms() if policy is None else rehearsal.Terms.of(load_policy(policy))
    label, text = label or terms.label, text or terms.text or "text"
    if label is None:
        hint = "give --label COLUMN, a column of the public table"
        raise PolicyError("no column of labels is named, and figures are about labels", hint)
    if stand_in.ships(public):
        terminal.note(stand_in.UPPER_END)
        text = "text"
    values = terms.values if label == terms.label else ()
    first, others = candidates.listed(corpus or terms.corpus or CORPUS)
    rows_read = stand_in.read(public, text=text, label=label, rows=rows, words=words, corpus=first, values=values)
    given = Asked(labeled, written, zero_shot, about, terminal.note).read(text, label)
    with TemporaryDirectory() as room:
        if corpus is None and DISCRIMINANT in chosen:
            others = candidates.installed(first, Path(room), terminal.note)
        facts = rehearsal.rehearse(
            rows_read,
            asked or terms.epsilons,
            forms=chosen,
            per_person=per_person or terms.per_person,
            delta=terms.delta,
            given=given,
            others=others,
            progress=terminal.note,
        )
        facts["installs"] = candidates.installs(first, others) if DISCRIMINANT in chosen else []
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
    cells = _cells(facts)
    if html is not None:
        lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
        top = "".join(f"<th>{head}</th>" for head in heads)
        body = "".join(f"<p>{escape(line)}</p>" for line in (facts["verdict"], *facts["policy"], *facts["reasons"]))
        body += f'<div class="scroll"><table><tr>{top}</tr>{lines}</table></div>'
        body += "".join(f"<p>{escape(line)}</p>" for line in _sentences(facts))
        with seam("writing the page", PolicyError, "give a file that can be written: --html FILE"):
            html.write_text(document("Rehearsal on public texts", body), "utf-8")
    if terminal.emitted(facts):
        return
    terminal.say(facts["verdict"])
    for line in (*facts["policy"], *facts["reasons"]):
        terminal.say(f"  {line}" if line in facts["policy"] else line)
    terminal.say("")
    terminal.table(heads, cells)
    terminal.say("")
    for line in _sentences(facts):
        terminal.say(line)


def _sentences(facts: dict[str, Any]) -> list[str]:
    """Return the lines below the table: each form, and the results at each epsilon."""
    return [*(f"{form}, {what}." for form, what in facts["forms"].items()), *facts["answers"], *facts["installs"]]


def _cells(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    from dptext_etl.runner.shard.charging import at_most

    cells = [
        (
            f"{figure['form']} over {figure['corpus']}" if figure["corpus"] else figure["form"],
            figure["model"],
            f"{figure['epsilon']:.2f}",
            at_most(figure["person"], 4),
            at_most(figure["delta"], 2),
            f"10^{at_most(figure['log10_odds'], 3)}",
            f"{figure['macro_f1']:.3f}",
            ", ".join(figure["discloses"]),
        )
        for figure in facts["figures"]
    ]
    free = [(name, "", "0", "0", "0", "1", f"{value:.3f}", "") for name, value in facts["baselines"].items()]
    raw = ("raw texts", "none", *["no bound"] * 4, f"{facts['raw']:.3f}", "everything")
    return [*cells, *free, raw]
