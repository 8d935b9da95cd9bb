"""What runs report to OpenTelemetry and OpenLineage, by real exporters: counts and amounts; no value, id or text."""

import json
import re
import subprocess
import sys

import polars as pl
import pytest

from dptext_etl import __version__, run, telemetry
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.errors import GateError, LedgerError, PolicyError
from dptext_etl.families.stored_distributions import TableMechanism
from dptext_etl.guarantee import FINE
from dptext_etl.ledger import Ledger
from dptext_etl.ledger.anchor_files import maintain
from dptext_etl.mechanism import Released, worst_spend
from dptext_etl.runner.layout import Layout
from dptext_etl.runner.publish.export import contract
from dptext_etl.runner.report import named

from ..later import later
from ..review_jobs import SENTINEL

pytest.importorskip("opentelemetry.sdk", reason="the SDK of OpenTelemetry is not installed (extra: dev)")

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

later("openlineage.client", reason="openlineage-python is not installed (extra: telemetry)")

PRIVATE = re.compile(rf"{SENTINEL}|\br\d{{5}}\b|\bu\d{{3}}\b|\bword[a-z]{{2}}\b")
"""Raw texts, record ids, subject ids and words of texts, as `make_reviews` makes them."""


class Reported:
    """Everything that exporters got."""

    def __init__(self, folder):
        self.reader, self.exporter, self.file = InMemoryMetricReader(), InMemorySpanExporter(), folder / "lineage.json"
        self.meters, self.tracers = MeterProvider([self.reader]), TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def metrics(self):
        return self.reader.get_metrics_data().to_json()

    @property
    def spans(self):
        return self.exporter.get_finished_spans()

    @property
    def events(self):
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def points(self):
        """All points by metric: the attributes as a set, and the value, or the count of a histogram."""
        found = {}
        for metric in json.loads(self.metrics)["resource_metrics"][0]["scope_metrics"][0]["metrics"]:
            for point in metric["data"]["data_points"]:
                key = frozenset(point["attributes"].items())
                found.setdefault(metric["name"], {})[key] = point.get("value", point.get("count"))
        return found

    def value(self, name, **attributes):
        (found,) = (value for key, value in self.points()[name].items() if frozenset(attributes.items()) <= key)
        return found

    def require_no_private_data(self):
        exported = [self.metrics, *(span.to_json() for span in self.spans), json.dumps(self.events)]
        assert not [PRIVATE.search(text) for text in exported if PRIVATE.search(text)]


@pytest.fixture
def reported(tmp_path, monkeypatch):
    found = Reported(tmp_path)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: found.meters)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: found.tracers)
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(found.file))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    monkeypatch.setenv(telemetry.VARIABLE, "opentelemetry, openlineage")
    return found


def test_what_counts_as_private_is_found_in_every_raw_cell(reviews):
    for name in ("id", "user_id", "review", "secret"):
        assert all(PRIVATE.search(cell) for cell in reviews()[name].to_list())


def test_a_run_reports_what_its_summary_says(job, reported):
    summary = job.run()
    for outcome, rows in summary.rows.items():
        assert reported.value("dptext.rows", dataset="reviews", release="2026-11", outcome=outcome) == rows
    assert reported.value("dptext.draws") == summary.draws
    assert reported.value("dptext.runs", step="run", outcome="ok") == 1
    assert {dict(key)["stage"] for key in reported.points()["dptext.stage.duration"]} == {
        cost["name"] for cost in summary.profile
    }
    verdicts = reported.points()["dptext.gate.verdicts"]
    assert {dict(key)["gate"] for key in verdicts} == {gate["name"] for gate in summary.gates}
    assert all(dict(key)["passed"] for key in verdicts)
    assert reported.value("dptext.gate.failed") == reported.value("dptext.ledger.frozen") == 0
    assert reported.value("dptext.ledger.wait.duration", reason="ledger") > 0
    largest = {"over": "largest_record", "component": "eps_pure"}
    assert reported.value("dptext.run.spend", **largest) == summary.spend["largest_record"]["eps_pure"]
    left = summary.remaining["left"]["eps_pure"]
    scope = {"scope": summary.remaining["scope"], "unit": "subject"}
    assert reported.value("dptext.scope.limit", **scope, component="eps_pure") == 1000.0
    for quantile, amount in left.items():
        found = reported.value("dptext.scope.left", **scope, component="eps_pure", quantile=quantile)
        assert found == amount / 1_000_000
    assert reported.value("dptext.scope.units", **scope) == 40
    assert reported.value("dptext.scope.exhausted", **scope) == 0
    with job.ledger() as ledger:
        maintain(ledger)
    assert set(reported.points()) == set(telemetry.METRICS)
    job.run()
    assert 0 <= reported.value("dptext.ledger.verified.age") < 3600
    reported.require_no_private_data()


