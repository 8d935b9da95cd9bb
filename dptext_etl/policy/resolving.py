"""Accept a policy at every entry point as an object or as the path of a policy file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from dptext_etl.errors import PolicyError
from dptext_etl.policy.column_policy import ColumnPolicy
from dptext_etl.policy.dataset_policy import Policy

PolicyLike = Policy | ColumnPolicy | str | PathLike[str]
"""A policy, the policy of one column, or the path of a policy file."""


def resolve(policy: PolicyLike) -> Policy:
    """Return the policy of a dataset."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str | PathLike):
        return Policy.load(Path(policy))
    msg = f"a Policy or the path of a policy file is needed here, got {type(policy).__name__}"
    raise PolicyError(
        msg, "the policy of one column names no table and no ledger; `dptext init FILE` writes a policy file"
    )


def resolve_column(policy: PolicyLike, column: str | None = None) -> ColumnPolicy:
    """Return the policy of one text column."""
    return policy if isinstance(policy, ColumnPolicy) else resolve(policy).column_policy(column)
