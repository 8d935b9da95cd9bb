"""Report runs to OpenTelemetry, if the environment asks for it: counts, seconds, and amounts, never a text or an id.

`DPTEXT_TELEMETRY` names what to report to: "opentelemetry", "openlineage", or both with a comma. Without it nothing is
imported and nothing is reported. The program configures where metrics and traces go, by OpenTelemetry's SDK; this
module uses only its API. `runner.report` reports runs.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from dptext_etl import extensions
from dptext_etl.errors import PolicyError

log = logging.getLogger("dptext_etl.runner")

VARIABLE: Final = "DPTEXT_TELEMETRY"
OPENTELEMETRY, OPENLINEAGE = "opentelemetry", "openlineage"
_PACKAGES: Final = {OPENTELEMETRY: "opentelemetry", OPENLINEAGE: "openlineage"}
SCOPE: Final = "dptext_etl"  # the instrumentation scope of all metrics and spans


class Metric(NamedTuple):
    kind: str
    unit: str  # in UCUM
    description: str


METRICS: Final[Mapping[str, Metric]] = {
    "dptext.runs": Metric("counter", "{run}", "Runs that ended, and steps of Dagster, by outcome"),
    "dptext.run.duration": Metric("histogram", "s", "Duration of a run, or of a step of Dagster"),
    "dptext.stage.duration": Metric("histogram", "s", "Time of a run by stage; the stages add up to the run"),
    "dptext.rows": Metric("counter", "{row}", "Rows of runs by outcome; one row may count in several"),
    "dptext.draws": Metric("counter", "{draw}", "Draws that were made for released rows"),
    "dptext.gate.verdicts": Metric("counter", "{verdict}", "Verdicts of gates"),
    "dptext.gate.failed": Metric("gauge", "{gate}", "Gates that failed when the release was last judged"),
    "dptext.ledger.wait.duration": Metric("histogram", "s", "Waits of this process for its turn at the ledger"),
    "dptext.ledger.frozen": Metric("gauge", "{dataset}", "1 if the ledger refused the last run as frozen, else 0"),
    "dptext.ledger.verified.age": Metric("gauge", "s", "Seconds since `dptext ledger maintain` found it intact"),
    "dptext.run.spend": Metric("gauge", "{loss}", "Spend of the last run: of all records, and of the largest"),
    "dptext.scope.limit": Metric("gauge", "{loss}", "Cap of a unit in a scope"),
    "dptext.scope.used": Metric("gauge", "{loss}", "Quantiles of used amounts over units"),
    "dptext.scope.left": Metric("gauge", "{loss}", "Quantiles of remaining amounts over units"),
    "dptext.scope.units": Metric("gauge", "{unit}", "Units with a charge or a reservation"),
    "dptext.scope.exhausted": Metric("gauge", "{unit}", "Units that have reached the cap"),
}
"""All metrics. docs/telemetry.md lists them with their attributes."""
_SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
_TAKES: Final = {"counter": "add", "gauge": "set", "histogram": "record"}


def wanted() -> frozenset[str]:
    """Return the telemetry names of the environment; refuse other names, and packages that are not installed."""
    names = frozenset(name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip())
    if names - _PACKAGES.keys():
        msg = f"{VARIABLE} names something that runs cannot be reported to"
        raise PolicyError(msg, f"allowed: {', '.join(_PACKAGES)}, or several with a comma between them")
    for name in sorted(names):
        if find_spec(_PACKAGES[name]) is None:
            msg = f"{VARIABLE} names {name}, and its package is not installed"
            raise PolicyError(msg, extensions.pip_install("telemetry"))
    return names


def count(name: str, amount: float, **attributes: str | bool) -> None:
    """Add to a counter, set a gauge, or record a value of a histogram, if OpenTelemetry is asked for.

    On a worker that lacks the package, nothing is reported: the driver refuses a wrong setting before the run.
    """
    with never_failing("a metric"):
        if OPENTELEMETRY in wanted():
            from opentelemetry import metrics

            _instrument(metrics.get_meter_provider(), name)(amount, attributes)


@contextmanager
def never_failing(what: str) -> Iterator[None]:
    """Report in a block: what cannot be reported is a line in the log, and fails no run."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (types of exporters, which may quote what they could not send)
        log.warning("%s could not be reported: %s", what, type(error).__name__)


@lru_cache(maxsize=256)
def _instrument(provider: Any, name: str) -> Any:
    """Return the function that records values of a metric; a provider's instruments are made once."""
    metric, meter = METRICS[name], provider.get_meter(SCOPE)
    more = {"explicit_bucket_boundaries_advisory": _SECONDS} if metric.kind == "histogram" else {}
    instrument = getattr(meter, f"create_{metric.kind}")(name, unit=metric.unit, description=metric.description, **more)
    return getattr(instrument, _TAKES[metric.kind])


def judged(dataset: str, release: str, gates: Iterable[tuple[str, bool]]) -> None:
    """Count verdicts: names of gates, and whether each passed."""
    failed, names = 0, {"dataset": dataset, "release": release}
    for gate, passed in gates:
        failed += not passed
        count("dptext.gate.verdicts", 1, **names, gate=gate, passed=passed)
    count("dptext.gate.failed", failed, **names)


@contextmanager
def waiting(reason: str) -> Iterator[None]:
    """Record how long the block waited for the ledger, also if it gave up."""
    began = time.monotonic()
    try:
        yield
    finally:
        count("dptext.ledger.wait.duration", time.monotonic() - began, reason=reason)