def test_spans_are_the_run_and_its_phases(job, reported):
    seen = []
    run(job.policy(), progress=seen.append)
    (whole,) = (span for span in reported.spans if span.name == "dptext.run")
    phases = [span for span in reported.spans if span is not whole]
    assert {span.name for span in phases} == {f"dptext.phase.{report.phase}" for report in seen}
    assert all(span.parent.span_id == whole.context.span_id for span in phases)
    assert all(whole.start_time <= span.start_time <= span.end_time <= whole.end_time for span in phases)
    assert dict(whole.attributes) == {"dptext.dataset": "reviews", "dptext.release": "2026-11", "dptext.outcome": "ok"}


def test_lineage_names_columns_mechanism_and_epsilon(job, reported):
    summary = job.run()
    start, complete = reported.events
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert complete["job"] == {"namespace": "dptext", "name": "reviews", "facets": {}}
    (source,), (sink,) = complete["inputs"], complete["outputs"]
    assert (source["namespace"], source["name"]) == ("file", str(job.folder / "raw.parquet"))
    assert (sink["namespace"], sink["name"]) == ("file", str(job.folder / "published"))
    assert sink["outputFacets"]["outputStatistics"]["rowCount"] == summary.published_rows
    assert sink["facets"]["version"]["datasetVersion"] == "1"
    tags = {(tag.get("field"), tag["key"]): tag["value"] for tag in sink["facets"]["tags"]["tags"]}
    claims = {"dptext.guarantee": "COND_PURE", "dptext.unit": "word", "dptext.epsilon": "2"}
    each = {(column, key): value for column in ("review", "note") for key, value in claims.items()}
    assert tags == {(None, "dptext.release"): "2026-11", **each}
    fields = sink["facets"]["columnLineage"]["fields"]
    assert set(fields) == {"id", "stars", "review", "note"}
    (made,) = fields["review"]["inputFields"]
    assert (made["name"], made["field"]) == (str(job.folder / "raw.parquet"), "review")
    (step,) = made["transformations"]
    assert step["masking"] is True
    assert step["description"].startswith("custext: epsilon 2 per word, class ")
    assert [item["masking"] for item in fields["id"]["inputFields"][0]["transformations"]] == [False]


def test_lineage_states_what_the_contract_of_an_export_states(job, reported):
    summary = job.run()
    start, complete = (event["outputs"][0]["facets"] for event in reported.events)
    manifest = Manifest.read(Layout.of(job.policy()))
    written = contract(manifest)
    (table,) = written["schema"]
    said = complete["dptext_release"]
    assert said["_producer"] == f"urn:dptext-etl:{__version__}"
    assert said["_schemaURL"] == f"urn:dptext-etl:{__version__}:ReleaseDatasetFacet"
    whole = {item["property"]: item["value"] for item in written["customProperties"] if item["property"] != "format"}
    assert {name: said[name] for name in whole} == whole
    assert said["gates"] == [check["name"] for check in table["quality"] if check["name"] != "rows"]
    for column in table["properties"]:
        claims = {item["property"]: item["value"] for item in column.get("customProperties", ())}
        assert {f"dptext_{name}": value for name, value in said["columns"].get(column["name"], {}).items()} == claims
    assert said["columns"]["review"]["unit_epsilon"] == 2.0
    types = [(field["name"], field["type"]) for field in complete["schema"]["fields"]]
    assert types == [(column["name"], column["physicalType"]) for column in table["properties"]]
    assert "dptext_release" not in start
    verdicts = complete["dataQualityAssertions"]["assertions"]
    assert [(item["assertion"], item["success"]) for item in verdicts] == [
        (gate["name"], True) for gate in summary.gates
    ]
    job.run()  # nothing is new, so no gate judges again
    assert reported.events[-1]["outputs"][0]["facets"]["dataQualityAssertions"]["assertions"] == verdicts


