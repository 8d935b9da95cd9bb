"""The Dagster component: YAML becomes the same definitions as Python, and scaffolding writes files that load."""

import importlib.metadata
import shutil

import polars as pl
import pytest

from dptext_etl.errors import InputError, PolicyError
from dptext_etl.policy import Policy
from tests.later import later
from tests.policy_files import custext_column, write_policy

dg = later("dagster", reason="dagster is not installed")
trees = later("dagster.components.core.component_tree")
resolved = later("dagster.components.resolved.errors")
components = later("dptext_etl.orchestration.component")
STEPS = ("staged_notes", "published_notes")


@pytest.fixture
def folder(tmp_path, small_vectors):
    column = custext_column(small_vectors, "note")
    places = {"source": "raw/{partition}.parquet", "sink": "published/{partition}", "key": "env:DPTEXT_SECRET"}
    names = {"dataset": "notes", "release": "1", "id": "id", "unit": "record"}
    write_policy(
        tmp_path / "privacy.toml", {**names, **places, "ledger": {"url": "sqlite:///ledger.db"}, "column": [column]}
    )
    return tmp_path


def load(folder, **attributes):
    policy = str(folder / "privacy.toml")
    component = components.PolicyComponent.from_attributes_dict(attributes={"policy": policy, **attributes})
    return component.build_defs(trees.ComponentTree.for_test().load_context)


def keys(defs):
    return defs.resolve_job_def("run_notes").partitions_def.get_partition_keys()


def test_a_policy_becomes_definitions_under_the_names_that_are_written(folder):
    defs = load(folder, partitions=["a", "b"])
    dg.Definitions.validate_loadable(defs)
    assert keys(defs) == ["a", "b"]
    assert {"ledger_notes", "key_notes", "table_notes"} <= set(defs.resources)
    assert defs.executor is None
    assert keys(load(folder, partitions=["007", "202601", "1e3", "0x10"])) == ["007", "202601", "1e3", "0x10"]
    with pytest.raises(PolicyError, match="cannot be read"):
        load(folder, policy=str(folder / "no.toml"))
    properties = components.PolicyComponent.get_model_cls().model_json_schema()["properties"]
    assert set(properties) == set(components.PolicyComponent.model_fields)
    assert all(item.get("description") for item in properties.values())
    found = importlib.metadata.entry_points(group="dagster_dg_cli.registry_modules")
    (ours,) = (point for point in found if point.name == "dptext_etl")
    module = ours.load()
    assert "PolicyComponent" in dir(module)
    assert module.PolicyComponent is components.PolicyComponent


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ({"type": "monthly", "start_date": "2026-01", "end_date": "2026-03"}, ["2026-01", "2026-02"]),
        ({"type": "daily", "start_date": "2026-01-30", "end_date": "2026-02-01"}, ["2026-01-30", "2026-01-31"]),
        ({"type": "weekly", "start_date": "2026-01-04", "end_date": "2026-01-18"}, ["2026-01-04", "2026-01-11"]),
        (
            {"type": "hourly", "start_date": "2026-01-01T00", "end_date": "2026-01-01T02"},
            ["2026-01-01T00", "2026-01-01T01"],
        ),
        ({"type": "monthly", "start_date": "202601", "end_date": "202602", "fmt": "%Y%m"}, ["202601"]),
    ],
)
def test_time_partitions_have_names_that_can_stand_in_a_path(folder, said, first):
    assert keys(load(folder, partitions=said)) == first


def test_the_rest_of_the_attributes(folder):
    defs = load(
        folder,
        partitions=["a"],
        backfill="single_run",
        pool="heavy",
        automation_condition="{{ dg.AutomationCondition.eager() }}",
        executor="multiprocess",
        ledger={"url": "sqlite:///elsewhere.db", "id_key": "file:ids.key"},
        key="file:other.key",
    )
    graph = defs.resolve_asset_graph()
    staged, published = (graph.get(dg.AssetKey(name)) for name in STEPS)
    assert (staged.pools, staged.automation_condition.get_label()) == ({"heavy"}, "eager")
    assert published.automation_condition.get_label() == "after the gates"
    assert staged.backfill_policy == published.backfill_policy == dg.BackfillPolicy.single_run()
    assert defs.executor is dg.multiprocess_executor
    assert defs.resources["ledger_notes"].url == "sqlite:///elsewhere.db"
    assert defs.resources["key_notes"].reference == "file:other.key"


@pytest.mark.parametrize(
    "wrong",
    [
        {"backfill": "all"}, {"partitions": {"type": "yearly", "start_date": "2026"}}, {"partition": ["a"]},
        {"policy": 3},
    ],
)  # fmt: skip
def test_what_the_schema_does_not_know_is_refused(folder, wrong):
    with pytest.raises((ValueError, resolved.ResolutionException)):
        load(folder, **{"partitions": ["a"], **wrong})


