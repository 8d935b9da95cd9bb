"""Find gates by their file names; no other registration is needed."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from dptext_etl.checks import gates
from dptext_etl.checks.candidate import Stage
from dptext_etl.checks.gate import Gate
from dptext_etl.errors import GateError
from dptext_etl.policy import Policy

_TAKES = ("look_at_columns", "feed", "search")


def available() -> tuple[str, ...]:
    """Return the names of all gates, sorted.

    >>> "rows_ledgered" in available()
    True
    """
    return tuple(sorted(name for _, name, _ in pkgutil.iter_modules(gates.__path__)))


def load(name: str) -> type[Gate]:
    """Return the class of a gate.

    Raises:
        GateError: There is no such gate, its file does not hold exactly one, or it does not say what it must.
    """
    if name not in available():
        raise GateError(f"there is no gate of that name; available: {', '.join(available())}")
    return _loaded(name)


def _loaded(name: str) -> type[Gate]:
    module = importlib.import_module(f"{gates.__name__}.{name}")
    own = [
        item
        for _, item in inspect.getmembers(module, inspect.isclass)
        if issubclass(item, Gate) and item.__module__ == module.__name__ and not inspect.isabstract(item)
    ]
    if len(own) != 1:
        raise GateError(f"checks/gates/{name}.py holds {len(own)} gates, it must hold exactly one")
    if not getattr(own[0], "catches", "") or not getattr(own[0], "stages", ()):
        raise GateError(f"checks/gates/{name}.py does not say what its gate catches, or which stages it judges")
    folds = own[0].seen or own[0].repeats is not Gate.repeats
    if not folds and any(getattr(own[0], name) is not getattr(Gate, name) for name in _TAKES):
        raise GateError(f"checks/gates/{name}.py does not say in `seen` which attributes its gate changes")
    return own[0]


def every() -> tuple[type[Gate], ...]:
    """Return all gates, by `Gate.order` and then by name."""
    return tuple(sorted(map(_loaded, available()), key=lambda gate: (gate.order, gate.name)))


def judges(policy: Policy, stage: Stage) -> tuple[type[Gate], ...]:
    """Return the gates that judge a stage of the policy's releases, in order."""
    return tuple(gate for gate in every() if stage in gate.stages and gate.applies(policy))


def catalogue(policy: Policy, stage: Stage) -> dict[str, str]:
    """Return what each gate of a stage catches, by name; known before anything runs."""
    return {gate.name: gate.catches for gate in judges(policy, stage)}
