"""A run on Spark publishes the unlinked release that a run over the same rows publishes."""

from functools import partial

import polars as pl
import pytest

from dptext_etl.errors import InputError, LedgerError, PolicyError
from dptext_etl.ledger import Scope
from dptext_etl.spark import register, run_frame

UNLINKED = {"rows": 70, "delta": 1e-9, "per_subject": 2}
LABELED = {"rows": 10, "delta": 1e-9, "per_subject": 2, "labels": {"column": "topic", "values": ["food", "room"]}}


@pytest.fixture
def make_unlinked(make_unlinked):
    return partial(make_unlinked, normalize=["strip"], unlinked=UNLINKED)


def frame_of(spark, job, parts=3):
    return spark.read.parquet(str(job.folder / "raw.parquet")).repartition(parts)


@pytest.mark.parametrize(("unlinked", "rows"), [(UNLINKED, 80), (LABELED, 60)])
def test_the_bytes_and_the_charges_are_those_of_a_run(spark, make_unlinked, unlinked, rows):
    job, other = make_unlinked("spark", unlinked=unlinked), make_unlinked("polars", unlinked=unlinked)
    for one in (job, other):  # some labels are null, and some stand in no list
        path = one.folder / "raw.parquet"
        topic = pl.int_range(pl.len()).mod(8).replace_strict({0: "food", 3: "zoo", 4: "room"}, default="food")
        topic = pl.when(pl.int_range(pl.len()) % 8 != 6).then(topic)
        pl.read_parquet(path).with_columns(topic=topic).write_parquet(path)
    (other.folder / "noise.key").write_bytes((job.folder / "noise.key").read_bytes())
    expected = other.run()
    summary = run_frame(frame_of(spark, job), job.policy())
    theirs = {name.split("/")[-1]: data for name, data in other.files("published").items()}
    assert {name.split("/")[-1]: data for name, data in job.files("published").items()} == theirs
    assert (summary.rows, summary.published_rows) == (expected.rows, rows)
    assert summary.rows["over_contribution"] == 160
    with job.ledger() as ledger, other.ledger() as book:
        assert ledger.verify().ok
        refs = [item.releases.find(job.policy().column_policy()) for item in (ledger, book)]
        assert ledger.releases.pinned_table(refs[0]) == book.releases.pinned_table(refs[1]) is not None
        scope = Scope.of(job.policy())
        assert ledger.remaining(scope).as_dict()["used"] == book.remaining(scope).as_dict()["used"]


@pytest.mark.thorough
def test_another_table_and_too_few_rows_are_refused(spark, make_unlinked):
    job = make_unlinked()
    frame = frame_of(spark, job)
    run_frame(frame, job.policy())
    before = job.files("published")
    with pytest.raises(LedgerError, match="holds one table, whole"):
        run_frame(frame.filter("user_id != 'u007'"), job.policy(unlinked=UNLINKED))
    with pytest.raises(InputError, match="78 texts would be published"):
        run_frame(frame.filter("user_id != 'u007'"), job.policy(release="few", unlinked={**UNLINKED, "rows": 79}))
    assert job.files("published") == before


def test_a_function_cannot_draw_it(spark, make_unlinked):
    with pytest.raises(PolicyError, match="needs a run"):
        register(spark, "released", make_unlinked().policy().column_policy())
