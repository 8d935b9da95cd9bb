"""Report a run under way, and what it did, to OpenTelemetry and OpenLineage (`telemetry`); never a text or an id.

A run hears of this by its progress listener and its summary alone. What cannot be reported never fails a run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from dptext_etl import telemetry
from dptext_etl.errors import DPTextError
from dptext_etl.guarantee import MICRO
from dptext_etl.policy import Policy
from dptext_etl.runner.lineage import Lineage
from dptext_etl.runner.progress import Listener, Progress
from dptext_etl.runner.summary import RunSummary

Step = Literal["run", "staging", "checking", "publishing"]
"""A whole run, or one of the three steps of Dagster."""


class Observed:
    """A run that is being reported.

    Attributes:
        progress: Its listener: it notes when phases begin and end, and passes reports on.
    """

    def __init__(self, policy: Policy, step: Step, progress: Listener | None) -> None:
        self.progress = self._noting(progress)
        self._names = {"dataset": policy.dataset, "release": policy.release}
        self._step = step
        self._began, self._clock = time.time_ns(), time.monotonic()
        self._phases: dict[str, tuple[int, int, int]] = {}  # first and last report, rows
        self._lineage = Lineage.of(policy) if step in {"run", "publishing"} else None

    def _noting(self, other: Listener | None) -> Listener:
        def listen(seen: Progress) -> None:
            now = time.time_ns()
            began, *_ = self._phases.get(seen.phase, (now,))
            self._phases[seen.phase] = began, now, seen.rows_done
            if other is not None:
                other(seen)

        return listen

    def done(self, summary: RunSummary) -> RunSummary:
        """Report what a run did, and return it."""
        names = self._names
        for outcome, rows in summary.rows.items():
            telemetry.count("dptext.rows", rows, **names, outcome=outcome)
        telemetry.count("dptext.draws", summary.draws, **names)
        for cost in summary.profile:
            telemetry.count("dptext.stage.duration", cost["seconds"], dataset=names["dataset"], stage=cost["name"])
        for over in ("sum_over_records", "largest_record"):
            for component, spent in summary.spend.get(over, {}).items():
                if component != "log10_odds":
                    telemetry.count(
                        "dptext.run.spend", telemetry.amount(spent), **names, over=over, component=component
                    )
        _scope(summary.remaining)
        if self._lineage is not None:
            self._lineage.complete(summary)
        return summary

    def began(self) -> None:
        """Report that the run begins."""
        if self._lineage is not None:
            self._lineage.start()

    def ended(self, outcome: str) -> None:
        """Report the end, its duration and its spans; `outcome` is "ok", "unexpected", or the code of an error."""
        names = self._names
        telemetry.count("dptext.runs", 1, **names, step=self._step, outcome=outcome)
        took = time.monotonic() - self._clock
        telemetry.count("dptext.run.duration", took, dataset=names["dataset"], step=self._step, outcome=outcome)
        if outcome in {"ok", "frozen"}:
            telemetry.count("dptext.ledger.frozen", outcome == "frozen", dataset=names["dataset"])
        self._trace(outcome)
        if outcome != "ok" and self._lineage is not None:
            self._lineage.fail(outcome)

    def _trace(self, outcome: str) -> None:
        """Make the span of the run and those of its phases, with the times that were noted."""
        if telemetry.OPENTELEMETRY in telemetry.wanted():
            with telemetry.never_failing("the trace of a run"):
                self._spans(outcome)

    def _spans(self, outcome: str) -> None:
        from opentelemetry import trace
        from opentelemetry.trace import Status, StatusCode

        tracer = trace.get_tracer_provider().get_tracer(telemetry.SCOPE)
        facts = {f"dptext.{name}": value for name, value in self._names.items()}
        whole = tracer.start_span(f"dptext.{self._step}", start_time=self._began, attributes=facts)
        inside = trace.set_span_in_context(whole)
        for phase, (began, ended, rows) in self._phases.items():
            span = tracer.start_span(
                f"dptext.phase.{phase}", inside, start_time=began, attributes={"dptext.rows": rows}
            )
            span.end(ended)
        whole.set_attribute("dptext.outcome", outcome)
        if outcome != "ok":
            whole.set_status(Status(StatusCode.ERROR, outcome))
        whole.end()


@dataclass(frozen=True)
class Unobserved:
    """Stands for `Observed` where nothing is reported."""

    progress: Listener | None

    def done(self, summary: RunSummary) -> RunSummary:
        """Return the summary."""
        return summary


Seen = Observed | Unobserved


@contextmanager
def observed(policy: Policy, progress: Listener | None, step: Step = "run") -> Iterator[Seen]:
    """Report the block as a run, or as a step of one, if `DPTEXT_TELEMETRY` asks for it.

    Raises:
        PolicyError: It asks for what does not exist, is not installed, or is not configured; before the block begins.
    """
    if not telemetry.wanted():
        yield Unobserved(progress)
        return
    seen = Observed(policy, step, progress)
    seen.began()
    outcome = "unexpected"
    try:
        yield seen
        outcome = "ok"
    except DPTextError as error:
        outcome = error.code
        raise
    finally:
        seen.ended(outcome)


def _scope(remaining: dict[str, Any]) -> None:
    """Set the gauges of a scope; amounts of a summary are millionths."""
    where = {"scope": remaining["scope"], "unit": remaining["unit"]}
    telemetry.count("dptext.scope.units", remaining["units"], **where)
    telemetry.count("dptext.scope.exhausted", remaining["exhausted"], **where)
    for component, limit in remaining["limits"].items():
        telemetry.count("dptext.scope.limit", limit / MICRO, **where, component=component)
    for name in ("used", "left"):
        for component, quantiles in remaining[name].items():
            for quantile, found in quantiles.items():
                value = telemetry.amount(found) / MICRO
                telemetry.count(f"dptext.scope.{name}", value, **where, component=component, quantile=quantile)
