"""The code location: names, partitions, resources and messages before anything runs."""

import json
import subprocess
import sys

import pytest

from dptext_etl import Ledger, Policy, orchestration
from dptext_etl.errors import KeyReferenceError, PolicyError
from dptext_etl.mechanisms.custext import CusText
from tests.later import later
from tests.policy_files import custext_column, policy_in

dg = later("dagster", reason="dagster is not installed")
naming = later("dptext_etl.orchestration.resources")
steps = later("dptext_etl.orchestration.steps")


@pytest.fixture
def make_policy(tmp_path, small_vectors):
    def make(**changes):
        places = {"source": str(tmp_path / "raw" / "{partition}.parquet")}
        places |= {"sink": str(tmp_path / "published" / "{partition}"), "key": "env:DPTEXT_SECRET"}
        return policy_in(
            tmp_path, custext_column(small_vectors, "note"), **{"dataset": "care notes", **places, **changes}
        )

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
    found = {(check.asset_key.to_user_string(), check.name): check for check in checks}
    assert all(check.description for check in checks)
    assert {name for (asset, name), check in found.items() if check.blocking and asset == "staged_care_notes"} == {
        "raw_column_absent", "canary_text_absent", "canary_rows_complete", "canary_words_replaced",
        "canary_rows_reproducible", "duplicates_within_chance", "words_in_output_set", "rows_ledgered",
        "one_text_per_record",
    }  # fmt: skip
    assert {name for (asset, name), check in found.items() if check.blocking and asset == "published_care_notes"} == {
        "published_files", "raw_column_absent", "canary_text_absent", "words_in_output_set", "rows_ledgered",
        "one_text_per_record",
    }  # fmt: skip
    assert {key for key, check in found.items() if not check.blocking} == {("staged_care_notes", "report_copies")}
    job = defs.resolve_job_def("run_care_notes")
    assert job.partitions_def.get_partition_keys() == ["2026-01", "2026-02"]
    assert job.executor_def.name == "in_process"


def test_maintenance_is_a_check_with_a_job_and_a_schedule_apart_from_the_run(make_policy, monkeypatch, tmp_path):
    monkeypatch.setenv("DPTEXT_ANCHORS", str(tmp_path / "anchors"))
    monkeypatch.setenv("DPTEXT_SECRET", "5e" * 32)
    terms = orchestration.Maintenance(schedule="0 3 * * *", backup=str(tmp_path / "backups"))
    policy = make_policy()
    defs = orchestration.build_definitions(policy, partitions=["a"], maintenance=terms)
    (schedule,) = defs.schedules
    assert (schedule.job_name, schedule.cron_schedule) == ("maintain_care_notes", "0 3 * * *")
    run_job, job = (defs.resolve_job_def(name) for name in ("run_care_notes", "maintain_care_notes"))
    assert [key.name for key in job.asset_layer.asset_graph.asset_check_keys] == ["ledger_intact"]
    assert "ledger_intact" not in {key.name for key in run_job.asset_layer.asset_graph.asset_check_keys}
    Ledger.open(policy.ledger.url, policy.ledger.id_key).close()
    done = job.execute_in_process()
    assert [check.passed for check in done.get_asset_check_evaluations()] == [True]
    assert len(list((tmp_path / "backups").iterdir())) == 1


def test_options_of_definitions_reach_executors_backfills_and_assets(make_policy):
    plain = orchestration.build_definitions(make_policy(), partitions=["a"], executor=None)
    assert plain.executor is None
    chosen = orchestration.build_definitions(make_policy(), partitions=["a"], executor=dg.multiprocess_executor)
    assert chosen.resolve_job_def("run_care_notes").executor_def.name == "multiprocess"
    merged = dg.Definitions.merge(
        *(orchestration.build_definitions(make_policy(dataset=name), partitions=["a"]) for name in ("notes", "calls"))
    )
    dg.Definitions.validate_loadable(merged)
    assert {job.name for job in merged.jobs} == {"run_notes", "run_calls"}
    assert {"ledger_notes", "ledger_calls", "key_notes", "key_calls"} <= set(merged.resources)
    defs = orchestration.build_definitions(make_policy(publish=False), partitions=["a"])
    assert dg.AssetKey("published_care_notes") not in defs.resolve_asset_graph().get_all_asset_keys()

    def policies(**options):
        graph = orchestration.build_definitions(make_policy(), partitions=["a", "b"], **options).resolve_asset_graph()
        return {graph.get(dg.AssetKey(f"{stage}_care_notes")).backfill_policy for stage in ("staged", "published")}

    assert (policies(), policies(backfill="single_run")) == ({None}, {dg.BackfillPolicy.single_run()})


