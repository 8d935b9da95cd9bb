"""Tables and a folder for lists, once per file of tests."""

import pytest

from dptext_etl import _kernel

from .tables import write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lists")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "t.safetensors"
    return _kernel.Table.open(str(path), write(path))