def test_a_gate_that_fires_is_reported_and_quotes_nothing(job, reported, monkeypatch):
    def passing_through(self, texts, keys):
        return Released(texts.cast("large_string"), self.positions(texts))

    monkeypatch.setattr(TableMechanism, "release", passing_through)
    with pytest.raises(GateError) as caught:
        job.run()
    assert reported.value("dptext.gate.failed") > 0
    assert reported.value("dptext.runs", outcome="gate") == 1
    (whole,) = (span for span in reported.spans if span.name == "dptext.run")
    assert whole.status.status_code is StatusCode.ERROR
    assert whole.status.description == "gate"
    assert not whole.events  # no exception with its message and frames
    assert [event["eventType"] for event in reported.events] == ["START", "FAIL"]
    assert reported.events[1]["run"]["facets"]["errorMessage"]["message"] == "gate"
    verdicts = reported.events[1]["outputs"][0]["facets"]["dataQualityAssertions"]["assertions"]
    assert {item["assertion"]: item["success"] for item in verdicts} == dict.fromkeys(
        caught.value.fields["failed"], False
    )
    reported.require_no_private_data()


def test_an_error_of_a_library_that_quotes_a_cell_is_reported_by_its_kind_alone(job, reported, monkeypatch):
    def broken(*_, **__):
        raise ValueError(SENTINEL)

    monkeypatch.setattr("dptext_etl.engines.engine._all_steps", broken)
    with pytest.raises(ValueError, match=SENTINEL):
        job.run()
    assert reported.value("dptext.runs", outcome="unexpected") == 1
    reported.require_no_private_data()


def test_a_frozen_ledger_is_an_outcome_of_its_own(job, reported):
    job.run()
    with Ledger.open(job.policy().ledger.url) as ledger:
        ledger.losses.freeze("reviews", "a test")
    with pytest.raises(LedgerError, match="is frozen"):
        job.run(release="2026-12")
    assert reported.value("dptext.runs", release="2026-12", outcome="frozen") == 1
    assert reported.value("dptext.ledger.frozen", dataset="reviews") == 1


def test_lineage_that_cannot_be_sent_fails_no_run(job, reported, monkeypatch, caplog):
    from openlineage.client.transport.file import FileTransport

    def broken(self, event):
        raise OSError(f"could not send {SENTINEL}")

    monkeypatch.setattr(FileTransport, "emit", broken)
    assert job.run().version == 1
    assert "an OpenLineage event (COMPLETE) could not be reported: OSError" in caplog.text
    assert SENTINEL not in caplog.text


@pytest.mark.parametrize("asked", ["prometheus", "opentelemetry,zipkin"])
def test_another_destination_is_refused_before_anything_is_charged(job, reported, monkeypatch, asked):
    monkeypatch.setenv(telemetry.VARIABLE, asked)
    with pytest.raises(PolicyError, match=r"DPTEXT_TELEMETRY names(.|\n)*allowed: opentelemetry, openlineage"):
        job.run()
    assert not (job.folder / "ledger.db").exists()


def test_lineage_without_a_transport_is_refused(job, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(telemetry.VARIABLE, "openlineage")
    for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PolicyError, match=r"client is not configured(.|\n)*set OPENLINEAGE_URL"):
        job.run()
    assert not (job.folder / "ledger.db").exists()


