"""Types carry categories, names, and metadata, none of which leaves a run; UUIDs and JSON are strings at every door."""

import importlib
import json
import uuid
from functools import partial
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptext_etl import privatize_table
from dptext_etl.checks import canaries
from dptext_etl.checks.published import check_published
from dptext_etl.errors import DPTextError, InputError
from dptext_etl.polars import released, run_frame
from dptext_etl.runner import scan_published
from dptext_etl.runner.planning import plan
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.source.guessing import guess
from tests.quick import quick

from ..object_store import remote
from ..review_jobs import SENTINEL, make_reviews, save_table

ENUM = pl.Enum(["low", "high", SENTINEL])
LEVEL = pl.when(pl.col("stars") > 2).then(pl.lit("high")).otherwise(pl.lit("low"))
KEPT = ["level", "levels", "pair", "inner", "named", "held", "nothing", "stars"]
STRUCT = pl.struct(LEVEL.cast(ENUM).alias("low"), pl.col("stars").alias(SENTINEL))
TYPES = {
    "level": "String",
    "levels": "List of String",
    "pair": "Array(2) of String",
    "inner": "List of Struct of 2 fields (String, Int64)",
    "named": "String",
    "held": "String",
    "nothing": "String",
    "stars": "Int64",
}


def carrying(frame):
    """A table whose kept columns carry the sentinel in their types, and in no cell."""
    extension = pl.Extension(SENTINEL, pl.String, SENTINEL)
    return frame.with_columns(
        level=LEVEL.cast(ENUM),
        levels=pl.concat_list(LEVEL.cast(ENUM)),
        pair=pl.concat_list(LEVEL.cast(ENUM), LEVEL.cast(ENUM)).list.to_array(2),
        inner=pl.concat_list(STRUCT),
        named=LEVEL.cast(pl.Categorical(pl.Categories(SENTINEL))),
        held=LEVEL.ext.to(extension),
        nothing=pl.lit(None),
    )


def with_metadata(path):
    """Write a file again with metadata of fields and of the schema."""
    table = pq.read_table(path)
    fields = [field.with_metadata({"comment": SENTINEL, **(field.metadata or {})}) for field in table.schema]
    pq.write_table(table.cast(pa.schema(fields, {"comment": SENTINEL})), path)


def holds(folder: Path, suffix: str = "") -> list[str]:
    """Files of a folder, with some suffix, that hold the sentinel, in their bytes or in a schema."""
    found = []
    for path in folder.rglob(f"*{suffix}"):
        if path.is_file():
            schema = repr(pq.ParquetFile(path).schema_arrow.to_string()) if path.suffix == ".parquet" else ""
            if SENTINEL.encode() in path.read_bytes() or SENTINEL in schema:
                found.append(path.name)
    return sorted(found)


def outside(job):
    """Everything that readers get, and the ledger."""
    return [*holds(job.folder / "published.versions"), *holds(job.folder / "published"), *(
        path.name for path in job.folder.glob("*") if path.is_file() and path.suffix in {".json", ".db"}
        and SENTINEL.encode() in path.read_bytes()
    )]  # fmt: skip


def manifest(job):
    return json.loads((job.folder / "published.manifest.json").read_text())


@pytest.mark.parametrize("door", ["file", "frame"])
@pytest.mark.parametrize("incremental", quick([False, True]))
def test_no_type_carries_anything_out_of_a_run(make_job, door, incremental, caplog):
    job = make_job(keep=KEPT, incremental=incremental)
    raw = carrying(make_reviews(120))
    if door == "file":
        save_table(raw, job.folder / "raw.parquet")
        with_metadata(job.folder / "raw.parquet")
        assert SENTINEL not in repr(plan(job.policy()))
        job.run()
        again = job.run
    else:
        again = partial(run_frame, raw, job.policy())
        again()
    assert outside(job) == []
    assert {name: manifest(job)["schema"][name] for name in KEPT} == TYPES
    rows = released(str(job.folder / "published")).collect()
    expected = raw.select(level=pl.col("level").cast(pl.String), star=pl.col("stars")).rows()
    assert rows.select("level", "stars").rows() == expected
    assert rows["inner"].list.first().struct.unnest().rows() == expected
    assert not again().changed
    save_table(raw.filter(pl.col("user_id") != "u007"), job.folder / "raw.parquet")
    forget(job.policy(), subjects=["u007"])
    assert outside(job) == []
    assert {name: manifest(job)["schema"][name] for name in KEPT} == TYPES
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))
    assert SENTINEL not in caplog.text


