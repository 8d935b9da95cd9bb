"""Modules of the studies, which are in no package."""

import importlib
from pathlib import Path

import pytest

STUDIES = Path(__file__).resolve().parent.parent / "studies"


def study(name):
    """Return a fixture that imports a module of the studies by name."""

    @pytest.fixture(scope="module")
    def imported():
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(STUDIES)
            return importlib.import_module(name)

    return imported
