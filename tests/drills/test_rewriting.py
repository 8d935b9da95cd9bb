"""kill -9 around a post-processing: before its results are staged, before the ledger has their row, and after it."""

import json
import subprocess

import pytest

from ..toy_mechanisms import again  # noqa: F401  (a fixture)

CHILD = """
import json, os, signal, sys
from dptext_etl import Policy, run
folder, values, step = json.loads(sys.argv[1])
sys.path.append(folder)
def checkpoint(name):
    if name == step:
        os.kill(os.getpid(), signal.SIGKILL)
run(Policy.parse(values), checkpoint=checkpoint)
"""
DIES = ("committed", "rewriting staged", "rewriting recorded")
ROWS = 40


def staged(job, what):
    return {path.name: path.read_bytes() for path in (job.folder / "published.staging").rglob(f"shard-*.{what}")}


@pytest.mark.parametrize("step", DIES)
def test_a_killed_post_processing_serves_what_it_staged(drill, make_job, reviews, again, warm, step):  # noqa: F811
    job = make_job("killed", reviews(ROWS))
    column = {"name": "review", "allow": ["cluster"], "postprocess": [{"name": "again"}], "keep_intermediate": True}
    job.values["column"] = [{**column, "mechanism": job.policy().columns[0].model_dump(mode="json")["mechanism"]}]
    order = json.dumps([str(again.folder), job.policy().model_dump(mode="json", by_alias=True), step])
    done = subprocess.run([*warm, "-c", CHILD, order], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    left = staged(job, "post")
    with job.ledger() as ledger:
        recorded = ledger.verify().counts.get("rewritten", 0)
        charged = ledger.reports.show()[0]["committed"]
    assert (len(left), recorded > 0) == {
        "committed": (0, False),
        "rewriting staged": (1, False),
        "rewriting recorded": (1, True),
    }[step]
    kept = staged(job, "parquet")
    summary = job.run()
    assert (summary.version, summary.rows["new"]) == (1, 0)
    assert len(again.got) == (0 if left else charged), "what was staged is served, and never computed again"
    posts = {path.read_bytes() for path in (job.folder / "published.staging").rglob("kept-*.post")}
    assert not left or posts == set(left.values())
    assert {path.read_bytes() for path in (job.folder / "published.staging").rglob("kept-*.parquet")} == set(
        kept.values()
    )
    with job.ledger() as ledger:
        report = ledger.verify()
        assert report.ok, report.problems
        assert (report.counts["rewritten"], report.counts["committed"]) == (charged, charged)
    drill.tell(
        "rewriting",
        f"a kill after the step {step!r} of a run whose texts are rewritten",
        "after resuming, the results that were staged are published byte for byte, none is computed twice, and the "
        "ledger verifies",
    )
