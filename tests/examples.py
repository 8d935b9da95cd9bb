"""How many examples hypothesis tries: what a test states, or as many times more as its profile does (`conftest.py`)."""

import hypothesis

USUAL = 100
"""Of a test that states no number, under the profile `ci`."""


def examples(count, **more):
    """Settings for a property: its number of examples under the profile `ci`."""
    return hypothesis.settings(max_examples=count * hypothesis.settings.default.max_examples // USUAL, **more)
