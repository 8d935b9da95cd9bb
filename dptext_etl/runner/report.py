"""Report a run: its summary for people, logs, and JSON, and its events for OpenTelemetry and OpenLineage.

No report holds a text or an id, and one that fails never fails a run. OpenLineage's client sends events to where its
own configuration says (`OPENLINEAGE_URL`, `openlineage.yml`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from dptext_etl import __version__, telemetry
from dptext_etl.checks import Verdict
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.checks.verdict import status, tally
from dptext_etl.errors import DPTextError, PolicyError, counted
from dptext_etl.guarantee import FINE, MICRO
from dptext_etl.ledger import Ledger, Scope, anchor_files
from dptext_etl.mechanism import worst_spend
from dptext_etl.policy import Policy
from dptext_etl.policy.terms import TABLE
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.progress import Listener, Progress
from dptext_etl.runner.publish.manifest import policy_notes, stated
from dptext_etl.runner.publish.publication import Published
from dptext_etl.runner.shard.attempt import ledger_of_run
from dptext_etl.runner.shard.charging import refund_notes, spend_facts, total_spends
from dptext_etl.runner.shard.staging import READING, StagedRun
from dptext_etl.runner.source.roles import shown_columns

_TITLES = {"quarantined": "excluded over the cap", "over_contribution": "excluded beyond per_subject"}
NO_BUDGET_USED = "no budget used: no record was new to this release"


@dataclass(frozen=True)
class RunSummary:
    """The outcome of a run.

    Attributes:
        dataset: Name of the dataset.
        release: Name of the release.
        partition: Name of the partition, or None.
        version: Version that readers now see, or None.
        changed: Whether this run made a new version.
        rows: read, already_published, new, resumed, replayed, quarantined, forgotten (if any), released, null; and if
            there are any, without_subject, changed_kept, changed_excluded, changed_released.
        draws: Draws made for the released rows, over all text columns, without canary rows: one of a word, a token or a
            text, as the mechanism draws.
        seconds: Duration of the run.
        draws_per_second: Draws over seconds.
        spend: By component, the sum over the released records and the largest record; log10_odds of the largest.
        remaining: Quantiles of the use and the rest of units in the scope, in millionths (`Ledger.remaining`).
        gates: The verdicts.
        reports: Copy counts of the whole run and their bounds; they stay inside the boundary.
        published: Folder or URL of the published table, or None.
        published_rows: Rows that readers now see.
        manifest: SHA-256 of the manifest, or None.
        staging: The staging folder, inside the boundary.
        notes: Further facts, in sentences.
        profile: The cost of each stage: name, seconds, cpu_seconds, rows, bytes, peak_memory (`runner.progress`). Of a
            run in several processes, the stages of the last one.
        table: Findings about the table around the texts: `traceable`, rows that kept columns single out;
            `spellings` of persons; `selection`, rows that caps keep and that are excluded from each period.
        audiences: The tables of audiences: audience, version, path, manifest, rows, changed, note, gates.
    """

    dataset: str
    release: str
    partition: str | None
    version: int | None
    changed: bool
    rows: dict[str, int]
    draws: int
    seconds: float
    draws_per_second: float
    spend: dict[str, Any]
    remaining: dict[str, Any]
    gates: list[dict[str, Any]]
    reports: list[dict[str, Any]]
    published: str | None
    published_rows: int
    manifest: str | None
    staging: str
    notes: list[str]
    profile: list[dict[str, Any]] = field(default_factory=list)
    table: dict[str, Any] = field(default_factory=dict)
    audiences: list[dict[str, Any]] = field(default_factory=list)

    def __repr__(self) -> str:
        rows = f"{counted(self.rows['released'], 'row')} released, {self.rows['new']:,} new"
        return f"RunSummary({self.dataset} {self.release}, {rows}, gates: {tally(self.gates)}, version {self.version})"

    def _repr_html_(self) -> str:
        """Show the outcome in a notebook."""
        from dptext_etl import markup

        largest = self.spend.get("largest_record", {})
        about = {
            "published": self.published,
            "version": self.version,
            "rows readers see": self.published_rows,
            **shown_rows(self.rows),
            "largest epsilon of a record": largest.get("eps_approx"),
            "notes": " · ".join(self.notes),
        }
        gates = [(gate["name"], status(gate), gate["message"]) for gate in self.gates]
        head = markup.facts(f"{self.dataset} {self.release}", about)
        beyond = [(item["name"], "BEYOND CHANCE", item["message"]) for item in self.reports if not item["passed"]]
        reports = markup.table("reports", ("report", "", "outcome"), beyond) if beyond else ""
        return head + markup.table("gates", ("gate", "", "outcome"), gates) + reports

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as JSON can hold them."""
        return dict(vars(self))


def shown_rows(rows: Mapping[str, int]) -> dict[str, int]:
    """Return counts of rows under the names that people see."""
    return {_TITLES.get(name, name.replace("_", " ")): count for name, count in rows.items()}