def test_nothing_is_imported_or_reported_unless_it_is_asked_for(job):
    code = f"""
import sys
from dptext_etl import Policy, run
run(Policy.parse({job.policy().model_dump(mode="json", by_alias=True)!r}))
assert not [name for name in sys.modules if name.partition(".")[0] in ("opentelemetry", "openlineage")]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(telemetry, "find_spec", lambda name: None)
    monkeypatch.setenv(telemetry.VARIABLE, "openlineage")
    with pytest.raises(PolicyError, match=r"names openlineage, and its package is not installed"):
        telemetry.wanted()


def test_a_worker_that_lacks_the_package_reports_nothing_and_goes_on(monkeypatch):
    monkeypatch.setattr(telemetry, "find_spec", lambda name: None)
    monkeypatch.setenv(telemetry.VARIABLE, "opentelemetry")
    with telemetry.waiting("lock"):
        pass


@pytest.mark.thorough
def test_dagster_reports_its_steps_and_the_rows_once(job, reported):
    dg = pytest.importorskip("dagster", reason="dagster is not installed")
    from dptext_etl.orchestration import build_definitions

    definitions = build_definitions(job.policy())
    (name,) = (made.name for made in definitions.resolve_all_job_defs() if made.name.startswith("run_"))
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        done = definitions.resolve_job_def(name).execute_in_process(run_config=quiet, instance=instance)
    assert done.success
    assert {span.name for span in reported.spans if span.parent is None} == {"dptext.staging", "dptext.publishing"}
    assert reported.value("dptext.rows", outcome="released") == 240
    assert reported.value("dptext.runs", step="staging") == reported.value("dptext.runs", step="publishing") == 1
    assert reported.value("dptext.gate.failed") == 0
    assert [event["eventType"] for event in reported.events] == ["START", "COMPLETE"]
    reported.require_no_private_data()


def test_a_synthetic_table_is_made_of_all_its_columns(make_synthetic, reported):
    make_synthetic().run()
    fields = reported.events[-1]["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert set(fields) == {"review", "topic"}
    for made in fields.values():
        assert [item["field"] for item in made["inputFields"]] == ["review", "topic"]
        (step,) = made["inputFields"][0]["transformations"]
        assert (step["subtype"], step["masking"]) == ("AGGREGATION", True)
        assert (
            step["description"] == "synthetic table, maxent: epsilon 2, delta 1e-09 of the whole table for one record"
        )
    assert reported.value("dptext.rows", outcome="released") == 240
    assert not re.search(
        f"{SENTINEL}|play the new album|pain in my back", reported.metrics + json.dumps(reported.events)
    )


def test_a_shuffled_release_names_no_column_but_its_labels_texts_and_counts(job, reported, reviews, save):
    save(reviews().with_columns(topic=pl.lit("food")), job.folder / "raw.parquet")
    job.values |= {
        "column": [{"name": "review", "mechanism": {"name": "surrogate", "epsilon": 2.0, "corpus": "example"}}],
        "keep": [],
        "shuffled": {"rows": 200, "delta": 1e-9, "per_subject": 6, "form": "counts"},
        "cap": {"measure": "approx", "epsilon": 1000.0, "delta": 1e-5, "period": "2026"},
    }
    job.values["shuffled"]["labels"] = {"column": "topic", "values": ["food"]}
    job.run()
    worst = worst_spend(job.policy().column_policies()[0].mechanism)
    fields = reported.events[-1]["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert set(fields) == {"topic", "review", "count"}
    (label,) = fields.pop("topic")["inputFields"]
    assert (label["field"], label["transformations"][0]["description"]) == ("topic", "coarsened")
    for made in fields.values():
        (found,) = made["inputFields"]
        assert found["field"] == "review"
        said = found["transformations"][0]["description"]
        assert said.startswith("shuffled draws, surrogate: epsilon 2 per text each, and central epsilon ")
        central = re.search(r"central epsilon (\S+), delta (\S+) per record, class SHUFFLED_APPROX", said)
        assert float(central[1]) == worst.epsilon < 2.0
        assert float(central[2]) == worst.delta / FINE
    reported.require_no_private_data()


def test_places_have_the_names_of_the_standard():
    assert named("s3://bucket/raw/reviews.parquet") == ("s3://bucket", "raw/reviews.parquet")
    assert named("https://user:secret@host/a.csv") == ("https://host", "a.csv")
    assert named("file:///data/raw.parquet") == named("/data/raw.parquet") == ("file", "/data/raw.parquet")


class Broken:
    """Providers that cannot be loaded, or whose parts fail, with messages that may quote anything."""

    def get_meter(self, *_):
        raise RuntimeError(f"exporter at https://user:{SENTINEL}@host")

    get_tracer = get_meter


def test_what_cannot_be_reported_changes_no_run(reported, make_job, monkeypatch, caplog):
    silent, job = make_job("silent"), make_job("broken")
    monkeypatch.setattr(metrics, "get_meter_provider", Broken)
    monkeypatch.setattr(trace, "get_tracer_provider", Broken)
    assert job.run().rows["released"] == 240
    monkeypatch.delenv(telemetry.VARIABLE)
    silent.run()
    assert job.files() == silent.files()
    monkeypatch.setenv(telemetry.VARIABLE, "opentelemetry")
    with pytest.raises(PolicyError, match="keep"):
        job.run(keep=["review"])
    assert "RuntimeError" in caplog.text
    assert SENTINEL not in caplog.text
