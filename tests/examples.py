"""How many examples hypothesis tries: the number of a test, times the share that its profile tries (`conftest.py`)."""

import hypothesis

USUAL = 100
"""The number for a test that states none; `make test` tries fewer, and `make test-thorough` more."""


def examples(count, **more):
    """Settings for a property that states a number of examples."""
    return hypothesis.settings(max_examples=max(1, count * hypothesis.settings.default.max_examples // USUAL), **more)
