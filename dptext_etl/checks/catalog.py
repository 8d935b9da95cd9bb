"""Choose the gates of a policy; `extensions` finds their modules by name."""

from __future__ import annotations

from dptext_etl import extensions
from dptext_etl.checks.candidate import Stage
from dptext_etl.checks.gate import Gate
from dptext_etl.errors import GateError, PolicyError
from dptext_etl.policy import Policy

_TAKES = ("look_at_columns", "feed", "search")


def load(name: str) -> type[Gate]:
    """Return the class of a gate."""
    try:
        gate = extensions.load("gates", name, Gate)  # type: ignore[type-abstract]
    except PolicyError as exc:
        raise GateError(exc.message, exc.hint) from None
    if not getattr(gate, "catches", "") or not getattr(gate, "stages", ()):
        raise GateError(f"{gate.__module__} does not say what its gate catches, or which stages it judges")
    folds = gate.seen or gate.repeats is not Gate.repeats
    if not folds and any(getattr(gate, method) is not getattr(Gate, method) for method in _TAKES):
        raise GateError(f"{gate.__module__} does not say in `seen` which attributes its gate changes")
    return gate


def every() -> tuple[type[Gate], ...]:
    """Return all gates, by `Gate.order` and then by name."""
    return tuple(sorted(map(load, extensions.names("gates")), key=lambda gate: (gate.order, gate.name)))


def judges(policy: Policy, stage: Stage) -> tuple[type[Gate], ...]:
    """Return the gates that judge a stage of the policy's releases, in order."""
    if policy.synthetic is not None:
        return tuple(gate for gate in every() if gate.synthetic and stage in gate.stages)
    no_ids = stage is Stage.PUBLISHED and policy.unlinked is not None
    found = (gate for gate in every() if stage in gate.stages and gate.applies(policy))
    return tuple(gate for gate in found if not (no_ids and gate.by_record))


def catalogue(policy: Policy, stage: Stage) -> dict[str, str]:
    """Return what each gate of a stage catches, by name; known before anything runs."""
    return {gate.name: gate.catches for gate in judges(policy, stage)}
