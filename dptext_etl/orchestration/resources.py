"""What a deployment sets apart from the policy: where the ledger is and which key is used, both by reference."""

# No `from __future__ import annotations`: Dagster resolves the annotations of resources when the class is made.
import dagster as dg

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

    @classmethod
    def of(cls, policy: Policy) -> "KeyResource":
        """Return the key reference that the policy names."""
        return cls(reference=policy.key)


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
