"""What a deployment sets apart from the policy: where the ledger is and which key is used, both by reference."""

# No `from __future__ import annotations`: Dagster resolves the annotations of resources when the class is made.
from typing import Any

import dagster as dg
from pydantic import field_validator

from dptext_etl import keys
from dptext_etl.ledger import Ledger
from dptext_etl.orchestration.names import names
from dptext_etl.policy import LedgerSpec, Policy


class LedgerResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The ledger that keeps the spends.

    Dagster shows a resource's configuration: a URL with a password goes in as `url=dg.EnvVar("NAME")`.

    Attributes:
        url: "sqlite:///path" or a path.
        id_key: Reference to the key under which ids are stored; the file beside a SQLite ledger if absent.
    """

    url: str
    id_key: str | None = None

    @field_validator("id_key", mode="before")
    @classmethod
    def _by_reference(cls, value: Any) -> Any:
        return _named(value)

    @classmethod
    def of(cls, policy: Policy) -> "LedgerResource":
        """Return the ledger that the policy names."""
        return cls(url=policy.ledger.url, id_key=policy.ledger.id_key)

    def open(self) -> Ledger:
        """Open the ledger to read it: a run opens its own."""
        return Ledger.open(self.url, self.id_key, create=False, read_only=True)


class KeyResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The noise key, by reference: the kernel alone resolves it, and no event, page or log holds it.

    Attributes:
        reference: "env:NAME" or "file:PATH".
    """

    reference: str

    @field_validator("reference", mode="before")
    @classmethod
    def _by_reference(cls, value: Any) -> Any:
        return _named(value)

    @classmethod
    def of(cls, policy: Policy) -> "KeyResource":
        """Return the key reference that the policy names."""
        return cls(reference=policy.key)


def _named(value: Any) -> Any:
    """Refuse a key where its name belongs: Dagster shows what a resource is configured with."""
    return value if value is None or isinstance(value, dg.EnvVar) else keys.reference(value)


def needed(policy: Policy) -> set[str]:
    """Name the resources that every step of a dataset takes."""
    name = names(policy)
    return {name.ledger, name.key}


def deployed(policy: Policy, context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> Policy:
    """Return the policy with the ledger and key of this deployment."""
    name = names(policy)
    ledger: LedgerResource = getattr(context.resources, name.ledger)
    key: KeyResource = getattr(context.resources, name.key)
    spec = LedgerSpec(url=ledger.url, id_key=ledger.id_key)
    return policy.model_copy(update={"ledger": spec, "key": key.reference})
