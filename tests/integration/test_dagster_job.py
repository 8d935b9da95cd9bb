"""The Dagster job from source to published table: the same release as `run`, step by step, partition by partition."""

import json
import re

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import Ledger, Policy
from dptext_etl.engines import local
from dptext_etl.families.stored_distributions import TableMechanism
from dptext_etl.mechanisms.custext import CusText

dg = pytest.importorskip("dagster", reason="dagster is not installed")

from dptext_etl.orchestration import build_definitions, materialize  # noqa: E402
from dptext_etl.runner.observing import origins  # noqa: E402
from tests.quick import quick  # noqa: E402

GATES = [
    "raw_column_absent",
    "canary_text_absent",
    "canary_rows_complete",
    "canary_words_replaced",
    "canary_rows_reproducible",
    "duplicates_within_chance",
    "words_in_output_set",
    "rows_ledgered",
    "one_text_per_record",
]
STAGED, PUBLISHED = "staged_reviews", "published_reviews"


class Leaky(CusText):
    """CusText that lets unknown words through in clear."""

    def input_policy(self):
        return {**super().input_policy(), "oov": "keep"}


class LeakyPolicy(Policy):
    """A policy whose mechanism is not what it says."""

    def column_policies(self):
        return [
            c.model_copy(update={"mechanism": Leaky(**c.mechanism.model_dump())}) for c in super().column_policies()
        ]


def leaky(policy):
    return LeakyPolicy.model_validate(policy.model_dump(by_alias=True, exclude_none=True))


def execute(policy, *assets, instance, gates=True):
    """Materialize some assets without what stands before them, as someone can by a click."""
    chosen = dg.AssetSelection.assets(*assets)
    some = dg.define_asset_job("some", selection=chosen if gates else chosen.without_checks())
    job = dg.Definitions.merge(build_definitions(policy), dg.Definitions(jobs=[some])).resolve_job_def("some")
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    return job.execute_in_process(run_config=quiet, instance=instance, raise_on_error=False)


def failure(result):
    return next(event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure)


def test_the_job_publishes_what_run_publishes(make_job):
    by_dagster, by_run = make_job("dagster"), make_job("run")
    summary = materialize(by_dagster.policy())
    by_run.run()
    assert summary.success
    assert summary.exit_code == 0
    assert by_dagster.files() == by_run.files()
    assert by_dagster.charged() == by_run.charged()
    assert [check.name for check in summary.gates] == GATES
    assert all(check.passed and check.counts and check.message for check in summary.checks)
    json.dumps(summary.as_dict())
    staged, published = (summary.runs[0].assets[name] for name in (STAGED, PUBLISHED))
    assert staged["dagster/row_count"] == published["dagster/row_count"] == 240
    assert staged["rows new"] == 240
    assert staged["draws"] > 1000
    assert re.fullmatch(r"column \d", staged["columns dropped unread"])
    assert published["version"] == 1
    assert published["largest epsilon of a record"] >= published["log10 odds of that record"] > 0
    assert published["manifest"] == str(by_dagster.folder / "published.manifest.json")


def test_pages_show_schema_and_lineage(job):
    result = execute(job.policy(), STAGED, PUBLISHED, instance=dg.DagsterInstance.ephemeral())
    assert result.success
    metadata = {
        event.asset_key.to_user_string(): event.step_materialization_data.materialization.metadata
        for event in result.get_asset_materialization_events()
    }
    published = metadata[PUBLISHED]
    columns = {column.name: column for column in published["dagster/column_schema"].schema.columns}
    assert list(columns) == ["id", "stars", "review", "note"]
    assert columns["stars"].type == "Int64"
    assert columns["review"].tags == {"mechanism": "custext", "epsilon": "2"}
    lineage = published["dagster/column_lineage"].lineage.deps_by_column
    assert lineage["review"] == [dg.TableColumnDep(asset_key=dg.AssetKey("raw_reviews"), column_name="review")]


@pytest.mark.parametrize(
    ("ids", "said", "how"),
    quick(
        [
            ("keyed", "published as a keyed hash of the id", ("TRANSFORMATION", "keyed hash of the id", True)),
            ("keep", "passes unchanged", ("IDENTITY", "kept as it is", False)),
            ("drop", None, None),
        ]
    ),
)
def test_ids_are_labeled_as_they_are_published(job, ids, said, how):
    policy = job.policy(ids=ids)
    result = execute(policy, STAGED, PUBLISHED, instance=dg.DagsterInstance.ephemeral())
    for event in result.get_asset_materialization_events():
        schema = event.step_materialization_data.materialization.metadata["dagster/column_schema"].schema
        assert {column.name: column.description for column in schema.columns}.get("id") == said
    assert {name: made for name, made, _ in origins(policy)}.get("id") == how


