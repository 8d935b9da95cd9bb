"""Report a run to OpenTelemetry and OpenLineage, from its progress and its summary; never a text or an id.

A report that fails never fails a run. OpenLineage's client sends events to where its own configuration says
(`OPENLINEAGE_URL`, `openlineage.yml`): which columns were released from which, by which mechanism, at which epsilon.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from dptext_etl import __version__, telemetry
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.errors import DPTextError, PolicyError
from dptext_etl.guarantee import FINE, MICRO
from dptext_etl.ledger import Ledger, anchor_files
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import Policy
from dptext_etl.policy.terms import TABLE
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener, Progress
from dptext_etl.runner.publish.manifest import stated
from dptext_etl.runner.source.roles import shown_columns
from dptext_etl.runner.summary import RunSummary

Step = Literal["run", "staging", "checking", "publishing"]
"""A whole run, or one of the three steps of Dagster."""


class Observed:
    """A run with the listener of its progress; this base reports nothing."""

    def __init__(self, progress: Listener | None) -> None:
        self.progress = progress

    def done(self, summary: RunSummary) -> RunSummary:
        """Report the outcome of a run, and return it."""
        return summary


class _Reported(Observed):
    """A run that is reported: its listener notes when phases begin and end."""

    def __init__(self, policy: Policy, step: Step, progress: Listener | None) -> None:
        super().__init__(self._note)
        self._listener = progress
        self._names = {"dataset": policy.dataset, "release": policy.release}
        self._policy, self._step = policy, step
        self.failed: tuple[str, ...] = ()  # names of gates
        self._began, self._clock = time.time_ns(), time.monotonic()
        self._phases: dict[str, tuple[int, int, int]] = {}  # first and last report, rows
        self._lineage = Lineage.of(policy) if step in {"run", "publishing"} else None
        if self._lineage is not None:
            self._lineage.send("START")

    def _note(self, report: Progress) -> None:
        now = time.time_ns()
        began, *_ = self._phases.get(report.phase, (now,))
        self._phases[report.phase] = began, now, report.rows_done
        if self._listener is not None:
            self._listener(report)

    def done(self, summary: RunSummary) -> RunSummary:
        names = self._names
        for outcome, rows in summary.rows.items():
            telemetry.count("dptext.rows", rows, **names, outcome=outcome)
        telemetry.count("dptext.draws", summary.draws, **names)
        for cost in summary.profile:
            telemetry.count("dptext.stage.duration", cost["seconds"], dataset=names["dataset"], stage=cost["name"])
        for over in ("sum_over_records", "largest_record"):
            for component, spent in summary.spend.get(over, {}).items():
                if component != "log10_odds":
                    telemetry.count("dptext.run.spend", float(spent), **names, over=over, component=component)
        _scope(summary.remaining)
        _verified(self._policy)
        if self._lineage is not None:
            self._lineage.complete(summary)
        return summary

    def ended(self, outcome: str) -> None:
        """Report the end, its duration and its spans; `outcome` is "ok", "unexpected", or the code of an error."""
        names = self._names
        telemetry.count("dptext.runs", 1, **names, step=self._step, outcome=outcome)
        took = time.monotonic() - self._clock
        telemetry.count("dptext.run.duration", took, dataset=names["dataset"], step=self._step, outcome=outcome)
        if outcome in {"ok", "frozen"}:
            telemetry.count("dptext.ledger.frozen", outcome == "frozen", dataset=names["dataset"])
        if telemetry.OPENTELEMETRY in telemetry.wanted():
            with telemetry.never_failing("the trace of a run"):
                self._send_spans(outcome)
        if outcome != "ok" and self._lineage is not None:
            self._lineage.fail(outcome, self.failed)

    def _send_spans(self, outcome: str) -> None:
        from opentelemetry import trace
        from opentelemetry.trace import Status, StatusCode

        tracer = trace.get_tracer_provider().get_tracer(telemetry.SCOPE)
        facts = {f"dptext.{name}": value for name, value in self._names.items()}
        whole = tracer.start_span(f"dptext.{self._step}", start_time=self._began, attributes=facts)
        inside = trace.set_span_in_context(whole)
        for phase, (began, ended, rows) in self._phases.items():
            counts = {"dptext.rows": rows}
            tracer.start_span(f"dptext.phase.{phase}", inside, start_time=began, attributes=counts).end(ended)
        whole.set_attribute("dptext.outcome", outcome)
        if outcome != "ok":
            whole.set_status(Status(StatusCode.ERROR, outcome))
        whole.end()


@contextmanager
def observed(policy: Policy, progress: Listener | None, step: Step = "run") -> Iterator[Observed]:
    """Report the block as a run, or as a step of one, if `DPTEXT_TELEMETRY` asks for it."""
    if not telemetry.wanted():
        yield Observed(progress)
        return
    run = _Reported(policy, step, progress)
    outcome = "unexpected"
    try:
        yield run
        outcome = "ok"
    except DPTextError as error:
        outcome, run.failed = error.code, tuple(error.fields.get("failed", ()))
        raise
    finally:
        run.ended(outcome)


def _scope(remaining: dict[str, Any]) -> None:
    """Set the gauges of a scope; amounts of a summary are millionths."""
    where = {"scope": remaining["scope"], "unit": remaining["unit"]}
    telemetry.count("dptext.scope.units", remaining["units"], **where)
    telemetry.count("dptext.scope.exhausted", remaining["exhausted"], **where)
    for component, limit in remaining["limits"].items():
        telemetry.count("dptext.scope.limit", limit / MICRO, **where, component=component)
    for name in ("used", "left"):
        for component, quantiles in remaining[name].items():
            for quantile, micros in quantiles.items():
                amount = float(micros) / MICRO
                telemetry.count(f"dptext.scope.{name}", amount, **where, component=component, quantile=quantile)


def _verified(policy: Policy) -> None:
    """Set the gauge of the age of the last verification, if there was one."""
    with telemetry.never_failing("the age of the last verification"):
        with Ledger.open(policy.ledger.url, policy.ledger.id_key, create=False, read_only=True) as ledger:
            age = anchor_files.seconds_since_verified(ledger, policy.ledger.anchors, policy.storage_options)
        if age is not None:
            telemetry.count(anchor_files.METRIC, age, ledger=ledger.ledger_id)


FACET = "dptext_release"
"""The facet of the output, with the claims of the data contract of an export (docs/telemetry.md#lineage)."""
_PRODUCER = f"urn:dptext-etl:{__version__}"  # OpenLineage names producers by URI


def _release(facts: dict[str, Any]) -> Any:
    from openlineage.client.facet_v2 import DatasetFacet

    facet = DatasetFacet(producer=_PRODUCER).with_additional_properties(**facts)
    facet._schemaURL = f"{_PRODUCER}:ReleaseDatasetFacet"  # noqa: SLF001  (the client sets its base class's URL)
    return facet


def _schema(kinds: Mapping[str, str | None]) -> Any:
    from openlineage.client.facet_v2 import schema_dataset

    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in kinds.items()]
    return schema_dataset.SchemaDatasetFacet(fields)