def remaining(policy: Policy, ledger: Ledger | None = None) -> dict[str, Any]:
    """Return the remaining budget in the scope of a policy; publishing spends nothing."""
    with ledger_of_run(policy, ledger) as opened:
        return opened.remaining(Scope.of(policy)).as_dict()


def summarize(
    staged: StagedRun,
    verdicts: Sequence[Verdict],
    published: Published,
    seconds: float,
    *,
    reported: Sequence[Mapping[str, Any]],
    left: dict[str, Any],
    audiences: Sequence[tuple[StagedRun, Sequence[Verdict], Published]] = (),
) -> RunSummary:
    policy, layout, spends = staged.policy, staged.layout, total_spends(shard.spends for shard in staged.shards)
    draws = sum(shard.counts["words"] for shard in staged.shards)
    return RunSummary(
        dataset=policy.dataset,
        release=policy.release,
        partition=layout.partition,
        version=published.version,
        changed=published.changed,
        rows=staged.rows,
        draws=draws,
        seconds=round(seconds, 3),
        draws_per_second=round(draws / seconds, 1) if seconds > 0 else 0.0,
        spend=spend_facts(spends),
        remaining=left,
        gates=[verdict.as_dict() for verdict in verdicts],
        reports=[dict(item) for item in reported],
        published=published.path,
        published_rows=published.rows,
        manifest=published.manifest,
        staging=layout.staging.url,
        notes=[published.note, *_notes(staged), *policy_notes(policy), *refund_notes(spends)],
        profile=staged.profile.as_list(),
        table=staged.table,
        audiences=[
            {"audience": run.policy.audience, **asdict(done), "gates": [verdict.as_dict() for verdict in judged]}
            for run, judged, done in audiences
        ],
    )


def _notes(staged: StagedRun) -> list[str]:
    rows, listed = staged.rows, f"only a file in {staged.layout.staging.url} lists their ids"
    again = "in the source again and excluded; remove them from it, or admit them by id with `dptext ledger readmit`"
    take = f"excluded: per_subject = {staged.policy.records_per_subject} of a person count"
    nameless = 'excluded (on_null_subject = "quarantine")'
    reasons = {
        "quarantined": ("record over the cap was", "records over the cap were", f"excluded; {listed}"),
        "without_subject": ("row without a person was", "rows without a person were", nameless),
        "changed_kept": ("record", "records", f"changed: their earlier released texts are published; {listed}"),
        "changed_excluded": ("record", "records", f"changed: they were excluded; {listed}"),
        "changed_released": ("record", "records", f"changed: they were charged for their new texts as well; {listed}"),
        "over_contribution": ("record was", "records were", take),
        "forgotten": ("record that was forgotten is", "records that were forgotten are", again),
    }
    notes = [f"{counted(rows[name], *whose)} {what}" for name, (*whose, what) in reasons.items() if rows.get(name)]
    failed = sum(sum(shard.post.get("failed", {}).values()) for shard in staged.shards)
    if failed:
        notes.append(f"{counted(failed, 'text')} stayed as released: the model of a post-processing failed there")
    if staged.policy.synthetic is None:
        notes.append(f"a report on the texts is in {staged.layout.staging.location(READING)}")
    elif staged.policy.synthetic.labels is not None:
        first = "label texts with the classifier of the release (`dptext label`) before you train on its table; "
        first += "`dptext evaluate` compares both with guesses that need no private text, and says which of them loses"
        notes.insert(0, first)
    if staged.dropped:
        notes.append(f"columns that the policy does not name were dropped unread: {', '.join(staged.dropped)}")
    if rows["read"] and not rows["new"] and not rows.get("changed_released"):
        notes.append(NO_BUDGET_USED)
    return notes


Step = Literal["run", "staging", "checking", "publishing"]
"""A whole run, or one of the three steps of Dagster."""