WRONG = {
    "a list as the id": {"id": "number", "keep": []},
    "a struct as a text": {"keep": [], "column": "inner"},
    "a struct in CSV": {"sink": "published.csv", "keep": ["inner"]},
    "a list in Iceberg": {"table": "iceberg", "keep": ["small"]},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_no_refusal_prints_what_a_type_carries(make_job, wrong):
    raw = carrying(make_reviews(40)).with_columns(
        number=pl.concat_list(pl.struct(pl.lit(0.5).alias(SENTINEL))),
        small=pl.struct(pl.lit(1, pl.UInt8).alias(SENTINEL)),
    )
    job = make_job(frame=raw, keep=KEPT)
    changes = dict(WRONG[wrong])
    if "column" in changes:
        changes["column"] = [{**job.policy().columns[0].model_dump(), "name": changes["column"]}]
    if "table" in changes:
        catalog = {"type": "sql", "uri": f"sqlite:///{job.folder}/catalog.db"}
        changes["table"] = {"format": "iceberg", "name": "public.reviews", "catalog": catalog}
    if "sink" in changes:
        changes["sink"] = str(job.folder / changes["sink"])
    for door in (job.run, lambda **entries: plan(job.policy(**entries))):
        with pytest.raises(DPTextError, match=r"truct of [12] field") as caught:
            door(**changes)
        assert SENTINEL not in str(caught.value)


def test_no_other_door_prints_what_a_type_carries(make_job):
    raw = carrying(make_reviews(40)).select("inner", "level", id="stars", n=pl.struct(pl.lit(0.5).alias(SENTINEL)))
    job = make_job(frame=raw)
    column = job.policy().column_policies()[0]
    made = {"text": raw.select("id", review="inner"), "id": raw.select(review=pl.lit("a"), id=pl.concat_list("n"))}
    doors = {
        "init": lambda _: guess(str(job.folder / "raw.parquet"), id="id", texts=("inner",)),
        "init of an id": lambda _: guess(str(job.folder / "raw.parquet"), id="inner"),
        "Polars": lambda frame: privatize_table(frame, column, id="id"),
        "Arrow": lambda frame: privatize_table(frame.to_arrow(), column, id="id"),
        "pandas": lambda frame: privatize_table(frame.to_pandas(use_pyarrow_extension_array=True), column, id="id"),
        "canary rows": lambda _: canaries.ids_from([b"x" * 32], made["id"]["id"].dtype),
    }
    for name, door in doors.items():
        for frame in made.values():
            with pytest.raises((DPTextError, pl.exceptions.PolarsError)) as caught:
                door(frame)
            assert SENTINEL not in str(caught.value), name


def test_files_of_other_types_are_named_by_kind(make_job):
    job = make_job(keep=["level"])
    (job.folder / "raw").mkdir()
    other = pl.struct(pl.col("stars").alias(SENTINEL))
    for name, level in (("a", LEVEL.cast(ENUM)), ("b", other)):
        save_table(make_reviews(40).with_columns(level=level), job.folder / "raw" / f"{name}.parquet")
    with pytest.raises(DPTextError, match=r"of type Struct of 1 field \(Int64\).* of type Enum\n") as caught:
        job.run(source=str(job.folder / "raw"))
    assert SENTINEL not in str(caught.value)


PLANTED = {
    "published_files": (
        ("publish.publication", "kind_of", str),
        ("publish.publication", "plain_type", lambda dtype, rename: dtype),
    ),
    "raw_column_absent": (
        ("source.roles", "plain", lambda column, dtype: column),
        ("source.roles", "plain_type", lambda dtype, rename=False: dtype),
        ("publish.parts", "all_plain", lambda frame, schema, rename: frame),
    ),
}
"""Defects that let types out, in the manifest and in the files, by the gates that find them."""


def test_gates_find_what_types_carry(make_job, monkeypatch):
    job = make_job(frame=carrying(make_reviews(40)), keep=["level", "levels", "inner"])
    with monkeypatch.context() as planted:
        for place, name, made in (item for items in PLANTED.values() for item in items):
            planted.setattr(importlib.import_module(f"dptext_etl.runner.{place}"), name, made)
        job.run()
    verdicts = check_published(job.folder / "published", job.policy())
    assert {verdict.name for verdict in verdicts if not verdict.passed} == {*PLANTED}


def test_composite_ids_of_a_published_table_are_recognized(make_job):
    frame = make_reviews(120).with_columns(
        id=pl.struct(pl.lit("x").alias(SENTINEL), pl.struct(b=pl.col("id")).alias("a"))
    )
    job = make_job(frame=frame, incremental=True)
    job.run()
    save_table(frame.reverse(), job.folder / "raw.parquet")
    summary = job.run()
    assert (summary.rows["already_published"], summary.changed) == (120, False)
    assert holds(job.folder / "published.versions") == []
    assert SENTINEL not in json.dumps(manifest(job))


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
    objects = strings.to_pandas().assign(id=IDS, user_id=PEOPLE)  # before version 26, pyarrow makes bytes of UUIDs
    doors = [strings, duckdb.from_arrow(strings), objects]
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
