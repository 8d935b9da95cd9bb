"""The asset of a report: it stays inside the boundary, blocks nothing, and says no text and no figure to Dagster."""

import json

import numpy as np
import polars as pl
import pytest

from dptext_etl import run
from dptext_etl.errors import PolicyError

dg = pytest.importorskip("dagster", reason="dagster is not installed")
pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
pytest.importorskip("sacrebleu", reason="sacrebleu is not installed (extra: eval)")

from dptext_etl.orchestration import build_definitions, check_lineage  # noqa: E402
from dptext_etl_eval.orchestration import EvidenceReport  # noqa: E402
from tests.policy_files import custext_column, policy_in  # noqa: E402

SENTINEL = "zzqsentinelqzz"


@pytest.fixture
def policy(tmp_path, small_vectors, monkeypatch):
    monkeypatch.setenv("DPTEXT_EVIDENCE_SECRET", "0123456789abcdef" * 3 + "7e5d3c1b09f8a6c4")
    random = np.random.default_rng(2)
    words = ["the", "of", "good", "bad", "house", SENTINEL]
    table = {"id": range(60), "note": [" ".join(random.choice(words, 6)) for _ in range(60)], "stars": [1, 2] * 30}
    pl.DataFrame(table).write_parquet(tmp_path / "raw.parquet")
    places = {"sink": str(tmp_path / "published"), "key": "env:DPTEXT_EVIDENCE_SECRET"}
    return policy_in(tmp_path, custext_column(small_vectors, "note", k=5), dataset="notes", **places)


def test_the_report_of_a_published_table_stays_inside(policy, tmp_path):
    run(policy)
    defs = build_definitions(policy, reports=[EvidenceReport(tmp_path / "report", label="stars")])
    graph = defs.resolve_asset_graph()
    key = dg.AssetKey("evidence_notes")
    assert graph.get(key).tags["dptext/raw"] == ""
    assert not [check for check in graph.asset_check_keys if check.asset_key == key]
    job = defs.resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(asset_selection=[key])
    assert done.success
    facts = json.loads((tmp_path / "report" / "evidence.json").read_text())["columns"]
    assert facts[0]["rows"] == 60
    titles = [item["title"] for item in facts[0]["attacks"]]
    assert "Reading the release in context" in titles
    said = done.asset_materializations_for_node("evidence_notes")[0].metadata
    assert said["rows measured"].value == 60
    assert "Inside the boundary" in said["warning"].value
    figures = [score["value"] for item in facts[0]["metrics"] for score in item["scores"]]
    spoken = repr(done.all_events) + repr(said)
    assert SENTINEL not in spoken
    assert not [value for value in figures if value and len(repr(value)) > 6 and repr(value) in spoken]


def test_no_asset_may_read_the_report(policy, tmp_path):
    made = build_definitions(policy, reports=[EvidenceReport(tmp_path / "report")])

    @dg.asset(deps=["evidence_notes"])
    def copied() -> None: ...

    with pytest.raises(Exception, match="evidence_notes"):
        check_lineage(dg.Definitions.merge(made, dg.Definitions(assets=[copied])))


def test_a_policy_that_publishes_nothing_has_no_report(policy, tmp_path):
    with pytest.raises(PolicyError, match="publishes nothing"):
        build_definitions(policy.model_copy(update={"publish": False}), reports=[EvidenceReport(tmp_path / "report")])
