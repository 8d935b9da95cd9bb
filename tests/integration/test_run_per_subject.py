"""At most `per_subject` records of a person are released, chosen by the key, in any order of arrival."""

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import _kernel
from dptext_etl.errors import PolicyError
from dptext_etl.keys import canonical_ids
from dptext_etl.runner import plan, scan_published
from tests.quick import quick

MOST = 2


def published(job):
    return set(scan_published(str(job.folder / "published")).collect()["id"])


def first_of(frame, job, most=MOST, stay=()):
    """The records that must be released, person by person, in plain Python."""
    key = job.policy().column_policies()[0].release_key()
    ids = frame["id"].to_list()
    keys = pa.array(_kernel.order_keys(key, canonical_ids(frame["id"].to_arrow())))
    order = dict(zip(ids, keys.to_pylist(), strict=True))
    chosen = {one for one, person in frame.select("id", "user_id").iter_rows() if person is None or one in stay}
    for person in set(frame["user_id"].drop_nulls()):
        theirs = frame.filter(user_id=person)["id"].to_list()
        old = [one for one in theirs if one in stay]
        new = sorted((one for one in theirs if one not in stay), key=order.get)
        chosen.update(new[: max(0, most - len(old))])
    return chosen


def keep(job, frame):
    frame.write_parquet(job.folder / "raw.parquet")


@pytest.mark.parametrize("incremental", quick([True, False]))
def test_released_records_stay_and_the_key_fills_what_remains(job, reviews, incremental):
    frame, early = reviews(), reviews().filter(pl.col("user_id") != "u001").head(90)
    policy = job.policy(per_subject=MOST, incremental=incremental)
    keep(job, early)
    first = job.run(per_subject=MOST, incremental=incremental)
    assert published(job) == first_of(early, job)
    assert first.rows["over_contribution"] == len(early) - len(published(job))
    before = published(job)
    keep(job, frame.sample(fraction=1.0, shuffle=True, seed=5))
    forecast = plan(policy)
    assert any("per_subject = 2 of a person count" in note for note in forecast.notes)
    job.run(per_subject=MOST, incremental=incremental)
    assert published(job) == first_of(frame, job, stay=before) > before
    job.run(per_subject=1, incremental=incremental)
    assert published(job) == first_of(frame, job, stay=before), "a lower limit takes nothing back"


def test_rows_without_a_person_have_no_limit(job, reviews):
    frame = reviews().with_columns(user_id=pl.when(pl.int_range(pl.len()) % 4 > 0).then("user_id"))
    keep(job, frame)
    job.run(per_subject=MOST, on_null_subject="own")
    assert published(job) == first_of(frame, job)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"unit": "record", "subject": None}, 'unit = "record" has none'),
        ({"incremental": True, "deletions": "keep"}, "needs a source with all rows of a person"),
    ],
)
def test_policies_that_cannot_have_it(job, changes, sentence):
    with pytest.raises(PolicyError, match=sentence):
        job.policy(per_subject=MOST, **changes)


def test_a_release_of_one_table_has_an_entry_of_its_own(make_unlinked):
    with pytest.raises(PolicyError, match="have their own per_subject"):
        make_unlinked().policy(per_subject=MOST)