class Accelerated(CusText):
    """A mechanism that would run on a GPU."""

    accelerated = True


class AcceleratedPolicy(Policy):
    """A policy whose mechanism is another one than it names."""

    def column_policies(self):
        return [
            item.model_copy(update={"mechanism": Accelerated(**item.mechanism.model_dump())})
            for item in super().column_policies()
        ]


@pytest.mark.parametrize(
    ("kind", "given", "pool"),
    [(Policy, None, None), (Policy, "heavy", "heavy"), (AcceleratedPolicy, None, "gpu"), (AcceleratedPolicy, "a", "a")],
)
def test_the_pool_is_the_mechanisms_or_the_one_that_is_named(make_policy, kind, given, pool):
    policy = kind.model_validate(make_policy().model_dump(by_alias=True, exclude_none=True))
    graph = orchestration.build_definitions(policy, partitions=["a"], pool=given).resolve_asset_graph()
    pools = {key.to_user_string(): graph.get(key).pools for key in graph.get_all_asset_keys()}
    assert pools["staged_care_notes"] == ({pool} if pool else set())
    assert not pools["published_care_notes"]


@pytest.mark.parametrize(
    "made",
    [
        lambda key: orchestration.KeyResource(reference=key),
        lambda key: orchestration.LedgerResource(url="l", id_key=key),
    ],
)
def test_a_resource_takes_the_name_of_a_key_and_never_a_key(made):
    """Dagster shows the configuration of a resource."""
    with pytest.raises(KeyReferenceError, match="may be a key itself") as caught:
        made("ab" * 32)
    assert "abab" not in str(caught.value)
    assert made(dg.EnvVar("NOISE_KEY_REFERENCE"))


def test_a_deployment_sets_references_and_definitions_hold_no_secret(make_policy, monkeypatch):
    ledger = orchestration.LedgerResource(url="sqlite:///elsewhere.db", id_key="file:ids.key")
    key = orchestration.KeyResource(reference="file:noise.key")
    defs = orchestration.build_definitions(make_policy(), partitions=["a"], ledger=ledger, key=key)
    assert defs.resources["ledger_care_notes"].url == "sqlite:///elsewhere.db"
    assert defs.resources["key_care_notes"].reference == "file:noise.key"
    secret = "ab" * 32
    monkeypatch.setenv("DPTEXT_SECRET", secret)
    defs = orchestration.build_definitions(make_policy(), partitions=["a"])
    assert defs.resources["key_care_notes"].reference == "env:DPTEXT_SECRET"
    assert secret not in repr(defs.resources) + str(defs.resolve_asset_graph().asset_nodes)


def test_a_ledger_url_in_a_variable_is_kept_by_its_name(make_policy, tmp_path, monkeypatch):
    """Dagster shows resources, and a policy is printed: neither ever holds the value of the variable."""
    from dptext_etl.orchestration import resources

    monkeypatch.setenv("DPTEXT_LEDGER_SECRET_URL", f"sqlite:///{tmp_path}/held.db?password=hunter2")
    given = orchestration.LedgerResource(url=dg.EnvVar("DPTEXT_LEDGER_SECRET_URL"))
    policy = make_policy()
    key = orchestration.KeyResource(reference=policy.key)
    name = naming.names(policy)

    @dg.asset(required_resource_keys=name.resources)
    def seen(context):
        here = resources.deployed(policy, context, name)
        assert here.ledger.url == "env:DPTEXT_LEDGER_SECRET_URL"
        return

    done = dg.materialize([seen], resources={name.ledger: given, name.key: key})
    assert done.success
    assert "hunter2" not in repr(given) + str(given.model_dump())


