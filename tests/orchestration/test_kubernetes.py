"""A GPU on Kubernetes: what Dagster's own launcher and executor ask a cluster for, from the tags of a policy."""

import sys

import pytest

from dptext_etl import orchestration
from tests.later import later

from .test_location import K8S, make_policy

dg = later("dagster", reason="dagster is not installed")
k8s = later("dagster_k8s", reason="dagster-k8s is not installed (extra: dev)")
__all__ = ["make_policy"]  # a fixture
GPU = {"nvidia.com/gpu": "1"}


class Cluster:
    """Takes jobs as the API of a cluster does, and keeps them."""

    def __init__(self):
        self.jobs = []

    def create_namespaced_job(self, *, body, namespace, **options):
        self.jobs.append((namespace, body))


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("dagster"))) as instance:
        yield instance


@pytest.fixture
def launched(tmp_path, instance, monkeypatch):
    """Launch a run of a job; return launcher, run, and the container that the cluster was asked for."""
    from dagster._core.code_pointer import FileCodePointer
    from dagster._core.launcher import LaunchRunContext
    from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin

    monkeypatch.setattr("dagster_k8s.launcher.load_kubernetes_config", lambda **options: None)

    def launch(job):
        cluster = Cluster()
        names = {"service_account_name": "dptext", "instance_config_map": "dagster", "dagster_home": "/opt/dagster"}
        clients = {"k8s_client_batch_api": cluster, "k8s_client_core_api": cluster}
        launcher = k8s.K8sRunLauncher(job_image="ours/dptext:1", **names, **clients)
        repository = RepositoryPythonOrigin(sys.executable, FileCodePointer("defs.py", "defs", str(tmp_path)))
        launcher.register_instance(instance)
        origin = JobPythonOrigin(job.name, repository)
        run = instance.create_run_for_job(job, tags=job.run_tags, job_code_origin=origin)
        launcher.launch_run(LaunchRunContext(run, workspace=None))
        ((_, made),) = cluster.jobs
        (container,) = made.spec.template.spec.containers
        return launcher, run, container

    return launch


def step_container(launcher, run, job, step):
    """The container of a step, as an executor that starts a pod per step makes it."""
    from dagster_k8s.container_context import K8sContainerContext
    from dagster_k8s.job import construct_dagster_k8s_job, get_user_defined_k8s_config

    asked = get_user_defined_k8s_config(job.get_node_named(step).definition.tags)
    context = K8sContainerContext.create_for_run(run, launcher, include_run_tags=False)
    context = context.merge(K8sContainerContext(run_k8s_config=asked))
    config = context.get_k8s_job_config("ours/dptext:1", launcher)
    made = construct_dagster_k8s_job(config, ["true"], "job", user_defined_k8s_config=context.run_k8s_config)
    return made.spec.template.spec.containers[0]


TAGS = {**K8S, "dagster-celery/queue": "gpus", "dagster/priority": "3", "team": "privacy"}
EXECUTORS = {
    None: lambda: None,
    "in process": lambda: dg.in_process_executor,
    "processes": lambda: dg.multiprocess_executor.configured({"max_concurrent": 2}),
    "pods": lambda: k8s.k8s_job_executor,
    "configured pods": lambda: k8s.k8s_job_executor.configured({"step_k8s_config": {}}),
}
ASSET_JOB = "__ASSET_JOB"  # a click, a backfill, and automation run it


@pytest.mark.parametrize(
    ("executor", "name", "run_has_gpu"),
    [
        (None, "run_notes", True),
        ("in process", "run_notes", True),
        ("processes", "run_notes", True),
        ("pods", "run_notes", False),  # it only starts pods: with a quota of one GPU, their requests never fit
        ("configured pods", "run_notes", False),
        (None, ASSET_JOB, False),  # Dagster gives its own job no tags
        ("pods", ASSET_JOB, False),
    ],
)
def test_what_computes_staging_asks_for_one_gpu(make_policy, launched, executor, name, run_has_gpu):
    defs = orchestration.build_definitions(make_policy(dagster={"tags": TAGS}), executor=EXECUTORS[executor]())
    job = defs.resolve_implicit_global_asset_job_def() if name == ASSET_JOB else defs.resolve_job_def(name)
    launcher, run, container = launched(job)
    assert getattr(container.resources, "limits", None) == (GPU if run_has_gpu else None)
    assert ("dagster-celery/queue" in run.tags) == run_has_gpu
    assert (run.tags.get("team"), run.tags.get("dagster/priority")) == (
        (None, None) if name == ASSET_JOB else ("privacy", "3")
    )
    assert step_container(launcher, run, job, "staged_notes").resources.limits == GPU
    assert job.get_node_named("staged_notes").definition.tags["dagster-celery/queue"] == "gpus"
    for step in ("gates_notes", "published_notes"):
        assert not getattr(step_container(launcher, run, job, step).resources, "limits", None)


def test_pools_schedules_and_sensors_hold_in_every_kind_of_run(make_policy):
    defs = orchestration.build_definitions(make_policy(), pool="gpu")
    for job in (defs.resolve_job_def("run_notes"), defs.resolve_implicit_global_asset_job_def()):
        pools = {node.name: node.definition.pool for node in job.nodes}
        assert {name for name, pool in pools.items() if pool == "gpu"} == {"staged_notes"}
    defs = orchestration.build_definitions(make_policy(dagster={"tags": TAGS}), schedule="@daily", watch_source=True)
    assert {item.job_name for item in [*defs.schedules, *defs.sensors]} == {"run_notes"}


def test_a_policy_without_tags_asks_for_none(make_policy, launched):
    _, _, container = launched(orchestration.build_definitions(make_policy()).resolve_job_def("run_notes"))
    assert not getattr(container.resources, "limits", None)
