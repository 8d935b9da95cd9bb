"""A column policy and a ledger for films, as functions on Spark take them."""

import pytest

from dptext_etl import ColumnPolicy, _kernel
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