def _tags(manifest: Manifest) -> Any:
    """Return the claims on each text column as tags, which catalogs such as DataHub and OpenMetadata show."""
    from openlineage.client.facet_v2 import tags_dataset as facet

    tags = [facet.TagsDatasetFacetFields("dptext.release", manifest.release, "DPTEXT", None)]
    for column in manifest.columns:
        claims = {"guarantee": column["class"], "unit": column["unit"], "epsilon": _written(column["unit_epsilon"])}
        tags += [
            facet.TagsDatasetFacetFields(f"dptext.{name}", claim, "DPTEXT", column["name"])
            for name, claim in claims.items()
        ]
    return facet.TagsDatasetFacet(tags)


def _assertions(gates: Mapping[str, bool]) -> dict[str, Any]:
    """Return the verdicts of gates as a facet, if there are any."""
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as facet

    assertions = [facet.Assertion(name, passed) for name, passed in gates.items()]
    return {"dataQualityAssertions": facet.DataQualityAssertionsDatasetFacet(assertions)} if assertions else {}


class Lineage:
    def __init__(self, policy: Policy, client: Any) -> None:
        from openlineage.client.uuid import generate_new_uuid

        self._policy, self._client = policy, client
        self._run = str(generate_new_uuid())

    @classmethod
    def of(cls, policy: Policy) -> Self | None:
        """Return the lineage of a run, or None if no one asks for it; refuse a client that would print events."""
        if telemetry.OPENLINEAGE not in telemetry.wanted():
            return None
        from openlineage.client import OpenLineageClient

        try:
            client = OpenLineageClient()
        except Exception as error:  # noqa: BLE001  (the client's own types, which may quote its configuration)
            kind = type(error).__name__
        else:
            if client.transport.kind != "console" or client.config.transport:
                return cls(policy, client)
            kind = "no transport"
        msg = f"{telemetry.VARIABLE} names openlineage, and its client is not configured ({kind})"
        raise PolicyError(msg, "set OPENLINEAGE_URL, or name a transport in openlineage.yml (OPENLINEAGE_CONFIG)")

    def complete(self, summary: RunSummary) -> None:
        """Send the end of a run, with the rows that readers see now and their version."""
        from openlineage.client.facet_v2 import dataset_version_dataset, output_statistics_output_dataset

        facets: dict[str, Any] = {}
        with telemetry.never_failing("the published version"):
            manifest = Manifest.read(Layout.of(self._policy, summary.partition))
            if summary.version is not None and manifest is not None:
                version = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(summary.version))
                facets = {"version": version, "schema": _schema(manifest.schema), "tags": _tags(manifest)}
                facets[FACET] = _release(stated(manifest))
        passed = {gate["name"]: gate["passed"] for gate in summary.gates if gate["applicable"]}
        facets |= _assertions(passed or dict.fromkeys(facets[FACET].gates if facets else (), True))
        rows = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=summary.published_rows)
        self.send("COMPLETE", facets, {"outputStatistics": rows})

    def fail(self, code: str, gates: tuple[str, ...] = ()) -> None:
        """Send that the run failed, by the code of its error, and which gates failed."""
        from openlineage.client.facet_v2 import error_message_run

        error = error_message_run.ErrorMessageRunFacet(message=code, programmingLanguage="python")
        self.send("FAIL", _assertions(dict.fromkeys(gates, False)), run={"errorMessage": error})

    def send(self, state: str, dataset: Any = None, output: Any = None, run: Any = None) -> None:
        """Send an event with facets of the sink, of this output, and of the run."""
        with telemetry.never_failing(f"an OpenLineage event ({state})"):
            self._client.emit(self._event(state, dataset or {}, output or {}, run or {}))

    def _event(self, state: str, dataset: Any, output: Any, run: Any) -> Any:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

        source, sink = named(self._policy.source), named(self._policy.sink)
        schema = _schema(dict.fromkeys(shown_columns(self._policy)))
        facets = {"schema": schema, "columnLineage": self._columns(source), **dataset}
        return RunEvent(
            eventType=RunState[state],
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(self._run, run),
            job=Job(os.environ.get("OPENLINEAGE_NAMESPACE", "dptext"), self._policy.dataset),
            inputs=[InputDataset(*source)],
            outputs=[OutputDataset(*sink, facets=facets, outputFacets=output)],
            producer=_PRODUCER,
        )

    def _columns(self, source: tuple[str, str]) -> Any:
        """Say of every published column from which raw columns it is made, and how."""
        from openlineage.client.facet_v2 import column_lineage_dataset as facet

        def field(how: tuple[str, str, bool], raw: tuple[str, ...]) -> Any:
            subtype, words, masking = how
            step = facet.Transformation("DIRECT", subtype, words, masking)
            return facet.Fields([facet.InputField(*source, name, [step]) for name in raw])

        return facet.ColumnLineageDatasetFacet({name: field(how, raw) for name, how, raw in origins(self._policy)})


