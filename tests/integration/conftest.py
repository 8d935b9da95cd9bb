"""Jobs over invented reviews, whose pictures are not drawn."""

import sys

import pytest

from ..review_jobs import (  # noqa: F401  (fixtures)
    job,
    make_job,
    make_synthetic,
    make_unlinked,
    policy_of_job,
    reviews,
    save,
    sentinel,
    store,
)


@pytest.fixture(autouse=True)
def _pictures_are_not_drawn(monkeypatch):
    """A third of a Dagster test is its pictures; `orchestration/test_pictures.py` and other processes draw them."""
    facts = sys.modules.get("dptext_etl.orchestration.facts")  # where a test has imported it
    if facts is not None:
        not_drawn = "data:image/png;base64,"
        monkeypatch.setattr(facts, "_picture", lambda axes, alt: facts.dg.MetadataValue.md(f"![{alt}]({not_drawn})"))
