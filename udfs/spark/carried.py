"""What a Spark function carries to its workers: configuration, artifact locations, hashes and key references, as JSON.

No key, no table and no object of ours is pickled into a plan: a worker reads this text, finds the artifacts, resolves
the references where it runs, and refuses to release anything if its configuration hash is another one.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from dptext_etl.artifacts import canon
from dptext_etl.errors import PolicyError
from dptext_etl.guarantee import Disclosure
from dptext_etl.ledger import Scope
from dptext_etl.policy import Cap, ColumnPolicy
from udfs.spark.shipping import Location


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class CarriedLedger(_Plain):
    """Where a function charges its rows.

    Attributes:
        url: The ledger's URL, or a reference to it ("env:NAME").
        id_key: Reference to the key of its ids; None takes the file beside a SQLite ledger.
        ledger_id: The name that the ledger got when it was made: a worker that finds another one refuses.
        cap: The cap of the scope, or None.
        on_cap: What becomes of rows over it: null, or an error.
        unit: Whose budget is charged.
    """

    url: str
    id_key: str | None
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
        dataset: Name of the dataset.
        column: Name of the column.
        release: Name of the release.
        nonce: Counts deliberate extra releases.
        key: Reference to the noise key.
        allow: Disclosures consented to.
        mechanism: Name and parameters of the mechanism, plain data.
        cfg: Configuration hash that the worker must arrive at.
        artifacts: Where the mechanism's public inputs lie, by role.
        spend: Return the struct of text, positions, epsilon and delta.
        ledger: Where rows are charged, or None.
        accept: Classes without a finite epsilon that are consented to.
    """

    dataset: str
    column: str
    release: str
    nonce: int
    key: str
    allow: tuple[Disclosure, ...]
    mechanism: dict[str, Any]
    cfg: str
    artifacts: dict[str, Location]
    spend: bool = False
    ledger: CarriedLedger | None = None
    accept: tuple[str, ...] = ()

    @classmethod
    def of(cls, policy: ColumnPolicy, artifacts: dict[str, Location], **more: Any) -> Self:
        """Write a policy down.

        Args:
            policy: The column's policy, with a column and a key reference.
            artifacts: Where its mechanism's artifacts lie, by role.
            more: `spend` and `ledger`.
        """
        mechanism = policy.mechanism
        return cls(
            dataset=policy.dataset,
            column=policy.column or "",
            release=policy.release,
            nonce=policy.nonce,
            key=policy.key,
            allow=tuple(sorted(policy.allow)),
            accept=tuple(sorted(policy.accept)),
            mechanism={"name": mechanism.name, **mechanism.model_dump(mode="json")},
            cfg=mechanism.cfg(),
            artifacts=artifacts,
            **more,
        )

    def written(self) -> str:
        """Return the JSON that travels; equal policies are written equally."""
        return canon(self.model_dump(mode="json")).decode()

    def policy(self) -> ColumnPolicy:
        """Make the policy again where this runs.

        Raises:
            ArtifactError: An artifact is not there, or its hash differs.
            PolicyError: The configuration hash differs: other versions or other artifacts than the driver's.
        """
        policy = ColumnPolicy(
            dataset=self.dataset,
            column=self.column,
            release=self.release,
            nonce=self.nonce,
            key=self.key,
            allow=self.allow,
            accept=self.accept,
            mechanism=self.mechanism,
        )
        found = {role: location.find() for role, location in self.artifacts.items()}
        policy = policy.model_copy(update={"mechanism": policy.mechanism.placed(found)})
        if policy.mechanism.cfg() != self.cfg:
            msg = (
                f"the configuration of {self.dataset}.{self.column} has another hash here than where it was registered"
            )
            raise PolicyError(msg, "install the same version of dptext-etl on every machine of the cluster")
        return policy
