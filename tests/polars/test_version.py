import tomllib
from pathlib import Path

import pytest

from dptext_etl.errors import PolicyError
from dptext_etl.polars.namespace import NEXT_MAJOR, OLDEST, require_known_polars


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