@pytest.mark.parametrize(
    "url", ["postgresql://me:hunter2@host/db", "postgresql://me@host/db?sslmode=require&password=hunter2"]
)
def test_a_password_is_no_configuration(url):
    with pytest.raises(PolicyError, match="holds a password") as caught:
        orchestration.LedgerResource(url=url)
    assert "hunter2" not in str(caught.value)


def test_partitions_are_files_or_times(make_policy, tmp_path):
    touch(*(tmp_path / "raw" / name for name in ("2026-02.parquet", "2026-01.parquet", "notes.txt")))
    defs = orchestration.build_definitions(make_policy())
    assert defs.resolve_job_def("run_care_notes").partitions_def.get_partition_keys() == ["2026-01", "2026-02"]
    months = dg.MonthlyPartitionsDefinition("2026-01", fmt="%Y-%m", end_date="2026-04")
    defs = orchestration.build_definitions(make_policy(), partitions=months)
    job = defs.resolve_job_def("run_care_notes")
    assert job.partitions_def.get_partition_keys() == ["2026-01", "2026-02", "2026-03"]
    hours = dg.HourlyPartitionsDefinition("2026-01-01T00", fmt="%Y-%m-%dT%H")
    assert orchestration.build_definitions(make_policy(), partitions=hours)


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
def test_templates_are_read_as_globs(make_policy, tmp_path, template, found):
    names = ("a.parquet", "b.c.parquet", "a.csv", "month=01/x.parquet", "month=02/02.parquet", "other/y.csv")
    touch(*(tmp_path / name for name in names))
    assert naming.discovered(make_policy(source=str(tmp_path / template))) == found


@pytest.mark.parametrize(
    "partitions",
    [
        lambda: ["north/south"],
        lambda: ["..", "a"],
        lambda: dg.HourlyPartitionsDefinition("2026-01-01-00:00"),
        lambda: dg.MultiPartitionsDefinition(
            {"a": dg.StaticPartitionsDefinition(["1"]), "b": dg.StaticPartitionsDefinition(["2"])}
        ),
    ],
)
def test_partitions_that_cannot_stand_in_a_path_are_refused(make_policy, partitions):
    with pytest.raises(PolicyError, match=r"Hint:"):
        orchestration.build_definitions(make_policy(), partitions=partitions())


def test_partitions_that_cannot_be_found_are_asked_for(make_policy, tmp_path):
    with pytest.raises(PolicyError, match=r"no file matches[\s\S]*Hint: pass partitions"):
        orchestration.build_definitions(make_policy())
    remote = make_policy(source="s3://raw/{partition}.parquet", sink="s3://out/{partition}", staging="staging")
    with pytest.raises(PolicyError, match=r"cannot be listed[\s\S]*Hint: pass partitions"):
        orchestration.build_definitions(remote)
    with pytest.raises(PolicyError, match=r"Hint: write \{partition\}"):
        orchestration.build_definitions(make_policy(source="raw.parquet", sink="out"), partitions=["a"])
    (tmp_path / "privacy.toml").write_text('dataset = "notes"\n')
    with pytest.raises(PolicyError, match="release: is missing"):
        orchestration.build_definitions(tmp_path / "privacy.toml")


def test_importing_the_library_does_not_import_dagster():
    code = "import sys, dptext_etl.orchestration; sys.exit('dagster' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_process_writes_a_policy_alike(make_policy):
    """The order of a set differs between processes, so none is written in it."""
    allow = ["stopwords", "punct", "oov", "numbers", "case", "cluster"]
    columns = [{**column.model_dump(mode="json"), "allow": allow} for column in make_policy().columns]
    for column in (make_policy(column=columns), make_policy(column=columns).column_policy()):
        assert json.dumps(sorted(allow)) in steps.as_json(column)
