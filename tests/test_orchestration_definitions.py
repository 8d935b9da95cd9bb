"""The code location: names, partitions, resources and what it says before anything runs."""

import json
import os
import subprocess
import sys

import pytest

from dptext_etl import Policy
from dptext_etl.errors import PolicyError

dg = pytest.importorskip("dagster", reason="dagster is not installed")
orchestration = pytest.importorskip("dptext_etl.orchestration")

from dptext_etl.orchestration.partitions import discovered  # noqa: E402


@pytest.fixture
def make_policy(tmp_path, small_vectors):
    def make(**changes):
        values = {
            "dataset": "care notes",
            "release": "r1",
            "source": str(tmp_path / "raw" / "{partition}.parquet"),
            "sink": str(tmp_path / "published" / "{partition}"),
            "id": "id",
            "unit": "record",
            "key": "env:DPTEXT_SECRET",
            "ledger": {"url": f"sqlite:///{tmp_path}/ledger.db"},
            "column": [
                {
                    "name": "note",
                    "mechanism": {"name": "custext", "epsilon": 2.0, "k": 5, "vectors": small_vectors},
                    "allow": ["cluster"],
                }
            ],
            **changes,
        }
        return Policy.parse(values)

    return make


def touch(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_a_policy_becomes_assets_blocking_checks_a_job_and_resources(make_policy):
    defs = orchestration.build_definitions(make_policy(), partitions=["2026-01", "2026-02"])
    graph = defs.resolve_asset_graph()
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {
        "raw_care_notes",
        "staged_care_notes",
        "published_care_notes",
    }
    checks = [graph.get_check_spec(key) for key in graph.asset_check_keys]
    assert {check.asset_key.to_user_string() for check in checks} == {"staged_care_notes"}
    assert all(check.blocking and check.description for check in checks)
    assert {"raw_column_absent", "canaries_foreign", "canaries_native", "rows_ledgered"} <= {c.name for c in checks}
    job = defs.resolve_job_def("privatize_care_notes")
    assert job.partitions_def.get_partition_keys() == ["2026-01", "2026-02"]
    assert job.executor_def.name == "in_process"


def test_nothing_is_published_where_the_policy_says_so(make_policy):
    defs = orchestration.build_definitions(make_policy(publish=False), partitions=["a"])
    assert dg.AssetKey("published_care_notes") not in defs.resolve_asset_graph().get_all_asset_keys()


def test_definitions_hold_references_and_no_secret(make_policy, monkeypatch):
    secret = "ab" * 32
    monkeypatch.setenv("DPTEXT_SECRET", secret)
    defs = orchestration.build_definitions(make_policy(), partitions=["a"])
    assert defs.resources["key"].reference == "env:DPTEXT_SECRET"
    assert secret not in repr(defs.resources) + str(defs.resolve_asset_graph().asset_nodes)


def test_a_deployment_sets_ledger_and_key(make_policy):
    ledger = orchestration.LedgerResource(url="sqlite:///elsewhere.db", id_key="file:ids.key")
    key = orchestration.KeyResource(reference="file:noise.key")
    defs = orchestration.build_definitions(make_policy(), partitions=["a"], ledger=ledger, key=key)
    assert defs.resources["ledger"].url == "sqlite:///elsewhere.db"
    assert defs.resources["key"].reference == "file:noise.key"


def test_partitions_are_the_files_that_match_the_source(make_policy, tmp_path):
    touch(*(tmp_path / "raw" / name for name in ("2026-02.parquet", "2026-01.parquet", "notes.txt")))
    defs = orchestration.build_definitions(make_policy())
    assert defs.resolve_job_def("privatize_care_notes").partitions_def.get_partition_keys() == ["2026-01", "2026-02"]


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("{partition}.parquet", ["a", "b.c"]),
        ("month={partition}/*.parquet", ["01", "02"]),
        ("month={partition}/{partition}.parquet", ["02"]),
        ("**/{partition}.parquet", ["02", "a", "b.c", "x"]),
        ("month=0[12]/{partition}.parquet", ["02", "x"]),
    ],
)
def test_templates_are_read_as_globs(tmp_path, template, found):
    names = ("a.parquet", "b.c.parquet", "a.csv", "month=01/x.parquet", "month=02/02.parquet", "other/y.csv")
    touch(*(tmp_path / name for name in names))
    assert discovered(str(tmp_path / template)) == found


def test_partitions_that_cannot_be_found_are_asked_for(make_policy):
    with pytest.raises(PolicyError, match=r"no file matches[\s\S]*Hint: pass partitions"):
        orchestration.build_definitions(make_policy())
    remote = make_policy(source="s3://raw/{partition}.parquet", sink="s3://out/{partition}", staging="staging")
    with pytest.raises(PolicyError, match=r"cannot be listed[\s\S]*Hint: pass partitions"):
        orchestration.build_definitions(remote)


def test_partitions_of_a_source_without_any_are_refused(make_policy):
    with pytest.raises(PolicyError, match=r"Hint: write \{partition\}"):
        orchestration.build_definitions(make_policy(source="raw.parquet", sink="out"), partitions=["a"])


def test_a_policy_file_that_says_too_little_is_told(tmp_path):
    (tmp_path / "privacy.toml").write_text('dataset = "notes"\n')
    with pytest.raises(PolicyError, match="Hint: entries"):
        orchestration.build_definitions(tmp_path / "privacy.toml")


def test_importing_the_library_does_not_import_dagster():
    code = "import sys, dptext_etl.orchestration; sys.exit('dagster' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_process_writes_a_policy_alike(make_policy):
    policy = make_policy()
    allow = ["cluster", "stopwords", "punct", "oov", "numbers", "case"]
    columns = [{**column.model_dump(mode="json"), "allow": allow} for column in policy.columns]
    values = {**policy.model_dump(mode="json", by_alias=True, exclude_none=True), "column": columns}
    code = (
        "import json, sys; from dptext_etl import Policy; from dptext_etl.orchestration.written import written;"
        "print(written(Policy.parse(json.load(sys.stdin))))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(values),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
    assert "stopwords" in said.pop()
