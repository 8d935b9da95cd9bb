"""What a Spark function carries to its workers: configuration, artifact locations, hashes and key references, as JSON.

No key, no table and no object of ours is pickled into a plan: a worker reads this text, finds the artifacts, resolves
the references where it runs, and refuses to release anything if its configuration hash is another one.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from dptext_etl import catalog
from dptext_etl.artifacts import canon
from dptext_etl.engines.spark.shipping import Location
from dptext_etl.errors import PolicyError
from dptext_etl.ledger import Scope
from dptext_etl.policy import Cap, ColumnPolicy


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class CarriedLedger(_Plain):
    """Where a function charges its rows.

    Attributes:
        url: The ledger's URL, or a reference to it ("env:NAME").
        id_key: Reference to the key of its ids; None takes the file beside a SQLite ledger.
        anchors: Folder that remembers the head of the ledger (`dptext_etl.ledger.heads`); None takes the worker's own.
        ledger_id: The name that the ledger got when it was made: a worker that finds another one refuses.
        cap: The cap of the scope, or None.
        on_cap: What becomes of rows over it: null, or an error.
        unit: Whose budget is charged.
    """

    url: str
    id_key: str | None
    anchors: str | None
    ledger_id: str
    cap: Cap | None
    on_cap: Literal["quarantine", "refuse"]
    unit: Literal["subject", "record"]

    def scope(self, dataset: str) -> Scope:
        """Return where the spends of a dataset's rows add up."""
        if self.cap is None:
            return Scope(dataset, unit=self.unit)
        return Scope(dataset, self.cap.period, self.cap.group, self.unit)


class Carried(_Plain):
    """One column's policy on its way to a worker.

    Attributes:
        policy: The policy's fields as plain data, without its mechanism.
        mechanism: Name and parameters of the mechanism, plain data.
        cfg: Configuration hash that the worker must arrive at.
        artifacts: Where the mechanism's public inputs lie, by role.
        spend: Return the struct of text, positions, epsilon and delta.
        ledger: Where rows are charged, or None.
    """

    policy: dict[str, Any]
    mechanism: dict[str, Any]
    cfg: str
    artifacts: dict[str, Location]
    spend: bool = False
    ledger: CarriedLedger | None = None

    @classmethod
    def of(cls, policy: ColumnPolicy, artifacts: dict[str, Location], **more: Any) -> Self:
        """Write a policy down.

        Args:
            policy: The column's policy, with a column and a key reference.
            artifacts: Where its mechanism's artifacts lie, by role.
            more: `spend` and `ledger`.
        """
        fields = policy.model_dump(mode="json", exclude={"mechanism"})
        mechanism = policy.mechanism
        return cls(
            policy={name: sorted(value) if isinstance(value, list) else value for name, value in fields.items()},
            mechanism={"name": mechanism.name, **mechanism.model_dump(mode="json")},
            cfg=mechanism.cfg(),
            artifacts=artifacts,
            **more,
        )

    def written(self) -> str:
        """Return the JSON that travels; equal policies are written equally."""
        return canon(self.model_dump(mode="json")).decode()

    def column_policy(self) -> ColumnPolicy:
        """Make the policy again where this runs.

        Raises:
            ArtifactError: An artifact is not there, or its hash differs.
            PolicyError: The configuration hash differs: other versions or other artifacts than the driver's.
        """
        found = {role: location.find() for role, location in self.artifacts.items()}
        mechanism = catalog.build(self.mechanism).placed(found)
        if mechanism.cfg() != self.cfg:
            column = f"{self.policy['dataset']}.{self.policy['column']}"
            msg = f"the configuration of {column} has another hash here than where it was registered"
            raise PolicyError(msg, "install the same version of dptext-etl on every machine of the cluster")
        return ColumnPolicy(**self.policy, mechanism=mechanism)
