"""Define the resources of a deployment that replace parts of the policy: the ledger and the key, both by reference."""

# No `from __future__ import annotations`: Dagster resolves the annotations of resources when the class is made.
from typing import Any

import dagster as dg
from pydantic import field_validator

from dptext_etl import keys
from dptext_etl.errors import PolicyError
from dptext_etl.ledger import Ledger
from dptext_etl.orchestration.names import Names
from dptext_etl.policy import LedgerSpec, Policy
from dptext_etl.policy.secrets import holds_password


class LedgerResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The ledger that records the spends.

    Dagster shows a resource's configuration. So put a URL with a password into a variable, and name the variable by
    `url=dg.EnvVar("NAME")` or `url="env:NAME"`. Every process that opens the ledger reads the variable.

    Attributes:
        url: "sqlite:///path", a path, "postgresql://host/database", or "env:NAME".
        id_key: Reference to the key under which ids are stored; by default the file next to a SQLite ledger.
        anchors: Folder, apart from the ledger, that remembers its last head (`LedgerSpec.anchors`).
    """

    url: str
    id_key: str | None = None
    anchors: str | None = None

    def __init__(self, **data: Any) -> None:
        """Keep a variable by its name, so that neither Dagster nor a policy ever holds what is in it.

        Raises:
            PolicyError: The URL holds a password.
        """
        url = data.get("url")
        if isinstance(url, dg.EnvVar):
            data["url"] = f"env:{url.env_var_name}"
        elif isinstance(url, str) and holds_password(url):
            msg = "the URL of the ledger holds a password, and Dagster shows it"
            raise PolicyError(msg, 'put it into a variable and name that: url=dg.EnvVar("DPTEXT_LEDGER_SECRET_URL")')
        super().__init__(**data)

    @field_validator("id_key", mode="before")
    @classmethod
    def _by_reference(cls, value: Any) -> Any:
        return _named(value)

    @classmethod
    def of(cls, policy: Policy) -> "LedgerResource":
        """Return the ledger that the policy names."""
        return cls(**policy.ledger.model_dump())

    def open(self) -> Ledger:
        """Open the ledger for reading; a run opens its own."""
        return Ledger.open(self.url, self.id_key, create=False, read_only=True)


class KeyResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The noise key by reference; only the kernel resolves it, and no event, page or log holds it.

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
    """Refuse a key in the place of its name, because Dagster shows the configuration of resources."""
    return value if value is None or isinstance(value, dg.EnvVar) else keys.reference(value)


def needed(name: Names) -> set[str]:
    """Return the names of the resources that every step of a dataset needs."""
    return {name.ledger, name.key}


def deployed(policy: Policy, context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, name: Names) -> Policy:
    """Return the policy with the ledger and key of this deployment."""
    ledger: LedgerResource = getattr(context.resources, name.ledger)
    key: KeyResource = getattr(context.resources, name.key)
    spec = LedgerSpec(**{field: getattr(ledger, field) for field in LedgerSpec.model_fields})
    return policy.model_copy(update={"ledger": spec, "key": key.reference})
