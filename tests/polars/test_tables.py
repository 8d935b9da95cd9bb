"""`privatize_table` returns a table of the library that it came from; other versions of Polars are refused."""

import tomllib
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from dptext_etl import load, privatize_table
from dptext_etl.errors import InputError, PolicyError
from dptext_etl.polars.namespace import NEXT_MAJOR, OLDEST, require_known_polars

from .guarded import make_policy

RAW = pl.DataFrame(
    {
        "stars": [5, 1, 3, 2], "id": ["a", "b", "c", "d"],
        "review": ["a good film", None, "", "zzqsentinelqzz and a bad plot"], "day": [None, 2, 3, 4],
    }
)  # fmt: skip


@pytest.fixture
def expected(policy):
    return RAW.dptext.privatize(policy, id="id")


def table(frame):
    return pa.table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()))


class Spoken:
    """Someone else's table, known only by the interface."""

    def __init__(self, rows):
        self.__arrow_c_stream__ = rows.__arrow_c_stream__


KINDS = {
    "a frame of Polars": (lambda raw: raw, pl.DataFrame),
    "a lazy frame": (lambda raw: raw.lazy(), pl.LazyFrame),
    "a table": (table, pa.Table),
    "a table in chunks": (lambda raw: pa.concat_tables([table(raw[:1]), table(raw[1:])]), pa.Table),
    "a record batch": (lambda raw: table(raw).to_batches()[0], pa.RecordBatch),
    "a reader": (lambda raw: table(raw).to_reader(2), pa.RecordBatchReader),
    "the interface alone": (lambda raw: Spoken(table(raw)), pa.Table),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_comes_back_as_it_was_given(kind, policy, expected):
    make, comes_back = KINDS[kind]
    out = privatize_table(make(RAW), policy, id="id")
    assert isinstance(out, comes_back)
    if isinstance(out, pa.Table | pa.RecordBatch):
        assert out.schema == table(RAW).schema
    whole = out.collect() if isinstance(out, pl.LazyFrame) else out
    assert pl.DataFrame(whole).equals(expected)


def test_metadata_of_the_table_and_of_its_texts_goes(policy):
    plain = table(RAW)
    fields = [
        field.with_metadata({"comment": "zzqsentinelqzz"}) if field.name == "review" else field
        for field in plain.schema
    ]
    given = plain.cast(pa.schema(fields, {"comment": "zzqsentinelqzz"}))
    for made in (given, given.to_batches()[0], given.to_reader()):
        assert privatize_table(made, policy, id="id").schema.equals(plain.schema, check_metadata=True)
    frame = plain.to_pandas()
    frame.attrs["comment"] = "zzqsentinelqzz"
    assert privatize_table(frame, policy, id="id").attrs == {}
    assert frame.attrs


@pytest.mark.parametrize("dtype", ["object", "string[python]", "string[pyarrow]", "category", "arrow"])
def test_a_frame_of_pandas_keeps_its_index_and_types(dtype, policy, expected):
    pd = pytest.importorskip("pandas")
    kept = pd.ArrowDtype(pa.string()) if dtype == "arrow" else dtype
    raw = RAW.to_pandas().astype({"review": kept}).set_index(pd.Index([7, 7, 9, 2], name="row"))
    before = raw.copy()
    out = privatize_table(raw, policy, id="id")
    assert type(out) is pd.DataFrame
    assert out.index.equals(raw.index)
    assert list(out.columns) == RAW.columns
    assert out.dtypes["review"] == (object if dtype == "category" else raw.dtypes["review"])
    assert [None if pd.isna(text) else text for text in out["review"]] == expected["review"].to_list()
    assert out.drop(columns="review").equals(raw.drop(columns="review"))
    assert raw.equals(before)
    assert privatize_table(raw[:0], policy, id="id").empty


CATEGORIES = {
    "Categorical of Polars": lambda raw: raw.with_columns(pl.col("review").cast(pl.Categorical)),
    "lazy Enum": lambda raw: raw.lazy().with_columns(
        pl.col("review").cast(pl.Enum(raw["review"].drop_nulls().unique()))
    ),
    "dictionary": lambda raw: table(raw).set_column(2, "review", table(raw)["review"].dictionary_encode()),
    "JSON": lambda raw: table(raw).set_column(2, "review", table(raw)["review"].cast(pa.json_())),
    "JSON in Polars": lambda raw: raw.with_columns(pl.col("review").ext.to(pl.Extension("arrow.json", pl.String, ""))),
    "batch of a dictionary": lambda raw: CATEGORIES["dictionary"](raw).to_batches()[0],
}


@pytest.mark.parametrize("kind", CATEGORIES)
def test_a_categorical_text_comes_back_as_strings(kind, policy, expected):
    out = privatize_table(CATEGORIES[kind](RAW), policy, id="id")
    whole = pl.DataFrame(out.collect() if isinstance(out, pl.LazyFrame) else out)
    assert whole.equals(expected)


NOTHING = {
    "Polars": lambda raw: raw, "lazy": lambda raw: raw.lazy(), "Arrow": lambda raw: raw.to_arrow(),
    "pandas": lambda raw: raw.to_pandas(),
    "pandas of Arrow types": lambda raw: raw.to_pandas(use_pyarrow_extension_array=True),
}  # fmt: skip


@pytest.mark.parametrize("kind", NOTHING)
def test_a_column_without_a_type_is_one_of_null_texts(kind, policy):
    raw = RAW.with_columns(review=pl.lit(None))
    out = privatize_table(NOTHING[kind](raw), policy, id="id")
    whole = pl.DataFrame(out.collect() if isinstance(out, pl.LazyFrame) else out)
    assert whole["review"].null_count() == 4


def test_a_column_of_pandas_may_have_any_name(policy, expected):
    pytest.importorskip("pandas")
    raw = RAW.rename({"review": "self"}).to_pandas()
    out = privatize_table(raw, policy.model_copy(update={"column": "self"}), id="id")
    assert list(out.columns) == ["stars", "id", "self", "day"]
    assert not out["self"].equals(raw["self"])
    assert out["self"].isna().to_list() == [False, True, False, False]


def test_a_relation_of_duckdb_stays_in_its_connection(policy, expected):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    raw = table(RAW)
    connection.register("raw", raw)
    reviews = connection.sql("SELECT * FROM raw WHERE stars > 1 ORDER BY id")
    out = privatize_table(reviews, policy, id="id")
    assert type(out) is type(reviews)
    rows = expected.filter(pl.col("stars") > 1).rows()
    assert (out.fetchall(), connection.sql("SELECT count(*) FROM out").fetchall()) == (rows, [(3,)])
    assert len(out.join(reviews.set_alias("raw_rows"), "id").fetchall()) == 3


NAMES = ("released", "dptext_raw", "relation", "reviews", "table", "made")


@pytest.mark.parametrize("replacements", [True, False])
@pytest.mark.parametrize("kind", ["TABLE", "VIEW", "TEMPORARY VIEW", "registered", "variable"])
def test_no_name_of_a_connection_replaces_the_released_rows(kind, replacements, policy, expected):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect(config={"python_enable_replacements": replacements})
    connection.register("films", table(RAW))
    released = dptext_raw = table(RAW)  # names that a query in the library could find in this frame
    for name in NAMES if kind != "variable" else ():
        if kind == "registered":
            connection.register(name, released)
        else:
            connection.execute(f'CREATE {kind} "{name}" AS SELECT * FROM films')
    before = sorted(connection.execute("SELECT name FROM (SHOW ALL TABLES)").fetchall())
    reviews = connection.sql("SELECT * FROM films ORDER BY id").filter("stars > 1").set_alias("released")
    out = privatize_table(reviews, policy, id="id")
    rows = expected.filter(pl.col("stars") > 1).rows()
    assert len(dptext_raw) > len(rows) > 0
    assert sorted(connection.execute("SELECT name FROM (SHOW ALL TABLES)").fetchall()) == before
    del released, dptext_raw
    connection.execute("CREATE TABLE another AS SELECT 1 AS n")  # relations bind again after a change of the catalog
    for again in (out, out.set_alias("released"), out.filter("stars > 1"), out.query("released", "FROM released")):
        assert again.order("id").fetchall() == rows


def test_what_is_wrong_is_said_without_a_text(policy):
    pd = pytest.importorskip("pandas")
    pandas, arrow = RAW.to_pandas(), table(RAW)
    twice = pa.concat_tables([arrow, arrow.set_column(2, "review", pa.array(["x"] * 4, pa.large_string()))])
    mixed = pandas.assign(review=[1, "zzqsentinelqzz", None, 2.5])
    for wrong, ids, said in (
        (pandas.drop(columns="review"), "id", "no column 'review'"),
        (arrow, "key", "no column 'key'"),
        (pd.concat([pandas, pandas[["review"]]], axis=1), "id", "2 columns 'review'"),
        (arrow.set_column(2, "review", pa.array([1, 2, 3, 4])), "id", "holds strings, got int64"),
        (mixed, "id", "reading a column of pandas failed"),
        (twice, "id", "belongs to several texts"),
        (arrow, "day", "id is null"),
        ([1, 2], "id", "pandas, pyarrow, Polars or DuckDB is needed here, got list"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            privatize_table(wrong, policy, id=ids)
        assert "zzqsentinelqzz" not in str(caught.value)
        assert caught.value.__cause__ is None
    with pytest.raises(PolicyError, match="names no id column"):
        privatize_table(arrow, policy)
    with pytest.raises(PolicyError, match="names no column"):
        privatize_table(arrow, make_policy(load("custext").example(), column=None), id="id")


@pytest.mark.parametrize("version", ["2.1.0", "2.1.0-rc.1", "2.40.1", "2.99"])
def test_known_versions_pass(version):
    require_known_polars(version)


@pytest.mark.parametrize("version", ["1.44.2", "2.0.9", "3.0.0", "10.1", "main", "2", "", "2.x"])
def test_others_are_refused_with_a_sentence(version):
    with pytest.raises(PolicyError, match=r"pip install 'polars>=2\.1,<3'"):
        require_known_polars(version)


def test_the_package_asks_for_the_same_versions():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert f"polars>={OLDEST[0]}.{OLDEST[1]},<{NEXT_MAJOR}" in project["dependencies"]