class Observed:
    """A run with the listener of its progress, which notes when phases begin and end if the run is reported."""

    def __init__(self, policy: Policy, step: Step, progress: Listener | None) -> None:
        self._reports, self._listener = bool(telemetry.wanted()), progress
        self.progress = self._note if self._reports else progress
        self._names = {"dataset": policy.dataset, "release": policy.release}
        self._policy, self._step = policy, step
        self.failed: tuple[str, ...] = ()  # names of gates
        self._began, self._clock = time.time_ns(), time.monotonic()
        self._phases: dict[str, tuple[int, int, int]] = {}  # first and last report, rows
        self._lineage = Lineage.of(policy) if self._reports and step in {"run", "publishing"} else None
        if self._lineage is not None:
            self._lineage.send("START")

    def _note(self, report: Progress) -> None:
        now = time.time_ns()
        began, *_ = self._phases.get(report.phase, (now,))
        self._phases[report.phase] = began, now, report.rows_done
        if self._listener is not None:
            self._listener(report)

    def done(self, summary: RunSummary) -> RunSummary:
        """Report the outcome of a run, and return it."""
        if not self._reports:
            return summary
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
        left = summary.remaining  # in millionths
        where = {"scope": left["scope"], "unit": left["unit"]}
        telemetry.count("dptext.scope.units", left["units"], **where)
        telemetry.count("dptext.scope.exhausted", left["exhausted"], **where)
        for component, limit in left["limits"].items():
            telemetry.count("dptext.scope.limit", limit / MICRO, **where, component=component)
        for name in ("used", "left"):
            for component, quantiles in left[name].items():
                for quantile, micros in quantiles.items():
                    amount = float(micros) / MICRO
                    telemetry.count(f"dptext.scope.{name}", amount, **where, component=component, quantile=quantile)
        with telemetry.never_failing("the age of the last verification"):
            spec, options = self._policy.ledger, self._policy.storage_options
            with Ledger.open(spec.url, spec.id_key, create=False, read_only=True) as ledger:
                age = anchor_files.seconds_since_verified(ledger, spec.anchors, options)
            if age is not None:
                telemetry.count(anchor_files.METRIC, age, ledger=ledger.ledger_id)
        if self._lineage is not None:
            self._lineage.complete(summary)
        return summary

    def ended(self, outcome: str) -> None:
        """Report the end, its duration and its spans; `outcome` is "ok", "unexpected", or the code of an error."""
        if not self._reports:
            return
        names = self._names
        telemetry.count("dptext.runs", 1, **names, step=self._step, outcome=outcome)
        took = time.monotonic() - self._clock
        telemetry.count("dptext.run.duration", took, dataset=names["dataset"], step=self._step, outcome=outcome)
        if outcome in {"ok", "frozen"}:
            telemetry.count("dptext.ledger.frozen", outcome == "frozen", dataset=names["dataset"])
        if telemetry.OPENTELEMETRY in telemetry.wanted():
            with telemetry.never_failing("the trace of a run"):
                from opentelemetry import trace
                from opentelemetry.trace import Status, StatusCode

                tracer = trace.get_tracer_provider().get_tracer(telemetry.SCOPE)
                facts = {f"dptext.{name}": value for name, value in names.items()}
                whole = tracer.start_span(f"dptext.{self._step}", start_time=self._began, attributes=facts)
                inside = trace.set_span_in_context(whole)
                for phase, (began, ended, rows) in self._phases.items():
                    counts, name = {"dptext.rows": rows}, f"dptext.phase.{phase}"
                    tracer.start_span(name, inside, start_time=began, attributes=counts).end(ended)
                whole.set_attribute("dptext.outcome", outcome)
                if outcome != "ok":
                    whole.set_status(Status(StatusCode.ERROR, outcome))
                whole.end()
        if outcome != "ok" and self._lineage is not None:
            self._lineage.fail(outcome, self.failed)


@contextmanager
def observed(policy: Policy, progress: Listener | None, step: Step = "run") -> Iterator[Observed]:
    """Report the block as a run, or as a step of one, if `DPTEXT_TELEMETRY` asks for it."""
    run = Observed(policy, step, progress)
    outcome = "unexpected"
    try:
        yield run
        outcome = "ok"
    except DPTextError as error:
        outcome, run.failed = error.code, tuple(error.fields.get("failed", ()))
        raise
    finally:
        run.ended(outcome)


FACET = "dptext_release"
"""The facet of the output, with the claims of the data contract of an export (docs/telemetry.md#lineage)."""
_PRODUCER = f"urn:dptext-etl:{__version__}"  # OpenLineage names producers by URI


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
        from openlineage.client.facet_v2 import DatasetFacet, dataset_version_dataset, output_statistics_output_dataset

        facets: dict[str, Any] = {}
        with telemetry.never_failing("the published version"):
            manifest = Manifest.read(Layout.of(self._policy, summary.partition))
            if summary.version is not None and manifest is not None:
                version = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(summary.version))
                facets = {"version": version, "schema": _schema(manifest.schema), "tags": _tags(manifest)}
                facets[FACET] = DatasetFacet(producer=_PRODUCER).with_additional_properties(**stated(manifest))
                # the client sets its base class's URL
                facets[FACET]._schemaURL = f"{_PRODUCER}:ReleaseDatasetFacet"  # noqa: SLF001
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
            from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

            source, sink = named(self._policy.source), named(self._policy.sink)
            schema = _schema(dict.fromkeys(shown_columns(self._policy)))
            facets = {"schema": schema, "columnLineage": self._columns(source), **(dataset or {})}
            event = RunEvent(
                eventType=RunState[state],
                eventTime=datetime.now(UTC).isoformat(),
                run=Run(self._run, run or {}),
                job=Job(os.environ.get("OPENLINEAGE_NAMESPACE", "dptext"), self._policy.dataset),
                inputs=[InputDataset(*source)],
                outputs=[OutputDataset(*sink, facets=facets, outputFacets=output or {})],
                producer=_PRODUCER,
            )
            self._client.emit(event)

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
