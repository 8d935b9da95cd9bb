"""Compare persons with what other scopes of the ledger charged them: a cap bounds one scope, not all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from dptext_etl.guarantee import MICRO
from dptext_etl.ledger import Ledger, Scope
from dptext_etl.policy import Policy
from dptext_etl.runner.amounts import at_most


def of_persons(policy: Policy, ledger: Ledger | None, persons: Iterable[pa.Array]) -> dict[str, Any]:
    """Return how many persons each scope of other datasets has charged, and what all scopes charged one person.

    `persons` are distinct canonical ids, in parts; each part is one pass over the other scopes.
    """
    if ledger is None or policy.unit == "record":
        return {}
    own, others = Scope.of(policy), list[tuple[str, Scope]]()
    for item in ledger.reports.caps():
        kind, _, name = item["scope"].partition(":")
        scope = Scope(item["datasets"][0], item["period"], name if kind == "group" else None, item["unit"])
        if item["unit"] == "subject" and policy.dataset not in item["datasets"] and scope.name != own.name:
            others.append((str(scope), scope))
    if not others:
        return {}
    shared, number = dict.fromkeys((name for name, _ in others), 0), 0
    for part in persons:
        number += len(part)
        for name, scope in others:
            used = np.stack([*ledger.used(scope, part).values()])
            shared[name] += int((used > 0).any(axis=0).sum())
    return {"persons": number, "shared": shared, **ledger.reports.together()}


def lines(part: dict[str, Any]) -> list[str]:
    """Warn of scopes that charge the same persons, and say what all scopes charge one person at most."""
    if not part:
        return []
    said = [
        f"{name} has charged {count:,} of these {part['persons']:,} persons, under another cap; "
        "datasets with one `cap.group` share a cap"
        for name, count in part["shared"].items()
        if count
    ]
    return [*said, together(part)] if said else []


def together(part: dict[str, Any]) -> str:
    """Say what all scopes of persons charged the most charged one."""
    epsilon = part["largest"] if isinstance(part["largest"], str) else at_most(part["largest"] / MICRO)
    left_out = f"; without {', '.join(part['in_rho'])}, which count rho" if part["in_rho"] else ""
    return f"All scopes of the ledger together have charged one person epsilon {epsilon} at most{left_out}"
