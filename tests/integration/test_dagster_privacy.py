"""No raw text in anything that Dagster keeps: events, metadata, checks, logs, errors, whatever goes wrong."""

import sqlite3

import polars as pl
import pytest

dg = pytest.importorskip("dagster", reason="dagster is not installed")

from dptext_etl import _kernel  # noqa: E402
from dptext_etl.orchestration import assets, build_definitions, gates, materialize  # noqa: E402
from tests.quick import quick  # noqa: E402

from ..review_jobs import make_reviews  # noqa: E402
from .test_dagster_job import leaky  # noqa: E402
from .test_run_data_types import KEPT, carrying  # noqa: E402


def kept(home):
    """Everything in a Dagster home: the bytes of all files, and what its databases say."""
    files = [path for path in home.rglob("*") if path.is_file()]
    said = [path.read_bytes() for path in files]
    for path in files:
        if path.suffix == ".db":
            with sqlite3.connect(path) as base:
                said.append("\n".join(base.iterdump()).encode())
    assert len(files) > 3
    return b"\n".join(said)


def looked_for(job, sentinel):
    """Every id and subject of the raw table next to the word that all its texts carry."""
    raw = pl.read_parquet(job.folder / "raw.parquet")
    return [word.encode() for word in (sentinel, *raw["id"].drop_nulls(), *raw["user_id"].drop_nulls().unique())]


def assert_silent(job, sentinel, capfd=None):
    said = kept(job.folder / "home")
    if capfd is not None:
        said += "".join(capfd.readouterr()).encode()
    assert [word for word in looked_for(job, sentinel) if word in said] == []


@pytest.fixture
def materialized(job):
    def make(policy=None):
        return materialize(policy or job.policy(), home=job.folder / "home", quiet=False)

    return make


def test_the_search_finds_what_dagster_keeps_and_no_secret(job, materialized, sentinel, monkeypatch):
    """It comes first in its file: a process whose first run of Dagster is under `capfd` loses its output."""
    _kernel.Secret().write(str(job.folder / "other.key"))
    secret = (job.folder / "other.key").read_text().strip()
    monkeypatch.setenv("DPTEXT_SECRET", secret)
    assert materialized(job.policy(key="env:DPTEXT_SECRET")).success
    said = kept(job.folder / "home")
    assert b"canary_text_absent" in said
    assert b"rows released" in said
    assert b"env:DPTEXT_SECRET" in said or b"DPTEXT_SECRET" not in said
    assert secret.encode() not in said
    assert bytes.fromhex(secret) not in said
    stored = [path for path in (job.folder / "home" / "storage").rglob("*") if path.is_file()]
    assert not [path for path in stored if path.name in {"result", "published_reviews", "staged_reviews"}]
    assert_silent(job, sentinel)


def test_types_carry_nothing_into_dagster(make_job, sentinel, capfd):
    job = make_job(frame=carrying(make_reviews(120)), keep=KEPT)
    assert materialize(job.policy(), home=job.folder / "home", quiet=False).success
    assert b"List of Struct of 2 fields (String, Int64)" in kept(job.folder / "home")
    assert_silent(job, sentinel, capfd)


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


def partitioned(job, save, reviews):
    for number, name in enumerate(("a", "b")):
        save(reviews(120, 120 * number), job.folder / "raw" / f"{name}.parquet")
    return job.policy(source=f"{job.folder}/raw/{{partition}}.parquet", sink=f"{job.folder}/published/{{partition}}")


@pytest.mark.thorough
def test_a_backfill_in_one_run(job, save, reviews, sentinel, capfd):
    policy = partitioned(job, save, reviews)
    definitions = build_definitions(policy, backfill="single_run")
    tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "b"}
    (job.folder / "home").mkdir()
    (job.folder / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with dg.DagsterInstance.from_config(str(job.folder / "home")) as instance:
        done = definitions.resolve_job_def("run_reviews").execute_in_process(instance=instance, tags=tags)
    assert done.success
    assert b"report_copies" in kept(job.folder / "home")
    assert_silent(job, sentinel, capfd)


def test_a_table_that_was_tampered_with(job, materialized, save, sentinel, capfd):
    policy = job.policy()
    assert materialized(policy).success
    part = job.part(0)
    rows = pl.read_parquet(part).height
    save(pl.read_parquet(job.folder / "raw.parquet").head(rows).select("id", "stars", "review", "note"), part)
    checks = dg.define_asset_job("again", selection=dg.AssetSelection.checks_for_assets("published_reviews"))
    defs = dg.Definitions.merge(build_definitions(policy), dg.Definitions(jobs=[checks]))
    with dg.DagsterInstance.from_config(str(job.folder / "home")) as instance:
        found = defs.resolve_job_def("again").execute_in_process(instance=instance, raise_on_error=False)
    assert not found.success
    assert_silent(job, sentinel, capfd)


def test_an_asset_downstream(job, materialized, sentinel, capfd):
    @dg.asset
    def words(published_reviews: pl.LazyFrame) -> None:
        assert published_reviews.collect().height == 240

    done = materialize(job.policy(), also=[words], home=job.folder / "home", quiet=False)
    assert done.success
    assert "words" in done.runs[0].assets
    assert_silent(job, sentinel, capfd)


def test_a_fired_gate(job, materialized, sentinel, capfd):
    assert materialized(leaky(job.policy())).exit_code == 4
    assert_silent(job, sentinel, capfd)


@pytest.mark.parametrize(
    "damage",
    quick(
        [
            lambda raw: pl.concat([raw, raw]),
            lambda raw: raw.with_columns(review=pl.struct("review", "note")),
            lambda raw: raw.with_columns(id=pl.when(pl.col("stars") == 3).then(None).otherwise(pl.col("id"))),
            lambda raw: raw.drop("review"),
            lambda raw: raw.with_columns(user_id=pl.lit(None, pl.String)),
        ],
    ),
)
def test_a_bad_source(job, materialized, save, sentinel, damage, capfd):
    save(damage(pl.read_parquet(job.folder / "raw.parquet")), job.folder / "raw.parquet")
    refused = materialized()
    assert refused.exit_code == 5
    assert "Hint:" in refused.runs[0].message
    assert_silent(job, sentinel, capfd)


@pytest.mark.parametrize(
    ("room", "step"),
    quick([(assets.engines, "stage"), (assets.runner, "publish"), (gates.runner, "check")]),
)
def test_a_library_that_quotes_a_row(job, materialized, sentinel, monkeypatch, room, step, capfd):
    def quote(*_args, **_options):
        try:
            raise KeyError(f"row r00003: {sentinel}")  # noqa: TRY301
        except KeyError as cause:
            error = ValueError(f"cannot parse {sentinel!r}")
            error.add_note(sentinel)
            raise error from cause

    monkeypatch.setattr(room, step, quote)
    failed = materialized()
    assert failed.exit_code == 1
    assert "ValueError" in failed.runs[0].message
    assert_silent(job, sentinel, capfd)
