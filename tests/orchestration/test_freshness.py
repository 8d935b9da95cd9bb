"""Freshness of a release: Dagster's own evaluation of the policy that the published asset has."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from dptext_etl import orchestration
from dptext_etl.errors import PolicyError
from tests.later import later

from .test_location import QUIET, make_policy, write, write_file

dg = later("dagster", reason="dagster is not installed")
trees = later("dagster.components.core.component_tree")
__all__ = ["make_policy"]  # a fixture


def monthly():
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(days=31), warn_window=timedelta(days=28))


def published(defs):
    return defs.resolve_asset_graph().get(dg.AssetKey("published_notes"))


def state(defs, instance, after):
    """What Dagster's daemon finds so long after now."""
    from dagster._core.definitions.freshness_evaluator import FRESHNESS_EVALUATORS_BY_POLICY_TYPE
    from dagster._core.loader import LoadingContextForTest
    from dagster._core.test_utils import freeze_time

    node = published(defs)
    evaluator = FRESHNESS_EVALUATORS_BY_POLICY_TYPE[type(node.freshness_policy_or_from_metadata)]()
    with freeze_time(datetime.now(UTC) + after):
        return asyncio.run(evaluator.evaluate_freshness(LoadingContextForTest(instance), node))


def test_a_release_is_fresh_from_its_publication_on(make_policy, tmp_path):
    from dagster._core.definitions.freshness import FreshnessState

    write(tmp_path / "raw.parquet")
    defs = orchestration.build_definitions(make_policy(), freshness_policy=monthly())
    with dg.DagsterInstance.ephemeral() as instance:
        assert state(defs, instance, timedelta(0)) == FreshnessState.UNKNOWN
        job = defs.resolve_job_def("run_notes")
        assert job.execute_in_process(instance=instance, run_config=QUIET).success
        found = [state(defs, instance, timedelta(days=days)) for days in (1, 29, 40)]
    assert found == [FreshnessState.PASS, FreshnessState.WARN, FreshnessState.FAIL]
    graph = defs.resolve_asset_graph()
    assert graph.get(dg.AssetKey("staged_notes")).freshness_policy_or_from_metadata is None
    assert published(orchestration.build_definitions(make_policy())).freshness_policy is None


def test_the_component_takes_freshness_as_dagsters_own_assets_do(make_policy, tmp_path):
    policy = write_file(make_policy(), tmp_path / "privacy.toml")
    window = "fail_window=datetime.timedelta(days=31), warn_window=datetime.timedelta(days=28)"
    said = {"policy": str(policy), "freshness_policy": f"{{{{ dg.FreshnessPolicy.time_window({window}) }}}}"}
    defs = orchestration.PolicyComponent.from_attributes_dict(attributes=said).build_defs(
        trees.ComponentTree.for_test().load_context
    )
    assert published(defs).freshness_policy == monthly()
    with pytest.raises(PolicyError, match="publish = false"):
        orchestration.build_definitions(make_policy(publish=False), freshness_policy=monthly())
