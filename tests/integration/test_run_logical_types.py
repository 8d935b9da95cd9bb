"""UUIDs and JSON in a file are the same ids and texts at every door, and a column of no type is one of null texts."""

import uuid

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptext_etl import privatize_table
from dptext_etl.errors import InputError
from dptext_etl.polars import released
from dptext_etl.runner import scan_published
from dptext_etl.runner.planning import plan
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.source import roles
from dptext_etl.runner.source.guessing import guess

from ..object_store import remote
from ..review_jobs import make_reviews

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")

IDS = [uuid.UUID(int=(7 << 120) + 11 * i) for i in range(120)]
PEOPLE = [uuid.UUID(int=i % 20) for i in range(120)]


def typed():
    """The reviews with UUIDs as ids and subjects, a text of type JSON, and a column without a type."""
    raw = make_reviews(120)
    return pa.table(
        {
            "id": pa.array([each.bytes for each in IDS], pa.uuid()),
            "user_id": pa.array([each.bytes for each in PEOPLE], pa.uuid()),
            "review": pa.array(raw["review"].to_list(), pa.json_()),
            "note": pa.nulls(120),
            "kept": pa.array([{"a": [each.bytes]} for each in IDS], pa.struct([("a", pa.list_(pa.binary(16)))])).cast(
                pa.struct([("a", pa.list_(pa.uuid()))])
            ),
        }
    )


def write_by_pyarrow(table, path):
    pq.write_table(table, path)


def write_without_arrow(table, path):
    pq.write_table(table, path, store_schema=False)


def write_by_duckdb(table, path):
    relation = duckdb.from_arrow(table)
    relation.query("t", f"copy (from t) to '{path}'")


WRITERS = [write_by_pyarrow, write_without_arrow, write_by_duckdb]


@pytest.mark.parametrize("write", WRITERS)
def test_the_texts_and_ids_of_a_file_are_those_of_every_other_door(make_job, write):
    job = make_job(keep=["kept"], cap=None, incremental=True)
    table = typed()
    write(table, job.folder / "raw.parquet")
    plan(job.policy())
    job.run()
    rows = released(str(job.folder / "published")).collect()
    assert rows["id"].to_list() == [str(each) for each in IDS]
    assert rows["kept"].struct.field("field_1").list.first().to_list() == [str(each) for each in IDS]
    assert rows["note"].null_count() == 120
    strings = table.set_column(2, "review", table["review"].cast(pa.string())).drop(["note", "kept"])
    policy = job.policy(column=[job.policy().columns[0].model_dump()])
    doors = [strings, duckdb.from_arrow(strings), strings.to_pandas(types_mapper=None)]
    found = [privatize_table(door, policy) for door in doors]
    texts = [door["review"].to_pylist() for door in (found[0], found[1].to_arrow_table())] + [[*found[2]["review"]]]
    assert texts == [rows["review"].to_list()] * 3
    assert job.run().rows["already_published"] == 120


@pytest.mark.parametrize("write", WRITERS)
def test_a_first_policy_takes_uuids_and_json_for_strings(tmp_path, write):
    write(typed(), tmp_path / "raw.parquet")
    found = guess(str(tmp_path / "raw.parquet"))
    assert (found.id, found.subject, found.texts) == ("id", "user_id", ("review", "note"))


def test_a_person_whose_id_is_a_uuid_is_forgotten(make_job):
    job = make_job(keep=[])
    write_by_pyarrow(typed(), job.folder / "raw.parquet")
    job.run()
    write_by_pyarrow(
        typed().filter(pl.Series([each != PEOPLE[3] for each in PEOPLE]).to_arrow()), job.folder / "raw.parquet"
    )
    assert forget(job.policy(), subjects=[str(PEOPLE[3])]).removed == 6


def test_ids_that_were_pinned_as_bytes_stay_bytes(make_job, monkeypatch):
    job = make_job(keep=[], incremental=True)
    write_by_pyarrow(typed().slice(0, 60), job.folder / "raw.parquet")
    with monkeypatch.context() as before:
        before.setattr(roles, "logical_types", lambda *_: {"review": pa.json_(), "note": pa.null()})
        job.run()
    charged = job.charged()
    write_by_pyarrow(typed(), job.folder / "raw.parquet")
    summary = job.run()
    assert (summary.rows["already_published"], summary.rows["new"]) == (60, 60)
    assert released(str(job.folder / "published")).collect()["id"].to_list() == [each.bytes for each in IDS]
    assert job.charged()["review"][0] > charged["review"][0]
    assert job.run(release="2026-12", incremental=False).rows["new"] == 120


def test_files_with_uuids_and_with_bytes_are_refused(make_job):
    job = make_job(keep=[])
    (job.folder / "raw").mkdir()
    table = typed()
    write_by_pyarrow(table, job.folder / "raw" / "a.parquet")
    other = table.set_column(0, "id", table["id"].cast(pa.binary(16)))
    write_by_pyarrow(other, job.folder / "raw" / "b.parquet")
    with pytest.raises(InputError, match="'id': some of the source's files hold UUIDs"):
        job.run(source=str(job.folder / "raw"))


def test_an_interval_is_refused_before_the_charge_even_if_it_is_dropped(make_job):
    job = make_job(keep=[])
    duckdb.sql(
        f"copy (select 'r' id, 'u' user_id, 'a' review, 'b' note, interval 1 day as more) to '{job.folder}/raw.parquet'"
    )
    doors = (job.run, lambda: plan(job.policy()), lambda: guess(str(job.folder / "raw.parquet")))
    for door in doors:
        with pytest.raises(InputError, match="1 column of the source of type INTERVAL cannot be read"):
            door()
    (job.folder / "raw").mkdir()
    for name in ("a", "b"):
        (job.folder / "raw" / f"{name}.parquet").write_bytes((job.folder / "raw.parquet").read_bytes())
    with pytest.raises(InputError, match="1 column of the source of type INTERVAL"):
        job.run(source=str(job.folder / "raw"))
    assert not (job.folder / "ledger.db").exists()


def test_uuids_in_an_object_store_are_strings(make_job, store):
    pytest.importorskip("obstore", reason="obstore is not installed (extra: objects)")
    job = make_job(keep=[])
    for name in ("a", "b"):
        write_by_duckdb(typed().slice(60 * (name == "b"), 60), job.folder / "raw.parquet")
        store.objects[f"raw/{name}.parquet"] = (job.folder / "raw.parquet").read_bytes()
    job.run(**remote(job, store, source="s3://bucket/raw/*.parquet"))
    assert scan_published("s3://bucket/published/reviews", store.options).collect()["id"].to_list() == [*map(str, IDS)]


def test_a_type_that_arrow_does_not_know_may_be_dropped(make_job):
    job = make_job(frame=make_reviews(40).with_columns(more=pl.lit(1, pl.Int128)), keep=[])
    assert job.run().published_rows == 40
    with pytest.raises(InputError, match="column 'more' of type Int128 cannot be in a Parquet file"):
        job.run(keep=["more"])
