"""Raw text in every place of a frame that a written Parquet file keeps is stopped, at every door that judges tables."""

import json

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptext_etl.checks.published import check_published
from dptext_etl.checks.sink_files import Manifest
from dptext_etl.data_types import kind_of
from dptext_etl.errors import GateError
from tests.later import later

gx = later("great_expectations")

dptx = later("dptext_etl.checks.great_expectations.expectations")

RAW = "zqxsentinelword of a raw text"


class Registered(pa.ExtensionType):
    """An extension type of a user's own, with a parameter."""

    def __init__(self, parameter=""):
        self.parameter = parameter
        super().__init__(pa.string(), "dptext.test")

    def __arrow_ext_serialize__(self):
        return self.parameter.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, _, serialized):
        return cls(serialized.decode())


@pytest.fixture(scope="module", autouse=True)
def _registered():
    pa.register_extension_type(Registered())
    yield
    pa.unregister_extension_type("dptext.test")


def arrowed(table, name, array):
    """A pandas frame whose column is an Arrow array; of a storage type, and of any extension over it."""
    return table.assign(**{name: pd.Series(array, dtype=pd.ArrowDtype(array.type), index=table.index)})


def texts(table, text=RAW):
    return pa.array([text] * len(table), pa.string())


def index(table, made):
    table.index = made
    return table


def columns_named(table):
    table.columns.name = RAW
    return table


def attributed(table):
    table.attrs["note"] = {"first": RAW}
    return table


def dictionary(table, values):
    return pa.DictionaryArray.from_arrays(pa.array([0] * len(table), pa.int32()), pa.array(values))


def in_struct(table, inner):
    return pa.StructArray.from_arrays([inner], names=["inner"])


IN_PANDAS = {
    "an index": lambda t: index(t, pd.Index([RAW] * len(t))),
    "an index under a known name": lambda t: index(t.drop(columns="stars"), pd.Index([RAW] * len(t), name="stars")),
    "the name of an index": lambda t: index(t, pd.RangeIndex(len(t), name=RAW)),
    "a level of a MultiIndex": lambda t: index(t, pd.MultiIndex.from_arrays([range(len(t)), [RAW] * len(t)])),
    "unused categories of an index": lambda t: index(
        t, pd.CategoricalIndex(["a"] * len(t), categories=["a", RAW], name="c")
    ),
    "the name of the columns": columns_named,
    "attrs": attributed,
    "cells of a Categorical": lambda t: t.assign(stars=pd.Categorical([RAW] * len(t))),
    "unused categories": lambda t: t.assign(stars=pd.Categorical([None] * len(t), categories=[RAW])),
    "unused categories of another column": lambda t: t.assign(
        note=t["note"].astype("category").cat.add_categories(RAW)
    ),
    "an unused value of a dictionary": lambda t: arrowed(t, "stars", dictionary(t, ["", RAW])),
    "a dictionary in a struct": lambda t: arrowed(t, "stars", in_struct(t, dictionary(t, ["", RAW]))),
    "cells of a kept column": lambda t: t.assign(stars=RAW),
    "bytes in a kept column": lambda t: t.assign(stars=RAW.encode()),
    "json": lambda t: arrowed(t, "stars", pa.ExtensionArray.from_storage(pa.json_(), texts(t, json.dumps(RAW)))),
    "an opaque type": lambda t: arrowed(
        t, "stars", pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "a", "b"), texts(t))
    ),
    "the name of an opaque type": lambda t: arrowed(
        t, "stars", pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), RAW, "b"), pa.array(t["stars"], pa.int64()))
    ),
    "a registered type": lambda t: arrowed(t, "stars", pa.ExtensionArray.from_storage(Registered(), texts(t))),
    "the parameter of a registered type": lambda t: arrowed(
        t, "stars", pa.ExtensionArray.from_storage(Registered(RAW), pa.nulls(len(t), pa.string()))
    ),
    "a type in a list": lambda t: arrowed(
        t,
        "stars",
        pa.ListArray.from_arrays(
            list(range(len(t) + 1)), pa.ExtensionArray.from_storage(pa.json_(), texts(t, json.dumps(RAW)))
        ),
    ),
    "metadata of a field": lambda t: arrowed(
        t, "stars", pa.array([{"x": 1}] * len(t), pa.struct([pa.field("x", pa.int64(), metadata={"comment": RAW})]))
    ),
    "a time zone": lambda t: arrowed(t, "stars", pa.array([0] * len(t), pa.timestamp("us", RAW))),
}
IN_POLARS = {
    "cells of an Enum": lambda t: t.with_columns(stars=pl.lit(RAW).cast(pl.Enum([RAW]))),
    "unused categories of an Enum": lambda t: t.with_columns(stars=pl.lit(None, pl.Enum([RAW]))),
    "unused categories in a struct": lambda t: t.with_columns(stars=pl.struct(x=pl.lit(None, pl.Enum([RAW])))),
    "unused categories of another column": lambda t: t.with_columns(
        pl.col("note").cast(pl.Enum([*t["note"].drop_nulls().unique(), RAW]))
    ),
    "cells of a Categorical": lambda t: t.with_columns(stars=pl.lit(RAW, pl.Categorical)),
    "the name of a Categorical": lambda t: t.with_columns(stars=pl.lit(None, pl.Categorical(pl.Categories(RAW, "")))),
    "json": lambda t: t.with_columns(
        pl.Series("stars", pl.from_arrow(pa.ExtensionArray.from_storage(pa.json_(), texts(t, json.dumps(RAW)))))
    ),
    "an extension type": lambda t: t.with_columns(
        pl.Series("stars", pl.from_arrow(pa.ExtensionArray.from_storage(Registered(), texts(t))))
    ),
}
BUGS = {f"pandas: {name}": lambda t, bug=bug: bug(t.to_pandas()) for name, bug in IN_PANDAS.items()}
BUGS |= {f"Polars: {name}": bug for name, bug in IN_POLARS.items()}


