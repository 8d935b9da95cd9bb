"""Define `dptext evaluate`, which measures the use that a release keeps and an attacker's gain from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl.cli.options import Partition, load_policy, refuse_settings

if TYPE_CHECKING:
    from dptext_etl_eval import Pairs
    from dptext_etl_eval.baselines import Asked

EXAMPLE = "dptext evaluate raw.parquet released.parquet --id id --text review --label stars --out report"
KEYS = ("columns",)


def evaluate(
    raw: Annotated[str, typer.Argument(metavar="RAW|POLICY", help="The raw table; or a policy, whose source it is.")],
    released: Annotated[
        str | None,
        typer.Argument(metavar="RELEASED", help="The released table or published folder; a policy's is its sink."),
    ] = None,
    *,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="What analysts learn from a text, such as stars.")
    ] = None,
    attribute: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Fact that an attacker learns about a person, such as gender.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The person behind a row; a policy names it.")
    ] = None,
    id: Annotated[  # noqa: A002
        str | None, typer.Option(metavar="COLUMN", help="The record ids, in both tables; a policy names them.")
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The text column; a policy names its columns.")
    ] = None,
    released_text: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The text column of the released table, if named otherwise.")
    ] = None,
    rows: Annotated[
        int, typer.Option(min=20, help="Test on a sample of that many rows; classifiers learn from all.")
    ] = 2_000,
    public: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Public texts with labels, to compare with; columns as in the raw table."),
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
    tested: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Test a synthetic table on raw rows of this table, which were not summed."),
    ] = None,
    partition: Partition = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for evidence.html and evidence.json, inside the boundary.")
    ] = Path("evidence"),
    show_texts: Annotated[
        bool, typer.Option("--show-texts", help="Show rows that keep most of their words, raw texts included.")
    ] = False,
    models: Annotated[
        bool, typer.Option("--models", help="Run measures with our small models, too: minutes (extra: models).")
    ] = False,
    classifier: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Fine-tune this model on labels and attributes: a folder, or a hub's name."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="With --classifier or --models: passes over the texts in fine-tuning.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=1e-9, help="With --classifier or --models: learning rate of fine-tuning.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Sentence encoder for nearness of meaning and the search for releases."),
    ] = None,
    masked_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Masked language model that infers words.")
    ] = None,
    perplexity_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Causal language model whose perplexity is measured.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Learn from rows that say train here, and test on test.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Repeat random steps this number of times: means and standard deviations.")
    ] = 1,
    text_pair: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The second text of a row, in both tables, if the label is about two."),
    ] = None,
) -> None:
    """Measure a release against its raw table: usefulness, attacks, words that stay, personal data, cost.

    The columns of labels, attributes and subjects are in the raw table. All figures are exact statistics of raw
    texts: the report stays inside the boundary, and no figure decides about a publication. A measure without the column
    that it needs is excluded, and the report says so. Labels that are numbers, some not whole, are regressed on.

    Next to the figures of labels are guesses that need no private text: label names, public data, and what --written,
    --public, and --zero-shot name. The first line says what to use the release for, and what not to use it for. It says
    that you should not publish if the release does not beat all of them by more than 0.02.

    Of the synthetic table of a policy, a classifier of its labels is measured, next to the linear discriminant of its
    statistic, raw texts, and the same guesses. Of a shuffled release, shares of labels (--label)
    are measured. No row of either belongs to a record, so attacks that compare rows are refused, by name.

    A policy with publish = false has its staged run measured, without canary rows. A sink that holds another release or
    configuration than the policy's is refused.

    Exits with 5 if the tables do not fit together, whatever the figures say.
    """
    from dptext_etl.cli import terminal
    from dptext_etl.errors import PolicyError
    from dptext_etl_eval import evaluate as measure
    from dptext_etl_eval import report, stand_in
    from dptext_etl_eval.baselines import Asked
    from dptext_etl_eval.evaluators import Evaluators
    from dptext_etl_eval.fine_tuning import require_training
    from dptext_etl_eval.measure import require_libraries
    from dptext_etl_eval.published import evidence_of
    from dptext_etl_eval.verdict import verdict

    require_libraries()
    evaluators = Evaluators(classifier, encoder, masked_model, perplexity_model, epochs, rate)
    if (epochs is not None or rate is not None) and not (models or classifier is not None):
        raise PolicyError(
            "--epochs and --rate set the fine-tuning of a model, and no model is fine-tuned",
            "add --models, or name --classifier",
        )
    if models or classifier is not None:
        require_training()
    evaluators.require()
    given: dict[str, Any] = {
        "label": label,
        "attribute": attribute,
        "subject": subject,
        "rows": rows,
        "show_texts": show_texts,
        "models": models,
        "evaluators": evaluators,
        "split": split,
        "text_pair": text_pair,
    }
    for table in filter(None, (public, written)):  # a guess from private texts is not a guess without a release
        stand_in.refuse_raw(table, [Path(raw)] if raw.endswith(".toml") else [])
        if Path(table).resolve() == Path(raw).resolve():
            raise PolicyError("--public or --written names the raw table", "name a table of public texts")
    free_guesses = Asked(public, written, zero_shot, about, terminal.note)
    progress = None if terminal.as_json() else _say
    if raw.endswith(".toml"):
        given |= {
            "released": released,
            "partition": partition,
            "free_guesses": free_guesses,
            "tested": tested,
            "seeds": seeds,
        }
        measured = list(evidence_of(load_policy(raw), out, progress=progress, **given))
    else:
        refuse_settings("this is a table")
        more = {**given, "released_text": released_text}
        if tested is not None:
            raise PolicyError("--tested is for the synthetic table of a policy", "leave it out")
        name, pairs, cost = _of_tables(raw, released, id, text, free_guesses, out=out, given=more)
        measured = [measure(pairs, column=name, cost=cost, progress=progress, seeds=seeds)]
    page, facts = report.write(measured, out)
    if terminal.emitted({"columns": [{"verdict": verdict(item), **item.as_dict()} for item in measured]}):
        return
    for item in measured:
        _show(item)
    terminal.say(f"\n{page} has the whole report, {facts} the same as JSON. Both stay inside the boundary.")


def _of_tables(
    raw: str,
    released: str | None,
    key: str | None,
    text: str | None,
    free_guesses: Asked,
    *,
    out: Path,
    given: Mapping[str, Any],
) -> tuple[str, Pairs, dict[str, Any]]:
    from dptext_etl.errors import InputError
    from dptext_etl.runner.source.table import Files
    from dptext_etl_eval import join
    from dptext_etl_eval.published import claimed
    from dptext_etl_eval.report import refuse_published

    missing = [name for name, value in (("RELEASED", released), ("--id", key), ("--text", text)) if value is None]
    if released is None or key is None or text is None:
        raise InputError(f"missing next to a raw table: {', '.join(missing)}", f"write, for example, `{EXAMPLE}`")
    refuse_published(out, released)
    frame, claims = claimed(released)
    cost = claims.get(given["released_text"] or text, {})
    pairs = join(Files.at(raw).scan(all_text=True), frame, id=key, text=text, **given)
    return text, replace(pairs, free=free_guesses.read(text, given["label"])), cost


def _say(number: int, of: int, title: str, left: float | None) -> None:
    from dptext_etl.cli import terminal

    terminal.note(f"{number} of {of}: {title}" + ("" if left is None else f"; about {left:.0f} s are left"))


def _show(evidence: Any) -> None:
    from dptext_etl.cli import terminal
    from dptext_etl_eval.measure import WAYS
    from dptext_etl_eval.report import in_short
    from dptext_etl_eval.verdict import verdict

    terminal.heading(f"{evidence.column}: {evidence.rows:,} of {evidence.of:,} rows")
    terminal.say(verdict(evidence))
    for line in in_short(evidence):
        terminal.say(f"* {line}")
    for title, needs in evidence.excluded.items():
        terminal.say(f"excluded: {title} ({'; '.join(WAYS[need] for need in needs)})")
