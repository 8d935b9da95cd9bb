import sys
from pathlib import Path

import pytest

STUDIES = Path(__file__).resolve().parents[2] / "studies"


@pytest.fixture
def reproduce(monkeypatch):
    """The commands that run a paper's tables; their modules are gone after the test."""
    monkeypatch.syspath_prepend(str(STUDIES))
    from frontier import reproduce

    yield reproduce
    for name in [
        name for name in sys.modules if name.partition(".")[0] in {"frontier", "papers", "recipes", "rewriting_again"}
    ]:
        del sys.modules[name]
