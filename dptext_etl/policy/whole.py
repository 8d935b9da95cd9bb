"""Make the policy of a run over a frame from a policy, or from the policy of one column and the entries of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dptext_etl.errors import PolicyError
from dptext_etl.policy.column_policy import ColumnPolicy
from dptext_etl.policy.dataset_policy import Policy
from dptext_etl.policy.resolving import PolicyLike, resolve
from dptext_etl.unlinked import unlinked_of


def whole_policy(policy: PolicyLike, entries: Mapping[str, Any]) -> Policy:
    """Return a run's policy with some entries set."""
    given = dict(entries)
    if isinstance(given.get("ledger"), str):
        given["ledger"] = {"url": given["ledger"]}
    if isinstance(policy, ColumnPolicy):
        return Policy.parse({**_of_column(policy), "source": str(given.get("sink", "")), **given})
    return resolve(policy).model_copy(update=given)


def _of_column(policy: ColumnPolicy) -> dict[str, Any]:
    if policy.column is None:
        raise PolicyError("the policy names no column", "give ColumnPolicy(column=…)")
    if policy.nonce:
        raise PolicyError("a run takes the first release of a name (nonce 0)", "take another release name")
    column = {
        "name": policy.column,
        "mechanism": policy.mechanism,
        "allow": sorted(policy.allow),
        "accept_unbounded": sorted(policy.accept_unbounded),
        "postprocess": list(policy.postprocess),
        "keep_intermediate": policy.keep_intermediate,
    }
    whole = {name: getattr(policy, name) for name in ("dataset", "release", "key", "sql_function")}
    return {**whole, "unlinked": unlinked_of(policy.mechanism), "column": [column]}
