"""A file that no reader can read is named with the kind of its fault, in every format, and no cell is."""

import json
import re

import polars as pl
import pytest

from dptext_etl.errors import InputError
from dptext_etl.runner.planning import plan
from dptext_etl.runner.source.guessing import guess
from dptext_etl.runner.source.table import Files

from ..refusals import same_refusal
from ..review_jobs import job, make_job, reviews, save  # noqa: F401  (fixtures)

SECRET = "zzqsentinelqzz"
ROWS = pl.DataFrame({"id": [f"r{n}" for n in range(3000)], "text": [f"{SECRET} {n}" for n in range(3000)], "n": 1})


def damaged(path):
    """Overwrite the middle of a file; its footer stays."""
    content = bytearray(path.read_bytes())
    third = len(content) // 3
    content[third : 2 * third] = bytes(range(256)) * (third // 256) + bytes(third % 256)
    path.write_bytes(content)


def lines(*values):
    return "".join(json.dumps({"id": f"r{n}", "text": SECRET, "n": value}) + "\n" for n, value in enumerate(values))


TYPES = {
    "a boolean next to numbers": [1, 2, True, 3],
    "an object next to numbers": [1, 2, {"p": 1}, 3],
    "a list next to numbers": [1, 2, [1], 3],
    "a boolean in an object": [{"p": 1}, {"p": 2}, {"p": True}, {"p": 3}],
}


def refusal(source, **changes):
    with pytest.raises(InputError) as caught:
        guess(str(source), **changes)
    assert SECRET not in str(caught.value)
    return caught.value.message


@pytest.mark.parametrize("values", TYPES.values(), ids=TYPES.keys())
@pytest.mark.parametrize("alone", [True, False])
def test_the_line_is_named_where_types_do_not_fit(tmp_path, values, alone):
    """Also in a file that begins with a byte-order mark."""
    (tmp_path / "b.ndjson").write_text(("\ufeff" if alone else "") + lines(*values))
    if not alone:
        (tmp_path / "a.ndjson").write_text(lines(*values[:2]))
    said = rf"line 3 of the file {tmp_path}/b.ndjson cannot be read with the lines before it \(\w+Error\)"
    assert re.fullmatch(said, Files.at(str(tmp_path)).fault(()).message)


def test_a_file_that_does_not_fit_those_before_it_is_named(tmp_path):
    for name, value in (("a", 1), ("b", 2), ("c", True), ("d", 3)):
        (tmp_path / f"{name}.ndjson").write_text(lines(value))
    assert refusal(tmp_path) == f"the file {tmp_path}/c.ndjson cannot be read as NDJSON with the files before it"


@pytest.mark.parametrize("names", [["b"], ["a", "b", "c"], ["day=1/a", "day=2/b"]])
def test_a_damaged_parquet_file_is_named(tmp_path, names):
    for at, name in enumerate(names):
        (path := tmp_path / f"{name}.parquet").parent.mkdir(exist_ok=True)
        ROWS.with_columns(id=f"{at}-" + pl.col("id")).write_parquet(path)
    bad = tmp_path / f"{names[len(names) // 2]}.parquet"
    damaged(bad)
    assert re.fullmatch(rf"the file {bad} cannot be read as Parquet \(\w+\)", refusal(tmp_path))


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.tsv"])
def test_an_empty_file_is_named(tmp_path, name):
    (tmp_path / name).touch()
    assert refusal(tmp_path / name) == f"the file {tmp_path / name} is empty"


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_damaged_file_of_a_table_with_a_log_is_named(tmp_path, kind):
    place = tmp_path / "table"
    if kind == "delta":
        pytest.importorskip("deltalake", reason="deltalake is not installed (extra: tables)")
        ROWS.write_delta(str(place))
        ROWS.with_columns(id="x" + pl.col("id")).write_delta(str(place), mode="append")
    else:
        sql = pytest.importorskip("pyiceberg.catalog.sql", reason="pyiceberg is not installed (extra: tables)")
        catalog = sql.SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{place}")
        catalog.create_namespace("raw")
        rows = ROWS.to_arrow(compat_level=pl.CompatLevel.oldest())
        table = catalog.create_table("raw.reviews", schema=rows.schema)
        table.append(rows)
        place = table.metadata_location.removeprefix("file://")
    bad = max(tmp_path.rglob("*.parquet"))
    damaged(bad)
    assert Files.at(str(place)).fault(()).message.startswith(f"the file {bad} cannot be read as Parquet (")
    assert f"the file {bad} cannot be read as Parquet" in refusal(place)


def test_a_plan_and_a_run_name_it(job, reviews):  # noqa: F811
    """Also if the damage is only in the texts, which are read last."""
    source = job.folder / "raw.parquet"
    reviews(3000).write_parquet(source, compression="uncompressed", statistics=False, use_pyarrow=False)
    damaged(source)
    refused = same_refusal(job, {}, InputError)
    assert refused.message.startswith(f"the file {source} cannot be read as Parquet (")


def test_only_columns_that_are_read_are_searched(tmp_path, job):  # noqa: F811
    (tmp_path / "raw.ndjson").write_text(lines(1, True, 2))
    changes = {"source": str(tmp_path / "raw.ndjson"), "unit": "record", "subject": None}
    column = {**job.policy().model_dump(mode="json", by_alias=True)["column"][0], "name": "text"}
    assert plan(job.policy(**changes, column=[column], keep=[])).rows == 3
    with pytest.raises(InputError, match="line 2 of the file"):
        plan(job.policy(**changes, column=[column], keep=["n"]))