RIGHT = {
    "pandas": lambda t: t.to_pandas(),
    "pandas of Arrow types": lambda t: t.to_pandas(use_pyarrow_extension_array=True),
    "pandas rows chosen": lambda t: t.to_pandas()[lambda rows: rows["stars"] > 2],
    "pandas rows sorted": lambda t: t.to_pandas().sort_values("note"),
    "ids as an index": lambda t: t.to_pandas().set_index("id"),
    "ids as a range": lambda t: index(t.to_pandas().drop(columns="id"), pd.RangeIndex(1000, 1250, name="id")),
    "numbers as floats": lambda t: t.to_pandas().astype({"stars": "float64"}),
    "numbers as categories": lambda t: t.to_pandas().astype({"stars": "category"}),
}


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_raw_text_beside_the_cells_is_stopped_by_both_suites_and_not_quoted(bench, bug):
    for judge in (dptx.validate, dptx.validate_downstream):
        try:
            record = judge(bug(bench.published), bench.policy)
        except GateError as refused:  # what no library converts is refused at the door
            assert "zqxsentinelword" not in str(refused)  # noqa: PT017
        else:
            assert not record.success
            assert "zqxsentinelword" not in json.dumps(record.as_dict())


@pytest.mark.parametrize("right", RIGHT.values(), ids=RIGHT)
def test_correct_frames_pass_both_suites(bench, right):
    for judge in (dptx.validate, dptx.validate_downstream):
        judge(right(bench.published), bench.policy).require()


def test_what_is_declared_public_may_have_categories_without_a_row(bench):
    table = bench.published.to_pandas()
    table["city"] = pd.Categorical(["Graz"] * len(table), categories=["Graz", "Linz"])
    dptx.validate_downstream(table, bench.policy, ["city"]).require()
    assert not dptx.validate_downstream(table, bench.policy).success


def columns_hold(table, policy):
    try:
        return {verdict.name: verdict.passed for verdict in check_published(table, policy)}["raw_column_absent"]
    except GateError as refused:
        assert "zqxsentinelword" not in str(refused)  # noqa: PT017
        return False


