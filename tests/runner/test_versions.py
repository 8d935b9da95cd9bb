"""Versions of tables with a log: they show the rows and the columns of the table as it shows itself now."""

import json
import shutil

import polars as pl
import pytest

from dptext_etl.errors import InputError
from dptext_etl.runner.source.table import Files

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
types = pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed (extra: tables)")

ROWS = pl.DataFrame(
    {"id": ["a", "b"], "user": ["u", None], "review": ["x", "y"], "pair": [{"p": 1, "q": 2}, {"p": 3, "q": 4}]}
)


@pytest.fixture
def iceberg(tmp_path):
    return iceberg_table(tmp_path)


def iceberg_table(folder):
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("raw")
    rows = ROWS.to_arrow(compat_level=pl.CompatLevel.oldest())
    table = catalog.create_table("raw.reviews", schema=rows.schema)
    table.append(rows)
    return table


def files_of(table):
    return Files.at(table.metadata_location.removeprefix("file://"))


def rename(table, *pairs):
    for before, after in pairs:
        with table.update_schema() as change:
            change.rename_column(before, after)


def dropped(table):
    with table.update_schema() as change:
        change.delete_column("user")


def added_again(table):
    dropped(table)
    with table.update_schema() as change:
        change.add_column("user", types.StringType())


def exchanged(table):
    rename(table, ("user", "other"), ("id", "user"), ("other", "id"))


def exchanged_inside(table):
    rename(table, (("pair", "p"), "r"), (("pair", "q"), "p"), (("pair", "r"), "q"))


def added(table):
    with table.update_schema() as change:
        change.add_column(("pair", "new"), types.LongType())
        change.add_column("new", types.StringType())


PAIRS = pl.col("pair").struct
CHANGES = {
    dropped: ROWS.drop("user"),
    added_again: ROWS.select("id", "review", "pair", user=pl.lit(None, pl.String)),
    exchanged: ROWS.rename({"id": "user", "user": "id"}),
    exchanged_inside: ROWS.with_columns(pair=PAIRS.rename_fields(["q", "p"])),
    added: ROWS.with_columns(
        PAIRS.with_fields(new=pl.lit(None, pl.Int64)), new=pl.lit(None, pl.String)
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_an_iceberg_table_has_its_current_columns_without_an_append(iceberg, change):
    before = files_of(iceberg).version
    change(iceberg)
    files = files_of(iceberg)
    assert files.scan().collect().equals(CHANGES[change])
    assert files.version.name != before.name
    assert files.version.digest != before.digest
    assert before.scan().collect().equals(ROWS), "an earlier version stays as it was"


def test_rows_that_were_deleted_and_no_rows_at_all_are_read_as_such(iceberg):
    iceberg.delete("id = 'a'")
    assert files_of(iceberg).scan().collect()["id"].to_list() == ["b"]
    empty = iceberg.catalog.create_table("raw.empty", schema=iceberg.schema())
    files = files_of(empty)
    assert files.scan().collect().equals(ROWS.clear())
    assert files.version.name == "none, schema 0"
    dropped(empty)
    assert files.version.digest != files_of(empty).version.digest


def test_a_metadata_file_that_was_replaced_is_refused(iceberg):
    files = files_of(iceberg)
    place = files.paths[0]
    dropped(iceberg)
    shutil.copy(iceberg.metadata_location.removeprefix("file://"), place)
    with pytest.raises(InputError, match="was replaced while it was read"):
        files.scan()


def test_column_mapping_of_delta_lake_is_refused_with_a_way_to_read_it(tmp_path):
    place = tmp_path / "table"
    ROWS.drop("pair").write_delta(str(place))
    log = place / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            schema = json.loads(line["metaData"]["schemaString"])
            for number, field in enumerate(schema["fields"], start=1):
                field["metadata"] = {
                    f"delta.columnMapping.{key}": value
                    for key, value in (("id", number), ("physicalName", f"c{number}"))
                }
            line["metaData"]["schemaString"] = json.dumps(schema)
            line["metaData"]["configuration"] = {
                "delta.columnMapping.mode": "name",
                "delta.columnMapping.maxColumnId": "9",
            }
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
    log.write_text("\n".join(map(json.dumps, lines)))
    for read in (lambda files: files.scan(), lambda files: files.version.delta_files()):
        with pytest.raises(InputError, match="with the features columnMapping") as caught:
            read(Files.at(str(place)))
        assert caught.value.hint.startswith("read it by Spark with the package of Delta Lake")


def test_a_delta_table_has_the_columns_of_its_version(tmp_path):
    place, overwrite = (
        str(tmp_path / "table"),
        {"mode": "overwrite", "delta_write_options": {"schema_mode": "overwrite"}},
    )
    digests = []

    def shows(rows):
        files = Files.at(place)
        assert files.scan().collect().equals(rows)
        digests.append(files.version.digest)

    ROWS.write_delta(place)
    shows(ROWS)
    deltalake.DeltaTable(place).alter.add_columns([deltalake.Field("new", "string")])
    shows(ROWS.with_columns(new=pl.lit(None, pl.String)))
    swapped = ROWS.rename({"id": "user", "user": "id"}).drop("pair")
    swapped.write_delta(place, **overwrite)
    shows(swapped)
    deltalake.DeltaTable(place).restore(0)
    shows(ROWS)
    deltalake.DeltaTable(place).restore(2)
    shows(swapped)
    assert len(set(digests)) == 5
