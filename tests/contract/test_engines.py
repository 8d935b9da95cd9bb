"""One definition of a mechanism serves all: every engine releases the same bytes for the same rows, key and policy."""

import importlib.util
import json
import multiprocessing
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import dptext_etl.polars  # noqa: F401
from dptext_etl import ColumnPolicy, load, privatize
from tests import chosen
from tests.policy_files import policy_in, write_policy
from tests.quick import quick

from .conftest import DIVIDED

MECHANISMS = chosen.names()
FIRST = ("custext", "dpmlm")
few = pytest.mark.parametrize(
    "mechanism", quick(sorted(MECHANISMS, key=lambda name: name not in FIRST), first=2), indirect=True
)
"""One mechanism of the kernel and one model: an engine knows no mechanism, and a lazy query of Polars runs all."""
one = pytest.mark.parametrize("mechanism", quick(sorted(MECHANISMS, key="custext".__ne__)), indirect=True)
"""Spark's workers need seconds to load a model."""
FILMS = [
    "good film about a doctor", "the plot was thin but the music is great", "", None, "I would see it again!",
    "zxqvyuu 42",
]  # fmt: skip
ROWS = 60


def frame():
    rows = range(ROWS)
    texts = [None if FILMS[i % len(FILMS)] is None else f"{FILMS[i % len(FILMS)]} {'very ' * (i % 7)}" for i in rows]
    return pl.DataFrame({"id": [f"r{i}" for i in rows], "user": [f"u{i % 9}" for i in rows], "text": texts, "n": rows})


class Release(list):
    """An engine must release these bytes; of a model, whose scores differ in their last digits, nearly all rows.

    A mechanism that is not reproducible promises equal draws, not equal scores: between processes a draw may
    fall on another word now and then (docs/spec/privacy.md#digest). Rows never move, vanish or become null.
    """

    def __init__(self, texts, reproducible):
        super().__init__(texts)
        self.reproducible = reproducible

    def __getitem__(self, key):
        found = super().__getitem__(key)
        return Release(found, self.reproducible) if isinstance(key, slice) else found

    def __eq__(self, other):
        if self.reproducible:
            return list(self) == list(other)
        pairs = list(zip(self, other, strict=True))
        agree = sum(mine == theirs for mine, theirs in pairs)
        return all((mine is None) == (theirs is None) for mine, theirs in pairs) and agree >= 0.9 * len(pairs)

    __hash__ = None


