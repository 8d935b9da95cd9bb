"""Derive the policies of all tables of a release: the policy's own table, and one for each audience.

A run carries out these policies one after the other. They release the same draws, so the further tables cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from dptext_etl.errors import PolicyError
from dptext_etl.policy.dataset_policy import Policy
from dptext_etl.policy.terms import Audience, Kept, columns_of

EQUAL_TEXTS = "all tables hold the same drawn texts: equal texts join the rows of two audiences, whatever their ids are"


def tables_of(policy: Policy) -> tuple[Policy, ...]:
    """Return the policy, which is that of its own table, and then a policy for the table of each audience."""
    return policy, *(_derived(policy, item) for item in policy.audiences)


def table_of(policy: Policy, audience: str | None) -> Policy:
    """Return the policy of the table of one audience; without a name, the policy's own."""
    tables = {table.audience: table for table in tables_of(policy)}
    if audience not in tables:
        names = ", ".join(item.name for item in policy.audiences) or "none"
        raise PolicyError(f"the policy has no audience {audience!r}; its audiences: {names}", "name one of them")
    return tables[audience]


def _derived(policy: Policy, item: Audience) -> Policy:
    kept = columns_of(item.keep)
    types = {name: kind for name, kind in policy.csv.types.items() if name in kept}
    csv = policy.csv.model_copy(update={"types": types})
    copies = tuple(name for name in policy.keep_copies if name in {policy.id, *kept})
    entries = {name: getattr(item, name) for name in ("sink", "keep", "ids")}
    try:
        table = policy.model_copy(update={"audiences": (), "table": None, "csv": csv, "keep_copies": copies, **entries})
    except PolicyError as exc:
        raise PolicyError(f"audience {item.name!r}: {exc.message}", exc.hint, exc.fields) from None
    return table.for_audience(item.name)


def together(policies: Iterable[Policy]) -> Policy:
    """Return a policy that keeps what all tables together show, each column in the coarsest form that shows no less.

    Two lists of bins, or of values, show together the union of both, and a month shows its year.
    """
    own, *others = policies
    forms = {item.column: item for item in own.kept}
    for item in (item for policy in others for item in policy.kept):
        forms[item.column] = _finer(forms.get(item.column, item), item)
    return own.model_copy(update={"audiences": (), "keep": tuple(forms.values()), "incremental": False})


def _finer(first: Kept, second: Kept) -> Kept:
    if first == second:
        return first
    if first.bins is not None and second.bins is not None:
        return Kept(column=first.column, bins=tuple(sorted({*first.bins, *second.bins})))
    if first.top is not None and second.top is not None:
        return Kept(column=first.column, top=tuple(dict.fromkeys((*first.top, *second.top))))
    if first.as_ is not None and second.as_ is not None:
        return first if first.as_ == "month" else second
    return Kept(column=first.column)
