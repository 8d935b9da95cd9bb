"""A model in a whole Spark run: its files are shipped, its words equal any other run's, replays score nothing."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from dptext_etl import run

pytest.importorskip("transformers", reason="torch and transformers are not installed (extra: models)")


@pytest.fixture
def films(make_job):
    texts = ["a good film", "the people of this city saw it again", "", None]
    rows = {"id": range(24), "user_id": [i % 5 for i in range(24)], "review": [texts[i % 4] for i in range(24)]}
    column = {"name": "review", "mechanism": {"name": "dpmlm", "model": "example-masked", "epsilon": 5.0}}

    def make(name, **more):
        return make_job(name, frame=pl.DataFrame(rows), keep=[], shard_rows=23, column=[column | more])  # four shards

    return make


REWRITTEN = {
    "postprocess": [{"name": "rewrite_again", "model": "example-seq2seq", "l_max": 4, "training_provenance": "public"}],
    "keep_intermediate": True,
}


def texts(job):
    return pl.read_parquet(job.folder / "published" / "*.parquet").sort("id")


@pytest.mark.thorough
def test_models_release_and_rewrite_on_executors_what_they_do_here(spark, films):
    from dptext_etl.spark import run_frame

    here, there = films("here", **REWRITTEN), films("there", **REWRITTEN)
    run(here.policy())
    raw = spark.read.parquet(str(there.folder / "raw.parquet")).repartition(2)
    first = run_frame(raw, there.policy())
    assert (first.version, first.rows["released"]) == (1, 24)
    assert_frame_equal(texts(there), texts(here))
    assert texts(there).columns == ["id", "review", "review_intermediate"]
    assert (texts(there)["review"] != texts(there)["review_intermediate"]).any()
    files = there.files()
    second = run_frame(raw, there.policy())
    assert (second.changed, second.rows["replayed"], there.files()) == (False, 24, files)
    with there.ledger() as ledger:
        assert ledger.verify().ok
        (row,) = ledger.reports.show()
        assert row["diverged"] == 0
        assert [(done["rows"], done["spend"]) for done in row["postprocess"]] == [(row["committed"], 0)]


def test_a_model_in_sql_is_nondeterministic_and_takes_no_ledger(spark, films):
    from dptext_etl.errors import LedgerError
    from dptext_etl.spark import register

    job = films("sql")
    (policy,) = job.policy().column_policies()
    function = register(spark, "private_review", policy)
    assert not function.deterministic
    with pytest.raises(LedgerError, match="is a model") as caught:
        register(spark, "charged_review", policy, ledger=str(job.folder / "ledger.db"))
    assert "run_frame" in caught.value.hint
