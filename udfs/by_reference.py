"""Doors hold references to keys: a plan is printed, logged and sent to other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptext_etl.errors import KeyReferenceError

if TYPE_CHECKING:
    from dptext_etl.policy import ColumnPolicy


def require_reference(policy: ColumnPolicy, what: str) -> None:
    """Refuse a policy that holds its key in memory.

    Args:
        policy: The column's policy.
        what: Who would hold it, for the sentence: "an expression".

    Raises:
        KeyReferenceError: The key is no reference.
    """
    if not isinstance(policy.key, str):
        raise KeyReferenceError(
            f"{what} holds a key reference, and the policy holds the key itself; plans are printed and sent",
            'write the key with `dptext key new PATH` and give key="file:PATH", or key="env:NAME"',
        )
