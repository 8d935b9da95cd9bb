"""A column policy and a ledger for films, as functions on Spark expect them."""

import pyarrow as pa
import pytest

from dptext_etl import ColumnPolicy, _kernel, privatize
from dptext_etl.mechanisms.custext import CusText


@pytest.fixture
def key(tmp_path):
    _kernel.Secret().write(str(tmp_path / "noise.key"))
    return f"file:{tmp_path / 'noise.key'}"


@pytest.fixture
def policy(key):
    return ColumnPolicy(
        dataset="films", column="review", release="1", mechanism=CusText.example(), key=key, allow={"cluster"}
    )


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def films(spark):
    from .film_queries import ROWS  # needs Spark

    frame = spark.createDataFrame(ROWS, "id string, review string, n int, user string")
    frame.createOrReplaceTempView("films")
    return spark


@pytest.fixture
def expected(policy):
    from .film_queries import ROWS  # needs Spark

    return privatize(pa.array([row[1] for row in ROWS]), pa.array([row[0] for row in ROWS]), policy).to_pylist()
