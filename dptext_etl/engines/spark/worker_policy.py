"""Write a policy as JSON for Spark's workers: configuration, artifact locations, hashes and key references.

A plan holds no key, no table and no pickled object of ours. A worker reads this JSON, finds the artifacts and resolves
the references on its machine. It refuses to release anything if its configuration hash differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from dptext_etl import catalog
from dptext_etl.artifacts import canon, placed
from dptext_etl.engines.spark.shipping import Location, ship
from dptext_etl.errors import PolicyError
from dptext_etl.extensions import distribution, require
from dptext_etl.id_forms import Normalization
from dptext_etl.ledger import Scope
from dptext_etl.policy import Cap, ColumnPolicy
from dptext_etl.postprocessing import PostProcess


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class CarriedLedger(_Plain):
    """Name the ledger that a function charges for its rows.

    Attributes:
        url: The ledger's URL, or a reference to it ("env:NAME").
        id_key: Reference to the key of its ids; None takes the file next to a SQLite ledger.
        anchors: Folder that remembers the head of the ledger (`dptext_etl.ledger.head_files`); None takes the worker's.
        ledger_id: Name that the ledger got when it was made; a worker refuses a ledger of another name.
        cap: The cap of the scope, or None.
        on_cap: Treatment of rows over the cap: null, or an error.
        unit: Unit whose budget is charged.
        normalize: How subjects are spelled before they are hashed.
        id_columns: The names of the columns of ids, by "record" and "subject", where they are known.
    """

    url: str
    id_key: str | None
    anchors: str | None
    ledger_id: str
    cap: Cap | None
    on_cap: Literal["quarantine", "refuse"]
    unit: Literal["subject", "record"]
    normalize: tuple[Normalization, ...] = ()
    id_columns: dict[str, str] = Field(default_factory=dict)

    def scope(self, dataset: str) -> Scope:
        """Return the scope in which the spends of a dataset's rows add up."""
        if self.cap is None:
            return Scope(dataset, unit=self.unit)
        return Scope(dataset, self.cap.period, self.cap.group, self.unit)


class CarriedStep(_Plain):
    """A post-processing in the form that a worker gets.

    Attributes:
        step: Name and parameters, plain data.
        cfg: Configuration hash that the worker must compute as well.
        artifacts: Locations of its public inputs, by role.
        package: Distribution that brings it.
    """

    step: dict[str, Any]
    cfg: str
    package: str
    artifacts: dict[str, Location]

    @classmethod
    def of(cls, step: PostProcess, artifacts: dict[str, Location]) -> Self:
        """Make the form of a post-processing for workers."""
        parameters = {"name": step.name, **step.model_dump(mode="json")}
        return cls(step=parameters, cfg=step.cfg(), artifacts=artifacts, package=distribution(step))


class Carried(_Plain):
    """The policy of one column in the form that a worker gets.

    Attributes:
        policy: The policy's fields as plain data, without its mechanism.
        mechanism: Name and parameters of the mechanism, plain data.
        postprocess: Its post-processings in order, each with name, parameters, hash and locations; runs alone have any.
        package: Distribution that brings the mechanism.
        cfg: Configuration hash that the worker must compute as well.
        artifacts: Locations of the mechanism's public inputs, by role.
        spend: Return the struct of text, positions, epsilon and delta.
        ledger: Ledger that is charged for rows, or None.
    """

    policy: dict[str, Any]
    mechanism: dict[str, Any]
    package: str
    cfg: str
    artifacts: dict[str, Location]
    spend: bool = False
    ledger: CarriedLedger | None = None
    postprocess: tuple[CarriedStep, ...] = ()

    @classmethod
    def of(cls, policy: ColumnPolicy, artifacts: dict[str, Location], **more: Any) -> Self:
        """Make the form of a policy for workers."""
        fields = policy.model_dump(mode="json", exclude={"mechanism", "postprocess"})
        mechanism = policy.mechanism
        return cls(
            policy={name: sorted(value) if isinstance(value, list) else value for name, value in fields.items()},
            mechanism={"name": mechanism.name, **mechanism.model_dump(mode="json")},
            package=distribution(mechanism),
            cfg=mechanism.cfg(),
            artifacts=artifacts,
            **more,
        )

    def written(self) -> str:
        """Return the JSON for the workers; equal policies give equal JSON."""
        return canon(self.model_dump(mode="json")).decode()

    def column_policy(self) -> ColumnPolicy:
        """Make the policy again on this machine."""
        found = {role: location.find() for role, location in self.artifacts.items()}
        require("mechanisms", self.mechanism["name"], self.package)
        mechanism = placed(catalog.build(self.mechanism), found)
        if mechanism.cfg() != self.cfg:
            column = f"{self.policy['dataset']}.{self.policy['column']}"
            msg = f"the configuration of {column} has another hash here than where it was registered"
            raise PolicyError(msg, "install the same version of dptext-etl on every machine of the cluster")
        return ColumnPolicy(**self.policy, mechanism=mechanism, postprocess=tuple(map(_made, self.postprocess)))


def _made(carried: CarriedStep) -> PostProcess:
    """Make a post-processing again on this machine."""
    found = {role: location.find() for role, location in carried.artifacts.items()}
    require("postprocesses", carried.step["name"], carried.package)
    step = placed(catalog.build_postprocess(carried.step), found)
    if step.cfg() != carried.cfg:
        msg = f"the post-processing {step.name} has another hash here than on the driver"
        raise PolicyError(msg, "install the same version of dptext-etl on every machine of the cluster")
    return step


def carried_columns(spark: Any, columns: Iterable[ColumnPolicy]) -> tuple[str, ...]:
    """Make the artifacts of text columns reachable for the workers of a session, and write their policies."""
    found = []
    for item in columns:
        steps = tuple(CarriedStep.of(step, ship(spark, step.artifacts())) for step in item.postprocess)
        carried = Carried.of(item, ship(spark, item.mechanism.artifacts()), postprocess=steps)
        found.append(carried.written())
    return tuple(found)
