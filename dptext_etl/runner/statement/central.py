"""Say what a synthetic table is, and what its promise rests on."""

from __future__ import annotations

from typing import Any


def is_synthetic(column: dict[str, Any]) -> bool:
    """Return whether a column's texts were summed for a synthetic table."""
    return "synthetic" in column


def released(found: dict[str, Any]) -> str:
    """Say what the rows are."""
    (column,) = found["columns"]
    labels = f" with labels in {column['synthetic']['label']}" if "label" in column["synthetic"] else ""
    return (
        f"{found['rows']:,} rows of public texts{labels}. They follow one noisy statistic of {column['name']}, "
        "which is in the manifest. No text of a record was released, and no row belongs to a record."
    )


def bound(column: dict[str, Any], amounts: str) -> str:
    """State the bound, and whom it trusts."""
    most = column["statistic"]["per_subject"]
    persons = "one record of each person counts" if most == 1 else f"at most {most} records of a person count"
    return (
        "Take two tables that differ in the text, the label, or both of one record. Whatever a reader knows, all other "
        "records included, any published statistic and table is at most e^ε times as likely under one as under the "
        f"other, plus δ. For every record, {amounts}; {persons}. The guarantee is central. It relies on you: the exact "
        "sums, drafts, key, and ledger stay inside your boundary. It does not hold against someone who sees them."
    )
