"""Every entry of a policy through Dagster: its assets, and its component."""

import pytest

from tests.later import later
from tests.toy_mechanisms import again  # noqa: F401  (a fixture)

from . import doors
from .test_doors import again_alike, agree, cells, known, state, template  # noqa: F401  (fixtures)

later("dagster", reason="dagster is not installed (extra: dagster)")


@pytest.mark.usefixtures("again_alike", "state")
@pytest.mark.parametrize(("name", "entry"), cells(("asset", "component"), most=3))
def test_each_entry_in_dagster(template, small_vectors, known, name, entry, monkeypatch):  # noqa: F811
    if entry == "reports":  # all rows of a shard are compared, not a sample: Dagster shows how many
        monkeypatch.setattr("dptext_etl.checks.text_counts.SAMPLE_ROWS", 1)
        known = {}
    agree(getattr(doors, f"by_{name}"), name, entry, template, small_vectors, known)
