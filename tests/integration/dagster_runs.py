"""Jobs of Dagster: one that published, one that its gates stopped, both once for all files; and steps by themselves."""

import sqlite3
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from dptext_etl import Policy, _kernel, orchestration
from dptext_etl.mechanisms.custext import CusText

from ..review_jobs import SENTINEL, jobs_in, make_reviews
from .test_run_data_types import KEPT, carrying

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
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class Leaky(CusText):
    """CusText that keeps unknown words unchanged."""

    def input_policy(self):
        return {**super().input_policy(), "oov": "keep"}


class LeakyPolicy(Policy):
    """A policy whose mechanism differs from its name."""

    def column_policies(self):
        return [
            c.model_copy(update={"mechanism": Leaky(**c.mechanism.model_dump())}) for c in super().column_policies()
        ]


def leaky(policy):
    return LeakyPolicy.model_validate(policy.model_dump(by_alias=True, exclude_none=True))


def reader(kind: Any, seen: list):
    """An asset downstream that notes its input."""
    import dagster as dg

    @dg.asset(automation_condition=orchestration.after_gates())
    def words(published_reviews: kind) -> None:
        seen.append(published_reviews)

    return words


def execute(policy, *assets, also=(), instance, gates=True, selection=None, partition=None):
    """Materialize some assets without those before them, as someone can by a click, or a selection."""
    import dagster as dg

    chosen = dg.AssetSelection.assets(*assets)
    chosen = selection or (chosen if gates else chosen.without_checks())
    more = dg.Definitions(assets=also, jobs=[dg.define_asset_job("some", selection=chosen)])
    job = dg.Definitions.merge(orchestration.build_definitions(policy), more).resolve_job_def("some")
    return job.execute_in_process(run_config=QUIET, instance=instance, partition_key=partition, raise_on_error=False)


def failure(result):
    return next(event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure)


def failed_checks(result):
    found = result.get_asset_check_evaluations()
    return {(check.asset_key.to_user_string(), check.check_name) for check in found if not check.passed}


def kept(home):
    """Everything in a Dagster home: the bytes of all files, and the contents of its databases."""
    files = [path for path in home.rglob("*") if path.is_file()]
    said = [path.read_bytes() for path in files]
    for path in files:
        if path.suffix == ".db":
            with sqlite3.connect(path) as base:
                said.append("\n".join(base.iterdump()).encode())
    assert len(files) > 3
    return b"\n".join(said)


def require_silent(job, capfd=None):
    """No id and no subject of the raw table, and not the word that all its texts have, is in the job's home."""
    said = kept(job.folder / "home")
    if capfd is not None:
        said += "".join(capfd.readouterr()).encode()
    raw = pl.read_parquet(job.folder / "raw.parquet")
    hidden = (SENTINEL, *raw["id"].drop_nulls(), *raw["user_id"].drop_nulls().unique())
    assert [word for word in hidden if word.encode() in said] == []


@pytest.fixture(scope="session")
def by_dagster(tmp_path_factory, small_vectors, _cache):
    """A job that Dagster ran with an asset downstream, and the same by `run`: types carry words, and a cap is small."""
    make = jobs_in(tmp_path_factory.mktemp("dagster"), small_vectors)
    terms = {"frame": carrying(make_reviews()), "keep": KEPT, "min_released": 0.0}
    terms["cap"] = {"measure": "pure", "epsilon": 150.0, "period": "2026"}
    job, other = (make(name, **terms) for name in ("dagster", "run"))
    _kernel.Secret().write(str(job.folder / "unused.key"))
    seen, expected = [], other.run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPTEXT_SECRET", (job.folder / "noise.key").read_text().strip())
        policy = job.policy(key="env:DPTEXT_SECRET")
        also = [reader(pl.LazyFrame, seen)]
        summary = orchestration.materialize(policy, also=also, home=job.folder / "home", quiet=False)
    return SimpleNamespace(job=job, other=other, summary=summary, expected=expected, seen=seen)


@pytest.fixture(scope="session")
def stopped_in_dagster(tmp_path_factory, small_vectors, _cache):
    """A job whose mechanism lets raw words through, with an asset downstream."""
    job = jobs_in(tmp_path_factory.mktemp("leaky"), small_vectors)()
    policy, seen = leaky(job.policy()), []
    also, home = [reader(pl.LazyFrame, seen)], job.folder / "home"
    summary, again = (orchestration.materialize(policy, also=also, home=home, quiet=False) for _ in range(2))
    return SimpleNamespace(job=job, summary=summary, again=again, seen=seen)
