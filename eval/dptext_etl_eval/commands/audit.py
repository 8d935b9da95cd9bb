"""Define `dptext audit`, which tests the claims of mechanisms per word on their integers and on their releases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from dptext_etl.cli.options import Json, PolicyFile, load_policy

EXAMPLE = "dptext audit privacy.toml --draws 1000000"
KEYS = (
    "dataset",
    "draws",
    "confidence",
    "refuted",
    "columns",
)


def audit(
    policy: PolicyFile,
    *,
    draws: Annotated[int, typer.Option(min=1_000, help="Number of records to release per input and trial.")] = 100_000,
    confidence: Annotated[float, typer.Option(help="Joint confidence of all lower bounds of a column.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Compute the real epsilon of every column's mechanism, and try to refute the epsilon that it claims.

    The computation is exact if the mechanism has a table. The trials release public words under keys of their own: they
    read no text and charge nothing.

    Exits with 4 if a claim is refuted.
    """
    import dptext_etl_eval as evaluation
    from dptext_etl.cli import terminal
    from dptext_etl.errors import GateError

    loaded = load_policy(policy)
    found = evaluation.audit(loaded, draws=draws, confidence=confidence, progress=terminal.note)
    refuted = [item.column for item in found if item.refuted]
    if as_json:
        facts = {"dataset": loaded.dataset, "draws": draws, "confidence": confidence, "refuted": bool(refuted)}
        terminal.emit({**facts, "columns": [item.as_dict() for item in found]})
    else:
        for item in found:
            _show(item.as_dict(), confidence)
    if refuted:
        msg = f"a claim is refuted, of column {', '.join(repr(name) for name in refuted)}"
        raise GateError(msg, "publish nothing from it; the mechanism or its stored table does not keep its claim")


def _show(found: Mapping[str, Any], confidence: float) -> None:
    from dptext_etl.cli import terminal

    terminal.heading(f"{found['column']}: {found['mechanism']}, epsilon {found['epsilon']:g}")
    if found["claim"] is None:
        terminal.say(f"not applicable: {found['note']}")
        return
    table = found["certificate"]
    realised = "no finite table" if table is None else f"{table['realised']:.6f} ({_of(table)})"
    terminal.pairs(
        {
            f"claimed per {found['unit']}": found["claim"],
            **({"at delta": found["delta"]} if found["delta"] else {}),
            "charged, tight": found["charged"],
            "realised": realised,
            "certificate": found["by_table"],
            "trials": found["by_trials"],
            "draws can refute up to": found["largest"],
            "note": found["note"] or None,
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
            max(0.0, trial["lower_bound"]),
            trial["claim"],
            "refuted" if trial["refuted"] else "",
        )
        for trial in found["trials"]
    ]
    terminal.table(
        ("trial", "words", "event", "epsilon", "first", "second", f"loss at least ({confidence:.0%})", "claim", ""),
        rows,
    )


def _of(table: Mapping[str, Any]) -> str:
    return f"{'exact' if table['exact'] else 'an upper bound'}, from {table['source']}"