def origins(policy: Policy) -> Iterator[tuple[str, tuple[str, str, bool], tuple[str, ...]]]:
    """Yield every published column, how it is made (subtype, words, whether it hides), and from which raw columns."""
    if policy.synthetic is not None:
        table_mechanism, above = policy.synthetic.mechanism, policy.synthetic.columns
        amounts = f"epsilon {_written(table_mechanism.epsilon)}, delta {_written(table_mechanism.delta)}"
        words = f"synthetic table, {table_mechanism.name}: {amounts} of the whole table for one record"
        yield from ((name, ("AGGREGATION", words, True), above) for name in policy.synthetic.published_columns)
        return
    by_name = {str(item.column): item for item in policy.column_policies()}
    intermediate = {item.intermediate: item.name for item in policy.columns if item.intermediate is not None}
    coarse = {item.column for item in policy.kept if item.rule}
    for name in shown_columns(policy):
        raw = intermediate.get(name, name)
        if policy.shuffled is not None and name not in coarse:
            raw = policy.columns[0].name
        if raw not in by_name:
            keyed = name == policy.id and policy.ids == "keyed"
            how = ("TRANSFORMATION", "keyed hash of the id", True) if keyed else ("IDENTITY", "kept as it is", False)
            how = ("TRANSFORMATION", "coarsened", False) if name in coarse else how
            yield name, how, (name,)
            continue
        mechanism = by_name[raw].mechanism
        claim = mechanism.guarantee
        words = f"{mechanism.name}: epsilon {_written(mechanism.epsilon)} per {claim.unit}"
        if policy.shuffled is not None:
            worst = worst_spend(mechanism)
            central = f"epsilon {_written(worst.epsilon)}, delta {_written(worst.delta / FINE)} per record"
            words = f"shuffled draws, {words} each, and central {central}"
        words += f", class {claim.guarantee_class.value}"
        if by_name[raw].postprocess and name == raw:
            words += ", then post-processed"
        yield name, ("TRANSFORMATION", words, True), (raw,)


def _written(amount: float) -> str:
    """Write an amount with all its digits: a bound is never rounded down.

    >>> _written(2.0), _written(0.414001), _written(1e-9)
    ('2', '0.414001', '1e-09')
    """
    return repr(float(amount)).removesuffix(".0")


def named(place: str) -> tuple[str, str]:
    """Return namespace and name of a place, as OpenLineage's naming has them.

    >>> named("s3://bucket/raw/reviews.parquet"), named("/data/raw.parquet"), named("table:raw.reviews")
    (('s3://bucket', 'raw/reviews.parquet'), ('file', '/data/raw.parquet'), ('table', 'raw.reviews'))
    """
    if place.startswith(TABLE):
        return "table", place.removeprefix(TABLE)
    scheme, separator, rest = place.partition("://")
    if not separator or scheme == "file":
        return "file", str(Path(rest if separator else place).absolute())
    store, _, name = rest.partition("/")
    return f"{scheme}://{store.rpartition('@')[2]}", name or "/"