@pytest.mark.parametrize("bug", IN_POLARS.values(), ids=IN_POLARS)
def test_a_frame_and_a_file_are_stopped_by_the_gate(bench, bug, tmp_path):
    assert not columns_hold(bug(bench.published), bench.policy)
    bug(bench.published).write_parquet(tmp_path / "one.parquet")
    assert not columns_hold(tmp_path / "one.parquet", bench.policy)


@pytest.mark.parametrize("bug", IN_PANDAS.values(), ids=IN_PANDAS)
def test_a_file_that_pandas_wrote_is_stopped_by_the_gate(bench, bug, tmp_path):
    table = bug(bench.published.to_pandas())
    table.to_parquet(tmp_path / "one.parquet")
    if b"zqxsentinelword" in (tmp_path / "one.parquet").read_bytes():
        assert not columns_hold(tmp_path / "one.parquet", bench.policy)


def test_metadata_of_a_file_and_of_its_fields_is_stopped_by_the_gate(bench, tmp_path):
    bench.published.to_pandas().to_parquet(tmp_path / "right.parquet")
    assert columns_hold(tmp_path / "right.parquet", bench.policy)
    assert columns_hold(bench.published, bench.policy)
    table = bench.published.to_arrow()
    place = table.schema.get_field_index("stars")
    for planted in (
        table.replace_schema_metadata({"comment": RAW}),
        table.set_column(place, table.field(place).with_metadata({"comment": RAW}), table["stars"]),
    ):
        pq.write_table(planted, tmp_path / "one.parquet")
        assert not columns_hold(tmp_path / "one.parquet", bench.policy)


def write_manifest(folder, policy, kinds):
    """Write the manifest of an empty table with columns of these kinds."""
    names = (policy.dataset, policy.release)
    manifest = Manifest(*names, None, 1, "parquet", "id", schema=kinds, columns=[], gates=[], parts=())
    (folder / "published.manifest.json").write_text(manifest.text())


def test_kept_columns_are_held_to_the_types_that_were_published(bench, tmp_path):
    sink = tmp_path / "published"
    sink.mkdir()
    kinds = {
        "id": "Int64",
        "stars": "String",
        "review": "String",
        "note": "String",
    }
    write_manifest(tmp_path, bench.policy, kinds)
    policy = bench.policy.model_copy(update={"sink": str(sink)})
    right = bench.published.with_columns(stars=pl.lit("low", pl.Enum(["low"])))
    for table in (right, right.to_pandas(), right.with_columns(pl.col("stars").cast(pl.String))):
        dptx.validate(table, policy).require()
        dptx.validate_downstream(table, policy).require()
    assert columns_hold(right, policy)
    right.with_columns(pl.col("stars").cast(pl.String)).write_parquet(tmp_path / "one.parquet")
    assert columns_hold(tmp_path / "one.parquet", policy)
    right.write_parquet(tmp_path / "one.parquet")  # its footer holds the categories, and no run writes any
    assert not columns_hold(tmp_path / "one.parquet", policy)
    unused = right.with_columns(stars=pl.lit("low", pl.Enum(["low", "it's", "unused"])))
    for wrong in (bench.published, unused):
        assert not dptx.validate(wrong, policy).success
    assert not dptx.validate_downstream(wrong, policy).success


@pytest.mark.parametrize("nested", [lambda cells: cells, pl.concat_list], ids=["a struct", "a list of structs"])
def test_names_of_fields_are_held_to_those_that_are_published(bench, nested, tmp_path):
    kinds = {"id": "Int64", "stars": kind_of(pl.DataFrame(pl.select(nested(pl.struct(x=1)))).dtypes[0])}
    write_manifest(tmp_path, bench.policy, {**kinds, "review": "String", "note": "String"})
    (tmp_path / "published").mkdir()
    policy = bench.policy.model_copy(update={"sink": str(tmp_path / "published")})
    for name, holds in (("field_1", True), (RAW, False)):
        table = bench.published.with_columns(stars=nested(pl.struct(pl.lit(1).alias(name))))
        assert columns_hold(table, policy) is holds
        assert dptx.validate(table, policy).success is holds
        table.write_parquet(tmp_path / "one.parquet")
        assert columns_hold(tmp_path / "one.parquet", policy) is holds
