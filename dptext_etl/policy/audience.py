"""Derive the policies of all tables that a policy publishes: its own table, and one for each audience.

A run carries out these policies one after the other. They release the same draws, so the further tables cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dptext_etl.errors import PolicyError
from dptext_etl.policy.dataset_policy import Policy
from dptext_etl.policy.terms import Kept, columns_of

EQUAL_TEXTS = "all tables hold the same drawn texts: equal texts join the rows of two audiences, whatever their ids are"


def tables_of(policy: Policy) -> tuple[Policy, ...]:
    """Return a policy for each table: the policy's own table first, then those of its audiences, in order.

    Args:
        policy: A policy; each result has no audiences, and its entries on columns name only columns of its table.

    Raises:
        PolicyError: The table of an audience contradicts the other entries; a column may have two roles.
    """
    if not policy.audiences:
        return (policy,)
    derived = [_derived(policy, {"keep": policy.keep})]
    for item in policy.audiences:
        try:
            entries = {name: getattr(item, name) for name in ("sink", "table", "keep", "ids")}
            derived.append(_derived(policy, entries).for_audience(item.name))
        except PolicyError as exc:
            raise PolicyError(f"audience {item.name!r}: {exc.message}", exc.hint, exc.fields) from None
    return tuple(derived)


def table_of(policy: Policy, audience: str | None) -> Policy:
    """Return the policy of one table.

    Args:
        policy: A policy.
        audience: Name of the audience; None for the policy's own table.

    Raises:
        PolicyError: The policy has no such audience.
    """
    for table in tables_of(policy):
        if table.audience == audience:
            return table
    names = ", ".join(item.name for item in policy.audiences) or "none"
    raise PolicyError(f"the policy has no audience {audience!r}; its audiences: {names}", "name one of them")


def _derived(policy: Policy, entries: dict[str, Any]) -> Policy:
    kept = columns_of(entries["keep"])
    types = {name: kind for name, kind in policy.csv.types.items() if name in kept}
    csv = policy.csv.model_copy(update={"types": types})
    copies = tuple(name for name in policy.keep_copies if name in {policy.id, *kept})
    return policy.model_copy(update={"audiences": (), "csv": csv, "keep_copies": copies, **entries})


def together(policies: Iterable[Policy]) -> Policy:
    """Return a policy that keeps the columns that all tables show together.

    Each column is in the coarsest form from which its forms in all tables follow. Two lists of bins, or of values, show
    together the union of both, and a month shows its year.

    Args:
        policies: The results of `tables_of`.
    """
    first, *others = policies
    forms = {item.column: item for item in first.kept}
    for item in (item for policy in others for item in policy.kept):
        forms[item.column] = _finer(forms.get(item.column, item), item)
    types = {name: kind for policy in (first, *others) for name, kind in policy.csv.types.items()}
    csv = first.csv.model_copy(update={"types": types})
    copies = tuple(dict.fromkeys(name for policy in (first, *others) for name in policy.keep_copies))
    kept = {"keep": tuple(forms.values()), "csv": csv, "keep_copies": copies}
    return first.model_copy(update={**kept, "incremental": False})


def _finer(one: Kept, other: Kept) -> Kept:
    """Return the coarsest form of a column from which both forms follow."""
    if one == other:
        return one
    if one.bins is not None and other.bins is not None:
        return Kept(column=one.column, bins=tuple(sorted({*one.bins, *other.bins})))
    if one.top is not None and other.top is not None:
        return Kept(column=one.column, top=tuple(dict.fromkeys((*one.top, *other.top))))
    if one.as_ is not None and other.as_ is not None:
        return one if one.as_ == "month" else other
    return Kept(column=one.column)
