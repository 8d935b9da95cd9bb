"""No raw text in anything that Dagster keeps: events, metadata, checks, logs, errors, whatever goes wrong."""

import pytest

from dptext_etl import orchestration
from tests.quick import quick

from ..later import later
from .dagster_runs import kept, require_silent

dg = later("dagster")


@pytest.fixture
def materialized(job):
    def make(policy=None):
        return orchestration.materialize(policy or job.policy(), home=job.folder / "home", quiet=False)

    return make


def test_types_and_secrets_do_not_come_into_dagster(by_dagster):
    """It comes first in its file: a process whose first run of Dagster is under `capfd` loses its output."""
    job = by_dagster.job
    said, secret = kept(job.folder / "home"), (job.folder / "noise.key").read_text().strip()
    assert b"canary_text_absent" in said, "the search finds words that are there"
    assert b"rows released" in said
    assert b"List of Struct of 2 fields (String, Int64)" in said
    assert secret.encode() not in said
    assert bytes.fromhex(secret) not in said
    stored = [path for path in (job.folder / "home" / "storage").rglob("*") if path.is_file()]
    assert not [path for path in stored if path.name in {"result", "published_reviews", "staged_reviews"}]
    require_silent(job)


def test_a_fired_gate(stopped_in_dagster):
    require_silent(stopped_in_dagster.job)


@pytest.mark.thorough
def test_canary_words_stay_beside_the_staged_rows(job, materialized):
    from dptext_etl.checks import find
    from dptext_etl.orchestration import steps

    policy = job.policy(publish=False)
    assert materialized(policy).success
    staged = steps.load_run(policy, None)
    words = {word for plan in staged.canaries for word in plan.tokens}
    assert words
    assert sum(find(words, kept(job.folder / "home")).values()) == 0
    for path in staged.layout.staging.folder.glob("*.handover"):
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.thorough
def test_a_backfill_in_one_run(job, save, reviews, capfd):
    for number, name in enumerate(("a", "b")):
        save(reviews(120, 120 * number), job.folder / "raw" / f"{name}.parquet")
    places = {"source": f"{job.folder}/raw/{{partition}}.parquet", "sink": f"{job.folder}/published/{{partition}}"}
    definitions = orchestration.build_definitions(job.policy(**places), backfill="single_run")
    tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "b"}
    (job.folder / "home").mkdir()
    (job.folder / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with dg.DagsterInstance.from_config(str(job.folder / "home")) as instance:
        done = definitions.resolve_job_def("run_reviews").execute_in_process(instance=instance, tags=tags)
    assert done.success
    assert b"report_copies" in kept(job.folder / "home")
    require_silent(job, capfd)


@pytest.mark.parametrize(
    ("room", "step"), quick([("assets.engines", "stage"), ("assets.runner", "publish"), ("gates.runner", "check")])
)
def test_a_library_that_quotes_a_row(job, materialized, sentinel, monkeypatch, room, step, capfd):
    def quote(*_args, **_options):
        try:
            raise KeyError(f"row r00003: {sentinel}")  # noqa: TRY301
        except KeyError as cause:
            error = ValueError(f"cannot parse {sentinel!r}")
            error.add_note(sentinel)
            raise error from cause

    monkeypatch.setattr(f"dptext_etl.orchestration.{room}.{step}", quote)
    failed = materialized()
    assert failed.exit_code == 1
    assert "ValueError" in failed.runs[0].message
    require_silent(job, capfd)
