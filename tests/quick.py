"""Parameters of which `make test` runs some, and `make test-thorough` all: a single case needs seconds."""

import os

import pytest

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
"""Whether every test runs at its longest (`make test-thorough`)."""


def quick(values, *, first=1):
    """Return parameters, a tuple for several names; those after the first ones are thorough."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=() if at < first else pytest.mark.thorough) for at, row in enumerate(rows)]
