"""The Polars door: what only it has. That all engines agree is held by `contract/test_engines.py`."""

import json
import os
import pickle
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pytest

import dptext_etl.polars  # noqa: F401  (registers `.dptext`)
from dptext_etl import ColumnPolicy, privatize
from dptext_etl.errors import PolicyError
from dptext_etl.mechanisms.custext import CusText

HEX = "5a" * 31 + "c3"


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "k"
    path.write_text(HEX)
    path.chmod(0o600)
    return f"file:{path}"


@pytest.fixture(scope="module")
def policy(small_vectors, key):
    mechanism = CusText(epsilon=2.0, k=5, vectors=small_vectors)
    return ColumnPolicy(dataset="d", column="text", release="r", mechanism=mechanism, key=key, allow={"cluster"})


@pytest.fixture(scope="module")
def frame():
    texts = [None if i % 11 == 3 else f"Good wordaa, wordbb unknown{i} " * (i % 5) for i in range(400)]
    return pl.DataFrame({"id": range(400), "text": texts, "group": [i % 7 for i in range(400)]})


@pytest.fixture(scope="module")
def expected(frame, policy):
    return pa.array(privatize(frame["text"].to_arrow(), frame["id"].to_arrow(), policy)).to_pylist()


def expression(policy, **options):
    return pl.col("text").dptext.privatize(policy, id=pl.col("id"), **options)


def test_the_released_text_takes_the_columns_place(frame, policy, expected):
    out = frame.with_columns(expression(policy))
    assert out.schema == frame.schema
    assert out["text"].to_list() == expected
    assert out["text"].null_count() == frame["text"].null_count()
    assert frame.lazy().with_columns(expression(policy)).collect_schema() == frame.schema
    assert frame.dptext.privatize(policy, id="id").equals(out)
    assert frame.lazy().dptext.privatize(policy, id="id").collect().equals(out)
    assert frame.select(expression(policy).alias("other")).columns == ["other"]


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_plans_of_every_shape(frame, policy, expected, engine):
    lazy, e = frame.lazy(), expression(policy)
    by_id = dict(zip(frame["id"], expected, strict=True))

    def check(plan, text="text"):
        for row in plan.collect(engine=engine).iter_rows(named=True):
            assert row[text] == by_id[row["id"]]

    check(lazy.with_columns(e))
    check(lazy.with_columns(e).filter(pl.col("group") == 3))
    check(lazy.filter(pl.col("group") == 3).with_columns(e))
    check(lazy.with_columns(e).filter(pl.col("text").is_not_null()))
    check(lazy.with_columns(e).sort("id", descending=True).head(17))
    check(lazy.with_columns(e.over("group")))
    check(lazy.group_by("group").agg("id", e).explode("id", "text"))
    check(lazy.with_columns(pl.when(pl.col("group") > 2).then(e).otherwise(e).alias("text")))
    check(lazy.with_columns(e).join(lazy.with_columns(e), on="id"), "text_right")
    check(pl.concat([lazy.filter(pl.col("group") < 3), lazy.filter(pl.col("group") >= 3)]).with_columns(e))
    check(
        pl.concat(
            [lazy.slice(0, 111).collect(), lazy.slice(111, 200).collect(), lazy.slice(311).collect()], rechunk=False
        )
        .lazy()
        .with_columns(e)
    )


def test_threads_do_not_matter(frame, policy, expected, monkeypatch):
    for threads in ("1", "3"):
        monkeypatch.setenv("DPTEXT_THREADS", threads)
        assert frame.select(expression(policy))["text"].to_list() == expected


def test_a_missing_key_or_table_is_named(frame, policy, tmp_path):
    missing = policy.model_copy(update={"key": f"file:{tmp_path / 'none'}"})
    with pytest.raises(pl.exceptions.ComputeError, match="dptext key new"):
        frame.select(expression(missing))
    unset = policy.model_copy(update={"key": "env:DPTEXT_NOT_SET_SECRET"})
    with pytest.raises(pl.exceptions.ComputeError, match="DPTEXT_NOT_SET_SECRET is not set"):
        frame.select(expression(unset))


