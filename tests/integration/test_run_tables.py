"""Sources of more than one plain file: tables with a log or of a catalog, folders with columns in their names."""

import importlib.util
import json
import shutil

import polars as pl
import pytest

from dptext_etl import Policy, run
from dptext_etl.checks.published import check_published
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.runner import scan_published
from dptext_etl.runner.planning import plan
from dptext_etl.runner.publish.forgetting import forget
from dptext_etl.runner.source import table as table_versions
from dptext_etl.runner.source.table import partitions_of_source
from tests.command_line import dptext
from tests.quick import quick

from ..refusals import same_refusal


def manifest(job):
    return json.loads((job.folder / "published.manifest.json").read_text())


@pytest.fixture
def delta(job, reviews):
    """A table of Delta Lake from which half of the rows were deleted."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
    place = str(job.folder / "table")
    reviews(120).write_delta(place)
    reviews(120, 120).write_delta(place, mode="append")
    deltalake.DeltaTable(place).delete("id < 'r00100'")
    return place


def test_the_version_that_a_run_began_with_is_read_throughout(job, delta, reviews):
    import deltalake

    def checkpoint(name):
        if name == "checked":
            deltalake.DeltaTable(delta).delete("id >= 'r00100'")

    run(job.policy(source=delta), checkpoint=checkpoint)
    assert job.published().height == 140
    assert manifest(job)["source"]["version"] == "2"


def test_files_of_a_delta_table_are_refused(job, delta):
    file, linked = next((job.folder / "table").glob("*.parquet")), job.folder / "linked.parquet"
    linked.symlink_to(file)
    (job.folder / "linked").symlink_to(job.folder / "table" / "partition")
    (job.folder / "table" / "partition").mkdir()
    shutil.copy(file, job.folder / "table" / "partition")
    for source in (f"{delta}/*.parquet", str(file), str(linked), str(job.folder / "linked")):
        with pytest.raises(InputError, match="belong to a table of Delta Lake") as caught:
            job.run(source=source)
        assert delta in caught.value.hint
    assert not (job.folder / "ledger.db").exists()


@pytest.mark.parametrize("source", ["table", "table/metadata/00001-abc.metadata.json"])
def test_without_the_extra_such_a_table_is_refused(job, reviews, monkeypatch, source):
    (job.folder / "table" / "metadata").mkdir(parents=True)
    (job.folder / "table" / "metadata" / "00001-abc.metadata.json").touch()
    if source == "table":
        (job.folder / "table" / "_delta_log").mkdir()
    reviews().write_parquet(job.folder / "table" / "part-0.parquet")
    monkeypatch.setattr(table_versions, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="is read by its log") as caught:
        job.run(source=str(job.folder / source))
    assert "deleted rows" in caught.value.hint


@pytest.mark.skipif(importlib.util.find_spec("pyiceberg") is None, reason="pyiceberg is not installed (extra: tables)")
def test_an_iceberg_table_holds_no_deleted_rows(job, reviews):
    from pyiceberg.catalog.sql import SqlCatalog

    place = job.folder / "warehouse"
    place.mkdir()
    catalog = SqlCatalog("local", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    catalog.create_namespace("raw")
    rows = reviews(240).with_columns(pl.col("stars").cast(pl.Int64)).to_arrow(compat_level=pl.CompatLevel.oldest())
    table = catalog.create_table("raw.reviews", schema=rows.schema)
    table.append(rows)
    table.delete("id < 'r00100'")
    current = table.metadata_location.removeprefix("file://")
    assert job.run(source=current).rows["read"] == 140
    assert sorted(job.published()["id"]) == reviews(240)["id"].to_list()[100:]
    version = f"{table.current_snapshot().snapshot_id}, schema 0"
    assert manifest(job)["source"] == {"format": "iceberg", "version": version}
    (data,) = {path.parent for path in place.rglob("*.parquet")}
    with pytest.raises(InputError, match="belong to a table of Iceberg"):
        job.run(source=f"{data}/*.parquet", release="2026-12")


@pytest.mark.parametrize("suffix", quick(["csv", "parquet", "ndjson"]))
def test_columns_of_folder_names_can_be_kept(job, reviews, save, suffix):
    for at, day in enumerate(["2026-01-01", "2026-01-02", "__HIVE_DEFAULT_PARTITION__"]):
        save(reviews(80, 80 * at), job.folder / "raw" / f"day={day}" / "shop=a%2Fb" / f"part-0.{suffix}")
    job.run(source=str(job.folder / "raw"), keep=["stars", "day", "shop"])
    found = job.published()
    assert found["id"].to_list() == reviews(240)["id"].to_list()
    assert found["day"].to_list() == ["2026-01-01"] * 80 + ["2026-01-02"] * 80 + [None] * 80
    assert set(found["shop"]) == {"a/b"}
    job.run(source=str(job.folder / "raw"), release="2026-12")
    assert job.published().columns == ["id", "stars", "review", "note"], "other columns are not read"


@pytest.mark.parametrize("suffix", quick(["parquet", "csv", "ndjson"]))
@pytest.mark.parametrize("column", ["id", "user_id", "review", "stars"])
def test_a_column_of_folder_names_that_the_files_hold_with_other_values_is_refused(job, reviews, save, suffix, column):
    """Other libraries read the one or the other."""
    rows = reviews(2).with_columns(stars=pl.int_range(2), user_id=pl.format("u{}", pl.int_range(2)))
    for row in (rows[:1], rows[1:]):
        place = job.folder / "raw" / f"{column.upper()}={row[column].item()}" / f"part-0.{suffix}"
        save(row, place)
    job.values["source"] = str(job.folder / "raw")
    if column != "review":
        assert plan(job.policy()).rows == 2, "the values are equal"
        save(row.with_columns(stars=pl.lit(3, pl.Int64), id=pl.lit("x"), user_id=pl.lit("v")), place)
    refused = same_refusal(job, {}, InputError)
    assert f"column {column!r} is in the names of the source's folders" in refused.message
    assert not (job.folder / "ledger.db").exists()


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_files_whose_columns_differ_are_named(job, reviews, save, suffix):
    cases = [
        ({"more": pl.lit(1)}, "has column 7"),
        ({"stars": None}, "no such column"),
        ({"stars": pl.col("stars").cast(pl.Float64)}, "column 'stars' of type Float64"),
    ]
    for changes, said in cases[: 2 if suffix == "csv" else 3]:
        second = reviews(80, 80).drop([name for name, made in changes.items() if made is None])
        second = second.with_columns(**{name: made for name, made in changes.items() if made is not None})
        for at, frame in enumerate((reviews(80), second)):
            save(frame, job.folder / "raw" / f"{at}.{suffix}")
        with pytest.raises(InputError, match=f"1.{suffix} has .*") as caught:
            job.run(source=str(job.folder / "raw"))
        assert said in str(caught.value)
        assert f"0.{suffix}" in str(caught.value)
    assert not (job.folder / "ledger.db").exists()


@pytest.mark.parametrize("suffix", quick([".parquet", ".csv", ".ndjson"]))
def test_a_folder_whose_name_is_a_pattern_of_another_one_is_read_by_itself(make_job, reviews, suffix):
    """A reader for which the name is a pattern reads the raw, staged, and published files of both."""
    other, plain, job = (
        make_job(name, reviews(120, first), suffix) for name, first in (("whats", 120), ("plain", 0), ("what?", 0))
    )
    for one in (other, plain, job):
        one.run(shard_rows=40)
        assert all(verdict.passed for verdict in check_published(one.folder / "published", one.policy()))
    assert job.published().equals(plain.published())
    for one in (plain, job):
        left = reviews(120).filter(pl.col("user_id") != "u007")
        left.write_parquet(one.folder / "left.parquet")  # the published table keeps its format
        forget(one.policy(source=str(one.folder / "left.parquet")), subjects=["u007"])
    assert job.published().height == 117
    assert job.published().equals(plain.published())


@pytest.fixture
def from_catalog(make_job):
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (extra: tables)")
    made = make_job()
    made.values |= {
        "source": "table:raw.reviews",
        "source_catalog": {"type": "sql", "uri": f"sqlite:///{made.folder}/catalog.db"},
    }
    return made


def raw(from_catalog, frame=None):
    """The raw table in its catalog, with these rows appended."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(
        "default", **from_catalog.values["source_catalog"], warehouse=f"file://{from_catalog.folder}/warehouse"
    )
    catalog.create_namespace_if_not_exists("raw")
    rows = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    table = catalog.create_table_if_not_exists("raw.reviews", rows.schema)
    table.append(rows)
    return table


