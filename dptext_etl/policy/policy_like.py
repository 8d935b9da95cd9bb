"""Accept policies, policies of one column, and paths of policy files wherever a call needs a policy.

A release has several tables: the policy's own, and one for each audience. A run carries out their policies one after
the other. They release the same draws, so the further tables cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from dptext_etl.accounting.shuffling import shuffled_of
from dptext_etl.errors import PolicyError
from dptext_etl.policy.column_policy import ColumnPolicy
from dptext_etl.policy.dataset_policy import Policy
from dptext_etl.policy.terms import Kept, columns_of

EQUAL_TEXTS = "all tables hold the same drawn texts: equal texts join the rows of two audiences, whatever their ids are"
PolicyLike = Policy | ColumnPolicy | str | PathLike[str]
"""A policy, the policy of one column, or the path of a policy file."""


def resolve(policy: PolicyLike) -> Policy:
    """Return the policy of a dataset, read from its file if a path is given; refuse anything else."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str | PathLike):
        return Policy.load(Path(policy))
    msg = f"a Policy or the path of a policy file is needed here, got {type(policy).__name__}"
    hint = "the policy of one column names no table and no ledger; `dptext init FILE` writes a policy file"
    raise PolicyError(msg, hint)


def resolve_column(policy: PolicyLike, column: str | None = None) -> ColumnPolicy:
    """Return the policy of one column, by its name in a dataset; None if the dataset has only one."""
    return policy if isinstance(policy, ColumnPolicy) else resolve(policy).column_policy(column)


def columns_and_id(policy: PolicyLike, ids: str | None) -> tuple[list[ColumnPolicy], str]:
    """Return the policies of the text columns, and the name of the column of record ids: `ids`, or the policy's."""
    if not isinstance(policy, ColumnPolicy):
        whole = resolve(policy)
        return whole.column_policies(), whole.id if ids is None else ids
    _ = policy.named  # refuses a policy without a column
    if ids is None:
        raise PolicyError("the policy of one column names no id column", 'name it in the call: id="…"')
    return [policy], ids


def run_policy(policy: PolicyLike, entries: Mapping[str, Any]) -> Policy:
    """Return the policy of a run over a frame: a policy with some entries set, or one of a single column.

    The entry `ledger` may be a URL.
    """
    entries = dict(entries)
    if isinstance(entries.get("ledger"), str):
        entries["ledger"] = {"url": entries["ledger"]}
    if not isinstance(policy, ColumnPolicy):
        return resolve(policy).model_copy(update=entries)
    if policy.nonce:
        raise PolicyError("a run uses the first release of a name (nonce 0)", "use another release name")
    names = ("mechanism", "allow", "accept_unbounded", "postprocess", "keep_intermediate")
    column = {"name": policy.named, **{name: getattr(policy, name) for name in names}}
    shared = {name: getattr(policy, name) for name in ("dataset", "release", "key", "sql_function")}
    source = str(entries.get("sink", ""))
    values = {**shared, "source": source, "shuffled": shuffled_of(policy.mechanism), "column": [column], **entries}
    return Policy.parse(values)


def tables_of(policy: Policy) -> tuple[Policy, ...]:
    """Return the policy, for its own table, and then a policy for the table of each audience."""
    tables = [policy]
    for item in policy.audiences:
        kept = columns_of(item.keep)
        types = {name: kind for name, kind in policy.csv.types.items() if name in kept}
        entries: dict[str, Any] = {
            "csv": policy.csv.model_copy(update={"types": types}),
            "keep_copies": tuple(name for name in policy.keep_copies if name in {policy.id, *kept}),
            **{name: getattr(item, name) for name in ("sink", "keep", "ids")},
        }
        try:
            table = policy.model_copy(update={"audiences": (), "table": None, **entries})
        except PolicyError as exc:
            raise PolicyError(f"audience {item.name!r}: {exc.message}", exc.hint, exc.fields) from None
        table._audience = item.name  # noqa: SLF001  (a copy)
        tables.append(table)
    return tuple(tables)


def table_of(policy: Policy, audience: str | None) -> Policy:
    """Return the policy of the table of an audience, by its name; None for the policy's own table."""
    tables = {table.audience: table for table in tables_of(policy)}
    if audience not in tables:
        names = ", ".join(item.name for item in policy.audiences) or "none"
        raise PolicyError(f"the policy has no audience {audience!r}; its audiences: {names}", "name one of them")
    return tables[audience]


def together(policies: Iterable[Policy]) -> Policy:
    """Return a policy that keeps all that the tables show together, each in the coarsest form that shows no less.

    Two lists of bins, or of values, show together the union of both, and a month shows its year.
    """
    own, *others = policies
    forms = {item.column: item for item in own.kept}
    for item in (item for policy in others for item in policy.kept):
        first, name = forms.setdefault(item.column, item), item.column
        if first == item:
            continue
        if first.bins is not None and item.bins is not None:
            forms[name] = Kept(column=name, bins=tuple(sorted({*first.bins, *item.bins})))
        elif first.top is not None and item.top is not None:
            forms[name] = Kept(column=name, top=tuple(dict.fromkeys((*first.top, *item.top))))
        elif first.as_ is not None and item.as_ is not None:
            forms[name] = first if first.as_ == "month" else item
        else:
            forms[name] = Kept(column=name)
    return own.model_copy(update={"audiences": (), "keep": tuple(forms.values()), "incremental": False})
