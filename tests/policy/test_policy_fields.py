"""Every door passes a policy whole: no field is dropped on the way, also one that is added tomorrow."""

import json

import pytest

from dptext_etl import Policy
from dptext_etl.checks.great_expectations import tallies
from dptext_etl.engines.spark import tasks
from dptext_etl.engines.spark.worker_policy import WorkerPolicy
from dptext_etl.guarantee import Disclosure
from dptext_etl.policy import ColumnPolicy, run_policy
from dptext_etl.policy.column_policy import ColumnSpec
from dptext_etl.policy.terms import Audience, Cap, CsvSpec, DagsterSpec, LedgerSpec, Retention, TableSpec

from ..toy_mechanisms import again  # noqa: F401  (a fixture)

TABLES = {"shuffled", "synthetic"}  # of releases that leave most other fields out
ONE_RELEASE = {"rho", "per_subject", "source_catalog", *TABLES}  # other tests hold them
RULED_OUT = {"subject": {"unit", "publish", *ONE_RELEASE}, "record": {"normalize", "on_null_subject", *ONE_RELEASE}}
"""Fields that keep their default next to the others, by the unit of the policy."""

TOML = """
dataset = "films"
environment = "production"
release = "r7"
source = "raw-{partition}.parquet"
csv = { separator = ";", encoding = "cp1252", quote = "'", types = { stars = "Int64" } }
sink = "s3://bucket/out-{partition}"
table = { format = "iceberg", name = "films.p{partition}", catalog = { type = "sql", uri = "env:CATALOG_URI" } }
compression = "snappy"
id = "number"
ids = "keyed"
subject = "person"
TERMS
keep = ["stars"]
keep_unique = "accepted"
keep_copies = ["stars"]
strict_columns = true
key = "env:FILMS_SECRET"
on_cap = "refuse"
on_changed = "keep"
min_released = 0.25
incremental = true
deletions = "keep"
staging = "inside"
storage_options = { aws_region = "eu-central-1" }
shard_rows = 1234
shard_bytes = 54321
sql_function = false
copy_gate_false_alarm = 1e-7
reports = ["copies"]
ledger = { url = "env:LEDGER_SECRET_URL", id_key = "env:IDS_SECRET", anchors = "anchors", require_anchors = true }
cap = { measure = "approx", epsilon = 500.0, delta = 1e-3, period = "2026", group = "cinema" }
retention = { versions = 2, staging_days = 3.0, quarantine_days = 4.0, kept_days = 5.0 }
dagster = { tags = { team = "films" } }

[[audience]]
name = "analysts"
sink = "s3://bucket/analysts-{partition}"
keep = ["genre"]
ids = "drop"

[[column]]
name = "review"
mechanism = { name = "custext", epsilon = 2.0, k = 10, vectors = "VECTORS", variant = "plus" }
allow = ["cluster", "stopwords"]
accept_unbounded = ["UMLDP"]
postprocess = [{ name = "again" }]
keep_intermediate = true
"""


@pytest.fixture(params=RULED_OUT)
def policy(request, tmp_path, small_vectors, monkeypatch, again):  # noqa: F811
    path = tmp_path / "policy.toml"
    entries = {
        "subject": 'normalize = ["nfc", "casefold"]\non_null_subject = "own"',
        "record": 'unit = "record"\npublish = false',
    }
    path.write_text(TOML.replace("VECTORS", str(small_vectors)).replace("TERMS", entries[request.param]))
    monkeypatch.setenv("LEDGER_SECRET_URL", "postgresql://127.0.0.1/dptext")
    return Policy.load(path)


def test_no_field_has_its_default(policy):
    """Else a door that drops it goes unnoticed: give the new field a value above."""
    parts = [
        policy,
        policy.ledger,
        policy.cap,
        policy.retention,
        policy.dagster,
        policy.csv,
        policy.table,
        policy.columns[0],
        policy.audiences[0],
    ]
    assert [type(part) for part in parts] == [
        Policy,
        LedgerSpec,
        Cap,
        Retention,
        DagsterSpec,
        CsvSpec,
        TableSpec,
        ColumnSpec,
        Audience,
    ]
    for part in parts:
        for name, field in type(part).model_fields.items():
            if name not in RULED_OUT[policy.unit] and not field.is_required():
                assert getattr(part, name) != field.get_default(call_default_factory=True), name


def facts(policy):
    return json.loads(json.dumps(policy.model_dump(mode="json", by_alias=True), sort_keys=True))


def test_its_own_words(policy):
    assert facts(Policy.parse(facts(policy))) == facts(policy)


def test_entries_of_a_run_over_a_frame(policy):
    assert facts(run_policy(policy, {"release": "r8"})) == {**facts(policy), "release": "r8"}


def test_tasks_on_spark_get_all_but_storage_options(policy):
    there = facts(Policy.parse(json.loads(tasks.policy_json(policy))))
    expected = {**facts(policy), "storage_options": {}}
    expected["ledger"] = tasks.for_workers(policy.ledger).model_dump(mode="json")
    assert there == expected


def test_sets_of_names_are_written_in_order(policy):
    everything = [item.value for item in Disclosure]
    allowing = {**facts(policy)["column"][0], "allow": everything}
    written = Policy.parse({**facts(policy), "column": [allowing]})
    assert facts(written)["column"][0]["allow"] == sorted(everything)
    assert written.column_policy().model_dump(mode="json")["allow"] == sorted(everything)


def test_expectations_get_all_but_storage_options(policy):
    assert facts(tallies.parse_policy(tallies.written(policy))) == {**facts(policy), "storage_options": {}}


@pytest.fixture
def column(policy):
    return policy.column_policies()[0]


def test_a_column_has_every_field_of_its_policy(policy, column):
    spec = policy.columns[0]
    for name in (set(ColumnSpec.model_fields) | set(Policy.model_fields)) & set(ColumnPolicy.model_fields):
        owner = spec if name in ColumnSpec.model_fields else policy
        if name != "mechanism":
            assert getattr(column, name) == getattr(owner, name), name
    assert column.mechanism.cfg() == spec.mechanism.cfg()
    assert column.column == spec.name


def test_a_run_over_a_frame_from_the_policy_of_one_column(column, tmp_path):
    entries = {
        "sink": str(tmp_path / "out"),
        "staging": str(tmp_path / "inside"),
        "ledger": str(tmp_path / "ledger.db"),
        "id": "number",
        "unit": "record",
    }
    there = run_policy(column, entries).column_policies()[0]
    assert facts(there) == facts(column)


def test_workers_of_spark_get_every_field_of_a_column(column):
    bare = column.model_copy(update={"postprocess": (), "keep_intermediate": False, "nonce": 3})
    assert facts(WorkerPolicy.of(bare, {}).column_policy()) == facts(bare)
