"""Map a policy to the names that it has in Dagster: asset keys, group, owners, as users of dagster-dbt map models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import dagster as dg

from dptext_etl.orchestration.names import word_of
from dptext_etl.policy import Policy

Stage = Literal["raw", "staged", "published", "evidence"]
"""The assets of a dataset, in their order."""


class PolicyTranslator:
    """Names the assets of a policy; override a method to map them to names of your own.

    Args:
        key_prefix: What stands before the keys of all assets.
        group_name: Group of the assets; None takes the dataset.
        owners: Owners of the assets: e-mail addresses, or "team:NAME".

    Example:
        ```python
        import dagster as dg
        from dptext_etl.orchestration import PolicyTranslator, build_definitions


        class Ours(PolicyTranslator):
            def asset_key(self, policy, stage):
                return dg.AssetKey(["privacy", policy.dataset, stage])


        defs = build_definitions("privacy.toml", translator=Ours())
        ```
    """

    def __init__(
        self,
        key_prefix: Sequence[str] | str | None = None,
        group_name: str | None = None,
        owners: Sequence[str] | None = None,
    ) -> None:
        self._prefix = [key_prefix] if isinstance(key_prefix, str) else list(key_prefix or ())
        self._group = group_name
        self._owners = list(owners or ())

    def asset_key(self, policy: Policy, stage: Stage) -> dg.AssetKey:
        """Return the key of an asset."""
        return dg.AssetKey([*self._prefix, f"{stage}_{word_of(policy.dataset)}"])

    def group_name(self, policy: Policy) -> str:
        """Return the group of the assets."""
        return self._group or word_of(policy.dataset)

    def owners(self, policy: Policy) -> Sequence[str]:  # noqa: ARG002  (for those who override it)
        """Return the owners of the assets."""
        return self._owners
