"""Accept policies, policies of one column, and paths of policy files wherever a call needs a policy."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from dptext_etl.errors import PolicyError
from dptext_etl.families.choice import shuffled_of
from dptext_etl.policy.column_policy import ColumnPolicy
from dptext_etl.policy.dataset_policy import Policy

PolicyLike = Policy | ColumnPolicy | str | PathLike[str]
"""A policy, the policy of one column, or the path of a policy file."""


def resolve(policy: PolicyLike) -> Policy:
    """Return the policy of a dataset, read from its file if a path is given.

    Args:
        policy: A policy, or the path of its file.

    Raises:
        PolicyError: It is neither, or the file cannot be read or is wrong.
    """
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str | PathLike):
        return Policy.load(Path(policy))
    msg = f"a Policy or the path of a policy file is needed here, got {type(policy).__name__}"
    hint = "the policy of one column names no table and no ledger; `dptext init FILE` writes a policy file"
    raise PolicyError(msg, hint)


def resolve_column(policy: PolicyLike, column: str | None = None) -> ColumnPolicy:
    """Return the policy of one column.

    Args:
        policy: A policy of a column or a dataset, or the path of its file.
        column: Name of the text column of a dataset; None if it has only one.

    Raises:
        PolicyError: The policy cannot be read, or has no such column.
    """
    return policy if isinstance(policy, ColumnPolicy) else resolve(policy).column_policy(column)


def columns_and_id(policy: PolicyLike, ids: str | None) -> tuple[list[ColumnPolicy], str]:
    """Return the policies of the text columns, and the name of the column of record ids.

    Args:
        policy: A policy of a column or a dataset, or the path of its file.
        ids: Name of the column of record ids; None uses the policy's.

    Raises:
        PolicyError: The policy cannot be read, or neither names the column.
    """
    if not isinstance(policy, ColumnPolicy):
        whole = resolve(policy)
        return whole.column_policies(), whole.id if ids is None else ids
    _ = policy.named  # refuses a policy without a column
    if ids is None:
        raise PolicyError("the policy of one column names no id column", 'name it in the call: id="…"')
    return [policy], ids


def run_policy(policy: PolicyLike, entries: Mapping[str, Any]) -> Policy:
    """Return the policy of a run over a frame: a policy with some entries set, or one of a single column.

    Args:
        policy: A policy of a column or a dataset, or the path of its file.
        entries: Entries of the policy by name; `ledger` may be a URL.

    Raises:
        PolicyError: The policy cannot be read, an entry is wrong, or `nonce` is not 0.
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