def test_no_plan_shows_the_key(frame, policy, key):
    """Neither a policy nor a plan can: what would be a key is refused before (`test_policy.py`)."""
    lazy = frame.lazy().with_columns(expression(policy)).filter(pl.col("id") > 5)
    shown = [
        str(expression(policy)),
        repr(expression(policy)),
        lazy.explain(),
        lazy.explain(engine="streaming"),
        repr(lazy),
        repr(policy),
        policy.model_dump_json(),
        str(policy.model_dump()),
    ]
    shown += [lazy.explain(optimized=False), expression(policy).meta.tree_format(return_as_string=True)]
    binary = [lazy.serialize(), expression(policy).meta.serialize(), pickle.dumps(policy)]
    for secret in (HEX, HEX.upper(), repr(bytes.fromhex(HEX))[2:-1]):
        assert not any(secret in text for text in shown)
        assert not any(secret.encode() in data for data in binary)
    assert not any(bytes.fromhex(HEX) in data for data in binary)


def test_a_plan_is_collected_by_a_process_that_knows_nothing_of_us(frame, policy, expected, tmp_path):
    (tmp_path / "plan").write_bytes(frame.lazy().with_columns(expression(policy)).serialize())
    code = f"""
import json, sys, polars as pl
for engine in ("in-memory", "streaming"):
    print(json.dumps(pl.LazyFrame.deserialize({str(tmp_path / "plan")!r}).collect(engine=engine)["text"].to_list()))
assert "dptext_etl" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    for line in done.stdout.splitlines():
        assert json.loads(line) == expected


def test_a_defect_in_the_plugin_prints_a_location_only(tmp_path, policy):
    """Polars' own hook would print messages when it is verbose; the kernel's comes after it."""
    code = """
import polars as pl
from polars.plugins import register_plugin_function
from dptext_etl import _kernel
frame = pl.DataFrame({"text": ["zxqvyuu"], "id": [1]})
def plugin(**kwargs):
    return register_plugin_function(
        plugin_path=_kernel.__file__, function_name="dptext_table", is_elementwise=True,
        args=["text", "id"], kwargs=kwargs,
    )
for kwargs in ({}, {"table_path": "zxqvyuu"}):
    try:
        frame.select(plugin(**kwargs))
    except BaseException as error:
        assert "zxqvyuu" not in str(error), error
        print("refused", type(error).__name__)
"""
    environment = {**os.environ, "POLARS_VERBOSE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused") == 2
    assert "zxqvyuu" not in done.stderr


def test_every_column_has_keys_of_its_own(frame, policy):
    """Equal texts in two columns of a record are not released as equal texts (docs/spec/stream.md#names)."""
    unnamed = policy.model_copy(update={"column": None})
    two = frame.with_columns(a="text", b="text").select(
        *(pl.col(c).dptext.privatize(unnamed, id="id") for c in ("a", "b"))
    )
    assert two["a"].to_list() != two["b"].to_list()
    named = frame.select(pl.col("text").str.strip_chars().dptext.privatize(unnamed, id="id"))
    assert (
        named["text"].to_list()
        == frame.select(pl.col("text").str.strip_chars().dptext.privatize(policy, id="id"))["text"].to_list()
    )


def test_expressions_without_one_column_are_refused(policy, frame):
    unnamed = policy.model_copy(update={"column": None})
    with pytest.raises(PolicyError, match="2 root columns"):
        (pl.col("text") + pl.col("other")).dptext.privatize(unnamed, id="id")
    with pytest.raises(PolicyError, match="0 root columns"):
        pl.lit("x").dptext.privatize(unnamed, id="id")
    for several in (pl.col("text", "other"), pl.all(), pl.col(pl.String), pl.col("^t.*$")):
        for given in (policy, unnamed):
            with pytest.raises(PolicyError, match="several output columns"):
                several.dptext.privatize(given, id="id")
    with pytest.raises(PolicyError, match="keys are per column"):
        pl.col("other").dptext.privatize(policy, id="id")
    with pytest.raises(PolicyError, match="names no column"):
        frame.dptext.privatize(unnamed, id="id")
    joined = (pl.col("text") + pl.col("text")).dptext.privatize(policy, id="id")
    assert frame.select(joined).height == frame.height


@pytest.mark.thorough
def test_the_plugin_leaves_nothing_behind(frame, policy, expected):
    """A thousand evaluations of one expression: the same bytes, and no growth that would show a leak."""
    import resource

    small, e = frame.head(20), expression(policy)
    small.select(e)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(1000):
        assert small.select(e)["text"].to_list() == expected[:20]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