@pytest.mark.parametrize("table", quick([False, True]), ids=["file", "delta"])
def test_a_second_materialisation_costs_nothing_and_changes_nothing(job, reviews, monkeypatch, table):
    """An input that is that of the run before is recognized: no row is read again, and the gates have nothing to do."""
    policy = job.policy()
    if table:
        pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
        policy = job.policy(source=str(job.folder / "table"))
        reviews().write_delta(policy.source)
    materialize(policy)
    files, charged = job.files(), job.charged()
    with monkeypatch.context() as patched:
        patched.delattr(local, "examine")
        again = materialize(policy)
    assert again.success
    assert job.files() == files
    assert job.charged() == charged
    rows, published = again.runs[0].assets[STAGED], again.runs[0].assets[PUBLISHED]
    assert (rows["rows new"], rows["rows replayed"]) == (0, 240)
    assert "nothing was computed again" in published["notes"]
    assert published["dagster/row_count"] == 240
    if table:
        reviews(10, 240).write_delta(policy.source, mode="append")
        assert materialize(policy).runs[0].assets[STAGED]["rows new"] == 10


def test_what_was_recognized_is_looked_at_again_when_it_is_published(job):
    instance = dg.DagsterInstance.ephemeral()
    materialize(job.policy())
    assert execute(job.policy(), STAGED, instance=instance).success
    with Ledger.open(job.folder / "ledger.db") as ledger:
        ledger.people.forget("reviews", pa.array(["r00050"]), pa.array([], pa.string()))
    published = execute(job.policy(), PUBLISHED, instance=instance)
    assert "or a record was forgotten" in failure(published).description
    again = materialize(job.policy())
    assert (again.success, again.runs[0].assets[PUBLISHED]["dagster/row_count"]) == (True, 239)


def test_a_fired_gate_stops_the_publication_and_revokes_the_name(job):
    stopped = materialize(leaky(job.policy()))
    assert not stopped.success
    assert stopped.exit_code == 4
    assert "canary_text_absent" in stopped.runs[0].message
    assert "Hint:" in stopped.runs[0].message
    assert {"canary_text_absent"} <= {check.name for check in stopped.checks if not check.passed}
    assert list(stopped.runs[0].assets) == [STAGED]
    assert not list(job.folder.glob("published/*"))
    with job.ledger() as ledger:
        assert any(row["burnt"] for row in ledger.reports.show())
    again = materialize(leaky(job.policy()))
    assert again.exit_code == 5
    assert "revoked" in again.runs[0].message


def test_nothing_is_published_that_was_not_staged_and_judged(job):
    policy = job.policy()
    with dg.DagsterInstance.ephemeral() as instance:
        early = failure(execute(policy, PUBLISHED, instance=instance))
        assert early.metadata["exit_code"].value == 5
        assert "nothing is staged" in early.description
        assert execute(policy, STAGED, instance=instance, gates=False).success
        unjudged = failure(execute(policy, PUBLISHED, instance=instance))
    assert unjudged.metadata["exit_code"].value == 4
    assert "not judged" in unjudged.description
    assert not list(job.folder.glob("published/*"))


def test_verdicts_hold_for_the_files_that_were_judged(job):
    with dg.DagsterInstance.ephemeral() as instance:
        assert execute(job.policy(), STAGED, instance=instance).success
        part = next(job.folder.glob("published.staging/**/shard-00000.parquet"))
        pl.read_parquet(part).write_parquet(part, compression="zstd")
        changed = failure(execute(job.policy(), PUBLISHED, instance=instance))
        assert "has changed since it was staged" in changed.description
        assert execute(job.policy(), STAGED, instance=instance, gates=False).success
        assert "not judged" in failure(execute(job.policy(), PUBLISHED, instance=instance)).description
    assert not (job.folder / "published.manifest.json").exists()


def other_mechanism(job):
    mechanism = {**job.policy().columns[0].model_dump()["mechanism"], "epsilon": 3.0}
    return {"column": [{"name": name, "mechanism": mechanism, "allow": ["cluster"]} for name in ("review", "note")]}


@pytest.mark.parametrize("change", quick([other_mechanism, lambda _: {"keep": []}]))
def test_a_policy_that_changed_after_staging_is_refused_and_revokes_nothing(job, change):
    with dg.DagsterInstance.ephemeral() as instance:
        assert execute(job.policy(), STAGED, instance=instance, gates=False).success
        changed = failure(execute(job.policy(**change(job)), PUBLISHED, instance=instance))
    assert "the policy changed" in changed.description
    with job.ledger() as ledger:
        assert not any(row["burnt"] for row in ledger.reports.show())


def test_a_refused_budget_has_its_exit_code(job):
    over = materialize(job.policy(on_cap="refuse", cap={"measure": "pure", "epsilon": 10.0, "period": "2026"}))
    assert over.exit_code == 3
    assert "cap" in over.runs[0].message
    assert not over.checks


def test_a_deployment_brings_its_own_ledger(job):
    from dptext_etl.orchestration import LedgerResource

    other = LedgerResource(url=f"sqlite:///{job.folder}/other.db")
    assert materialize(job.policy(), ledger=other).success
    assert not (job.folder / "ledger.db").exists()
    with other.open() as ledger:
        assert isinstance(ledger, Ledger)
        assert len(ledger.reports.show()) == 2


def test_tables_are_not_built_to_load_definitions(job, monkeypatch):
    def built(self):
        raise AssertionError

    monkeypatch.setattr(TableMechanism, "table", property(built))
    dg.Definitions.validate_loadable(build_definitions(job.policy()))
