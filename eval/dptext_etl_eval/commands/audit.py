"""Define `dptext audit`, which tests the claims of mechanisms per word on their integers and on their releases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dptext_etl.cli.options import load_policy

EXAMPLE = "dptext audit privacy.toml --draws 1000000"
KEYS = ("dataset", "draws", "confidence", "refuted", "columns")


def audit(
    policy: Annotated[
        list[Path], typer.Argument(metavar="POLICY", help="The policy file; several are audited and compared.")
    ],
    *,
    draws: Annotated[int, typer.Option(min=1_000, help="Number of records to release per input and trial.")] = 100_000,
    confidence: Annotated[float, typer.Option(help="Joint confidence of all lower bounds of a column.")] = 0.95,
) -> None:
    """Compute the real epsilon of every column's mechanism, and try to refute the epsilon that it claims.

    The computation is exact if the mechanism has a table. The trials release public words under their own keys: they
    read no text and charge nothing. Several policies end with a table of all their mechanisms, per unit: the
    claim, the realized epsilon, and the bound from the trials. Then the only key of --json is `policies`.

    Exits with 4 if a claim is refuted.
    """
    import dptext_etl_eval as evaluation
    from dptext_etl.cli import terminal
    from dptext_etl.errors import GateError

    audited, refuted = list[dict[str, Any]](), list[str]()
    for path in policy:
        loaded = load_policy(path)
        audits = evaluation.audit(loaded, draws=draws, confidence=confidence, progress=terminal.note)
        columns = [item.as_dict() for item in audits]
        failed = [item.column for item in audits if item.refuted]
        facts = {"dataset": loaded.dataset, "draws": draws, "confidence": confidence, "refuted": bool(failed)}
        audited.append({**facts, "columns": columns})
        refuted += failed
        if not terminal.as_json():
            for item in columns:
                _show(item, confidence)
    if not terminal.emitted(audited[0] if len(policy) == 1 else {"policies": audited}) and len(policy) > 1:
        _compare(item for report in audited for item in report["columns"])
    if refuted:
        msg = f"a claim is refuted, of column {', '.join(repr(name) for name in refuted)}"
        raise GateError(msg, "do not publish; the mechanism or its stored table does not keep its claim")


def _compare(columns: Iterable[Mapping[str, Any]]) -> None:
    """Print one row per column: the claim, the epsilon of its table, and the largest lower bound of its trials."""
    from dptext_etl.cli import terminal

    rows = []
    for column in columns:
        table, bounds = column["certificate"], [trial["lower_bound"] for trial in column["trials"]]
        realized = None if table is None else table["realized"]
        bound = terminal.at_least(max([0.0, *bounds])) if bounds else None
        rows.append(
            (column["column"], column["mechanism"], column["unit"], column["claim"], realized, bound, column["note"])
        )
    terminal.heading("Empirical epsilon across mechanisms")
    terminal.table(("column", "mechanism", "unit", "claimed", "realized", "shown at least", "note"), rows)


def _show(audited: Mapping[str, Any], confidence: float) -> None:
    from dptext_etl.cli import terminal

    terminal.heading(f"{audited['column']}: {audited['mechanism']}, epsilon {audited['epsilon']:g}")
    if audited["claim"] is None:
        terminal.say(f"not applicable: {audited['note']}")
        return
    table = audited["certificate"]
    realized = "no finite table" if table is None else f"{terminal.number(table['realized'])} ({_of(table)})"
    terminal.pairs(
        {
            f"claimed per {audited['unit']}": audited["claim"],
            **({"at delta": audited["delta"]} if audited["delta"] else {}),
            "charged, tight": audited["charged"],
            "realized": realized,
            "certificate": audited["by_table"],
            "trials": audited["by_trials"],
            "draws can refute up to": audited["largest"],
            "note": audited["note"] or None,
        }
    )
    rows = [
        (
            trial["counts"]["trial"],
            " / ".join(word or "(padding)" for word in trial["counts"]["words"]),
            trial["counts"]["event"],
            trial["epsilon"],
            f"{trial['counts']['hits']:,} of {trial['counts']['draws']:,}",
            f"{trial['counts']['other_hits']:,} of {trial['counts']['other_draws']:,}",
            terminal.at_least(max(0.0, trial["lower_bound"])),
            trial["claim"],
            "refuted" if trial["refuted"] else "",
        )
        for trial in audited["trials"]
    ]
    terminal.table(
        ("trial", "words", "event", "epsilon", "first", "second", f"loss at least ({confidence:.0%})", "claim", ""),
        rows,
    )


def _of(table: Mapping[str, Any]) -> str:
    return f"{'exact' if table['exact'] else 'an upper bound'}, from {table['source']}"
