"""Frames and policies for tests of the guard."""

import polars as pl
import pytest

from dptext_etl import available, load

from .guarded import FRAME, SOURCES, make_policy


@pytest.fixture
def lf(tmp_path):
    FRAME.write_parquet(tmp_path / "lf")
    return pl.scan_parquet(tmp_path / "lf")


@pytest.fixture(params=SOURCES)
def source(request, tmp_path):
    return SOURCES[request.param](tmp_path)


@pytest.fixture
def secret(monkeypatch):
    monkeypatch.setenv("DPTEXT_SECRET", "5a" * 32)


@pytest.fixture
def policy(secret):
    return make_policy(load("custext").example())


@pytest.fixture(params=available())
def any_policy(request, secret):
    return make_policy(load(request.param).example())
