"""Which release a report is of: the policy's release in the sink, or in staging, and never another one."""

import json

import polars as pl
import pytest

from dptext_etl.errors import InputError
from dptext_etl.runner.layout import Layout
from tests.command_line import dptext
from tests.synthetic_runs import CAP, labeled

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: eval)")
pytest.importorskip("sacrebleu", reason="sacrebleu is not installed (extra: eval)")

from dptext_etl_eval.published import columns_of, evidence_of

ALLOW = ["cluster", "punct", "numbers", "oov", "case"]


def other(job, **mechanism):
    """The columns of the job, with another mechanism."""
    column = job.policy().columns[0].model_dump()
    return [{**column, "mechanism": {**column["mechanism"], **mechanism}, "allow": ALLOW}]


@pytest.mark.parametrize("changed", ["release", "mechanism"])
def test_a_policy_that_never_ran_is_refused_by_name(job, tmp_path, changed):
    job.run(column=other(job, epsilon=3.0))
    changes = {"release": {"release": "never-run"}, "mechanism": {"column": other(job, epsilon=0.5)}}[changed]
    policy = job.write_policy(**{"column": other(job, epsilon=3.0), **changes})
    done = dptext("evaluate", policy, "--label", "stars", "--out", tmp_path / "report")
    assert (done.exit_code, (tmp_path / "report").exists()) == (5, False), done.output
    said = " ".join(done.output.split())
    if changed == "release":
        assert "the sink holds the release reviews / 2026-11, and the policy is of reviews / never-run" in said
    else:
        held = json.loads((job.folder / "published.manifest.json").read_text())["columns"][0]["cfg"][:12]
        assert f"column 'review' under the configuration {held}…" in said


def test_an_empty_sink_is_refused(job, tmp_path):
    with pytest.raises(InputError, match="nothing is published"):
        list(columns_of(job.policy(), tmp_path / "report"))


@pytest.mark.parametrize("form", ["synthetic", "shuffled"])
def test_a_table_without_links_of_another_release_is_refused(make_synthetic, make_job, reviews, tmp_path, form):
    job, asked = make_synthetic(), {}
    if form == "shuffled":
        asked = {"label": "topic"}
        job = make_job("shuffled", labeled(reviews()))
        mechanism = {"name": "surrogate", "epsilon": 6.0, "corpus": "example"}
        job.values |= {"column": [{"name": "review", "mechanism": mechanism}], "keep": [], "cap": CAP}
        job.values["shuffled"] = {"rows": 30, "delta": 1e-7, "form": "rows"}
    job.run()
    with pytest.raises(
        InputError, match="the sink holds the release reviews / 2026-11, and the policy is of reviews /"
    ):
        list(evidence_of(job.policy(release="never-run"), tmp_path / "report", **asked))


def test_a_faithful_release_is_measured_where_it_is_staged(job, tmp_path, sentinel):
    job.run()  # another release is published in the same sink
    faithful = {"column": other(job, mode="faithful"), "release": "faithful", "publish": False}
    policy = job.write_policy(**faithful)
    done = dptext("evaluate", policy, "--label", "stars", "--out", tmp_path / "report")
    assert (done.exit_code, "the ledger has no release 'faithful'" in " ".join(done.output.split())) == (5, True)
    job.run(**faithful)
    done = dptext("evaluate", policy, "--label", "stars", "--out", tmp_path / "report")
    assert done.exit_code == 0, done.output
    (review,) = json.loads((tmp_path / "report" / "evidence.json").read_text())["columns"]
    assert review["of"] == 240
    assert (review["cost"]["class"], "manifest sha256" in review["cost"]) == ("COND_PURE", False)
    staging = Layout.of(job.policy(**faithful)).staging.folder
    staged = pl.read_parquet(staging / "shard-*.parquet").height
    ((_, pairs, _),) = columns_of(job.policy(**faithful), tmp_path / "report")
    assert len(pairs) == 240 < staged
    assert any(sentinel in text for text in pairs.released)  # faithful: unknown words stay
    assert [json.loads(line)["query"] for line in (staging / "queries.jsonl").read_text().splitlines()] == [
        "evaluate",
        "evaluate",
    ]
    again = {**faithful, "column": other(job, mode="faithful", epsilon=0.5)}
    with pytest.raises(InputError, match="with this configuration of 'review'"):
        list(columns_of(job.policy(**again), tmp_path / "report"))


def test_a_plain_table_can_still_be_compared_with_a_policys_source(job, tmp_path):
    job.run()
    plain = tmp_path / "plain.parquet"
    pl.read_parquet(job.folder / "published" / "*.parquet").write_parquet(plain)
    ((name, pairs, cost), _) = columns_of(job.policy(), tmp_path / "report", released=str(plain))
    assert (name, len(pairs), cost) == ("review", 240, {})