def scaffold(folder, **options):
    target = folder / "defs" / "calls"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    request = dg.ScaffoldRequest(
        type_name="dptext_etl.orchestration.PolicyComponent",
        target_path=target,
        scaffold_format="yaml",
        project_root=folder,
        params=components.ScaffoldOptions(**options),
    )
    components.PolicyScaffolder().scaffold(request)
    return (target / "defs.yaml").read_text()


def test_scaffolding_guesses_a_policy_for_a_table(tmp_path, monkeypatch):
    rows = {
        "ref": [f"r{i}" for i in range(30)],
        "who": ["a", "b", "c"] * 10,
        "utterance": ["some words were said here"] * 30,
    }
    (tmp_path / "raw").mkdir()
    pl.DataFrame(rows).write_parquet(tmp_path / "raw" / "calls.parquet")
    monkeypatch.chdir(tmp_path / "raw")
    assert "executor: in_process" in scaffold(tmp_path, source="calls.parquet")
    policy = Policy.load(tmp_path / "calls.toml")
    assert (policy.dataset, [column.name for column in policy.columns]) == ("calls", ["utterance"])
    assert (policy.id, policy.source) == ("ref", str(tmp_path / "raw" / "calls.parquet"))
    assert 'source = "raw/calls.parquet"' in (tmp_path / "calls.toml").read_text()
    assert policy.key == "env:DPTEXT_SECRET"


def test_scaffolding_writes_a_policy_that_loads_with_the_names_of_columns(tmp_path):
    pl.DataFrame({"ticket": ["t1"], "who": ["a"], "said": ["too small"]}).write_csv(tmp_path / "raw.csv")
    with pytest.raises(InputError, match="dptext init --text"):
        scaffold(tmp_path, source=str(tmp_path / "raw.csv"))
    scaffold(tmp_path, source=str(tmp_path / "raw.csv"), id="ticket", subject="who", text="said")
    policy = Policy.load(tmp_path / "calls.toml")
    assert (policy.id, policy.subject, [column.name for column in policy.columns]) == ("ticket", "who", ["said"])
    assert "policy: '{{ context.project_root }}/calls.toml'" in scaffold(tmp_path), "the policy is there"


def test_scaffolding_proposes_one_process_for_small_partitions_alone(folder, monkeypatch):
    policy = folder / "privacy.toml"
    assert "executor" not in scaffold(folder, policy=str(policy)), "there is no file to go by"
    (folder / "raw").mkdir(exist_ok=True)
    (folder / "raw" / "a.parquet").write_bytes(bytes(400))
    assert "executor: in_process" in scaffold(folder, policy=str(policy))
    monkeypatch.setattr("dptext_etl.orchestration.component.SMALL", 399)
    assert "executor" not in scaffold(folder, policy=str(policy))


def test_scaffolding_keeps_a_policy_that_is_there_or_says_that_none_can_be_written(folder, tmp_path):
    before = (folder / "privacy.toml").read_text()
    said = scaffold(folder, policy=str(folder / "privacy.toml"))
    assert (folder / "privacy.toml").read_text() == before
    assert "policy: '{{ context.project_root }}/privacy.toml'" in said
    with pytest.raises(InputError, match="--source TABLE"):
        scaffold(tmp_path, policy=str(tmp_path / "other.toml"))
    with pytest.raises(InputError, match="no folder for the policy"):
        scaffold(tmp_path, source=str(tmp_path / "raw.csv"), policy=str(tmp_path / "no" / "where.toml"))


def test_a_synthetic_table_is_scaffolded_and_becomes_definitions(tmp_path):
    """Its gates are the blocking checks; there is no report of copies."""
    made = {"name": "maxent", "epsilon": 1.0, "delta": 1e-8, "corpus": "example"}
    names = {"dataset": "notes", "release": "1", "id": "id", "unit": "record", "key": "env:DPTEXT_SECRET"}
    names |= {"source": "raw.parquet", "sink": "published", "ledger": {"url": "sqlite:///ledger.db"}}
    synthetic = {"column": "note", "rows": 10, "mechanism": made}
    write_policy(tmp_path / "privacy.toml", {**names, "synthetic": synthetic})
    scaffold(tmp_path, policy=str(tmp_path / "privacy.toml"))
    defs = load(tmp_path, schedule="@daily")
    dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} >= {"raw_notes", *STEPS}
    checks = {key.name for key in graph.asset_check_keys if key.asset_key.to_user_string() == "staged_notes"}
    assert checks == {"row_count", "raw_column_absent", "texts_in_corpus", "labels_in_list"}