@pytest.fixture(scope="module")
def elsewhere():
    """Another process, which has inherited nothing."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield pool


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture
def expected(policy, known):
    """What `privatize` releases, computed once per mechanism."""
    cfg = policy.mechanism.cfg()
    if cfg not in known:
        table = frame()
        texts = privatize(table["text"].to_arrow(), table["id"].to_arrow(), policy).to_pylist()
        known[cfg] = Release(texts, policy.mechanism.reproducible)
    return known[cfg]


def released(out):
    return out.sort("n")["text"].to_list()


def expression(policy):
    return pl.col("text").dptext.privatize(policy, id=pl.col("id"))


@pytest.mark.parametrize("mechanism", ["custext" + DIVIDED], indirect=True)
def test_polars_divides_a_budget_where_a_plain_draw_would_be_the_kernels(policy, expected):
    assert released(frame().lazy().with_columns(expression(policy)).collect(engine="streaming")) == expected


@few
def test_polars_eager_under_filters_windows_and_groups(policy, expected):
    assert released(frame().with_columns(expression(policy))) == expected
    assert released(frame().dptext.privatize(policy, id="id")) == expected
    table = frame()
    even = table.lazy().with_columns(expression(policy)).filter(pl.col("n") % 2 == 0).collect()
    assert released(even) == expected[::2]
    over = table.with_columns(expression(policy).over("user"))
    assert released(over) == expected
    grouped = table.group_by("user").agg("n", expression(policy)).explode("n", "text")
    assert released(grouped) == expected
    assert released(table.sample(fraction=1.0, shuffle=True, seed=3).with_columns(expression(policy))) == expected
    lazy = frame().lazy().with_columns(expression(policy))
    assert released(lazy.collect()) == released(lazy.collect()) == expected
    twice = frame().select("n", a=expression(policy), b=expression(policy))
    assert twice["a"].to_list() == twice["b"].to_list() == expected
    joined = lazy.join(lazy, on="id").sort("n").collect()
    assert joined["text"].to_list() == joined["text_right"].to_list() == expected
    struct = frame().with_columns(pl.col("text").dptext.privatize(policy, id=pl.col("id"), spend=True))
    assert struct.sort("n")["text"].struct.field("text").to_list() == expected


@pytest.mark.parametrize("engine", quick(["streaming", "in-memory"]))
def test_polars_lazy(policy, expected, engine):
    assert released(frame().lazy().with_columns(expression(policy)).collect(engine=engine)) == expected


@few
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_polars_from_a_file(policy, expected, engine, tmp_path):
    frame().write_parquet(tmp_path / "t.parquet", row_group_size=17)
    out = pl.scan_parquet(tmp_path / "t.parquet").with_columns(expression(policy)).collect(engine=engine)
    assert released(out) == expected


def _worker(serialised):
    import io

    import polars as pl

    return pl.LazyFrame.deserialize(io.BytesIO(serialised)).collect().sort("n")["text"].to_list()


@few
def test_a_serialised_plan_in_a_spawned_process(policy, expected, elsewhere):
    plan = frame().lazy().with_columns(expression(policy)).serialize()
    assert elsewhere.apply(_worker, (plan,)) == expected


FORM = "models are slow to load, and the form does not depend on the mechanism"


@pytest.fixture
def films(spark):
    """The same rows as a temporary view of Spark, in four partitions."""
    rows = frame().select("id", "text", "n").rows()
    spark.createDataFrame(rows, "id string, text string, n int").repartition(4).createOrReplaceTempView("films")
    return spark


@few
def test_duckdb(policy, expected):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra: dev)")
    from dptext_etl.duckdb import register

    connection = duckdb.connect()
    register(connection, "private_text", policy)
    connection.register("films", frame().to_arrow())
    out = connection.sql("SELECT private_text(text, id) FROM films ORDER BY n").fetchall()
    assert [text for (text,) in out] == expected


@one
@pytest.mark.parametrize("form", ["arrow", "pandas"])
def test_spark(policy, expected, films, form):
    from dptext_etl.spark import register

    if form == "pandas" and policy.mechanism.accelerated:
        pytest.skip(FORM)
    register(films, "private_text", policy, form=form)
    out = films.sql("SELECT private_text(text, id) AS text FROM films ORDER BY n").collect()
    assert [row.text for row in out] == expected


@pytest.fixture(scope="session")
def connect(request, spark_connect, tmp_path_factory):
    """Releases of every mechanism that is asked for through Spark Connect, and the key that they were made with."""
    from dptext_etl import _kernel

    folder = tmp_path_factory.mktemp("connect")
    _kernel.Secret().write(str(folder / "noise.key"))
    models = importlib.util.find_spec("transformers") is not None
    callers = (item.callspec.params for item in request.session.items if "connect" in item.fixturenames)
    wanted = sorted({params["mechanism"] for params in callers})
    asked = {
        "remote": spark_connect,
        "key": f"file:{folder / 'noise.key'}",
        "rows": frame().select("id", "text", "n").rows(),
        "mechanisms": [name for name in wanted if models or not load(name).accelerated],
        "out": str(folder / "released.json"),
    }
    command = [sys.executable, str(Path(__file__).with_name("connect_session.py")), json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return asked["key"], json.loads((folder / "released.json").read_text())


@one
@pytest.mark.parametrize("form", ["arrow", "pandas"])
def test_spark_connect(mechanism, connect, form):
    if form == "pandas" and mechanism.accelerated:
        pytest.skip(FORM)
    key, released = connect
    policy = ColumnPolicy(
        dataset="demo", column="text", release="r1", mechanism=mechanism, key=key, allow=mechanism.guarantee.disclosures
    )
    table = frame()
    expected = privatize(table["text"].to_arrow(), table["id"].to_arrow(), policy).to_pylist()
    assert released[f"{mechanism.name} {form}"] == expected


@pytest.mark.parametrize("mechanism", ["custext"])
def test_a_view_gives_the_same_over_spark_connect(mechanism, connect):
    _, released = connect
    assert released["view"] == released[f"{mechanism} arrow"]


@pytest.fixture
def dataset(policy, key, tmp_path):
    """The same rows as a run of a policy file would have them."""
    frame().write_parquet(tmp_path / "raw.parquet")
    mechanism = policy.mechanism
    written = {"name": mechanism.name, **mechanism.model_dump(exclude_defaults=True), "epsilon": mechanism.epsilon}
    facts = {"dataset": policy.dataset, "release": policy.release, "unit": "subject", "subject": "user", "key": key}
    facts |= {"keep": ["n"], "keep_unique": "accepted", "publish": mechanism.mode == "strict"}
    return policy_in(tmp_path, {"name": "text", "mechanism": written, "allow": sorted(policy.allow)}, **facts)


def published(folder):
    return released(pl.read_parquet(f"{folder}/*.parquet"))


@few
def test_run(policy, expected, dataset, tmp_path):
    from dptext_etl import run

    run(dataset)
    assert published(tmp_path / "out") == expected


@one
def test_command_line(policy, expected, dataset, tmp_path):
    from typer.testing import CliRunner

    from dptext_etl.cli.app import app

    values = dataset.model_dump(mode="json", by_alias=True, exclude_none=True)
    path = write_policy(tmp_path / "privacy.toml", values)
    outcome = CliRunner().invoke(app, ["run", str(path)])
    assert outcome.exit_code == 0, outcome.output
    assert published(tmp_path / "out") == expected


@one
def test_dagster(policy, expected, dataset, tmp_path):
    orchestration = pytest.importorskip("dptext_etl.orchestration", reason="dagster is not installed")
    orchestration.materialize(dataset)
    assert published(tmp_path / "out") == expected