def test_the_texts_are_those_of_a_run_over_files_and_a_new_snapshot_is_read(from_catalog, make_job, reviews):
    raw(from_catalog, reviews())
    plain = make_job("plain")
    plain.run()
    assert plan(from_catalog.policy()).rows == 240
    from_catalog.run()
    before = scan_published(str(from_catalog.folder / "published")).collect()
    assert before.sort("id").equals(scan_published(str(plain.folder / "published")).collect().sort("id"))
    assert run(from_catalog.policy()).version == 1
    table = raw(from_catalog, reviews(rows=20, first=240))
    assert run(from_catalog.policy()).rows["new"] == 20
    with table.update_schema() as change:
        change.delete_column("stars")
    with pytest.raises(InputError, match="the source has no column 'stars'"):
        run(from_catalog.policy())


def test_forget_asks_the_catalog(from_catalog, reviews):
    table = raw(from_catalog, reviews())
    from_catalog.run()
    with pytest.raises(InputError, match="the source still holds 6 of these records"):
        forget(from_catalog.policy(), subjects=["u007"])
    table.delete("user_id = 'u007'")
    assert forget(from_catalog.policy(), subjects=["u007"]).removed == 6


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"source": "table:raw.missing"}, InputError, "the catalog has no table raw.missing"),
        ({"source_catalog": {}}, InputError, "which only Spark reads"),
    ],
)
def test_a_table_that_cannot_be_read_is_named_before_anything_is_charged(from_catalog, reviews, changes, kind, message):
    raw(from_catalog, reviews(rows=3))
    assert message in same_refusal(from_catalog, changes, kind).message


