"""Types carry categories, names of fields, and metadata: none of it leaves a run, or stays in a published table."""

import importlib
import json
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptext_etl import Ledger, privatize_table
from dptext_etl.checks import canaries
from dptext_etl.checks.published import check_published
from dptext_etl.errors import DPTextError
from dptext_etl.polars import released, run_frame
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


@contextmanager
def before_types_were_plain(monkeypatch):
    """Publish as the versions did that wrote types as they were."""
    with monkeypatch.context() as patch:
        for place, name, made in (
            ("runner.source.roles", "plain", lambda column, dtype: column),
            ("runner.source.roles", "plain_type", lambda dtype, rename=False: dtype),
            ("runner.publish.parts", "all_plain", lambda frame, schema, rename: frame),
            ("runner.publish.publication", "kind_of", str),
            ("runner.publish.publication", "plain_type", lambda dtype, rename: dtype),
            ("engines.engine", "renew_types", lambda *_: None),
        ):
            patch.setattr(importlib.import_module(f"dptext_etl.{place}"), name, made)
        yield


OLD = ["level", "levels", "inner", "stars"]


@pytest.mark.parametrize("ids", ["keep", "keyed"])
@pytest.mark.parametrize("incremental", quick([False, True]))
@pytest.mark.parametrize("more", quick([40, 0]))
def test_the_next_run_rewrites_what_an_older_version_published(make_job, monkeypatch, ids, incremental, more):
    job = make_job(frame=carrying(make_reviews(120)), keep=OLD, incremental=incremental, ids=ids)
    with before_types_were_plain(monkeypatch):
        job.run()
    assert outside(job)
    if ids == "keep":
        failed = {
            verdict.name for verdict in check_published(job.folder / "published", job.policy()) if not verdict.passed
        }
        assert failed == {"published_files", "raw_column_absent"}
    texts = released(str(job.folder / "published")).select("review", "note").collect()
    charged = job.charged()
    if more:
        save_table(carrying(make_reviews(120 + more)), job.folder / "raw.parquet")
    job.run()
    assert outside(job) == []
    now = released(str(job.folder / "published")).collect()
    assert now.select("review", "note").rows()[: len(texts)] == texts.rows() or ids == "keyed"
    assert set(texts.rows()) <= set(now.select("review", "note").rows())
    assert len(now) == 120 + more
    assert job.charged() == charged or more
    assert {path.name for path in (job.folder / "published.versions").glob("v*")} == {"v2"} or more
    with Ledger.open(f"sqlite:///{job.folder / 'ledger.db'}", create=False, read_only=True) as ledger:
        ref = ledger.releases.find_all(job.policy())["review"]
        assert len(ledger.releases.retired(ref)) == 1
    if ids == "keep":
        assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))
    assert not job.run().changed


@pytest.mark.parametrize("step", quick(["recorded", "parts written", "manifest written"]))
def test_rewriting_goes_on_where_it_was_stopped(make_job, monkeypatch, step):
    job = make_job(frame=carrying(make_reviews(120)), keep=OLD, incremental=True)
    with before_types_were_plain(monkeypatch):
        job.run()
    assert job.stop(step)
    job.run()
    assert outside(job) == []
    assert manifest(job)["version"] == 2
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))


@pytest.mark.parametrize("incremental", quick([False, True]))
def test_a_run_goes_on_over_shards_that_an_older_version_staged(make_job, monkeypatch, incremental):
    job = make_job(frame=carrying(make_reviews(120)), keep=OLD, shard_rows=40, incremental=incremental)
    with before_types_were_plain(monkeypatch):
        assert job.stop("committed", 2)
    summary = job.run()
    assert (summary.published_rows, summary.rows["released"]) == (120, 120)
    assert outside(job) == []


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


NAMED = pl.struct(pl.col("stars").alias(SENTINEL))


def test_the_next_run_rewrites_a_table_of_delta_lake(make_job, monkeypatch):
    import deltalake

    job = make_job(frame=make_reviews(120).with_columns(pair=NAMED), keep=["pair"], table={"format": "delta"})
    with before_types_were_plain(monkeypatch):
        job.run(incremental=True)
    save_table(make_reviews(160).with_columns(pair=NAMED), job.folder / "raw.parquet")
    job.run(incremental=True)
    table = deltalake.DeltaTable(str(job.folder / "published"))
    assert SENTINEL not in table.schema().to_json()
    rows = pl.read_delta(str(job.folder / "published"))
    assert rows["pair"].struct.field("field_1").to_list() == make_reviews(160)["stars"].to_list()
    assert holds(job.folder / "published", ".parquet") == []


def test_a_table_of_iceberg_with_names_of_fields_takes_a_new_name(make_job, monkeypatch):
    job = make_job(frame=make_reviews(120).with_columns(pair=NAMED), keep=["pair"])
    catalog = {"type": "sql", "uri": f"sqlite:///{job.folder}/catalog.db"}
    table = {"format": "iceberg", "name": "public.reviews", "catalog": catalog}
    with before_types_were_plain(monkeypatch):
        job.run(table=table)
    for door in (job.run, lambda **entries: plan(job.policy(**entries))):
        with pytest.raises(DPTextError, match=r"other columns than this policy publishes.*\n.*name a new table"):
            door(table=table)
    job.run(table={**table, "name": "public.again"}, sink=str(job.folder / "again"), release="2026-12")
    assert holds(job.folder / "again") == []


@pytest.mark.parametrize("incremental", quick([False, True]))
def test_the_next_run_rewrites_what_lies_in_a_store(make_job, store, monkeypatch, incremental):
    pytest.importorskip("obstore", reason="obstore is not installed (extra: objects)")
    job = make_job(frame=carrying(make_reviews(120)), keep=OLD, incremental=incremental)
    job.values |= remote(job, store, source=job.values["source"])
    with before_types_were_plain(monkeypatch):
        job.run()
    assert any(SENTINEL.encode() in data for name, data in store.objects.items() if name.startswith("published"))
    job.run()
    shown = {name: data for name, data in store.objects.items() if name.startswith("published")}
    assert not any(SENTINEL.encode() in data for data in shown.values())
    assert {name.split("/")[2].partition("-")[0] for name in shown} == {"manifest.json", "v2"}


def test_maps_and_lists_of_before_are_left_as_they_are(make_job, monkeypatch):
    kept = {"several": pl.concat_list("stars"), "map": pl.concat_list(pl.struct(key="stars", value="id"))}
    raw = make_reviews(120).with_columns(**kept).with_columns(pl.col("map").cast(pl.Map(pl.Int64, pl.String)))
    job = make_job(frame=raw, keep=[*kept])
    with before_types_were_plain(monkeypatch):
        job.run()
    before = job.files()
    job.forget_that_nothing_changed()
    assert not job.run().changed
    assert job.files() == before
    assert all(verdict.passed for verdict in check_published(job.folder / "published", job.policy()))


def test_a_run_takes_the_place_of_an_older_version_that_the_ledger_does_not_know(make_job, monkeypatch):
    job = make_job(frame=carrying(make_reviews(120)), keep=OLD)
    with before_types_were_plain(monkeypatch):
        job.run()
    written = job.folder / "published.manifest.json"
    written.write_text(written.read_text().replace('"version": 1', '"version": 2'))
    job.run()
    assert manifest(job)["version"] == 3
    assert holds(job.folder / "published") == []