def test_a_catalog_needs_a_table_and_lists_no_partitions(from_catalog):
    with pytest.raises(PolicyError, match="source_catalog: the source is not a table of a catalog"):
        from_catalog.policy(source="raw.parquet")
    with pytest.raises(PolicyError, match="source_catalog"):
        from_catalog.policy(source_catalog={"type": "sql", "py-io-impl": "os.system"})
    policy = from_catalog.policy(
        source="table:raw.reviews_{partition}", sink=f"{from_catalog.folder}/out/{{partition}}"
    )
    with pytest.raises(PolicyError, match="cannot be listed"):
        partitions_of_source(policy)


def test_the_path_of_the_catalog_starts_from_the_policys_folder(from_catalog, monkeypatch, tmp_path):
    path = from_catalog.write_policy()
    path.write_text(path.read_text().replace(f"sqlite:///{from_catalog.folder}/catalog.db", "sqlite:///catalog.db"))
    monkeypatch.chdir(tmp_path)
    loaded = Policy.load(path)
    assert loaded.source == "table:raw.reviews"
    assert loaded.source_catalog["uri"] == f"sqlite:///{from_catalog.folder}/catalog.db"


def test_a_policy_in_a_folder_with_odd_signs_may_begin_with_a_byte_order_mark(make_job, reviews, save):
    """Its paths start from the folder; a partition whose name no key allows is named."""
    job = make_job("what?[a]%20")
    for name in ("2026-01", "2026 02"):
        save(reviews(40), job.folder / "raw" / f"{name}.csv")
    path = job.write_policy(source="raw/{partition}.csv", sink="out/{partition}", staging="staging")
    text = path.read_text().replace(f"{job.folder}/", "")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    done = dptext("run", path, "--partition", "2026-01")
    assert done.exit_code == 0, done.output
    assert scan_published(str(job.folder / "out" / "2026-01")).collect().height == 40
    assert {one.name for one in job.folder.iterdir()} >= {"ledger.db", "staging", "out"}
    done = dptext("run", path, "--all-partitions")
    assert (done.exit_code, "the partition '2026 02'" in done.stderr) == (PolicyError.exit_code, True)


@pytest.mark.thorough
def test_spark_reads_a_table_of_its_catalog(from_catalog, make_job, spark):
    plain = make_job("plain")
    plain.run()
    spark.read.parquet(str(plain.folder / "raw.parquet")).createOrReplaceTempView("raw_reviews")
    from_catalog.values |= {"source": "table:raw_reviews", "source_catalog": {}}
    done = dptext("run", from_catalog.write_policy(), "--engine", "spark")
    assert done.exit_code == 0, done.output
    found, wanted = (
        scan_published(str(one.folder / "published")).collect().sort("id") for one in (from_catalog, plain)
    )
    assert found.equals(wanted)
    from_catalog.values["source"] = "table:no_such_table"
    done = dptext("run", from_catalog.write_policy(), "--engine", "spark")
    assert (done.exit_code, "reading the table of the source failed" in done.stderr) == (InputError.exit_code, True)
